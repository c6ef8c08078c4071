//! How common words are in tools anywhere: counted once, shipped, the same for every scope.

// One `stem count` a line, sorted by bytes.
const TABLE: &str = include_str!("frequencies.txt");
// The tools that were counted.
const TOOLS: f32 = 17_570.0;
// In how many of them a word may stand that is not in the table.
const UNKNOWN: f32 = 5.0;

/// The share of all tools that have `stem`.
pub(crate) fn share(stem: &str) -> f32 {
    count(TABLE, stem).unwrap_or(UNKNOWN) / TOOLS
}

// Halves the table until the line is found.
fn count(table: &str, stem: &str) -> Option<f32> {
    let (mut from, mut to) = (0, table.len());
    while from < to {
        let middle = table.floor_char_boundary(from + (to - from) / 2);
        let start = table.get(from..middle)?.rfind('\n').map_or(from, |at| from + at + 1);
        let line = table.get(start..to)?.lines().next()?;
        let (word, count) = line.split_once(' ')?;
        match word.cmp(stem) {
            std::cmp::Ordering::Equal => return count.parse().ok(),
            std::cmp::Ordering::Less => from = (start + line.len() + 1).min(to),
            std::cmp::Ordering::Greater => to = start,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_found_and_sorted() {
        let mut before = "";
        for line in TABLE.lines() {
            let (word, written) = line.split_once(' ').unwrap();
            assert!(before < word, "{word}");
            before = word;
            assert_eq!(count(TABLE, word), written.parse().ok(), "{word}");
        }
        for word in ["", "0", "zzzz", "qqq", "é"] {
            assert_eq!(count(TABLE, word), None, "{word}");
        }
    }

    #[test]
    fn common_words_say_less() {
        assert!(share("get") > share("invoic"));
        assert!(share("xylophone") < 0.001);
    }
}
