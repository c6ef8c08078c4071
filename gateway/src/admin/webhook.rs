//! Webhooks: each is told what happens to cards, in order, at least once.
//!
//! How far it was told is in the store, so a restart forgets nothing. A message that fails is
//! tried again, ever more slowly, and what comes after it waits; after a day, or a few times where
//! the receiver refuses it, it is given up with an error in the log. Messages are signed as
//! Standard Webhooks 1.0.0 says: the id is the same each time, so a receiver knows what it has.

mod message;
mod signature;
mod slack;

use super::Api;
use crate::config::Webhook;
use crate::store::{EVENTS_MAX, EventRow, StoreFault, Told};
use crate::telemetry::Metrics;
use message::{Message, message};
use portcullis_policy::ledger::State;
use portcullis_policy::name::AgentName;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode, redirect};
use std::sync::Arc;
use std::time::Duration;

/// How long a receiver may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to connect to it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the first failure; each next one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// How long a message is tried that a receiver does not take, in milliseconds.
const TRY_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// How often a message is tried that a receiver refuses.
const REFUSED_TRIES_MAX: u64 = 5;
/// How often the store is asked for what another gateway wrote.
const LOOK: Duration = Duration::from_secs(2);
/// The pause after a failure of the store.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// Tells `webhook` what happens, until the gateway stops.
pub async fn tell(api: Arc<Api>, metrics: Arc<Metrics>, webhook: Webhook) {
    // A proxy of the environment was not named by whoever configured the webhook.
    let http = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT)
        .build();
    let http = match http {
        Ok(http) => http,
        Err(error) => {
            tracing::error!(%error, webhook = webhook.name, "a webhook cannot be told anything");
            return;
        }
    };
    let mut stop = api.stop.clone();
    let teller = Teller { api, metrics, webhook, http };
    // What was not noted as delivered is delivered again: receivers know it by its id.
    tokio::select! {
        () = teller.run() => {}
        _ = stop.wait_for(|stopping| *stopping) => {}
    }
}

struct Teller {
    api: Arc<Api>,
    metrics: Arc<Metrics>,
    webhook: Webhook,
    http: Client,
}

/// How a message was taken.
enum Taken {
    Yes,
    /// Not now; after that time, if the receiver says so.
    Later(String, Option<Duration>),
    /// Not this one.
    Refused(String),
}

