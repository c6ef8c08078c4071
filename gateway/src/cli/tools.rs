//! `portcullis tools`: what an agent may use right now.

use super::card::aligned;
use super::door::DoorError;
use super::screen::{complain, json, plain, print};
use super::{Exit, ToolsArgs};
use portcullis_policy::name::AgentName;
use serde::Deserialize;
use std::fmt::Write as _;

#[derive(Deserialize)]
pub(super) struct View {
    agent: String,
    tools: Vec<Tool>,
    missing: Vec<Missing>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    approval: String,
    rule: String,
}

#[derive(Deserialize)]
struct Missing {
    server: String,
    tool: Option<String>,
    why: String,
    declared: String,
}

pub(super) async fn tools(args: &ToolsArgs) -> Exit {
    match listed(args).await {
        Ok(exit) => exit,
        Err(error) => {
            complain(&error.to_string());
            error.exit()
        }
    }
}

async fn listed(args: &ToolsArgs) -> Result<Exit, DoorError> {
    // The name becomes part of a path, so nothing but a name may.
    let agent = AgentName::new(&args.agent)
        .map_err(|error| DoorError::Refused(plain(&error.to_string())))?;
    let admin = args.door.open().await?;
    let text = admin.get(&format!("/v1/agents/{agent}"), &[]).await?;
    if args.json {
        return Ok(print(&json(&text)));
    }
    let view: View = serde_json::from_str(&text).map_err(|error| admin.foreign(&error))?;
    Ok(print(&view.shown()))
}

impl View {
    pub(super) fn shown(&self) -> String {
        let mut out = format!("agent {} may use {} tools\n", plain(&self.agent), self.tools.len());
        let row = |tool: &Tool| {
            let approval = match tool.approval.as_str() {
                "auto" => "runs".to_owned(),
                other => plain(other),
            };
            [plain(&tool.name), approval, plain(&tool.rule)]
        };
        out.push_str(&aligned(&self.tools.iter().map(row).collect::<Vec<_>>()));
        for gone in &self.missing {
            let name = match &gone.tool {
                Some(tool) => format!("{}.{}", plain(&gone.server), plain(tool)),
                None => plain(&gone.server),
            };
            // Writing into a String cannot fail.
            let _ = writeln!(
                out,
                "missing: {name} is {} (declared at {})",
                plain(&gone.why),
                plain(&gone.declared)
            );
        }
        out
    }
}
