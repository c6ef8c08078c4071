//! Ranks the tools of one scope for a query.
//!
//! One index a scope: what is not in it cannot be found, cannot be ranked and shows in no score.
//! Words are weighed by the field they stand in (BM25F), tools that the query names come first,
//! and a query that nothing in the scope answers gets no answer.

use self::named::Names;
use self::words::{Kept, stems};
use std::collections::BTreeMap;

mod named;
mod words;

/// Longest part of a query that is read, in bytes.
pub const QUERY_BYTES_MAX: usize = 1024;
/// Most different words of a query that are looked up, stop words not counted.
pub const QUERY_WORDS_MAX: usize = 64;

// Weights of the fields of a tool.
const SERVER_WEIGHT: f32 = 2.0;
const NAME_WEIGHT: f32 = 3.0;
const TITLE_WEIGHT: f32 = 1.0;
const DESCRIPTION_WEIGHT: f32 = 1.0;
const PARAMETER_WEIGHT: f32 = 0.5;
// How soon a repeated word stops counting, and how much long texts pay (BM25: k1 and b).
const SATURATION: f32 = 1.2;
const LENGTH_SHARE: f32 = 0.75;
// What a tool gains whose whole name the query covers, as a share of its score.
const COVER_WEIGHT: f32 = 1.0;

/// What is indexed of one tool.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The server that offers it.
    pub server: &'a str,
    /// Its name, as exposed (`server__tool`) or as its server registered it.
    pub name: &'a str,
    /// Its title for people.
    pub title: Option<&'a str>,
    /// What it does.
    pub description: &'a str,
    /// Its parameters: name and description.
    pub parameters: &'a [(String, String)],
}

/// The searchable words of one scope.
#[derive(Debug, Clone, Default)]
pub struct Index {
    // INVARIANT: sorted by stem, each stem once.
    terms: Vec<Term>,
    // INVARIANT: one entry a document; a permutation of 0..len, by canonical name.
    places: Vec<usize>,
    names: Names,
}

/// One tool found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Position of its document in the order they were given to [`Index::build`].
    pub document: usize,
    /// How well it fits: only the order within one answer means something.
    pub score: f32,
}

#[derive(Debug, Clone)]
struct Term {
    stem: Box<str>,
    postings: Vec<Posting>,
}

#[derive(Debug, Clone, Copy)]
struct Posting {
    document: usize,
    // What the word adds to the document's score.
    gain: f32,
    // Which share of the document's name the word is.
    cover: f32,
}

/// How often a word stands in a document, by weight of field.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    weight: f32,
    in_name: bool,
}

