//! What differs between two texts of arguments: for people who approve the second and know the
//! first.

use crate::json::{JsonError, JsonLimits, Kind, Reader};
use std::collections::BTreeMap;

/// One value that is not the same in both, as it is written; never both absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// A name for each step from the root; elements of arrays are named by their place.
    pub path: Vec<String>,
    /// As it was.
    pub before: Option<String>,
    /// As it is.
    pub after: Option<String>,
}

/// Longest text that is compared, in bytes: each value is kept with its path meanwhile.
pub const COMPARED_BYTES_MAX: usize = 64 * 1024;

/// Every value that differs, by its path; `None` if one of the texts is longer than
/// [`COMPARED_BYTES_MAX`]. An object or array that is empty counts as a value.
///
/// # Errors
/// [`JsonError`] if one of them is no JSON.
pub fn difference(
    before: &str,
    after: &str,
    limits: JsonLimits,
) -> Result<Option<Vec<Change>>, JsonError> {
    if before.len().max(after.len()) > COMPARED_BYTES_MAX {
        return Ok(None);
    }
    let (mut before, after) = (values(before, limits)?, values(after, limits)?);
    let mut changes: BTreeMap<Vec<String>, (Option<String>, Option<String>)> = BTreeMap::new();
    for (path, value) in after {
        match before.remove(&path) {
            Some(known) if known == value => {}
            known => drop(changes.insert(path, (known, Some(value)))),
        }
    }
    for (path, value) in before {
        changes.insert(path, (Some(value), None));
    }
    let change = |(path, (before, after))| Change { path, before, after };
    Ok(Some(changes.into_iter().map(change).collect()))
}

type Values = BTreeMap<Vec<String>, String>;

fn values(text: &str, limits: JsonLimits) -> Result<Values, JsonError> {
    let mut found = Values::new();
    let mut reader = Reader::new(text.as_bytes(), limits)?;
    collect(&mut reader, &mut Vec::new(), &mut found)?;
    reader.end()?;
    Ok(found)
}

fn collect(
    reader: &mut Reader<'_>,
    path: &mut Vec<String>,
    found: &mut Values,
) -> Result<(), JsonError> {
    let mut empty = true;
    let text = match reader.peek()? {
        Kind::Object => reader.object(|reader, name| {
            empty = false;
            path.push(name.to_string());
            let collected = collect(reader, path, found);
            path.pop();
            collected
        })?,
        Kind::Array => {
            let mut place = 0_usize;
            reader.array(|reader| {
                empty = false;
                path.push(place.to_string());
                place += 1;
                let collected = collect(reader, path, found);
                path.pop();
                collected
            })?
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => reader.value()?,
    };
    if empty {
        found.insert(path.clone(), text.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: &str, after: &str) -> Vec<String> {
        let found = difference(before, after, JsonLimits::default()).unwrap().unwrap();
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".to_owned());
        let line =
            |c: &Change| format!("{}: {} -> {}", c.path.join("."), side(&c.before), side(&c.after));
        found.iter().map(line).collect()
    }

    #[test]
    fn each_value_that_differs_is_told_once() {
        assert_eq!(
            told(
                r#"{"amount":40,"to":{"name":"a","tags":["x"]}}"#,
                r#"{"amount":400,"note":"hi","to":{"name":"a","tags":["x","y"]}}"#
            ),
            ["amount: 40 -> 400", "note: - -> \"hi\"", "to.tags.1: - -> \"y\""]
        );
    }

    #[test]
    fn what_is_long_is_not_compared() {
        let long = format!("{{\"{}\":[{}0]}}", "k".repeat(30_000), "0,".repeat(20_000));
        assert_eq!(difference(&long, "{}", JsonLimits::default()).unwrap(), None);
    }

    #[test]
    fn numbers_differ_as_they_are_written_and_empty_is_a_value() {
        assert_eq!(told(r#"{"a":1}"#, r#"{"a":1.0}"#), ["a: 1 -> 1.0"]);
        assert_eq!(told(r#"{"a":[]}"#, r#"{"a":[0]}"#), ["a: [] -> -", "a.0: - -> 0"]);
        assert_eq!(told(r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#), Vec::<String>::new());
    }
}
