//! What is wrong with a configuration file: where, what, and what to do about it.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;
use toml::Spanned;

/// Largest configuration file that is read.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Places from here on are of values that stand in for missing ones; no file is as large.
pub(super) const STAND_IN_OFFSET: usize = usize::MAX / 2;

/// Text with its place in the file.
pub type Text = Spanned<String>;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The gateway does not start.
    Error,
    /// The gateway starts, but perhaps not as meant.
    Warning,
}

/// One finding, shown as `file:line:column: subject: problem: remedy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file, as the operator named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What it is about (`port "inside"`).
    pub subject: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
    /// The line of the file, without its end.
    pub excerpt: String,
    /// The bytes of `excerpt` that it is about; empty where it is about a place.
    pub marked_bytes: Range<usize>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, subject, problem, remedy, .. } = self;
        write!(f, "{file}:{line}:{column}: ")?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        write!(f, "{subject}: {problem}: {remedy}")
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The operating system would not give the file.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is larger than any configuration.
    #[error("{} is larger than {bytes_max} bytes: is it a Mainstay configuration?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// The operator's mistakes, all of them, in the order of the file. Warnings may be among them.
    #[error("{}", lines(.0))]
    Invalid(Vec<Diagnostic>),
}

fn lines(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The last boundary between characters that is not behind `offset`.
fn boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// The text of a file, for turning byte offsets into lines.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Line and column of a byte offset, both from 1; offsets past the end are those of the end.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..boundary(self.text, offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// The line in which a span begins, and the span's bytes in it.
    fn excerpt(&self, span: &Range<usize>) -> (String, Range<usize>) {
        let start = boundary(self.text, span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let within = |offset: usize| boundary(line, offset.saturating_sub(line_start));
        (line.to_owned(), within(start)..within(span.end.max(start)))
    }
}

/// A mistake in a single value. The caller adds its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mistake {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl Mistake {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

/// What a key may be, as its check knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Setting {
    /// The key with its section: `replication.ack_delay`.
    pub key: String,
    /// The value where the file gives none, written as in a file. `None`: it has none, or it depends on other keys.
    pub default: Option<String>,
    /// The values that are accepted.
    pub range: String,
    /// The key exists in files of the other kind only.
    pub is_refused: bool,
}

/// Collects diagnostics, so that one run reports all of them.
pub(super) struct Diagnostics<'a> {
    source: Source<'a>,
    found: Vec<Diagnostic>,
    /// Of the keys that were checked, given or not.
    settings: Vec<Setting>,
}

impl<'a> Diagnostics<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        Self { source, found: Vec::new(), settings: Vec::new() }
    }

    /// Notes what a key may be, for the reference. The first note of a key counts.
    pub(super) fn describe(&mut self, key: &str, default: Option<String>, range: String) {
        self.note(Setting { key: key.to_owned(), default, range, is_refused: false });
    }

    /// Notes for the reference that this kind of file does not have a key or a section.
    pub(super) fn describe_refused(&mut self, key: &str) {
        self.note(Setting { key: key.to_owned(), default: None, range: String::new(), is_refused: true });
    }

    fn note(&mut self, setting: Setting) {
        if self.settings.iter().all(|noted| noted.key != setting.key) {
            self.settings.push(setting);
        }
    }

    /// Whether something was reported that the file cannot be used with.
    pub(super) fn has_errors(&self) -> bool {
        self.found.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// The settings that were noted.
    pub(super) fn into_settings(self) -> Vec<Setting> {
        self.settings
    }

    pub(super) fn error(&mut self, span: Range<usize>, subject: &str, mistake: Mistake) {
        self.add(Severity::Error, &span, subject, mistake);
    }

    pub(super) fn warning(&mut self, span: Range<usize>, subject: &str, mistake: Mistake) {
        self.add(Severity::Warning, &span, subject, mistake);
    }

    fn add(&mut self, severity: Severity, span: &Range<usize>, subject: &str, mistake: Mistake) {
        // That the value is missing has been said.
        if span.start >= STAND_IN_OFFSET {
            return;
        }
        let (line, column) = self.source.position(span.start);
        let (excerpt, marked_bytes) = self.source.excerpt(span);
        let Mistake { problem, remedy } = mistake;
        let [file, subject] = [self.source.file, subject].map(str::to_owned);
        self.found.push(Diagnostic { severity, file, line, column, subject, problem, remedy, excerpt, marked_bytes });
    }

    /// Leaves errors alone.
    pub(super) fn forget_warnings(&mut self) {
        self.found.retain(|finding| finding.severity == Severity::Error);
    }

    /// All diagnostics in the order of the file, and whether an error is among them.
    pub(super) fn finish(mut self) -> (Vec<Diagnostic>, bool) {
        self.found.sort_by_key(|finding| (finding.line, finding.column));
        let failed = self.has_errors();
        (self.found, failed)
    }
}

const _: () = assert!(STAND_IN_OFFSET as u64 > FILE_BYTES_MAX);
