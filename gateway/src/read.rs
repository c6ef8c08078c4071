//! `resources/read`, `prompts/get` and `completion/complete`: run when granted, refused
//! otherwise; nothing here waits for an approval.

use crate::asked::Asked;
use crate::mcp::answer::{self, INVALID_PARAMS};
use crate::mcp::envelope::member_of;
use crate::mcp::sse::Body;
use crate::record::{Ending, Record};
use crate::{reply, run};
use http::Response;
use portcullis_policy::decide::{Ask, Decision, decide};

/// Longest name or URI in a request, in bytes.
const KEY_BYTES_MAX: usize = 8 * 1024;

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// `resources/read`.
    Resource,
    /// `prompts/get`.
    Prompt,
    /// `completion/complete`.
    Completion,
}

/// Answers one of the three.
pub(crate) async fn read(asked: Asked, what: Read) -> Response<Body> {
    let Some((ask, name)) = ask(&asked, what) else {
        let text = match what {
            Read::Resource => "`resources/read` needs `uri`, a string",
            Read::Prompt => "`prompts/get` needs `name`, a string",
            Read::Completion => {
                "`completion/complete` needs `ref`, either {\"type\":\"ref/prompt\",\"name\"} or {\"type\":\"ref/resource\",\"uri\"}"
            }
        };
        return reply::json(answer::error(Some(&asked.call.id), INVALID_PARAMS, text, None));
    };
    if name.len() > KEY_BYTES_MAX {
        let text = "the name or URI is longer than 8 KiB";
        return reply::json(answer::error(Some(&asked.call.id), INVALID_PARAMS, text, None));
    }
    let (running, usage) = asked.enter_calls();
    let mut record = Record::new(&asked, &name, None);
    match decide(&asked.visit.scope, asked.view(), ask, &usage) {
        Decision::Run(permit) => {
            run::run(asked, permit, (record, running), crate::answer::Kind::Other).await
        }
        Decision::Refuse(refusal) => {
            record.refuse(refusal.reason);
            let data = (what == Read::Resource)
                .then(|| format!("{{\"uri\":{}}}", portcullis_policy::json::quote(&name)));
            reply::json(answer::error(
                Some(&asked.call.id),
                INVALID_PARAMS,
                &refusal.text,
                data.as_deref(),
            ))
        }
        // `decide` parks tool calls alone; were that to change, this stays closed.
        Decision::Park(_) => {
            record.finish(Ending::Parked);
            let text = "this request would need an approval, which it cannot wait for";
            reply::json(answer::error(Some(&asked.call.id), INVALID_PARAMS, text, None))
        }
    }
}

fn ask(asked: &Asked, what: Read) -> Option<(Ask, String)> {
    let text = |name| Some(asked.call.params.value(name)?.text()?.into_owned());
    match what {
        Read::Resource => text("uri").map(|uri| (Ask::Resource { uri: uri.clone() }, uri)),
        Read::Prompt => text("name").map(|name| (Ask::Prompt { name: name.clone() }, name)),
        Read::Completion => {
            let reference = asked.call.params.value("ref")?;
            let member = |name| {
                let value = member_of(reference, name, asked.shared.limits.json)?;
                Some(value.text()?.into_owned())
            };
            match member("type")?.as_str() {
                "ref/prompt" => {
                    member("name").map(|name| (Ask::CompletePrompt { name: name.clone() }, name))
                }
                "ref/resource" => {
                    member("uri").map(|uri| (Ask::CompleteTemplate { template: uri.clone() }, uri))
                }
                _ => None,
            }
        }
    }
}
