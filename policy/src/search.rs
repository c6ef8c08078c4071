//! Ranks the tools of one scope for a query.

/// What is indexed of one tool.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The server.
    pub server: &'a str,
    /// The tool.
    pub name: &'a str,
    /// Its title.
    pub title: Option<&'a str>,
    /// Its description.
    pub description: &'a str,
    /// Its parameters: name and description.
    pub parameters: &'a [(String, String)],
}

/// One scope's index.
#[derive(Debug)]
pub struct Index;

/// A match.
#[derive(Debug, Clone, Copy)]
pub struct Hit {
    /// Position in build order.
    pub document: usize,
    /// Score.
    pub score: f64,
}

impl Index {
    /// Build.
    pub fn build<'a>(_documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        Self
    }
    /// Search.
    #[must_use]
    pub fn search(&self, _query: &str, _limit: usize) -> Vec<Hit> {
        Vec::new()
    }
}
