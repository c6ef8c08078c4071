//! How calls end, what their callers get, and why something was not done.

use crate::store::StoreFault;
use bytes::Bytes;
use portcullis_policy::decide::Refusal;
use portcullis_policy::definition::Approver;
use portcullis_policy::ledger::{Card, State};

/// How a call that was started ended.
#[derive(Debug, Clone)]
pub enum Executed {
    /// The server answered.
    Result {
        /// The JSON-RPC `result` member.
        raw: Bytes,
        /// True if the tool says it failed.
        is_error: bool,
    },
    /// The server answered with an error.
    Error {
        /// The JSON-RPC `error` member.
        raw: Bytes,
    },
    /// No byte left the gateway.
    NotSent {
        /// Why, as a clause.
        text: String,
    },
    /// Something left and no answer came.
    Unknown {
        /// What happened, as a clause.
        text: String,
    },
}

/// What a caller gets for a parked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// The answer of the server.
    Result {
        /// The JSON-RPC `result` member.
        raw: Bytes,
        /// True if the tool says it failed.
        is_error: bool,
    },
    /// The error of the server.
    Error {
        /// The JSON-RPC `error` member.
        raw: Bytes,
    },
    /// It did not run.
    NotRun {
        /// Where the card ended.
        state: State,
        /// For the caller.
        text: String,
    },
    /// It may have run.
    Unknown {
        /// For the caller.
        text: String,
    },
    /// It ran, and its answer is not there any more.
    NotKept {
        /// For the caller.
        text: String,
    },
}

/// Why a call was not parked.
#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    /// The agent has as many parked calls as its policy allows.
    #[error("{0}")]
    Full(Refusal),
    /// The caller's run has ended.
    #[error("the run has ended")]
    RunEnded,
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// No random number for an id.
    #[error("the system gives no random numbers: {0}")]
    Random(std::io::Error),
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Stopping,
}

/// Why a caller was not attached to a card.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No card of that id, or it is not the caller's: these are not told apart.
    #[error("there is no such approval")]
    Unknown,
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Stopping,
}

/// Why a decision had no effect.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// No card of that id.
    #[error("there is no such approval")]
    Unknown,
    /// It came too late; the card says what was decided or became of it.
    #[error("approval `{}` is {} already", .0.id(), .0.state().as_str())]
    Settled(Box<Card>),
    /// The decision was made on other arguments than the card's.
    #[error("the digest is not that of the card; read the card again and decide on what it shows")]
    WrongDigest,
    /// The policy does not let this role decide.
    #[error("the policy does not let the {} decide this call", portcullis_policy::ledger::words::role(*.0))]
    NotApprover(Approver),
    /// It lets more pass than it may.
    #[error("{0}; nothing was decided")]
    TooMuch(&'static str),
    /// The store did not take it; nothing runs.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The gateway is shutting down; the card stays as it is.
    #[error("the gateway is shutting down")]
    Stopping,
}

/// Why a run was not ended.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// Calls and runs below it come faster than it can end.
    #[error("the run changes faster than it can be ended; try again")]
    Restless,
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Stopping,
}
