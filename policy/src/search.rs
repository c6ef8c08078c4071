//! Ranks the tools of one scope for a query.
//!
//! One index a scope: what is not in it cannot be found, cannot be ranked and shows in no score.
//! Words are weighed by the field they stand in (BM25F), tools that the query names come first,
//! and a query that nothing in the scope answers gets no answer.

use self::named::Names;
use self::query::Query;
use self::weigh::Term;

mod named;
mod query;
mod table;
mod weigh;
mod words;

pub use self::query::{QUERY_BYTES_MAX, QUERY_WORDS_MAX};

// What a tool gains whose whole name the query covers, as a share of its score.
const COVER_WEIGHT: f32 = 0.75;
// Which share of what a query says its best tool must have, lest the answer be none; long queries
// speak of several tools and are taken to say no more than this.
const BEST_SHARE: f32 = 0.5;
const ASKED_MAX: f32 = 10.0;
// Which share every other tool must have.
const ANY_SHARE: f32 = 0.2;

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

// What one document has of a query.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    gain: f32,
    cover: f32,
    rarity: f32,
}

impl Index {
    /// Indexes the tools of one scope.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let documents: Vec<Document<'a>> = documents.into_iter().collect();
        let terms = weigh::terms(&documents);
        Self { terms, places: places(&documents), names: Names::of(&documents) }
    }

    /// The tools that fit `query`, best first, at most `limit`; none if none does.
    ///
    /// Tools that the query names come first, in the order named. Equal scores are ordered by
    /// name, so that an answer depends on the scope and the query alone.
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit> {
        let query = query::capped(query);
        let mut hits = self.scored(&Query::read(query));
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

    /// The stems of the scope and how many tools have each, in alphabetical order.
    pub fn words(&self) -> impl Iterator<Item = (&str, usize)> {
        self.terms.iter().map(|term| (&*term.stem, term.postings.len()))
    }

    fn scored(&self, query: &Query) -> Vec<Hit> {
        let mut sums = vec![Sum::default(); self.places.len()];
        let mut asked = 0.0;
        for (stem, weight) in &query.said {
            let term = self.term(stem);
            asked += weight
                * term.map_or_else(|| weigh::rarity(stem, 0, sums.len()), |term| term.rarity);
            term.into_iter().for_each(|term| add(term, *weight, *weight, &mut sums));
        }
        // What is found in another spelling is found.
        for (stem, weight) in &query.meant {
            self.term(stem).into_iter().for_each(|term| add(term, *weight, 1.0, &mut sums));
        }
        let asked = asked.min(ASKED_MAX);
        let most = sums.iter().map(|sum| sum.rarity).fold(0.0, f32::max);
        let least = if most < asked * BEST_SHARE { f32::INFINITY } else { asked * ANY_SHARE };
        sums.into_iter()
            .enumerate()
            .filter(|(_, sum)| sum.gain > 0.0 && sum.rarity >= least)
            .map(|(document, sum)| Hit {
                document,
                score: sum.gain * (1.0 + COVER_WEIGHT * sum.cover),
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

fn add(term: &Term, weight: f32, evidence: f32, sums: &mut [Sum]) {
    for posting in &term.postings {
        if let Some(sum) = sums.get_mut(posting.document) {
            sum.gain += weight * posting.gain;
            sum.cover += weight.min(1.0) * posting.cover;
            sum.rarity += evidence * term.rarity;
        }
    }
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

#[cfg(test)]
mod tests;
