//! `portcullis check`: every finding with its place, and the line it is about.

use super::screen::{complain, json, lines, plain, print};
use super::{CheckArgs, CheckFormat, Exit, config_file, environment};
use crate::admin::DiagnosticView;
use crate::config::{Config, ConfigError, policy_files};
use portcullis_policy::diagnostic::{Diagnostic, Severity};
use portcullis_policy::source::{SourceFile, read};
use serde_json::json as value;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

/// What was checked and found.
pub(super) struct Report {
    pub(super) files: Vec<(Arc<str>, String)>,
    pub(super) found: Vec<Diagnostic>,
}

pub(super) fn check(args: &CheckArgs) -> Exit {
    match examine(args) {
        Ok((report, strict)) => {
            let text = match args.format {
                CheckFormat::Text => report.text(),
                CheckFormat::Json => json(&report.json()),
            };
            print(&text);
            report.exit(strict)
        }
        Err(ConfigError::Refused(found)) => {
            // Nothing but the configuration was read, so only its findings can be told.
            let report = Report { files: Vec::new(), found };
            let text = match args.format {
                CheckFormat::Text => report.text(),
                CheckFormat::Json => json(&report.json()),
            };
            print(&text);
            Exit::Config
        }
        Err(error) => {
            complain(&lines(&error.to_string()));
            Exit::Config
        }
    }
}

fn examine(args: &CheckArgs) -> Result<(Report, bool), ConfigError> {
    let (dirs, mut found, strict): (Vec<PathBuf>, Vec<Diagnostic>, bool) = match &args.dir {
        Some(dir) => (vec![dir.clone()], Vec::new(), args.strict),
        None => {
            // Read here and not by the parser, so that a folder may be named beside it.
            let set = std::env::var_os("PORTCULLIS_CONFIG").map(PathBuf::from);
            let named = args.config.as_ref().or(set.as_ref());
            let file = config_file(named.map(PathBuf::as_path));
            let config = Config::load(file, &environment())?;
            (config.policy.dirs, config.warnings, args.strict || config.policy.strict)
        }
    };
    let set = policy_files(&dirs)?;
    let sources: Vec<SourceFile<'_>> =
        set.files.iter().map(|(name, text)| SourceFile { name: Arc::clone(name), text }).collect();
    found.extend(read(&sources).1);
    found.extend(set.warnings);
    Ok((Report { files: set.files, found }, strict))
}

impl Report {
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for finding in &self.found {
            out.push_str(&plain(&finding.to_string()));
            out.push('\n');
            if let Some(marked) = self.marked(finding) {
                out.push_str(&marked);
            }
        }
        out.push_str(&self.summary());
        out
    }

    pub(super) fn json(&self) -> String {
        let findings: Vec<_> = self.found.iter().map(DiagnosticView::from).collect();
        let report = value!({
            "findings": findings,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "notes": self.count(Severity::Note),
            "files": self.files.len(),
        });
        format!("{report}\n")
    }

    pub(super) fn exit(&self, strict: bool) -> Exit {
        if self.count(Severity::Error) > 0 {
            return Exit::Config;
        }
        if strict && self.count(Severity::Warning) > 0 {
            return Exit::Finding;
        }
        Exit::Done
    }

    fn count(&self, severity: Severity) -> usize {
        self.found.iter().filter(|finding| finding.severity == severity).count()
    }

    fn summary(&self) -> String {
        let counted = |count: usize, word: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {word}{plural}")
        };
        format!(
            "{}, {}, {} in {}\n",
            counted(self.count(Severity::Error), "error"),
            counted(self.count(Severity::Warning), "warning"),
            counted(self.count(Severity::Note), "note"),
            counted(self.files.len(), "file"),
        )
    }

    // The line of the file, and a caret under the place.
    fn marked(&self, finding: &Diagnostic) -> Option<String> {
        let at = finding.location.as_ref()?;
        let (_, text) = self.files.iter().find(|(name, _)| *name == at.file)?;
        let line = text.lines().nth(usize::try_from(at.line).ok()?.checked_sub(1)?)?;
        let line = line.replace('\t', " ");
        let before: String =
            line.chars().take(usize::try_from(at.column).ok()?.saturating_sub(1)).collect();
        let mut out = String::new();
        let number = at.line.to_string();
        let gutter = " ".repeat(number.len());
        let indent = " ".repeat(plain(&before).chars().count());
        // Writing into a String cannot fail.
        let _ = writeln!(out, " {number} | {}", plain(&line));
        if at.column > 0 {
            let _ = writeln!(out, " {gutter} | {indent}^");
        }
        Some(out)
    }
}
