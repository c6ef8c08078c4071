//! Texts that may be secret: written in the file, or taken from the environment or another file.

use super::setting::Settings;
use super::wire::Source;
use super::{UrlSource, files};
use portcullis_policy::diagnostic::Location;
use std::path::Path;

/// The text of the setting `key`, from where the file says it is; `what` is the word for it.
pub(super) fn fetched(
    s: &mut Settings<'_>,
    (key, what): (&str, &str),
    source: &Source,
    (at, base): (&Location, &Path),
) -> Option<(String, UrlSource)> {
    let (text, from, named) = match source {
        Source::Literal(text) => (text.clone(), UrlSource::Literal, "this".to_owned()),
        Source::Env(name) => {
            let named = format!("the variable `{}`", name.escape_debug());
            let Some(text) = s.env.get(name) else {
                let text = format!("`{key}`: {named} is not set; set it to {what}");
                s.error("missing_value", at, text);
                return None;
            };
            (text.clone(), UrlSource::Env(name.clone()), named)
        }
        Source::File(path) => {
            let path = base.join(path);
            let text = match files::read(&path) {
                Ok(text) => text,
                Err(error) => {
                    s.error("missing_value", at, format!("`{key}`: {error}"));
                    return None;
                }
            };
            let named = format!("the file `{}`", path.display());
            (text, UrlSource::File(path), named)
        }
    };
    let text = text.trim_end().to_owned();
    if text.is_empty() {
        let text = format!("`{key}`: {named} is empty; write {what} into it");
        s.error("missing_value", at, text);
        return None;
    }
    Some((text, from))
}
