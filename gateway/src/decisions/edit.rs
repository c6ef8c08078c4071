//! Arguments that an approver puts in place of those asked for: checked against the tool's own
//! schema, since the server may not do it.

use jsonschema::{PatternOptions, Validator};
use portcullis_policy::canonical::canonical;
use portcullis_policy::catalogue::ToolOffer;
use portcullis_policy::json::{JsonError, JsonLimits};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Largest edited arguments, and largest schema they are checked against, in bytes.
pub const EDIT_BYTES_MAX: usize = 64 * 1024;
/// Longest time that the check may take. It takes well under a millisecond; what a hostile schema
/// can make of it is bounded by its size, and a busy machine must not refuse a decision.
const CHECK_TIME: Duration = Duration::from_secs(2);
/// Most faults that are told of.
const FAULTS_SHOWN: usize = 5;

/// Why edited arguments are not taken.
#[derive(Debug, thiserror::Error)]
pub enum EditFault {
    /// They are too long.
    #[error("edited arguments have at most {EDIT_BYTES_MAX} bytes")]
    TooLong,
    /// They are no object that can be spelled in one way.
    #[error("the edited arguments cannot be used: {0}")]
    Form(#[from] JsonError),
    /// They are no object.
    #[error("the edited arguments are not an object")]
    NoObject,
    /// The tool is not there, or is another one than was shown.
    #[error(
        "the tool is not there any more as it was shown, so edited arguments cannot be checked; deny the call, or approve it as it is"
    )]
    NoTool,
    /// The schema is of no use.
    #[error(
        "edited arguments cannot be checked against the tool's schema: {0}; deny the call, or approve it as it is"
    )]
    Schema(String),
    /// They do not fit the schema.
    #[error("the edited arguments do not fit the tool's schema: {0}")]
    Misfit(String),
}

/// The one form of edited arguments, if they fit the schema of the tool.
///
/// # Errors
/// [`EditFault`]
pub(crate) async fn checked(tool: Arc<ToolOffer>, arguments: &str) -> Result<String, EditFault> {
    if arguments.len() > EDIT_BYTES_MAX {
        return Err(EditFault::TooLong);
    }
    let arguments = canonical(arguments.as_bytes(), JsonLimits::default())?;
    if !arguments.starts_with('{') {
        return Err(EditFault::NoObject);
    }
    let text = arguments.clone();
    // A thread of its own: how long it takes is up to the schema.
    let check = tokio::task::spawn_blocking(move || check(&tool, &text));
    let slow = || EditFault::Schema("that takes too long".to_owned());
    match tokio::time::timeout(CHECK_TIME, check).await {
        Ok(Ok(checked)) => checked.map(|()| arguments),
        Ok(Err(_)) | Err(_) => Err(slow()),
    }
}

fn check(tool: &ToolOffer, arguments: &str) -> Result<(), EditFault> {
    let unusable = |why: &dyn std::fmt::Display| EditFault::Schema(why.to_string());
    if tool.json.len() > EDIT_BYTES_MAX {
        return Err(unusable(&format!(
            "the tool's definition has more than {EDIT_BYTES_MAX} bytes"
        )));
    }
    let definition: Value = serde_json::from_str(&tool.json).map_err(|e| unusable(&e))?;
    let Some(schema) = definition.get("inputSchema") else { return Ok(()) };
    let validator = validator(schema).map_err(|e| unusable(&e.masked()))?;
    let instance: Value = serde_json::from_str(arguments).map_err(|e| unusable(&e))?;
    let faults: Vec<String> = validator
        .iter_errors(&instance)
        .take(FAULTS_SHOWN)
        .map(|fault| match fault.instance_path().as_str() {
            "" => fault.masked().to_string(),
            path => format!("at `{path}`: {}", fault.masked()),
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(EditFault::Misfit(faults.join("; "))) }
}

// Nothing is fetched, since no resolver is built in, and no pattern backtracks.
fn validator(schema: &Value) -> Result<Validator, Box<jsonschema::ValidationError<'static>>> {
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    options.build(schema).map_err(|error| Box::new(error.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(schema: &str) -> Arc<ToolOffer> {
        let json = format!(r#"{{"name":"refund","inputSchema":{schema}}}"#);
        Arc::new(ToolOffer::parse(&json, JsonLimits::default()).unwrap())
    }

    const REFUND: &str = r#"{"type":"object","properties":{"amount":{"type":"integer","maximum":100}},"required":["amount"],"additionalProperties":false}"#;

    #[tokio::test]
    async fn what_fits_comes_back_in_its_one_form() {
        let fits = checked(tool(REFUND), "{ \"amount\" : 50 }").await.unwrap();
        assert_eq!(fits, r#"{"amount":50}"#);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_said_without_its_value() {
        let misfit = checked(tool(REFUND), r#"{"amount":4711,"to":"x"}"#).await.unwrap_err();
        let text = misfit.to_string();
        assert!(text.contains("`/amount`") && !text.contains("4711"), "{text}");
        for wrong in ["[]", "7", r#"{"amount":1,"amount":2}"#, "{"] {
            assert!(checked(tool(REFUND), wrong).await.is_err(), "{wrong}");
        }
        let long = format!("{{\"amount\":\"{}\"}}", "x".repeat(EDIT_BYTES_MAX));
        assert!(matches!(checked(tool(REFUND), &long).await, Err(EditFault::TooLong)));
    }

    #[tokio::test]
    async fn nothing_is_fetched_and_no_pattern_backtracks() {
        let elsewhere = tool(r#"{"$ref":"http://127.0.0.1:1/schema.json"}"#);
        assert!(matches!(checked(elsewhere, "{}").await, Err(EditFault::Schema(_))));
        let slow = tool(r#"{"properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}"#);
        let arguments = format!("{{\"a\":\"{}!\"}}", "a".repeat(5_000));
        assert!(matches!(checked(slow, &arguments).await, Err(EditFault::Misfit(_))));
        let lookaround = tool(r#"{"properties":{"a":{"type":"string","pattern":"(?=x)x"}}}"#);
        assert!(matches!(checked(lookaround, "{}").await, Err(EditFault::Schema(_))));
    }
}
