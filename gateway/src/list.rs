//! Lists: the entries of the agent's view, ready-made when the scope was resolved.

use crate::asked::Asked;
use crate::handshake::{CACHE_HINTS, meta};
use crate::mcp::answer::{self, INVALID_PARAMS};
use crate::mcp::era::Era;
use crate::mcp::sse::Body;
use crate::own_tools;
use crate::reply;
use http::Response;
use portcullis_policy::scope::Shown;

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

/// Answers a list request. Lists come whole: there is no next page and so no cursor is ours.
pub(crate) fn list(asked: &Asked, what: Listed) -> Response<Body> {
    if asked.call.params.value("cursor").is_some() {
        let text = "this `cursor` is not one of this gateway's; ask for the list without one";
        return reply::json(answer::error(Some(&asked.call.id), INVALID_PARAMS, text, None));
    }
    let view = asked.view();
    let (member, entries) = match what {
        Listed::Tools => ("tools", tools(asked)),
        Listed::Resources => ("resources", view.resources_json.to_string()),
        Listed::Templates => ("resourceTemplates", view.templates_json.to_string()),
        Listed::Prompts => ("prompts", view.prompts_json.to_string()),
    };
    let result = match asked.era {
        Era::Legacy => format!("{{\"{member}\":[{entries}]}}"),
        Era::Modern => {
            format!(
                "{{\"resultType\":\"complete\",\"{member}\":[{entries}],{CACHE_HINTS},\"_meta\":{}}}",
                meta()
            )
        }
    };
    reply::json(answer::result(&asked.call.id, result.as_bytes()))
}

fn tools(asked: &Asked) -> String {
    let view = asked.view();
    let shown = match view.shown {
        Shown::Direct => &*view.tools_json,
        Shown::Search => "",
    };
    let own = own_tools::listed(&asked.visit);
    let between = if shown.is_empty() || own.is_empty() { "" } else { "," };
    format!("{shown}{between}{own}")
}
