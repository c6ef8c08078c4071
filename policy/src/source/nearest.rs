//! The nearest valid word to a misspelt one, for "did you mean".

/// Longest word that is compared, in characters; longer ones have no neighbour.
const WORD_CHARS_MAX: usize = 128;

/// The one of `known` that `word` most likely means, if any is near enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = word.to_lowercase().chars().take(WORD_CHARS_MAX + 1).collect();
    if typed.is_empty() || typed.len() > WORD_CHARS_MAX {
        return None;
    }
    known
        .into_iter()
        .filter_map(|candidate| {
            let meant: Vec<char> = candidate.to_lowercase().chars().collect();
            let allowed = (typed.len().max(meant.len()) / 3).max(1);
            let contained = candidate.len() > 3 && word.contains(candidate);
            let edits = edits(&typed, &meant);
            (edits <= allowed || contained).then_some((edits, candidate))
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// A hint that ends a message: `; did you mean ...` or nothing.
#[must_use]
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

/// Edits that turn `a` into `b`: insert, delete, replace, swap two neighbours.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut left_char = None;
    for (row, &x) in a.iter().enumerate() {
        let mut current = vec![row + 1];
        let mut above_char = None;
        for (column, &y) in b.iter().enumerate() {
            let cell = |line: &[usize], at: usize| line.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut least = (cell(&above, column) + usize::from(x != y))
                .min(cell(&above, column + 1) + 1)
                .min(cell(&current, column) + 1);
            if left_char == Some(y) && above_char == Some(x) {
                least = least.min(cell(&before, column.wrapping_sub(1)) + 1);
            }
            current.push(least);
            above_char = Some(y);
        }
        left_char = Some(x);
        before = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let keys = ["allow", "autoApprove", "deny", "server"];
        assert_eq!(nearest("autoAprove", keys), Some("autoApprove"));
        assert_eq!(nearest("auto_approve", keys), Some("autoApprove"));
        assert_eq!(nearest("AutoApprove", keys), Some("autoApprove"));
        assert_eq!(nearest("alolw", keys), Some("allow"));
        assert_eq!(nearest("dney", keys), Some("deny"));
        assert_eq!(nearest("timeout", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"x".repeat(500), keys), None);
    }

    #[test]
    fn a_swap_is_one_edit() {
        let chars = |word: &str| word.chars().collect::<Vec<_>>();
        assert_eq!(edits(&chars("ab"), &chars("ba")), 1);
        assert_eq!(edits(&chars(""), &chars("abc")), 3);
        assert_eq!(edits(&chars("kitten"), &chars("sitting")), 3);
    }
}
