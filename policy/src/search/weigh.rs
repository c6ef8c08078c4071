//! Weighs the words of the tools of one scope: BM25 over fields.

use super::words::{Form, Kept, stems};
use super::{Document, named, table};
use std::collections::BTreeMap;

const SERVER_WEIGHT: f32 = 2.0;
const NAME_WEIGHT: f32 = 2.0;
const DESCRIPTION_WEIGHT: f32 = 1.0;
const PARAMETER_WEIGHT: f32 = 0.3;
// How much a text pays for being longer than those of other tools (BM25: b).
const NAME_LENGTH_SHARE: f32 = 0.3;
const TEXT_LENGTH_SHARE: f32 = 0.6;
// How soon a repeated word stops counting (BM25: k1).
const SATURATION: f32 = 1.2;
// As how many tools of the scope the word table counts.
const TABLE_TOOLS: f32 = 400.0;

/// One stem of a scope.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    pub(crate) stem: Box<str>,
    /// How much it says that a tool has the word.
    pub(crate) rarity: f32,
    /// The tools that have it, in build order.
    pub(crate) postings: Vec<Posting>,
}

/// One word in one document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) document: usize,
    /// What the word adds to the document's score.
    pub(crate) gain: f32,
    /// Which share of the document's name the word is.
    pub(crate) cover: f32,
}

// Words counted in each field of a tool. The title belongs to the description.
#[derive(Debug, Clone, Copy, Default)]
struct Fields {
    server: f32,
    name: f32,
    description: f32,
    parameters: f32,
}

#[derive(Debug, Default)]
struct Word {
    counts: Fields,
    // A run such as `readFile` as one word is no word of a name, its parts are.
    covers: bool,
}

// All words of one document.
#[derive(Debug, Default)]
struct Words {
    by_stem: BTreeMap<String, Word>,
    lengths: Fields,
}

/// Every stem of the documents with what it gives to whom, in alphabetical order.
pub(crate) fn terms(documents: &[Document<'_>]) -> Vec<Term> {
    let all: Vec<Words> = documents.iter().map(Words::of).collect();
    let mean = mean(&all);
    let mut holders: BTreeMap<&str, Vec<(usize, &Words, &Word)>> = BTreeMap::new();
    for (document, words) in all.iter().enumerate() {
        for (stem, word) in &words.by_stem {
            holders.entry(stem).or_default().push((document, words, word));
        }
    }
    let mut names = vec![0.0; all.len()];
    for (stem, holders) in &holders {
        let rarity = rarity(stem, holders.len(), all.len());
        for (document, _, _) in holders.iter().filter(|(_, _, word)| word.covers) {
            names.get_mut(*document).into_iter().for_each(|name| *name += rarity);
        }
    }
    let term = |(stem, holders): (&str, Vec<(usize, &Words, &Word)>)| {
        let rarity = rarity(stem, holders.len(), all.len());
        let posting = |(document, words, word): (usize, &Words, &Word)| {
            let weight = word.counts.weight(&words.lengths, &mean);
            let name = names.get(document).copied().unwrap_or_default();
            Posting {
                document,
                gain: rarity * weight * (SATURATION + 1.0) / (weight + SATURATION),
                cover: if word.covers && name > 0.0 { rarity / name } else { 0.0 },
            }
        };
        Term { stem: stem.into(), rarity, postings: holders.into_iter().map(posting).collect() }
    };
    holders.into_iter().map(term).collect()
}

/// How much it says that a tool has `stem`, when `holders` of `all` in the scope have it: the
/// scope's own count, steadied by the word table.
pub(crate) fn rarity(stem: &str, holders: usize, all: usize) -> f32 {
    let (holders, all) = (holders as f32, all as f32);
    ((all + TABLE_TOOLS + 1.0) / (holders + TABLE_TOOLS * table::share(stem) + 0.5)).ln()
}

impl Words {
    fn of(document: &Document<'_>) -> Self {
        let mut words = Self::default();
        let name = named::native(document);
        words.add(document.server, |fields| &mut fields.server);
        words.add(name, |fields| &mut fields.name);
        words.add(document.title.unwrap_or_default(), |fields| &mut fields.description);
        words.add(document.description, |fields| &mut fields.description);
        for (parameter, description) in document.parameters {
            words.add(parameter, |fields| &mut fields.parameters);
            words.add(description, |fields| &mut fields.parameters);
        }
        for stem in stems(name, Kept::All).into_iter().filter(|stem| stem.form != Form::Joined) {
            words.by_stem.entry(stem.text).or_default().covers = true;
        }
        words
    }

    fn add(&mut self, text: &str, field: fn(&mut Fields) -> &mut f32) {
        for stem in stems(text, Kept::All) {
            if stem.form != Form::Joined {
                *field(&mut self.lengths) += 1.0;
            }
            *field(&mut self.by_stem.entry(stem.text).or_default().counts) += 1.0;
        }
    }
}

impl Fields {
    // The weight of a word that stands this often in each field of a document.
    fn weight(&self, lengths: &Self, mean: &Self) -> f32 {
        let text = TEXT_LENGTH_SHARE;
        let description = levelled(self.description, lengths.description, mean.description, text);
        let parameters = levelled(self.parameters, lengths.parameters, mean.parameters, text);
        SERVER_WEIGHT * self.server
            + NAME_WEIGHT * levelled(self.name, lengths.name, mean.name, NAME_LENGTH_SHARE)
            + DESCRIPTION_WEIGHT * description
            + PARAMETER_WEIGHT * parameters
    }
}

// A count, less where the text is longer than the mean.
fn levelled(count: f32, length: f32, mean: f32, share: f32) -> f32 {
    if mean > 0.0 { count / (1.0 - share + share * length / mean) } else { count }
}

fn mean(all: &[Words]) -> Fields {
    let mut mean = Fields::default();
    let count = all.len().max(1) as f32;
    for Words { lengths, .. } in all {
        mean.server += lengths.server / count;
        mean.name += lengths.name / count;
        mean.description += lengths.description / count;
        mean.parameters += lengths.parameters / count;
    }
    mean
}
