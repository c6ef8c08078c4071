//! The two MCP servers a newcomer meets first: a small CRM and a notebook, served over stdio.
//!
//! They promise the same answers every time: fixed records, state in memory only, nothing read from
//! or written to the machine. Both protocol eras are served on the same pipe. What may be called is
//! not decided here.

mod crm;
mod notes;

use rmcp::service::ServerInitializeError;
use rmcp::{ServerHandler, ServiceExt};

use crm::Crm;
use notes::Notes;

/// Which demo server to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Demo {
    /// Customers, orders and refunds.
    Crm,
    /// A notebook.
    Notes,
}

/// Why a demo server ended before its client did.
#[derive(Debug, thiserror::Error)]
pub enum DemoStop {
    /// The first messages did not make a session.
    #[error("the demo server could not start a session: {0}")]
    Start(Box<ServerInitializeError>),
    /// The loop that serves requests died.
    #[error("the demo server stopped: {0}")]
    Serve(#[from] tokio::task::JoinError),
}

/// Serves a demo server on standard input and output until the input ends.
pub async fn serve(which: Demo) -> Result<(), DemoStop> {
    let (input, output) = rmcp::transport::stdio();
    match which {
        Demo::Crm => serve_on(Crm::new(), input, output).await,
        Demo::Notes => serve_on(Notes::new(), input, output).await,
    }
}

/// Serves on any pair of pipes; a client that leaves before it said anything is no fault.
async fn serve_on<S, R, W>(server: S, input: R, output: W) -> Result<(), DemoStop>
where
    S: ServerHandler,
    R: tokio::io::AsyncRead + Send + Unpin + 'static,
    W: tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let running = match server.serve((input, output)).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(DemoStop::Start(Box::new(error))),
    };
    running.waiting().await?;
    Ok(())
}

#[cfg(test)]
mod tests;
