//! Reads a query: what it says, and what else it may mean.

use super::words::{Form, Kept, split, stem, stems};

/// Longest part of a query that is read, in bytes.
pub const QUERY_BYTES_MAX: usize = 1024;
/// Most different words of a query that are looked up, stop words not counted.
pub const QUERY_WORDS_MAX: usize = 64;

// What a part of a run such as `MySQL` counts, the run itself counting as a word.
const PART_WEIGHT: f32 = 0.5;
// What a word counts each time it is said again.
const REPEAT_WEIGHT: f32 = 0.5;
// What two neighbours taken as one word count, and a synonym.
const PAIR_WEIGHT: f32 = 0.5;
const SYNONYM_WEIGHT: f32 = 0.8;

// Stems, and stems that tools use for the same. One direction: what people say, what tools say.
const SYNONYMS: [(&str, &[&str]); 5] = [
    ("display", &["show", "list", "get"]),
    ("fetch", &["get"]),
    ("remov", &["delet"]),
    ("retriev", &["get"]),
    ("show", &["list", "get"]),
];

/// The stems of a query with their weights.
#[derive(Debug)]
pub(crate) struct Query {
    /// Each once, at most [`QUERY_WORDS_MAX`].
    pub(crate) said: Vec<(String, f32)>,
    /// None of those said.
    pub(crate) meant: Vec<(String, f32)>,
}

impl Query {
    pub(crate) fn read(text: &str) -> Self {
        let mut kept = stems(text, Kept::Telling);
        if kept.is_empty() {
            kept = stems(text, Kept::All);
        }
        let mut said: Vec<(String, f32)> = Vec::new();
        let mut joined: Vec<String> = Vec::new();
        for stem in kept {
            let weight = match stem.form {
                Form::Whole => 1.0,
                Form::Part => PART_WEIGHT,
                Form::Joined => {
                    joined.push(stem.text);
                    continue;
                }
            };
            if let Some((_, sum)) = said.iter_mut().find(|(text, _)| *text == stem.text) {
                *sum += weight * REPEAT_WEIGHT;
            } else if said.len() < QUERY_WORDS_MAX {
                said.push((stem.text, weight));
            }
        }
        let joined = joined.into_iter().map(|stem| (stem, 1.0));
        let pairs = pairs(text).map(|stem| (stem, PAIR_WEIGHT));
        let synonyms = said.iter().flat_map(|(stem, _)| synonyms(stem));
        let synonyms = synonyms.map(|stem| ((*stem).to_owned(), SYNONYM_WEIGHT));
        let mut meant: Vec<(String, f32)> = Vec::new();
        for (stem, weight) in joined.chain(pairs).chain(synonyms) {
            if said.iter().chain(&meant).all(|(other, _)| *other != stem) {
                meant.push((stem, weight));
            }
        }
        Self { said, meant }
    }
}

/// The part of a query that is read.
pub(crate) fn capped(query: &str) -> &str {
    let end = query.floor_char_boundary(QUERY_BYTES_MAX);
    query.get(..end).unwrap_or_default()
}

// Neighbours as one word, for names such as `keyvault`.
fn pairs(text: &str) -> impl Iterator<Item = String> {
    let mut words = split(text);
    words.truncate(2 * QUERY_WORDS_MAX);
    let next: Vec<String> = words.iter().skip(1).cloned().collect();
    words.into_iter().zip(next).map(|(one, other)| stem(&(one + &other)))
}

fn synonyms(stem: &str) -> &'static [&'static str] {
    SYNONYMS.iter().find(|(word, _)| *word == stem).map_or(&[], |(_, others)| others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<(String, f32)> {
        Query::read(text).said
    }

    #[test]
    fn repeated_words_count_once_and_a_little() {
        assert_eq!(said("keys in the key"), [("key".to_owned(), 1.0 + REPEAT_WEIGHT)]);
    }

    #[test]
    fn a_query_of_stop_words_keeps_them() {
        assert_eq!(said("who is it").len(), 3);
        assert_eq!(said("who is the owner").len(), 1);
    }

    #[test]
    fn neighbours_and_synonyms_are_meant_not_said() {
        let query = Query::read("show key vault, get key");
        let meant: Vec<&str> = query.meant.iter().map(|(stem, _)| stem.as_str()).collect();
        assert_eq!(meant, ["showkey", "keyvault", "vaultget", "getkey", "list"]);
        let query = Query::read("MySQL");
        assert_eq!(query.said, [("my".to_owned(), PART_WEIGHT), ("sql".to_owned(), PART_WEIGHT)]);
        assert_eq!(query.meant, [("mysql".to_owned(), 1.0)]);
    }

    #[test]
    fn synonyms_are_stems() {
        for (word, others) in SYNONYMS {
            assert_eq!(stem(word), word);
            assert!(others.iter().all(|other| stem(other) == **other), "{word}");
        }
    }

    #[test]
    fn limits_hold() {
        let many: Vec<String> = (0..500).map(|n| format!("w{n}")).collect();
        assert_eq!(said(&many.join(" ")).len(), QUERY_WORDS_MAX);
        assert_eq!(capped(&"é".repeat(QUERY_BYTES_MAX)).len(), QUERY_BYTES_MAX);
        assert_eq!(capped(&format!("x{}", "é".repeat(QUERY_BYTES_MAX))).len(), QUERY_BYTES_MAX - 1);
    }
}
