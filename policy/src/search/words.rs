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

// Sorted.
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
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = Class::Other;
    let mut rest = text.chars().peekable();
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
        if class != Class::Other {
            word.extend(letter.to_lowercase());
        }
        before = class;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The stems of the wanted words of `text`, in order.
pub(crate) fn stems(text: &str, kept: Kept) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    split(text)
        .iter()
        .filter(|word| kept == Kept::All || !STOP_WORDS.contains(&word.as_str()))
        .map(|word| stemmer.stem(word).into_owned())
        .collect()
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
        assert_eq!(stems("Listing the invoices", Kept::Telling), ["list", "invoic"]);
        assert_eq!(stems("what is it", Kept::Telling), Vec::<String>::new());
        assert_eq!(stems("what is it", Kept::All), ["what", "is", "it"]);
    }
}
