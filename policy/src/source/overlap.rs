//! Whether two patterns can match one and the same name.

use crate::pattern::{Case, Pattern};

/// True if the patterns are spelt alike.
pub(super) fn same(a: &Pattern, b: &Pattern, case: Case) -> bool {
    match case {
        Case::Fold => a.as_str().eq_ignore_ascii_case(b.as_str()),
        Case::Exact => a == b,
    }
}

/// True if some text matches both.
pub(crate) fn overlap(a: &Pattern, b: &Pattern, case: Case) -> bool {
    match (a.is_exact(), b.is_exact()) {
        (true, true) => same(a, b, case),
        (true, false) => b.matches(a.as_str(), case),
        (false, true) => a.matches(b.as_str(), case),
        (false, false) => meet(a, b, case),
    }
}

/// Row by row: `row[j]` says that what is left of `a` and `b[j..]` can meet.
fn meet(a: &Pattern, b: &Pattern, case: Case) -> bool {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.as_str().chars().collect(), b.as_str().chars().collect());
    let stars = |rest: &[char]| rest.iter().all(|c| *c == '*');
    let suffix = |text: &[char], from: usize| text.get(from..).is_none_or(stars);
    let mut below: Vec<bool> = (0..=b.len()).map(|j| suffix(&b, j)).collect();
    for (i, &x) in a.iter().enumerate().rev() {
        let mut row = vec![suffix(&a, i)];
        // Filled from the right, so the last pushed is the right neighbour.
        for (j, &y) in b.iter().enumerate().rev() {
            let down = below.get(j).copied().unwrap_or(false);
            let diagonal = below.get(j + 1).copied().unwrap_or(false);
            let right = row.last().copied().unwrap_or(false);
            let one = x == '?' || y == '?' || case.same(x, y);
            row.push(if x == '*' || y == '*' { down || right } else { one && diagonal });
        }
        row.reverse();
        below = row;
    }
    below.first().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_share_a_name_overlap() {
        let meet = |a: &str, b: &str| overlap(&Pattern::new(a), &Pattern::new(b), Case::Fold);
        for (a, b) in [
            ("get_*", "*_item"),
            ("a*", "*"),
            ("a?c", "?b?"),
            ("Refund", "refund"),
            ("search_*", "SEARCH_orders"),
            ("*", "?"),
            ("**", "*"),
            ("a*b*c", "*x*c"),
        ] {
            assert!(meet(a, b) && meet(b, a), "{a} {b}");
        }
        for (a, b) in [("get_*", "set_*"), ("a?", "b*"), ("?", "??"), ("x*y", "*z"), ("a", "a?")] {
            assert!(!meet(a, b) && !meet(b, a), "{a} {b}");
        }
        let exact = |a: &str, b: &str| overlap(&Pattern::new(a), &Pattern::new(b), Case::Exact);
        assert!(exact("crm://?x*", "crm://éx*") && !exact("crm://A*", "crm://a*"));
    }
}