impl Teller {
    async fn run(&self) {
        let mut told = self.api.store.told();
        loop {
            told.borrow_and_update();
            match self.catch_up().await {
                Ok(None) => drop(tokio::time::timeout(LOOK, told.changed()).await),
                Ok(Some(pause)) => tokio::time::sleep(pause).await,
                Err(fault) => {
                    tracing::warn!(%fault, webhook = self.webhook.name, "a webhook waits for the store");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
    }

    // Tells all there is; a pause if something failed.
    async fn catch_up(&self) -> Result<Option<Duration>, StoreFault> {
        let mut at = self.place().await?;
        loop {
            let rows = self.api.store.events(at.event, EVENTS_MAX).await?;
            if let Some(pause) = self.tell_each(&rows, &mut at).await? {
                return Ok(Some(pause));
            }
            if rows.len() < EVENTS_MAX as usize {
                return Ok(None);
            }
        }
    }

    async fn tell_each(
        &self,
        rows: &[EventRow],
        at: &mut Told,
    ) -> Result<Option<Duration>, StoreFault> {
        for row in rows {
            let pause = match self.concerns(row) {
                Some(state) if self.api.store.is_entry(row).await? => {
                    self.tell(row, state, at).await?
                }
                Some(_) | None => None,
            };
            if pause.is_some() {
                return Ok(pause);
            }
            *at = Told { event: row.id, tries: 0, since_ms: 0 };
        }
        Ok(None)
    }

    // A new webhook is told what happens from now on.
    async fn place(&self) -> Result<Told, StoreFault> {
        if let Some(told) = self.api.store.webhook(&self.webhook.name).await? {
            return Ok(told);
        }
        let event = self.api.store.last_event().await?;
        let told = Told { event, tries: 0, since_ms: 0 };
        self.api.store.webhook_told(&self.webhook.name, &told).await?;
        Ok(told)
    }

    fn concerns(&self, row: &EventRow) -> Option<State> {
        let state = State::parse(row.state.as_deref()?).filter(|_| row.kind == "card")?;
        let agent = AgentName::new(row.agent.as_deref()?).ok()?;
        let agents = &self.webhook.agents;
        let of = agents.is_empty() || agents.contains(&agent);
        (of && self.webhook.states.contains(&state)).then_some(state)
    }

    // The pause before it is tried again, if it was not taken.
    async fn tell(
        &self,
        row: &EventRow,
        state: State,
        at: &mut Told,
    ) -> Result<Option<Duration>, StoreFault> {
        let name = &self.webhook.name;
        let done = Told { event: row.id, tries: 0, since_ms: 0 };
        let Some(card) = self.api.store.card(&row.subject).await? else { return Ok(None) };
        let Some(message) = message(&self.api, &self.webhook, (row, state), &card) else {
            return Ok(None);
        };
        let now_ms = self.api.parked.now_ms();
        let since_ms = if at.tries == 0 { now_ms } else { at.since_ms };
        let (why, pause) = match self.post(&message).await {
            Taken::Yes => {
                self.metrics.webhook(name, "delivered");
                self.api.store.webhook_told(name, &done).await?;
                return Ok(None);
            }
            Taken::Refused(why) if at.tries + 1 >= REFUSED_TRIES_MAX => (why, None),
            Taken::Later(why, _) if now_ms.saturating_sub(since_ms) >= TRY_MS_MAX => (why, None),
            Taken::Refused(why) => (why, Some(pause(at.tries, None))),
            Taken::Later(why, after) => (why, Some(pause(at.tries, after))),
        };
        let Some(pause) = pause else {
            self.metrics.webhook(name, "given_up");
            tracing::error!(webhook = name, card = row.subject, why, "a message is given up");
            self.api.store.webhook_told(name, &done).await?;
            return Ok(None);
        };
        self.metrics.webhook(name, "failed");
        let tries = at.tries + 1;
        tracing::warn!(
            webhook = name,
            card = row.subject,
            why,
            tries,
            ?pause,
            "a message was not taken"
        );
        *at = Told { tries, since_ms, ..*at };
        self.api.store.webhook_told(name, at).await?;
        Ok(Some(pause))
    }

    async fn post(&self, message: &Message) -> Taken {
        let Message { id, body } = message;
        let mut request = self.http.post(self.webhook.url.reveal().as_str());
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(secret) = &self.webhook.secret {
            // Of this try: receivers refuse what is old.
            let timestamp = self.api.parked.now_ms() / 1_000;
            let signature = signature::of(secret.reveal(), (id, timestamp), body);
            request = request
                .header("webhook-id", id)
                .header("webhook-timestamp", timestamp)
                .header("webhook-signature", signature);
        }
        match request.body(body.clone()).send().await {
            // What a receiver writes is nothing to us.
            Ok(response) => taken(response.status(), response.headers().get(RETRY_AFTER)),
            // Without its address, which may be a secret.
            Err(error) => Taken::Later(chain(&error.without_url()), None),
        }
    }
}

fn taken(status: StatusCode, after: Option<&reqwest::header::HeaderValue>) -> Taken {
    let why = format!("it answers with status {}", status.as_u16());
    // What is said of this message; anything else may be of the receiver and of the moment.
    let refusals = [
        StatusCode::BAD_REQUEST,
        StatusCode::GONE,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    if status.is_success() {
        return Taken::Yes;
    }
    if !refusals.contains(&status) {
        let seconds = after.and_then(|value| value.to_str().ok()?.parse().ok());
        return Taken::Later(why, seconds.map(Duration::from_secs));
    }
    Taken::Refused(why)
}

// Twice as long each time, or what the receiver asks for; a little by chance, so that not all
// come back at once.
fn pause(tries: u64, after: Option<Duration>) -> Duration {
    let exponent = u32::try_from(tries.min(16)).unwrap_or(16);
    let usual = PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(exponent));
    let pause = after.unwrap_or(usual).clamp(PAUSE_FIRST, PAUSE_MAX);
    let mut chance = [0];
    let _ = getrandom::fill(&mut chance);
    pause + pause.mul_f64(f64::from(chance.first().copied().unwrap_or_default()) / 1_280.0)
}

fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(inner) = next {
        text = format!("{text}: {inner}");
        next = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_a_receiver_may_ask_for_one() {
        let within = |pause: Duration, least: u64| {
            let least = Duration::from_secs(least);
            assert!(pause >= least && pause <= least.mul_f64(1.21), "{pause:?} {least:?}");
        };
        for (tries, least) in [(0, 2), (1, 4), (4, 32), (9, 600), (u64::MAX, 600)] {
            within(pause(tries, None), least);
        }
        within(pause(9, Some(Duration::from_secs(7))), 7);
        within(pause(0, Some(Duration::from_secs(86_400))), 600);
    }

    #[test]
    fn what_may_come_to_pass_is_tried_again_and_what_is_refused_a_few_times() {
        for (status, again) in [
            (408, true),
            (429, true),
            (500, true),
            (503, true),
            (301, true),
            (400, false),
            (410, false),
        ] {
            let taken = taken(StatusCode::from_u16(status).unwrap(), None);
            assert_eq!(matches!(taken, Taken::Later(..)), again, "{status}");
        }
        assert!(matches!(taken(StatusCode::NO_CONTENT, None), Taken::Yes));
    }
}
