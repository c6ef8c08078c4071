//! The way to a running gateway: its admin listener and the token for it.

use super::Exit;
use super::screen::plain;
use crate::identity::{Kind, OPERATOR_TOKEN_FILE, PrivateFileError, Token, read_operator_token};
use clap::Args;
use reqwest::{Client, RequestBuilder, redirect};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The variable with an admin token, for use without the state folder.
const TOKEN_VARIABLE: &str = "PORTCULLIS_ADMIN_TOKEN";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// How to reach a running gateway.
#[derive(Debug, Clone, Args)]
pub struct Door {
    /// The gateway's admin listener.
    #[arg(
        long,
        value_name = "URL",
        env = "PORTCULLIS_ADMIN_URL",
        default_value = "http://127.0.0.1:7778"
    )]
    pub url: String,
    /// The gateway's state folder, for the operator's token; `PORTCULLIS_ADMIN_TOKEN` goes first.
    #[arg(long, value_name = "DIR", env = "PORTCULLIS_STATE_DIR", default_value = ".portcullis")]
    pub state_dir: PathBuf,
}

/// Why the gateway did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum DoorError {
    #[error("no gateway is running at {0} (start one with `portcullis serve`)")]
    NotRunning(String),
    #[error(
        "a gateway is running at {url}, but `{path}` does not exist; name the state folder with \
         `--state-dir`, or set `{TOKEN_VARIABLE}`"
    )]
    NoToken { url: String, path: String },
    #[error("{0}")]
    Token(String),
    #[error("{0}")]
    Refused(String),
    #[error("{url} does not answer like a gateway: {cause}")]
    Foreign { url: String, cause: String },
}

/// An answer of the admin API.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
}

pub(super) struct Admin {
    http: Client,
    url: String,
    token: Token,
}

#[derive(Deserialize)]
struct Fault {
    error: FaultError,
}

#[derive(Deserialize)]
struct FaultError {
    message: String,
}

impl DoorError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::NotRunning(_) | Self::NoToken { .. } | Self::Foreign { .. } => Exit::Unavailable,
            Self::Token(_) => Exit::Config,
            Self::Refused(_) => Exit::Finding,
        }
    }
}

impl Door {
    pub(super) async fn open(&self) -> Result<Admin, DoorError> {
        let url = self.url.trim_end_matches('/').to_owned();
        // A proxy of the environment is no place for an admin token.
        let http = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .build()
            .map_err(|error| foreign(&url, &error))?;
        match self.token() {
            Ok(token) => Ok(Admin { http, url, token }),
            Err(TokenFault::Missing(path)) => {
                // Nothing at the door explains a missing token better than the token does.
                sent(&url, http.get(format!("{url}/v1/agents"))).await?;
                Err(DoorError::NoToken { url: plain(&url), path })
            }
            Err(TokenFault::Unusable(text)) => Err(DoorError::Token(text)),
        }
    }

    fn token(&self) -> Result<Token, TokenFault> {
        if let Ok(text) = std::env::var(TOKEN_VARIABLE) {
            return Token::parse(text.trim(), Kind::Admin).ok_or_else(|| {
                TokenFault::Unusable(format!("`{TOKEN_VARIABLE}` does not hold an admin token"))
            });
        }
        read_operator_token(&self.state_dir).map_err(|error| match error {
            PrivateFileError::Missing(_) => {
                let path = self.state_dir.join(OPERATOR_TOKEN_FILE);
                TokenFault::Missing(plain(&path.to_string_lossy()))
            }
            PrivateFileError::Loose { .. }
            | PrivateFileError::Kind(_)
            | PrivateFileError::Io { .. } => TokenFault::Unusable(plain(&error.to_string())),
        })
    }
}

enum TokenFault {
    Missing(String),
    Unusable(String),
}

impl Admin {
    pub(super) async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<String, DoorError> {
        let request = self.http.get(format!("{}{path}", self.url)).query(query);
        let answer = self.send(request).await?;
        answer.done()
    }

    pub(super) async fn post(&self, path: &str, body: String) -> Result<Answer, DoorError> {
        let request = self.http.post(format!("{}{path}", self.url));
        self.send(request.header("content-type", "application/json").body(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Answer, DoorError> {
        self.delete_with(path, &[]).await
    }

    pub(super) async fn delete_with(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Answer, DoorError> {
        self.send(self.http.delete(format!("{}{path}", self.url)).query(query)).await
    }

    pub(super) fn foreign(&self, error: &serde_json::Error) -> DoorError {
        DoorError::Foreign { url: plain(&self.url), cause: plain(&error.to_string()) }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer, DoorError> {
        sent(&self.url, request.bearer_auth(self.token.reveal())).await
    }
}

impl Answer {
    /// The text of a success.
    pub(super) fn done(self) -> Result<String, DoorError> {
        if matches!(self.status, 200 | 201) { Ok(self.text) } else { Err(self.refused()) }
    }

    /// What the gateway says about a failure.
    pub(super) fn refused(&self) -> DoorError {
        let message = serde_json::from_str::<Fault>(&self.text).map(|fault| fault.error.message);
        let message = message.unwrap_or_else(|_| format!("it answers with status {}", self.status));
        DoorError::Refused(plain(&message))
    }
}

async fn sent(url: &str, request: RequestBuilder) -> Result<Answer, DoorError> {
    let failed = |error: reqwest::Error| {
        if error.is_connect() {
            return DoorError::NotRunning(plain(url));
        }
        foreign(url, &error)
    };
    let response = request.send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let text = response.text().await.map_err(failed)?;
    Ok(Answer { status, text })
}

fn foreign(url: &str, error: &reqwest::Error) -> DoorError {
    let mut cause = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(inner) = next {
        cause = format!("{cause}: {inner}");
        next = inner.source();
    }
    DoorError::Foreign { url: plain(url), cause: plain(&cause) }
}
