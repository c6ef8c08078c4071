//! Patterns over names and URIs: `*` is any run of characters, `?` is one.
//!
//! Matching is linear in the text for each star, never exponential, and has no other syntax.

use std::fmt;

/// How two characters compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Names: ASCII letters compare without case.
    Fold,
    /// URIs: every character counts.
    Exact,
}

impl Case {
    /// True if `a` and `b` count as the same character.
    pub(crate) fn same(self, a: char, b: char) -> bool {
        match self {
            Self::Fold => a.eq_ignore_ascii_case(&b),
            Self::Exact => a == b,
        }
    }
}

/// One pattern, kept as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Keeps `text`; every text is a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the pattern names exactly one text: it has neither `*` nor `?`.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    /// True if `text` matches as a whole.
    #[must_use]
    pub fn matches(&self, text: &str, case: Case) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), text.chars());
        // Where to go on after the last star if what followed it did not match.
        let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
        loop {
            let mut ahead = pattern.clone();
            match ahead.next() {
                Some('*') => {
                    pattern = ahead;
                    retry = Some((pattern.clone(), rest.clone()));
                    continue;
                }
                Some(p) if rest.clone().next().is_some_and(|t| p == '?' || case.same(p, t)) => {
                    rest.next();
                    pattern = ahead;
                    continue;
                }
                Some(_) => {}
                None if rest.as_str().is_empty() => return true,
                None => {}
            }
            let Some((after_star, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            (pattern, rest) = (after_star.clone(), from.clone());
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        let yes = |p: &str, t: &str| assert!(Pattern::new(p).matches(t, Case::Fold), "{p} {t}");
        let no = |p: &str, t: &str| assert!(!Pattern::new(p).matches(t, Case::Fold), "{p} {t}");
        yes("*", "");
        yes("search_*", "search_orders");
        yes("Search_*", "search_ORDERS");
        yes("*a*b", "xxaxxb");
        yes("?x", "éx");
        no("?", "");
        no("search_*", "search");
        no("a", "ab");
        no("*ab", "aba");
        assert!(!Pattern::new("crm://A").matches("crm://a", Case::Exact));
    }

    #[test]
    fn many_stars_stay_linear() {
        let pattern = Pattern::new(&"*a".repeat(2_000));
        assert!(!pattern.matches(&"a".repeat(1_999), Case::Exact));
    }
}
