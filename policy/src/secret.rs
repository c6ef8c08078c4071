//! Which arguments are secret, and what is shown in their place.
//!
//! A plain name hides every member of that name, at whatever depth; a name with a dot is the
//! whole path, with `*` for any run of characters. Elements of arrays are named by their place.
//! Names compare without ASCII case, since hiding too much is the smaller mistake.

use crate::json::{JsonError, JsonLimits, Kind, Reader, quote};
use crate::pattern::{Case, Pattern};

/// What stands in the place of a secret value.
pub const MASK: &str = "••••••";

/// Longest path that a pattern is compared to, in bytes; what lies deeper is hidden.
const PATH_BYTES_MAX: usize = 4 * 1024;

/// The secret arguments of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Pattern>);

impl Secrets {
    /// Those of a policy and of the tool's schema, see [`crate::definition::Grant::secret`].
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| Pattern::new(name)).collect())
    }

    /// True if nothing is secret.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the value at `path`, a name for each step from the root, is secret.
    #[must_use]
    pub fn hides(&self, path: &[String]) -> bool {
        let Some(name) = path.last() else { return false };
        self.0.iter().any(|pattern| match pattern.as_str().contains('.') {
            // A path of great length is hidden rather than spelled out for each of its values.
            true => {
                path.iter().map(String::len).sum::<usize>() > PATH_BYTES_MAX
                    || pattern.matches(&path.join("."), Case::Fold)
            }
            false => pattern.matches(name, Case::Fold),
        })
    }

    /// `arguments` with every secret value replaced by [`MASK`]; otherwise byte for byte.
    ///
    /// # Errors
    /// [`JsonError`] if they are no JSON.
    pub fn mask(&self, arguments: &str, limits: JsonLimits) -> Result<String, JsonError> {
        if self.is_empty() {
            return Ok(arguments.to_owned());
        }
        let mut out = String::with_capacity(arguments.len());
        let mut reader = Reader::new(arguments.as_bytes(), limits)?;
        self.write(&mut reader, &mut Vec::new(), &mut out)?;
        reader.end()?;
        Ok(out)
    }

    fn write(
        &self,
        reader: &mut Reader<'_>,
        path: &mut Vec<String>,
        out: &mut String,
    ) -> Result<(), JsonError> {
        if self.hides(path) {
            reader.value()?;
            out.push_str(&quote(MASK));
            return Ok(());
        }
        match reader.peek()? {
            Kind::Object => {
                let mut between = '{';
                reader.object(|reader, name| {
                    out.push(std::mem::replace(&mut between, ','));
                    out.push_str(&quote(name));
                    out.push(':');
                    path.push(name.to_string());
                    let written = self.write(reader, path, out);
                    path.pop();
                    written
                })?;
                out.push_str(if between == '{' { "{}" } else { "}" });
            }
            Kind::Array => {
                let (mut between, mut place) = ('[', 0_usize);
                reader.array(|reader| {
                    out.push(std::mem::replace(&mut between, ','));
                    path.push(place.to_string());
                    place += 1;
                    let written = self.write(reader, path, out);
                    path.pop();
                    written
                })?;
                out.push_str(if between == '[' { "[]" } else { "]" });
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => out.push_str(reader.value()?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(names: &[&str], arguments: &str) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Secrets::new(&names).mask(arguments, JsonLimits::default()).unwrap()
    }

    #[test]
    fn a_name_hides_at_any_depth_and_a_path_where_it_says() {
        let arguments = r#"{"Password":"a","login":{"password":["b"],"token":"c"},"token":7}"#;
        assert_eq!(
            masked(&["password"], arguments),
            r#"{"Password":"••••••","login":{"password":"••••••","token":"c"},"token":7}"#
        );
        assert_eq!(
            masked(&["*.token"], arguments),
            r#"{"Password":"a","login":{"password":["b"],"token":"••••••"},"token":7}"#
        );
        assert_eq!(masked(&["p?ssw*"], r#"{"passwd":1}"#), r#"{"passwd":"••••••"}"#);
    }

    #[test]
    fn elements_of_arrays_are_reached_and_the_rest_stays_as_it_is() {
        let arguments = r#"{"users":[{"pin":1.0e2,"x":[]},{"pin":{}}],"y":{}}"#;
        assert_eq!(
            masked(&["users.*.pin"], arguments),
            r#"{"users":[{"pin":"••••••","x":[]},{"pin":"••••••"}],"y":{}}"#
        );
        assert_eq!(masked(&["nothing"], arguments), arguments);
        assert_eq!(masked(&[], arguments), arguments);
    }
}
