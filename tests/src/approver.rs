//! Who reads and decides cards over the admin API: in as many tasks as a test likes, and while
//! the gateway dies.

use crate::house::House;
use serde_json::{Value, json};

/// A holder of an admin credential. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Approver {
    http: reqwest::Client,
    admin: String,
    token: String,
}

impl Approver {
    /// The operator of a gateway.
    ///
    /// # Panics
    /// If the gateway was never started.
    #[must_use]
    pub fn of(house: &House) -> Self {
        let token = std::fs::read_to_string(house.folder.path().join("state/admin.token"));
        let token = token.unwrap_or_else(|error| panic!("admin.token: {error}"));
        Self::with(house, token.trim())
    }

    /// Somebody else with a token of theirs.
    #[must_use]
    pub fn with(house: &House, token: &str) -> Self {
        let (admin, token) = (house.admin.clone(), token.to_owned());
        Self { http: reqwest::Client::new(), admin, token }
    }

    /// A request.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<(u16, Value), String> {
        let method = method.parse().unwrap_or(reqwest::Method::GET);
        let url = format!("{}{path}", self.admin);
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let text = response.text().await.map_err(|error| error.to_string())?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// What an address says, as it is written.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn text(&self, path: &str) -> Result<String, String> {
        let request = self.http.get(format!("{}{path}", self.admin)).bearer_auth(&self.token);
        let response = request.send().await.map_err(|error| error.to_string())?;
        response.text().await.map_err(|error| error.to_string())
    }

    /// All cards of a query such as `state=parked`, oldest first, page after page.
    ///
    /// # Errors
    /// A text if no list came.
    pub async fn cards(&self, query: &str) -> Result<Vec<Value>, String> {
        let mut cards = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/approvals?{query}{cursor}");
            let (status, mut list) = self.ask("GET", &path, None).await?;
            let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
                return Err(format!("{status}: {list}"));
            };
            cards.extend(items);
            match list.get("cursor").and_then(Value::as_str) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(cards),
            }
        }
    }

    /// The card of an id; `None` if there is none.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn card(&self, id: &str) -> Result<Option<Value>, String> {
        let (status, card) = self.ask("GET", &format!("/v1/approvals/{id}"), None).await?;
        match status {
            200 => Ok(Some(card)),
            404 => Ok(None),
            _ => Err(format!("{status}: {card}")),
        }
    }

    /// Decides a card as it was shown; returns status and answer.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn decide(&self, card: &Value, decision: &str) -> Result<(u16, Value), String> {
        let id = card.get("id").and_then(Value::as_str).unwrap_or_default();
        let body = json!({"decision": decision, "digest": card.get("digest")});
        self.ask("POST", &format!("/v1/approvals/{id}/decision"), Some(body)).await
    }

    /// Ends a run, for a reason in one word; returns status and answer.
    ///
    /// # Errors
    /// A text if no answer came.
    pub async fn stop(&self, run: &str, why: &str) -> Result<(u16, Value), String> {
        self.ask("DELETE", &format!("/v1/runs/{run}?why={why}"), None).await
    }
}
