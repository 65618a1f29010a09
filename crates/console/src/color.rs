//! Whether output has colours: as the command line, the environment and the terminal have it.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output has colours.
static STANDARD_OUTPUT: AtomicBool = AtomicBool::new(false);
/// Whether standard error has colours.
static STANDARD_ERROR: AtomicBool = AtomicBool::new(false);

/// When output has colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// On a terminal that knows colours, unless `NO_COLOR` is set (no-color.org).
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl When {
    /// Whether a stream has colours; `no_color` and `term` are the variables of the environment.
    fn has_colors(self, is_terminal: bool, no_color: Option<&str>, term: Option<&str>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && no_color.is_none_or(str::is_empty) && term != Some("dumb"),
        }
    }
}

/// Decides for this process. Nothing has colours before.
pub fn choose(when: When) {
    let [no_color, term] = ["NO_COLOR", "TERM"].map(|name| std::env::var(name).ok());
    let decide = |is_terminal| when.has_colors(is_terminal, no_color.as_deref(), term.as_deref());
    STANDARD_OUTPUT.store(decide(io::stdout().is_terminal()), Ordering::Relaxed);
    STANDARD_ERROR.store(decide(io::stderr().is_terminal()), Ordering::Relaxed);
}

/// Whether standard error has colours.
#[must_use]
pub fn on_standard_error() -> bool {
    STANDARD_ERROR.load(Ordering::Relaxed)
}

/// A heading for standard output: bold, where there are colours.
#[must_use]
pub fn heading(text: &str) -> String {
    styled(STANDARD_OUTPUT.load(Ordering::Relaxed), "1", text)
}

/// A failure for standard error: red, where there are colours.
#[must_use]
pub fn failure(error: &impl Display) -> String {
    styled(on_standard_error(), "31", error)
}

/// `text` in a style of ECMA-48 (section 8.3.117), which ends with it.
fn styled(has_colors: bool, style: &str, text: impl Display) -> String {
    if has_colors { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_goes_before_the_environment_and_the_environment_before_the_terminal() {
        let cases = [
            (When::Auto, true, None, true),
            (When::Auto, true, Some(""), true),
            (When::Auto, true, Some("1"), false),
            (When::Auto, false, None, false),
            (When::Always, false, Some("1"), true),
            (When::Never, true, None, false),
        ];
        for (when, is_terminal, no_color, expected) in cases {
            let case = format!("{when:?}, terminal {is_terminal}, NO_COLOR {no_color:?}");
            assert_eq!(when.has_colors(is_terminal, no_color, Some("xterm")), expected, "{case}");
        }
        assert!(!When::Auto.has_colors(true, None, Some("dumb")));
    }

    #[test]
    fn a_style_ends_with_its_text() {
        assert_eq!(styled(true, "1", "PEER"), "\x1b[1mPEER\x1b[0m");
        assert_eq!(styled(false, "1", "PEER"), "PEER");
    }
}
