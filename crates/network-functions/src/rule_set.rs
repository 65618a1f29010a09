//! Rules in order, and which of them is the first that a connection meets.
//!
//! [`Conditions`] are what an operator writes; [`RuleSet`] is what packets are held against. Firewall and NAT rules
//! are both conditions with something to do, so that both are validated and matched by the same code.

mod compiled;
mod conditions;
#[cfg(test)]
mod tests;

pub use compiled::{RuleIndex, RuleKey, RuleSet};
pub use conditions::{CONDITION_VALUES_MAX, ConditionError, Conditions, IcmpMatch, RULES_MAX, RuleSetError, has_ports};
