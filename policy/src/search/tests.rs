use super::*;

const TOOLS: [(&str, &str, &str); 8] = [
    ("crm", "refund", "Pay money back to a customer for an order"),
    ("crm", "get_customer", "Read one customer record"),
    ("crm", "search_orders", "Find orders by customer, date or state"),
    ("files", "readFile", "Read the complete contents of a file"),
    ("files", "write_file", "Create or overwrite a file"),
    ("web", "search", "Search the web with a text query"),
    ("web", "fetch.page2", "Fetch one page as text"),
    ("git", "search", "Search commits and code"),
];

fn documents<'a>(tools: &[(&'a str, &'a str, &'a str)]) -> Vec<Document<'a>> {
    let document = |&(server, name, description)| Document {
        server,
        name,
        title: None,
        description,
        parameters: &[],
    };
    tools.iter().map(document).collect()
}

fn found(query: &str) -> Vec<String> {
    let index = Index::build(documents(&TOOLS));
    let name = |hit: Hit| format!("{}.{}", TOOLS[hit.document].0, TOOLS[hit.document].1);
    index.search(query, 10).into_iter().map(name).collect()
}

#[test]
fn a_named_tool_comes_first_in_every_spelling() {
    for query in [
        "get_customer",
        "getCustomer",
        "GET CUSTOMER",
        "crm__get_customer",
        "crm.get-customer",
        "mcp__crm__get_customer",
        "use `getcustomer` to find orders by state and date",
    ] {
        assert_eq!(found(query)[0], "crm.get_customer", "{query}");
    }
}

#[test]
fn several_named_tools_come_in_the_order_named() {
    assert_eq!(found("write_file, crm__refund")[..2], ["files.write_file", "crm.refund"]);
    assert_eq!(
        found("first fetch.page2, then files/readFile and search_orders")[..3],
        ["web.fetch.page2", "files.readFile", "crm.search_orders"]
    );
}

#[test]
fn one_name_on_two_servers_is_ordered_by_server() {
    assert_eq!(found("search")[..2], ["git.search", "web.search"]);
    assert_eq!(found("web search")[0], "web.search");
}

#[test]
fn words_find_tools_by_what_they_do() {
    assert_eq!(found("give the customer's money back")[0], "crm.refund");
    assert_eq!(found("reading a file")[0], "files.readFile");
}

#[test]
fn answers_are_the_same_in_any_order_of_the_scope() {
    let mut reversed = TOOLS;
    reversed.reverse();
    let index = Index::build(documents(&reversed));
    for query in ["customer file search", "read", "order state", "search"] {
        let names: Vec<String> = index
            .search(query, 10)
            .into_iter()
            .map(|hit| format!("{}.{}", reversed[hit.document].0, reversed[hit.document].1))
            .collect();
        assert_eq!(names, found(query), "{query}");
    }
}

#[test]
fn an_empty_scope_or_query_finds_nothing() {
    assert_eq!(Index::build([]).search("anything", 10), []);
    assert_eq!(found(""), Vec::<String>::new());
    assert_eq!(found(" ?! "), Vec::<String>::new());
}

#[test]
fn a_query_is_read_up_to_its_limits() {
    let long = format!("{} refund", "é".repeat(QUERY_BYTES_MAX));
    assert_eq!(found(&long), Vec::<String>::new());
    let filler: Vec<String> = (0..QUERY_WORDS_MAX)
        .map(|n| format!("x{}", "y".repeat(n % 8) + &"z".repeat(n / 8)))
        .collect();
    assert_eq!(found(&format!("{} refund", filler.join(" "))), Vec::<String>::new());
}

#[test]
fn the_limit_holds() {
    let index = Index::build(documents(&TOOLS));
    assert_eq!(index.search("search file customer", 2).len(), 2);
    assert_eq!(index.search("search", 0), []);
}
