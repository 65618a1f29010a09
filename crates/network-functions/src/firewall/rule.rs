//! Firewall rules as an operator writes them.

use alloc::string::String;
use alloc::vec::Vec;

use crate::rule_set::Conditions;

/// What becomes of a connection that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It may begin.
    Accept,
    /// Its first packet is dropped without an answer.
    Drop,
}

impl Action {
    /// The action as rules and log entries write it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
        }
    }
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What the operator calls it; for log entries and displays.
    pub name: String,
    /// Which connections it is for.
    pub conditions: Conditions,
    /// What becomes of them.
    pub action: Action,
    /// Each of them is worth a log entry.
    pub log: bool,
}

/// What becomes of a connection that was expected (see [`crate::expectation`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Related {
    /// It may begin: the connection that announced it was let in.
    #[default]
    Accept,
    /// The rules decide on it as on any other.
    Rules,
}

/// The rules in order. A connection that none of them matches is dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirewallConfig {
    /// The rules; the first that matches decides.
    pub rules: Vec<Rule>,
    /// Connections that no rule matches are worth a log entry.
    pub log_default: bool,
    /// Tells this configuration from others that rule numbers in replicated states may refer to. Nodes with the same
    /// rules have the same number here, and it changes whenever the rules do.
    pub generation: u16,
    /// What becomes of connections that were expected.
    pub related: Related,
}
