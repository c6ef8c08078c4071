//! The only code that knows JSON-RPC and the protocol's revisions.
//!
//! [`envelope`] reads one message strictly, [`era`] tells which revision it speaks and checks
//! the headers of 2026-07-28, [`answer`] writes responses, [`sse`] frames streams.

pub(crate) mod answer;
pub(crate) mod envelope;
pub(crate) mod era;
pub(crate) mod headers;
pub(crate) mod look_alike;
pub(crate) mod method;
pub(crate) mod progress;
pub(crate) mod sse;
