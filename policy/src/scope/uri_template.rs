//! Templates of resource URIs: RFC 6570, level 1.

/// A template, cut at its variables.
#[derive(Debug)]
pub(super) struct UriTemplate {
    /// What stands before the first variable, between two, and after the last.
    fixed: Vec<String>,
}

impl UriTemplate {
    /// Cuts `template`; what is not closed is taken as it stands.
    pub(super) fn new(template: &str) -> Self {
        let mut fixed = Vec::new();
        let mut rest = template;
        while let Some((head, (_, tail))) =
            rest.split_once('{').and_then(|(head, tail)| Some((head, tail.split_once('}')?)))
        {
            fixed.push(head.to_owned());
            rest = tail;
        }
        fixed.push(rest.to_owned());
        Self { fixed }
    }

    /// True if the template can expand to `uri`. A variable stands for one or more unreserved or
    /// percent-encoded characters, so it never reaches over a `/`, and no part may be `.` or `..`.
    pub(super) fn matches(&self, uri: &str) -> bool {
        let mut fixed = self.fixed.iter();
        let Some(rest) = fixed.next().and_then(|first| uri.strip_prefix(first.as_str())) else {
            return false;
        };
        let dotted = rest.split(['/', '?', '#']).any(|part| matches!(part, "." | ".."));
        !dotted && expands(rest, fixed.as_slice())
    }
}

// `rest` begins with a variable; after it comes `fixed`, with a variable between each two. The
// earliest place of each fixed text is as good as any: a value that is longer crosses no more.
fn expands(mut rest: &str, fixed: &[String]) -> bool {
    let Some((last, between)) = fixed.split_last() else { return rest.is_empty() };
    for next in between {
        let value = rest.find(|c| !is_value(c)).unwrap_or(rest.len());
        let after = (1..=value).find_map(|at| rest.get(at..)?.strip_prefix(next.as_str()));
        let Some(after) = after else { return false };
        rest = after;
    }
    rest.strip_suffix(last.as_str())
        .is_some_and(|value| !value.is_empty() && value.chars().all(is_value))
}

fn is_value(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~%".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_stays_within_its_part() {
        let yes = |t: &str, u: &str| assert!(UriTemplate::new(t).matches(u), "{t} {u}");
        let no = |t: &str, u: &str| assert!(!UriTemplate::new(t).matches(u), "{t} {u}");
        yes("crm://customers/{id}", "crm://customers/7");
        yes("test://template/{id}/data", "test://template/12%2F3/data");
        yes("a://{x}-{y}", "a://one-two-three");
        no("crm://customers/{id}", "crm://customers/");
        no("crm://customers/{id}", "crm://customers/7/orders");
        no("crm://customers/{id}", "crm://customers/../payroll/7");
        no("crm://customers/{id}", "crm://customers/..");
        no("crm://customers/{id}", "crm://customers/7?all=1");
        no("crm://customers/{id}", "crm://customers/7#x");
        no("crm://customers/{id}", "CRM://customers/7");
        yes("plain://uri", "plain://uri");
        no("plain://uri", "plain://uri2");
        no("open://{x", "open://7");
    }
}