impl Index {
    /// Indexes the tools of one scope.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let documents: Vec<Document<'a>> = documents.into_iter().collect();
        let counted: Vec<BTreeMap<String, Count>> = documents.iter().map(count).collect();
        let lengths: Vec<f32> = counted.iter().map(length).collect();
        let mean = lengths.iter().sum::<f32>() / lengths.len().max(1) as f32;
        let mut found: BTreeMap<String, Vec<(usize, Count)>> = BTreeMap::new();
        for (document, counts) in counted.iter().enumerate() {
            for (stem, count) in counts {
                found.entry(stem.clone()).or_default().push((document, *count));
            }
        }
        let rarity_of = |holders: usize| rarity(holders, documents.len());
        let mut name_rarities = vec![0.0; documents.len()];
        for holders in found.values() {
            for (document, _) in holders.iter().filter(|(_, count)| count.in_name) {
                if let Some(sum) = name_rarities.get_mut(*document) {
                    *sum += rarity_of(holders.len());
                }
            }
        }
        let posting = |rarity: f32, document: usize, count: Count| {
            let length = lengths.get(document).copied().unwrap_or(mean) / mean.max(1.0);
            let damping = SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * length);
            let name = name_rarities.get(document).copied().unwrap_or(0.0);
            Posting {
                document,
                gain: rarity * count.weight * (SATURATION + 1.0) / (count.weight + damping),
                cover: if count.in_name && name > 0.0 { rarity / name } else { 0.0 },
            }
        };
        let terms = found
            .into_iter()
            .map(|(stem, holders)| {
                let rarity = rarity_of(holders.len());
                let postings = holders.into_iter().map(|(d, c)| posting(rarity, d, c)).collect();
                Term { stem: stem.into(), postings }
            })
            .collect();
        Self { terms, places: places(&documents), names: Names::of(&documents) }
    }

    /// The tools that fit `query`, best first, at most `limit`; none if none does.
    ///
    /// Tools that the query names come first, in the order named. Equal scores are ordered by
    /// name, so that an answer depends on the scope and the query alone.
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit> {
        let query = capped(query);
        let mut hits = self.scored(query);
        hits.sort_by(|a, b| {
            b.score.total_cmp(&a.score).then_with(|| self.place(a).cmp(&self.place(b)))
        });
        let best = hits.first().map_or(0.0, |hit| hit.score);
        let named = self.names.in_query(query);
        hits.retain(|hit| !named.contains(&hit.document));
        let count = named.len();
        let first = named
            .into_iter()
            .enumerate()
            .map(|(rank, document)| Hit { document, score: best + (count - rank) as f32 });
        first.chain(hits).take(limit).collect()
    }

    fn scored(&self, query: &str) -> Vec<Hit> {
        let mut sums = vec![(0.0_f32, 0.0_f32); self.places.len()];
        let mut stems: Vec<String> = Vec::new();
        for stem in stems_of_query(query) {
            if stems.len() < QUERY_WORDS_MAX && !stems.contains(&stem) {
                stems.push(stem);
            }
        }
        for posting in stems.iter().filter_map(|stem| self.term(stem)).flat_map(|t| &t.postings) {
            if let Some((gain, cover)) = sums.get_mut(posting.document) {
                *gain += posting.gain;
                *cover += posting.cover;
            }
        }
        sums.into_iter()
            .enumerate()
            .filter(|(_, (gain, _))| *gain > 0.0)
            .map(|(document, (gain, cover))| Hit {
                document,
                score: gain * (1.0 + COVER_WEIGHT * cover),
            })
            .collect()
    }

    fn term(&self, stem: &str) -> Option<&Term> {
        let at = self.terms.binary_search_by(|term| (*term.stem).cmp(stem)).ok()?;
        self.terms.get(at)
    }

    fn place(&self, hit: &Hit) -> usize {
        self.places.get(hit.document).copied().unwrap_or(usize::MAX)
    }
}

fn stems_of_query(query: &str) -> Vec<String> {
    let kept = stems(query, Kept::Telling);
    if kept.is_empty() { stems(query, Kept::All) } else { kept }
}

fn count(document: &Document<'_>) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut add = |text: &str, weight: f32| {
        for stem in stems(text, Kept::All) {
            counts.entry(stem).or_default().weight += weight;
        }
    };
    let name = named::native(document);
    add(document.server, SERVER_WEIGHT);
    add(name, NAME_WEIGHT);
    add(document.title.unwrap_or_default(), TITLE_WEIGHT);
    add(document.description, DESCRIPTION_WEIGHT);
    for (parameter, description) in document.parameters {
        add(parameter, PARAMETER_WEIGHT);
        add(description, PARAMETER_WEIGHT);
    }
    for stem in stems_of_query(name) {
        counts.entry(stem).or_default().in_name = true;
    }
    counts
}

fn length(counts: &BTreeMap<String, Count>) -> f32 {
    counts.values().map(|count| count.weight).sum()
}

// How much it says that a word stands in a document, when `holders` of `all` have it.
fn rarity(holders: usize, all: usize) -> f32 {
    let (holders, all) = (holders as f32, all as f32);
    (1.0 + (all - holders + 0.5) / (holders + 0.5)).ln()
}

fn places(documents: &[Document<'_>]) -> Vec<usize> {
    let mut order: Vec<(String, String, usize)> = documents
        .iter()
        .enumerate()
        .map(|(at, document)| {
            let folded = document.server.to_ascii_lowercase();
            (folded, document.name.to_ascii_lowercase(), at)
        })
        .collect();
    order.sort();
    let mut places = vec![0; order.len()];
    for (place, (_, _, document)) in order.into_iter().enumerate() {
        if let Some(slot) = places.get_mut(document) {
            *slot = place;
        }
    }
    places
}

fn capped(query: &str) -> &str {
    let end = query.floor_char_boundary(QUERY_BYTES_MAX);
    query.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
