//! Cuts text into the words that are indexed and looked up.

use rust_stemmers::{Algorithm, Stemmer};

/// Which words of a text are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Every word.
    All,
    /// Words that tell one tool from another: no stop words.
    Telling,
}

const STOP_WORDS: [&str; 73] = [
    "a", "about", "also", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "could",
    "do", "does", "for", "from", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its",
    "like", "me", "my", "need", "of", "on", "or", "our", "please", "should", "so", "some", "that",
    "the", "their", "them", "then", "there", "these", "this", "to", "us", "using", "want", "was",
    "we", "were", "what", "when", "where", "which", "who", "will", "with", "would", "you", "your",
    "am", "been", "being", "did", "had", "he", "she", "they",
];

/// The words of `text` in order, in lower case, cut at everything that is no letter or digit,
/// between letters and digits and where camelCase turns.
pub(crate) fn split(text: &str) -> Vec<String> {
    runs(text).into_iter().flatten().collect()
}

/// A stem of a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stem {
    pub(crate) text: String,
    pub(crate) form: Form,
}

/// How a stem stands in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// A word that stands alone.
    Whole,
    /// A part of a run such as `MySQL` or `s3`.
    Part,
    /// Such a run as one word.
    Joined,
}

/// The stems of the wanted words of `text`, in order.
pub(crate) fn stems(text: &str, kept: Kept) -> Vec<Stem> {
    let stemmer = Stemmer::create(Algorithm::English);
    let stem = |word: &str, form| Stem { text: stemmer.stem(word).into_owned(), form };
    let mut stems = Vec::new();
    for run in runs(text) {
        match run.as_slice() {
            [word] => {
                if kept == Kept::All || !STOP_WORDS.contains(&word.as_str()) {
                    stems.push(stem(word, Form::Whole));
                }
            }
            parts => {
                stems.extend(parts.iter().map(|part| stem(part, Form::Part)));
                stems.push(stem(&parts.concat(), Form::Joined));
            }
        }
    }
    stems
}

/// The stem of one lower-case word.
pub(crate) fn stem(word: &str) -> String {
    Stemmer::create(Algorithm::English).stem(word).into_owned()
}

// Runs of letters and digits, each cut into its words.
fn runs(text: &str) -> Vec<Vec<String>> {
    text.split(|letter| Class::of(letter) == Class::Other)
        .filter(|run| !run.is_empty())
        .map(parts)
        .collect()
}

fn parts(run: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = Class::Other;
    let mut rest = run.chars().peekable();
    while let Some(letter) = rest.next() {
        let class = Class::of(letter);
        let after = rest.peek().map_or(Class::Other, |next| Class::of(*next));
        let turns = match (before, class) {
            (Class::Upper, Class::Upper) => after == Class::Lower,
            (Class::Upper, Class::Lower) => false,
            (one, other) => one != other,
        };
        if turns && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        word.extend(letter.to_lowercase());
        before = class;
    }
    words.push(word);
    words
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
    Other,
}

impl Class {
    fn of(letter: char) -> Self {
        if letter.is_numeric() {
            Self::Digit
        } else if letter.is_uppercase() {
            Self::Upper
        } else if letter.is_alphabetic() {
            Self::Lower
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_joining_words_is_cut() {
        for joined in ["getHTTPCode2", "get_http_code_2", "get-http.code/2", "GetHttpCode 2"] {
            assert_eq!(split(joined), ["get", "http", "code", "2"], "{joined}");
        }
        assert_eq!(split("  __ "), Vec::<String>::new());
        assert_eq!(split("Straße ÄRGER"), ["straße", "ärger"]);
    }

    #[test]
    fn endings_and_stop_words_go() {
        let texts = |text, kept| -> Vec<String> {
            stems(text, kept).into_iter().map(|stem| stem.text).collect()
        };
        assert_eq!(texts("Listing the invoices", Kept::Telling), ["list", "invoic"]);
        assert_eq!(texts("what is it", Kept::Telling), Vec::<String>::new());
        assert_eq!(texts("what is it", Kept::All), ["what", "is", "it"]);
        assert_eq!(texts("in MySQL", Kept::Telling), ["my", "sql", "mysql"]);
    }
}
