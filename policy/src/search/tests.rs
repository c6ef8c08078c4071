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
fn an_everyday_word_is_a_name_only_where_names_stand_alone() {
    assert_eq!(found("search the customer's orders")[0], "crm.search_orders");
    assert_eq!(found("refund, search")[..3], ["crm.refund", "git.search", "web.search"]);
    assert_eq!(found("find customer orders, then use refund")[0], "crm.refund");
    assert_eq!(found("find customer orders with `search`.")[..2], ["git.search", "web.search"]);
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
    let filler: Vec<String> = (0..QUERY_WORDS_MAX).map(|n| format!("word{n}")).collect();
    assert_eq!(found(&format!("{} customer", filler.join(" "))), Vec::<String>::new());
}

#[test]
fn a_query_that_the_scope_cannot_answer_finds_nothing() {
    for query in [
        "book a flight to Tokyo",
        "what will the weather be tomorrow",
        "send a message to the team channel",
        "create a calendar event",
        "translate this sentence into French",
    ] {
        assert_eq!(found(query), Vec::<String>::new(), "{query}");
    }
}

#[test]
fn taking_the_right_server_out_leaves_no_answer() {
    let questions = [
        ("crm", "refund the customer"),
        ("files", "overwrite a file"),
        ("web", "fetch a web page"),
        ("git", "search commits"),
    ];
    for (server, query) in questions {
        assert!(found(query)[0].starts_with(server), "{query}");
        let without: Vec<_> = TOOLS.into_iter().filter(|tool| tool.0 != server).collect();
        let hits = Index::build(documents(&without)).search(query, 10);
        assert_eq!(hits, [], "{query}");
    }
}

#[test]
fn nothing_outside_the_scope_shows_in_a_score() {
    let (crm, rest): (Vec<_>, Vec<_>) = TOOLS.into_iter().partition(|tool| tool.0 == "crm");
    let before = Index::build(documents(&crm)).search("customer order", 10);
    let elsewhere = Index::build(documents(&rest));
    assert_ne!(elsewhere.search("file", 10), []);
    let after = Index::build(documents(&crm)).search("customer order", 10);
    assert_eq!(before, after);
    assert_eq!(before.len(), 3);
}

#[test]
fn people_and_tools_write_words_differently() {
    let tools = [
        ("azure", "keyvault_secret_list", "List secrets"),
        ("azure", "mysql_server_list", "List servers"),
        ("azure", "storage_account_delete", "Delete an account"),
    ];
    let index = Index::build(documents(&tools));
    for (query, right) in [
        ("secrets in my key vault", 0),
        ("KeyVault secrets", 0),
        ("MySQL", 1),
        ("my-SQL servers", 1),
        ("remove", 2),
    ] {
        assert_eq!(index.search(query, 1)[0].document, right, "{query}");
    }
}

#[test]
fn an_exposed_name_counts_its_server_once() {
    let native = [("crm", "refund", "Pay back"), ("erp", "refund_crm", "Pay back")];
    let exposed = [("crm", "crm__refund", "Pay back"), ("erp", "erp__refund_crm", "Pay back")];
    for query in ["pay", "refund", "crm", "erp refund crm"] {
        let (one, other) = (Index::build(documents(&native)), Index::build(documents(&exposed)));
        assert_eq!(one.search(query, 5), other.search(query, 5), "{query}");
    }
}

#[test]
fn scores_never_rise_down_the_list() {
    for query in ["search file customer", "write_file search_orders refund money", "order"] {
        let hits = Index::build(documents(&TOOLS)).search(query, 10);
        assert!(hits.is_sorted_by(|a, b| a.score >= b.score), "{query}");
    }
}

#[test]
fn the_limit_holds() {
    let index = Index::build(documents(&TOOLS));
    assert_eq!(index.search("search file customer", 2).len(), 2);
    assert_eq!(index.search("search", 0), []);
}
