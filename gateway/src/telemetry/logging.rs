//! The operator's log: lines on standard error, filtered by `PORTCULLIS_LOG`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The variable that holds the filter, such as `info` or `portcullis=debug`.
pub const FILTER_VARIABLE: &str = "PORTCULLIS_LOG";

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// For a person at a terminal.
    Text,
}

/// Why the log was not started.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be read.
    #[error("`PORTCULLIS_LOG` is not a filter such as `info` or `portcullis=debug`: {0}")]
    Filter(String),
    /// Something else already takes the log.
    #[error("the log was already started")]
    Started,
}

/// Starts the log; without a filter it is `info`.
///
/// # Errors
/// [`LoggingError`] if the filter cannot be read or the log was started before.
pub fn init(format: Format) -> Result<(), LoggingError> {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| LoggingError::Filter(error.to_string().escape_debug().to_string()))?;
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    let started = match format {
        Format::Json => lines.json().flatten_event(true).finish().try_init(),
        Format::Text => lines.with_ansi(false).with_target(false).finish().try_init(),
    };
    started.map_err(|_| LoggingError::Started)
}
