//! Finds the tools that a query names.

use super::Document;
use super::table;
use super::words::{split, stem};

// The share of all tools that must have a word for it to be an everyday one.
const EVERYDAY_SHARE: f32 = 0.003;

/// The names of the tools of one scope, for lookup in any spelling.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    // INVARIANT: sorted. The words of a name without anything between them, and its document.
    spellings: Vec<Spelling>,
    bytes_max: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Spelling {
    joined: Box<str>,
    // Server and name in lower case: the order of tools of one spelling.
    canonical: (Box<str>, Box<str>),
    document: usize,
    // A word like `search` is a name where names stand alone, and a word in a sentence.
    everyday: bool,
}

impl Names {
    pub(crate) fn of(documents: &[Document<'_>]) -> Self {
        let mut spellings = Vec::with_capacity(documents.len() * 2);
        for (at, document) in documents.iter().enumerate() {
            let server = split(document.server);
            let name = split(native(document));
            let full: Vec<String> = server.iter().chain(&name).cloned().collect();
            for words in [name, full] {
                spellings.push(Spelling {
                    joined: words.concat().into(),
                    canonical: (
                        document.server.to_ascii_lowercase().into(),
                        document.name.to_ascii_lowercase().into(),
                    ),
                    document: at,
                    everyday: is_everyday(&words),
                });
            }
        }
        spellings.retain(|spelling| !spelling.joined.is_empty());
        spellings.sort();
        spellings.dedup();
        let bytes_max = spellings.iter().map(|spelling| spelling.joined.len()).max().unwrap_or(0);
        Self { spellings, bytes_max }
    }

    /// The documents that `query` names, in the order named.
    ///
    /// A query of nothing but names may write them in any way; in a sentence a name has no spaces.
    pub(crate) fn in_query(&self, query: &str) -> Vec<usize> {
        let words = split(query);
        let found = self.found(&words);
        if found.iter().map(|(_, used)| used).sum::<usize>() == words.len() {
            return once(found.iter().flat_map(|(spellings, _)| spellings.iter()));
        }
        let mut named: Vec<&Spelling> = Vec::new();
        for run in query.split_whitespace() {
            let found = self.found(&split(run));
            let spellings = found.iter().flat_map(|(spellings, _)| spellings.iter());
            named.extend(spellings.filter(|spelling| !spelling.everyday || is_quoted(run)));
        }
        once(named.into_iter())
    }

    // The names in a run of words, longest first, each with the words it takes.
    fn found(&self, words: &[String]) -> Vec<(&[Spelling], usize)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let (spellings, used) = self.longest(words.get(at..).unwrap_or_default());
            if used > 0 {
                found.push((spellings, used));
            }
            at += used.max(1);
        }
        found
    }

    // The tools named by the longest run of words that starts `words`, and its length.
    fn longest(&self, words: &[String]) -> (&[Spelling], usize) {
        let mut best: (&[Spelling], usize) = (&[], 0);
        let mut joined = String::new();
        for (at, word) in words.iter().enumerate() {
            joined.push_str(word);
            if joined.len() > self.bytes_max {
                break;
            }
            let from = self.spellings.partition_point(|s| *s.joined < *joined);
            let to = self.spellings.partition_point(|s| *s.joined <= *joined);
            if from < to {
                best = (self.spellings.get(from..to).unwrap_or_default(), at + 1);
            }
        }
        best
    }
}

fn once<'a>(spellings: impl Iterator<Item = &'a Spelling>) -> Vec<usize> {
    let mut documents = Vec::new();
    for spelling in spellings {
        if !documents.contains(&spelling.document) {
            documents.push(spelling.document);
        }
    }
    documents
}

fn is_quoted(run: &str) -> bool {
    let run = run.trim_matches(['(', ')', '.', ',', ';', ':', '?', '!']);
    ['`', '"', '\''].iter().any(|quote| run.starts_with(*quote) && run.ends_with(*quote))
}

fn is_everyday(words: &[String]) -> bool {
    matches!(words, [word] if table::share(&stem(word)) >= EVERYDAY_SHARE)
}

/// The name without the server that an exposed name starts with.
pub(crate) fn native<'a>(document: &Document<'a>) -> &'a str {
    let rest = document.name.get(document.server.len()..).and_then(|rest| rest.strip_prefix("__"));
    match (rest, document.name.get(..document.server.len())) {
        (Some(rest), Some(prefix))
            if prefix.eq_ignore_ascii_case(document.server) && !rest.is_empty() =>
        {
            rest
        }
        _ => document.name,
    }
}
