//! Problems that `--check` reports, of a file and of this host, for people and as JSON.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::CommandError;
use config::diagnostic::Severity;
use config::{ConfigError, Diagnostic};

/// Something that an operator should correct, or at least look at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Problem {
    /// Whether it keeps the program from starting.
    pub(crate) severity: Severity,
    /// The configuration file, as the operator named it; nothing for what concerns the host.
    file: Option<String>,
    /// Line, from 1.
    line: Option<usize>,
    /// Column in characters, from 1.
    column: Option<usize>,
    /// The key, section or thing that it is about.
    pub(crate) key: String,
    /// What is wrong.
    pub(crate) text: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Problem {
    /// Something on this host that keeps the program from starting. What stands behind the last colon of the sentence is
    /// the remedy.
    pub(crate) fn error(key: impl Into<String>, sentence: &str) -> Self {
        Self::on_host(Severity::Error, key, sentence)
    }

    /// Something on this host that the program starts in spite of.
    pub(crate) fn warning(key: impl Into<String>, sentence: &str) -> Self {
        Self::on_host(Severity::Warning, key, sentence)
    }

    /// The same with another remedy, for a sentence that is all text.
    pub(crate) fn with_remedy(self, remedy: &str) -> Self {
        let text = if self.remedy.is_empty() { self.text } else { format!("{}: {}", self.text, self.remedy) };
        Self { text, remedy: remedy.to_owned(), ..self }
    }

    fn on_host(severity: Severity, key: impl Into<String>, sentence: &str) -> Self {
        let (text, remedy) = sentence.rsplit_once(": ").unwrap_or((sentence, ""));
        let [text, remedy] = [text, remedy].map(str::to_owned);
        Self { severity, file: None, line: None, column: None, key: key.into(), text, remedy }
    }

    /// Whether it keeps the program from starting.
    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl From<&Diagnostic> for Problem {
    fn from(found: &Diagnostic) -> Self {
        Self {
            severity: found.severity,
            file: Some(found.file.clone()),
            line: Some(found.line),
            column: Some(found.column),
            key: found.subject.clone(),
            text: found.problem.clone(),
            remedy: found.remedy.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(file), Some(line), Some(column)) = (&self.file, self.line, self.column) {
            write!(f, "{file}:{line}:{column}: ")?;
        }
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        write!(f, "{}: {}", self.key, self.text)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, ": {}", self.remedy) }
    }
}

/// All problems of a file that cannot be used.
pub(crate) fn of_config(error: &ConfigError, path: &Path) -> Vec<Problem> {
    match error {
        ConfigError::Invalid(found) => found.iter().map(Problem::from).collect(),
        ConfigError::Unreadable { source, .. } => {
            let found = Problem::error(path.display().to_string(), &format!("cannot be read: {source}"));
            vec![found.with_remedy("correct the path")]
        }
        ConfigError::TooLarge { .. } => vec![Problem::error(path.display().to_string(), &error.to_string())],
    }
}

/// A check that found what keeps the program from starting.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct CheckFailed(Vec<Problem>);

/// Ends a check: an error if one is among the problems, whose text is all errors.
pub(crate) fn conclude(problems: &[Problem]) -> Result<(), CommandError> {
    let errors: Vec<Problem> = problems.iter().filter(|problem| problem.is_error()).cloned().collect();
    if errors.is_empty() { Ok(()) } else { Err(CheckFailed(errors).into()) }
}

/// What is printed of a file that cannot be used: one JSON object, if one is wanted, and the problems as an error.
pub(crate) fn refuse(error: ConfigError, path: &Path, json: bool) -> Result<(), CommandError> {
    /// What `--json` prints.
    #[derive(Serialize)]
    struct Refused {
        usable: bool,
        problems: Vec<Problem>,
    }
    if json {
        console::print_json(&Refused { usable: false, problems: of_config(&error, path) })?;
    }
    Err(error.into())
}
