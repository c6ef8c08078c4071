//! A form as a browser sends it.

use super::fault::PageFault;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, ORIGIN};

/// Most fields of a form: every card of a list may be one.
const FIELDS_MAX: usize = 400;

/// The fields of a form, in their order. A name may come several times.
#[derive(Debug, Clone)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form that came from a page of this listener.
    ///
    /// # Errors
    /// [`PageFault`] if it came from elsewhere or is no form.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, PageFault> {
        let value = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // Browsers send it with every form; who does not is no page of ours. That it is an origin
        // of this listener was seen at the door, which knows the names that a proxy changes.
        if !headers.contains_key(ORIGIN) {
            return Err(PageFault::foreign());
        }
        let kind = value(CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let text = "This address takes the forms of this page alone; nothing was decided.";
            return Err(PageFault::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "That is no form",
                text,
            ));
        }
        let fields: Vec<_> =
            form_urlencoded::parse(body).into_owned().take(FIELDS_MAX + 1).collect();
        if fields.len() > FIELDS_MAX {
            return Err(PageFault::bad("The form has too many fields; nothing was decided."));
        }
        Ok(Self(fields))
    }

    /// The value of a field that comes once or not at all.
    ///
    /// # Errors
    /// [`PageFault`] if it comes twice: then nobody can tell what was meant.
    pub(super) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, PageFault> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => {
                Err(PageFault::bad("A field of the form comes twice; nothing was decided."))
            }
        }
    }

    /// The values of a field, in their order.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}
