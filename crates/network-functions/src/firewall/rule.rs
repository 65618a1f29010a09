//! Firewall rules in the operator's form.

use alloc::string::String;
use alloc::vec::Vec;

use crate::rule_set::Conditions;

/// The action on a matching connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is permitted.
    Accept,
    /// Its first packet is dropped silently.
    Drop,
}

impl Action {
    /// The action's name in rules and log entries.
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
    /// The operator's name, for log entries and displays.
    pub name: String,
    /// The conditions.
    pub conditions: Conditions,
    /// The action.
    pub action: Action,
    /// Whether each match is logged.
    pub log: bool,
}

/// The treatment of expected connections (see [`crate::expectation`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Related {
    /// It is permitted, as its master connection was.
    #[default]
    Accept,
    /// The rules apply as to any other.
    Rules,
}

/// The rules in order. A connection that none of them matches is dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirewallConfig {
    /// The rules; the first that matches decides.
    pub rules: Vec<Rule>,
    /// Whether unmatched connections are logged.
    pub log_default: bool,
    /// Identifies the configuration that rule numbers in replicated states refer to. Nodes with the same rules have the
    /// same number here, and it changes whenever the rules do.
    pub generation: u16,
    /// The treatment of expected connections.
    pub related: Related,
}
