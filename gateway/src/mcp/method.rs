//! The closed list of methods, compared byte for byte. Anything else is unknown, however near.

/// A request an agent may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Initialize,
    Ping,
    Discover,
    ListTools,
    CallTool,
    ListResources,
    ListTemplates,
    ReadResource,
    ListPrompts,
    GetPrompt,
    Complete,
    SetLevel,
    Listen,
    GetTask,
    UpdateTask,
    CancelTask,
}

impl Method {
    /// The method of that exact name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "initialize" => Self::Initialize,
            "ping" => Self::Ping,
            "server/discover" => Self::Discover,
            "tools/list" => Self::ListTools,
            "tools/call" => Self::CallTool,
            "resources/list" => Self::ListResources,
            "resources/templates/list" => Self::ListTemplates,
            "resources/read" => Self::ReadResource,
            "prompts/list" => Self::ListPrompts,
            "prompts/get" => Self::GetPrompt,
            "completion/complete" => Self::Complete,
            "logging/setLevel" => Self::SetLevel,
            "subscriptions/listen" => Self::Listen,
            "tasks/get" => Self::GetTask,
            "tasks/update" => Self::UpdateTask,
            "tasks/cancel" => Self::CancelTask,
            _ => return None,
        })
    }

    /// True if revision 2026-07-28 has the method.
    pub(crate) fn is_modern(self) -> bool {
        !matches!(self, Self::Initialize | Self::Ping | Self::SetLevel)
    }

    /// True if revisions up to 2025-11-25 have the method.
    pub(crate) fn is_legacy(self) -> bool {
        !matches!(
            self,
            Self::Discover | Self::Listen | Self::GetTask | Self::UpdateTask | Self::CancelTask
        )
    }

    /// The member of `params` that `Mcp-Name` mirrors (MCP 2026-07-28, streamable HTTP,
    /// standard headers).
    pub(crate) fn named_by(self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource => Some("uri"),
            Self::GetTask | Self::UpdateTask | Self::CancelTask => Some("taskId"),
            Self::Initialize
            | Self::Ping
            | Self::Discover
            | Self::ListTools
            | Self::ListResources
            | Self::ListTemplates
            | Self::ListPrompts
            | Self::Complete
            | Self::SetLevel
            | Self::Listen => None,
        }
    }
}
