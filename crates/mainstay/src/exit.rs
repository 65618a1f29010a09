//! Exit codes: what a script learns without reading the message.

use std::fmt::Write;
use std::process::ExitCode;

/// How the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The command succeeded.
    Success,
    /// The command failed for any reason that has no code of its own.
    Failed,
    /// The command line is wrong.
    Usage,
    /// The gateway, or `mainstay sync`, does not answer.
    Unreachable,
    /// The gateway answers, and refuses.
    Refused,
}

impl Exit {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Success, Self::Failed, Self::Usage, Self::Unreachable, Self::Refused];

    /// The code that the process ends with.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What the code means.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed: standard error has the reason",
            Self::Usage => "usage: the command line is wrong",
            Self::Unreachable => "the gateway, or mainstay sync, does not answer",
            Self::Refused => "refused by the gateway: not permitted, or not possible in its present state",
        }
    }

    /// The codes as the help shows them.
    #[must_use]
    pub fn describe_all() -> String {
        let mut text = String::from("Exit codes:");
        for exit in Self::ALL {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n  {}  {}", exit.code(), exit.describe());
        }
        text
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_that_are_documented() {
        assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 3, 4]);
        let text = Exit::describe_all();
        assert!(text.starts_with("Exit codes:\n  0  success\n  1  failed"), "{text}");
    }
}
