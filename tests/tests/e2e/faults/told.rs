//! What an agent understands from an answer.

use portcullis_tests::agent::Answer;

/// The three things that can be said of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It ran, and this is its result.
    Result,
    /// It did not run.
    DidNotRun,
    /// It runs, or may have run.
    MayHaveRun,
}

/// Reads an answer as an agent does: by its words. Every answer must be one of these.
pub(super) fn told(answer: &Answer) -> Told {
    let says = answer.says();
    let words = answer.text.to_lowercase();
    if answer.code() == 4601 {
        assert!(words.contains("did not run"), "{}", answer.text);
        return Told::DidNotRun;
    }
    if !answer.is_error() && says.starts_with("{\"amount\":") {
        return Told::Result;
    }
    assert!(answer.is_error(), "an unclear answer: {}", answer.text);
    if words.contains("may have run") || words.contains("is running now") {
        return Told::MayHaveRun;
    }
    assert!(words.contains("did not run"), "an unclear answer: {}", answer.text);
    Told::DidNotRun
}
