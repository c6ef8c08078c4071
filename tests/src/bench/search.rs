//! Ranks the queries of a tool-search set, in the form its scoring script reads, and counts the
//! word table that search ships.
//!
//! A set is a folder with `tools.json` or `tools.json.gz`, and `queries.json`.

use portcullis_policy::search::{Document, Index};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const TABLE_WORDS: usize = 4_000;

#[derive(Debug, Deserialize)]
struct Tools {
    tools: Vec<Tool>,
}

#[derive(Debug, Deserialize)]
struct Tool {
    id: String,
    server: String,
    name: String,
    description: String,
    #[serde(rename = "params", deserialize_with = "pairs")]
    parameters: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct Parameter {
    name: String,
    description: String,
}

#[derive(Debug, Deserialize)]
struct Queries {
    queries: Vec<Query>,
}

#[derive(Debug, Deserialize)]
struct Query {
    id: String,
    text: String,
}

#[derive(Debug)]
struct Options<'a> {
    set: &'a Path,
    out: &'a Path,
    queries: &'a str,
    extra: Option<&'a Path>,
    scopes: Option<&'a Path>,
    k: usize,
}

/// Writes the ranking of every query of a set; says how long that took.
pub(crate) fn rank(arguments: &[&str]) -> Result<String, String> {
    let options = Options::parse(arguments)?;
    let mut tools = tools_of(options.set)?;
    if let Some(extra) = options.extra {
        tools.extend(tools_of(extra)?);
    }
    let queries: Queries = read(&options.set.join(options.queries))?;
    let scopes: Option<BTreeMap<String, BTreeSet<String>>> =
        options.scopes.map(read).transpose()?;
    let whole = scopes.is_none().then(|| Scope::of(&tools, None));
    let mut ranking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let (mut built, mut searched) = (Duration::ZERO, Duration::ZERO);
    for query in &queries.queries {
        let own;
        let scope = match &whole {
            Some(scope) => scope,
            None => {
                let servers = scopes.as_ref().and_then(|scopes| scopes.get(&query.id));
                own = Scope::of(&tools, Some(servers.ok_or("a query has no scope")?));
                built += own.took;
                &own
            }
        };
        let start = Instant::now();
        let hits = scope.index.search(&query.text, options.k);
        searched += start.elapsed();
        let ids = hits.iter().filter_map(|hit| scope.tools.get(hit.document));
        ranking.insert(&query.id, ids.map(|tool| tool.id.as_str()).collect());
    }
    built += whole.as_ref().map_or(Duration::ZERO, |scope| scope.took);
    let json = serde_json::to_string(&ranking).map_err(|fault| fault.to_string())?;
    write(options.out, &json)?;
    let count = u32::try_from(ranking.len()).unwrap_or(u32::MAX).max(1);
    let builds = if whole.is_some() { 1 } else { count };
    let unanswered = ranking.values().filter(|ids| ids.is_empty()).count();
    Ok(format!(
        "{count} queries, {unanswered} without an answer; mean {:?} to index, {:?} to search",
        built / builds,
        searched / count
    ))
}

/// Writes the table of the commonest words of a set.
pub(crate) fn count_words(arguments: &[&str]) -> Result<String, String> {
    let [set, out] = arguments else {
        return Err("`words` takes two arguments: SET_DIR OUT.txt".to_owned());
    };
    let tools = tools_of(Path::new(set))?;
    let scope = Scope::of(&tools, None);
    let words = scope.index.words().filter(|(word, _)| word.contains(char::is_alphabetic));
    let mut counts: Vec<(usize, &str)> = words.map(|(word, count)| (count, word)).collect();
    counts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    counts.truncate(TABLE_WORDS);
    counts.sort_by_key(|(_, word)| *word);
    let mut table = String::new();
    for (count, word) in &counts {
        writeln!(table, "{word} {count}").map_err(|fault| fault.to_string())?;
    }
    write(Path::new(out), &table)?;
    Ok(format!("{} words of {} tools", counts.len(), tools.len()))
}

#[derive(Debug)]
struct Scope<'a> {
    tools: Vec<&'a Tool>,
    index: Index,
    took: Duration,
}

impl<'a> Scope<'a> {
    fn of(tools: &'a [Tool], servers: Option<&BTreeSet<String>>) -> Self {
        let within = |tool: &&Tool| servers.is_none_or(|servers| servers.contains(&tool.server));
        let tools: Vec<&Tool> = tools.iter().filter(within).collect();
        let start = Instant::now();
        let index = Index::build(tools.iter().map(|tool| Document {
            server: &tool.server,
            name: &tool.name,
            title: None,
            description: &tool.description,
            parameters: &tool.parameters,
        }));
        Self { tools, index, took: start.elapsed() }
    }
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self, String> {
        let [set, out, flags @ ..] = arguments else {
            return Err("`search` takes SET_DIR and OUT.json".to_owned());
        };
        let mut options = Self {
            set: Path::new(*set),
            out: Path::new(*out),
            queries: "queries.json",
            extra: None,
            scopes: None,
            k: 10,
        };
        for pair in flags.chunks(2) {
            match pair {
                ["--queries", name] => options.queries = name,
                ["--extra", path] => options.extra = Some(Path::new(*path)),
                ["--scopes", path] => options.scopes = Some(Path::new(*path)),
                ["--k", k] => options.k = k.parse().map_err(|_| format!("`{k}` is no number"))?,
                other => return Err(format!("`{}` is not an option", other.join(" "))),
            }
        }
        Ok(options)
    }
}

fn tools_of(set: &Path) -> Result<Vec<Tool>, String> {
    let tools: Tools = read(&set.join("tools.json"))?;
    Ok(tools.tools)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let says = |fault: &dyn std::fmt::Display| format!("{}: {fault}", path.display());
    let mut packed = PathBuf::from(path).into_os_string();
    packed.push(".gz");
    let bytes = if path.exists() {
        std::fs::read(path).map_err(|fault| says(&fault))?
    } else {
        let gzip = Command::new("gzip").arg("-dc").arg(&packed).output();
        let unpacked = gzip.map_err(|fault| says(&fault))?;
        if !unpacked.status.success() {
            return Err(says(&String::from_utf8_lossy(&unpacked.stderr)));
        }
        unpacked.stdout
    };
    serde_json::from_slice(&bytes).map_err(|fault| says(&fault))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|fault| format!("{}: {fault}", path.display()))
}

fn pairs<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Vec<(String, String)>, D::Error> {
    let parameters = Vec::<Parameter>::deserialize(input)?;
    Ok(parameters.into_iter().map(|p| (p.name, p.description)).collect())
}
