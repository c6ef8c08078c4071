//! One way to ask a server, whichever transport carries it.

use crate::upstream::frame::Answer;
use crate::upstream::http::Endpoint;
use crate::upstream::message::{Failure, Outgoing, Reply, Voice};
use crate::upstream::pipe::Pipe;
use crate::upstream::session::{Era, Session};
use http::HeaderValue;
use std::sync::Arc;
use tokio::time::Instant;

/// The transport.
#[derive(Debug, Clone)]
pub(crate) enum Wire {
    /// A child process.
    Stdio(Arc<Pipe>),
    /// Streamable HTTP.
    Http(Arc<Endpoint>),
}

/// What came back, and the session id that came with it.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The answer.
    pub(crate) answer: Answer,
    /// `Mcp-Session-Id` of an HTTP response.
    pub(crate) session: Option<HeaderValue>,
}

/// Why a request on a wire has no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server does not know the session any more; the request was not carried out.
    SessionGone,
    /// The server answered with a status of 400 to 499 and no message: it was not carried out.
    TurnedAway {
        /// The status.
        status: u16,
        /// What it said, for the operator.
        cause: String,
    },
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Fault {
    /// The failure a caller sees who does not open the session again.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::SessionGone => Failure::Refused("the server ended the session".to_owned()),
            Self::TurnedAway { cause, .. } => Failure::Refused(cause),
            Self::Failed(failure) => failure,
        }
    }
}

impl Wire {
    /// Sends a request under `session` and waits for the answer until `deadline`.
    pub(crate) async fn ask(
        &self,
        outgoing: &Outgoing,
        (voice, session): (&Voice, &Arc<Session>),
        deadline: Instant,
    ) -> Result<Heard, Fault> {
        match self {
            Self::Stdio(pipe) => {
                let voice = voice.of(session.era);
                let answer = pipe.request(outgoing, &voice, deadline).await?;
                Ok(Heard { answer, session: None })
            }
            Self::Http(endpoint) => endpoint.request(outgoing, session, deadline).await,
        }
    }

    /// Sends a notification.
    pub(crate) async fn tell(&self, message: &str, session: &Session) {
        match self {
            Self::Stdio(pipe) => pipe.notify(message),
            Self::Http(endpoint) => endpoint.notify(message, session).await,
        }
    }
}

/// A wire on which both sides agreed.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// The transport.
    pub(crate) wire: Wire,
    /// The agreement.
    pub(crate) session: Arc<Session>,
    /// How the gateway introduces itself.
    pub(crate) voice: Voice,
    /// Which agreement with the server this is, counted from 1.
    pub(crate) number: u64,
}

/// Result types an agent may see: `task` was not offered, and an unknown one makes a result
/// invalid (MCP 2026-07-28, "resultType").
const RESULT_TYPES: [&str; 2] = ["complete", "input_required"];

impl Link {
    /// Sends a request and waits for the answer until `deadline`.
    pub(crate) async fn ask(&self, outgoing: &Outgoing, deadline: Instant) -> Result<Reply, Fault> {
        let heard = self.wire.ask(outgoing, (&self.voice, &self.session), deadline).await?;
        let foreign =
            heard.answer.result_type.filter(|kind| !RESULT_TYPES.contains(&kind.as_str()));
        match foreign {
            Some(kind) if self.session.era == Era::Modern => Err(Failure::Unknown(format!(
                "the result is of type `{}`, which the gateway did not ask for",
                super::session::cut(&kind)
            ))
            .into()),
            _ => Ok(heard.answer.reply),
        }
    }
}
