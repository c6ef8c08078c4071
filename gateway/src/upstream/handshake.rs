//! Finds out which era a server speaks and agrees on a session (MCP 2026-07-28, versioning,
//! "Era detection").
//!
//! Over HTTP only an answer is evidence: an auth wall, an outage or silence says nothing about
//! the era. Over stdio silence is evidence too, and a server that exits at the probe is legacy.

use crate::upstream::link::{Fault, Heard, Wire};
use crate::upstream::message::{Outgoing, Reply, Voice, client_info};
use crate::upstream::session::{Complaint, Era, Greeting, LEGACY, MODERN, Session, cut};
use portcullis_policy::definition::EraPin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a stdio server may be silent to the probe before it is greeted the legacy way too.
const PROBE_STDIO: Duration = Duration::from_secs(3);
/// How long an HTTP server may take to answer the probe.
const PROBE_HTTP: Duration = Duration::from_secs(10);
/// How long a server may take to agree on a session; a first start may download the program.
const AGREE_WITHIN: Duration = Duration::from_secs(60);
/// HTTP statuses that come from something in front of the server and say nothing about its era.
const NO_EVIDENCE: [u16; 5] = [401, 403, 407, 408, 429];

/// What an answer to `server/discover` says about the era.
#[derive(Debug)]
enum Verdict {
    Modern(Session),
    Legacy,
    // A modern error to the one method every modern server has: legacy if it greets us so.
    Unclear(String),
}

/// Greets servers in the name of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Greeter {
    /// How the gateway introduces itself.
    pub(crate) voice: Voice,
    /// Its version.
    pub(crate) version: Arc<str>,
}

impl Greeter {
    /// Agrees on a session with the server behind `wire`.
    pub(crate) async fn agree(&self, wire: &Wire, pin: EraPin) -> Result<Session, String> {
        let deadline = Instant::now() + AGREE_WITHIN;
        match (pin, wire) {
            (EraPin::Legacy, _) => self.initialize(wire, deadline).await,
            (EraPin::Modern, _) => match self.discover(wire, deadline).await? {
                Verdict::Modern(session) => Ok(session),
                Verdict::Legacy => {
                    Err(format!("it does not speak {MODERN}, which the policy pins"))
                }
                Verdict::Unclear(why) => Err(why),
            },
            (EraPin::Auto, Wire::Http(_)) => {
                let verdict = self.discover(wire, Instant::now() + PROBE_HTTP).await?;
                self.follow(wire, verdict, deadline).await
            }
            (EraPin::Auto, Wire::Stdio(_)) => self.agree_stdio(wire, deadline).await,
        }
    }

    // The probe stays open when the legacy greeting is tried: a modern server that starts slowly
    // answers both, the first one well.
    async fn agree_stdio(&self, wire: &Wire, deadline: Instant) -> Result<Session, String> {
        let probe = self.discover(wire, deadline);
        let greet = async {
            sleep(PROBE_STDIO).await;
            self.initialize(wire, deadline).await
        };
        tokio::pin!(probe, greet);
        // Both futures live on after the other one is done; nothing is lost in this select.
        tokio::select! {
            verdict = &mut probe => {
                let verdict = verdict?;
                self.follow(wire, verdict, deadline).await
            }
            greeted = &mut greet => match greeted {
                Ok(session) => Ok(session),
                Err(why) => match probe.await? {
                    Verdict::Modern(session) => Ok(session),
                    Verdict::Legacy | Verdict::Unclear(_) => Err(why),
                },
            },
        }
    }

    async fn follow(
        &self,
        wire: &Wire,
        verdict: Verdict,
        deadline: Instant,
    ) -> Result<Session, String> {
        match verdict {
            Verdict::Modern(session) => Ok(session),
            Verdict::Legacy => self.initialize(wire, deadline).await,
            Verdict::Unclear(modern) => self
                .initialize(wire, deadline)
                .await
                .map_err(|legacy| format!("{modern}; {legacy}")),
        }
    }

    async fn discover(&self, wire: &Wire, deadline: Instant) -> Result<Verdict, String> {
        let opening = Arc::new(Session::opening(Era::Modern));
        let asked = Outgoing::own("server/discover");
        let reply = match wire.ask(&asked, (&self.voice, &opening), deadline).await {
            Ok(heard) => heard.answer.reply,
            // Turned away with something that is no answer of a modern server.
            Err(Fault::TurnedAway { status, .. }) if !NO_EVIDENCE.contains(&status) => {
                return Ok(Verdict::Legacy);
            }
            Err(fault) => return Err(format!("`server/discover`: {}", fault.into_failure())),
        };
        match reply {
            Reply::Result(result) => {
                let greeting = Greeting::read(&result).map_err(|error| error.to_string())?;
                if !greeting.supported.iter().any(|version| version == MODERN) {
                    return Ok(Verdict::Legacy);
                }
                let capabilities = greeting.capabilities;
                Ok(Verdict::Modern(Session { capabilities, ..Session::opening(Era::Modern) }))
            }
            Reply::Error(error) => {
                let complaint = Complaint::read(&error);
                if !complaint.is_modern() {
                    return Ok(Verdict::Legacy);
                }
                Ok(Verdict::Unclear(format!(
                    "`server/discover` was answered with {} {} (it supports: {})",
                    complaint.code,
                    complaint.message,
                    cut(&complaint.supported.join(", "))
                )))
            }
        }
    }

    async fn initialize(&self, wire: &Wire, deadline: Instant) -> Result<Session, String> {
        let [newest, ..] = LEGACY;
        let asked = Outgoing::own("initialize")
            .with("protocolVersion", format!("\"{newest}\""))
            .with("capabilities", "{}")
            .with("clientInfo", client_info(&self.version));
        let opening = Arc::new(Session::opening(Era::Legacy));
        let heard = wire.ask(&asked, (&self.voice, &opening), deadline).await;
        let Heard { answer, session: id } =
            heard.map_err(|fault| format!("`initialize`: {}", fault.into_failure()))?;
        let result = match answer.reply {
            Reply::Result(result) => result,
            Reply::Error(error) => {
                let complaint = Complaint::read(&error);
                return Err(format!(
                    "`initialize` was answered with {} {}",
                    complaint.code, complaint.message
                ));
            }
        };
        let greeting = Greeting::read(&result).map_err(|error| error.to_string())?;
        let offered = greeting.version.unwrap_or_default();
        let version = LEGACY.into_iter().find(|version| *version == offered).ok_or_else(|| {
            format!("it wants revision `{}`, which the gateway does not speak", cut(&offered))
        })?;
        let capabilities = greeting.capabilities;
        let session = Session { era: Era::Legacy, version: Some(version), id, capabilities };
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        wire.tell(initialized, &session).await;
        Ok(session)
    }
}
