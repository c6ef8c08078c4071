//! Tokens for a first try: made once, kept in a file for the owner alone, printed from there.

use super::{Kind, PrivateFileError, Token, private_file};
use portcullis_policy::name::AgentName;
use std::collections::BTreeMap;
use std::path::Path;

/// The file in the state folder that holds the tokens of the quickstart, in the clear.
pub const QUICKSTART_TOKENS_FILE: &str = "quickstart-tokens";

/// Why the quickstart has no tokens.
#[derive(Debug, thiserror::Error)]
pub enum QuickstartError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// A line is neither a comment nor an agent and its token.
    #[error(
        "line {0} of the quickstart's token file is not an agent and a token; delete the file to make new ones"
    )]
    Line(usize),
    /// The operating system gave no random bits.
    #[error("no random bits: {0}")]
    Random(std::io::Error),
}

/// The tokens of `agents`, from the file in `state_dir`; those that are not there yet are made.
///
/// # Errors
/// [`QuickstartError`] if the file cannot be read, made or trusted.
pub fn quickstart_tokens(
    state_dir: &Path,
    agents: &[AgentName],
) -> Result<BTreeMap<AgentName, Token>, QuickstartError> {
    let path = state_dir.join(QUICKSTART_TOKENS_FILE);
    let mut tokens = match private_file::read(&path) {
        Ok(text) => parse(&text)?,
        Err(PrivateFileError::Missing(_)) => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    let known = tokens.len();
    for agent in agents {
        if !tokens.contains_key(agent) {
            let token = Token::generate(Kind::Agent).map_err(QuickstartError::Random)?;
            tokens.insert(agent.clone(), token);
        }
    }
    if tokens.len() > known {
        private_file::write(&path, &written(&tokens))?;
    }
    // A token of an agent that is not declared any more stands for nobody.
    tokens.retain(|agent, _| agents.contains(agent));
    Ok(tokens)
}

fn parse(text: &str) -> Result<BTreeMap<AgentName, Token>, QuickstartError> {
    let mut tokens = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.split_once(' ').and_then(|(agent, token)| {
            Some((AgentName::new(agent).ok()?, Token::parse(token, Kind::Agent)?))
        });
        let (agent, token) = entry.ok_or(QuickstartError::Line(at + 1))?;
        tokens.insert(agent, token);
    }
    Ok(tokens)
}

fn written(tokens: &BTreeMap<AgentName, Token>) -> String {
    let mut text =
        String::from("# Tokens of the quickstart, one an agent. Delete the file for new ones.\n");
    for (agent, token) in tokens {
        text.push_str(agent.as_str());
        text.push(' ');
        text.push_str(token.reveal());
        text.push('\n');
    }
    text
}
