//! Ordered rules, and the search for the first one that a connection matches.
//!
//! ```text
//!   Conditions ──compile──► RuleSet: for each family, groups of rules
//!                              Group: a row of bits for each condition, a bit for each rule
//!                                 Dimension: numbers cut into intervals, a row for each
//! ```
//!
//! [`Conditions`] are the operator's configuration; [`RuleSet`] is compiled to match packets. Firewall and NAT rules
//! are both conditions with an action, so the same code validates and matches both.

mod compiled;
mod conditions;
mod dimension;
mod group;
#[cfg(test)]
mod tests;

pub use compiled::{RuleIndex, RuleKey, RuleSet};
pub use conditions::{
    CONDITION_VALUES_MAX, ConditionError, Conditions, IcmpMatch, RULE_SET_VALUES_MAX, RULES_MAX, RuleSetError,
    has_ports,
};
