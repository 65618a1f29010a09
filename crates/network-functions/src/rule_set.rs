//! Rules in order, and which of them is the first that a connection meets.
//!
//! ```text
//!   Conditions ──compile──► RuleSet: for each family, groups of rules
//!                              Group: a row of bits for each thing asked for, a bit for each rule
//!                                 Dimension: numbers cut into intervals, a row for each
//! ```
//!
//! [`Conditions`] are what an operator writes; [`RuleSet`] is what packets are held against. Firewall and NAT rules
//! are both conditions with something to do, so that both are validated and matched by the same code.

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
