//! The firewall: ordered rules that permit or deny new connections.
//!
//! Rules are evaluated once, when a connection begins, on the tuple behind the earlier functions of the chain: a
//! firewall before NAT sees incoming addresses, one behind NAT the translated ones.
//!
//! Later packets pass on that decision, on any node. So do connections that a peer of the cluster permitted, even if
//! the rule's number is unknown here (pfsync and conntrackd behave likewise). Connections that no rule matches are
//! dropped.
//!
//! An expected connection ([`crate::expectation`]) passes without a rule, unless [`Related::Rules`] is set.
//!
//! New rules apply to new connections, unless the operator requests a re-evaluation of existing ones
//! ([`NetworkFunction::reevaluate`]). A connection that a rule permitted then needs the permission of one of the new
//! rules.
//!
//! Expected connections are re-evaluated likewise once they need a rule. Connections with unknown ingress (older than
//! the firewall in the chain) are not re-evaluated.

mod reevaluation;
mod rule;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};
use flow::wire::{Headers, Packet};
use flow::{Direction, DropReason, PortId, Tuple};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::class::Class;
use crate::function::{Context, FlowState, NetworkFunction, ReevaluationOutcome, Stray, Verdict, state_attribute};
use crate::log::LogSource;
use crate::restoration::{Restoring, Unrestorable};
use crate::rule_set::{RuleIndex, RuleKey, RuleSet, RuleSetError};
pub use rule::{Action, FirewallConfig, Related, Rule};

/// The name of the function.
pub const NAME: &str = "firewall";

/// The name of the counter of connections that no rule matched.
pub const DEFAULT_COUNTER_NAME: &str = "default_hits";

/// The name of the counter of expected connections, which passed without a rule.
pub const RELATED_COUNTER_NAME: &str = "related_hits";

/// The name of a rule's counter: `rule/accept/web`. It contains the rule's name instead of its index, so that the
/// counter continues when rules around it change.
#[must_use]
pub fn rule_counter_name(action: Action, rule: &str) -> String {
    format!("rule/{}/{rule}", action.label())
}

/// The action and the rule of a counter named by [`rule_counter_name`].
#[must_use]
pub fn rule_of_counter(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("rule/")?.split_once('/')
}

/// The firewall's state of a connection: the rule that permitted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirewallState {
    /// The number of the rule that permitted it, from 1; 0 when unknown, or when it was expected and needed none.
    rule_number: u16,
    /// The [`FirewallConfig::generation`] of that number.
    generation: u16,
    /// The ingress port of its first packet, from 1; 0 when unknown.
    ingress_number: u16,
}

mod attribute {
    //! Attributes of the state.
    /// Rule number and generation, a u16 each.
    pub(super) const RULE: u16 = 1;
    /// The ingress port of the first packet, u16.
    pub(super) const INGRESS: u16 = 2;
}

impl FlowState for FirewallState {
    const ATTRIBUTE: u16 = state_attribute::FIREWALL;

    fn encode(&self, out: &mut Vec<u8>) {
        if (self.rule_number, self.generation) != (0, 0) {
            let [a, b] = self.rule_number.to_be_bytes();
            let [c, d] = self.generation.to_be_bytes();
            tlv::put_fixed::<8>(out, attribute::RULE, 4, |bytes| bytes[4..].copy_from_slice(&[a, b, c, d]));
        }
        if self.ingress_number != 0 {
            tlv::put_fixed::<8>(out, attribute::INGRESS, 2, |bytes| {
                bytes[4..6].copy_from_slice(&self.ingress_number.to_be_bytes());
            });
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            match kind {
                attribute::RULE => {
                    let &[a, b, c, d] = value else { return Err(TlvError::ValueSize(kind)) };
                    state.rule_number = u16::from_be_bytes([a, b]);
                    state.generation = u16::from_be_bytes([c, d]);
                }
                attribute::INGRESS => {
                    let &[a, b] = value else { return Err(TlvError::ValueSize(kind)) };
                    state.ingress_number = u16::from_be_bytes([a, b]);
                }
                _ => {}
            }
        }
        Ok(state)
    }
}

struct RuleOutcome {
    name: String,
    action: Action,
    log: bool,
}

/// The firewall; see the module's documentation.
pub struct Firewall {
    rules: RuleSet,
    outcomes: Vec<RuleOutcome>,
    log_default: bool,
    generation: u16,
    related: Related,
    /// Ports that stand for all: those that rules name, and one that no rule names.
    ingresses: Vec<PortId>,
}

impl Firewall {
    /// A firewall with these rules.
    ///
    /// # Errors
    /// There are too many rules, or one of them is invalid.
    pub fn new(config: FirewallConfig) -> Result<Self, RuleSetError> {
        let rules = RuleSet::compile(config.rules.iter().map(|rule| &rule.conditions))?;
        let ingresses = representative_ingresses(&config.rules);
        let outcome = |rule: Rule| RuleOutcome { name: rule.name, action: rule.action, log: rule.log };
        Ok(Self {
            rules,
            outcomes: config.rules.into_iter().map(outcome).collect(),
            log_default: config.log_default,
            generation: config.generation,
            related: config.related,
            ingresses,
        })
    }

    /// The name of the rule that permitted a connection; `None` when that was under other rules.
    #[must_use]
    pub fn rule_name(&self, state: &FirewallState) -> Option<&str> {
        let index = usize::from(state.rule_number).checked_sub(1)?;
        let outcome = self.outcomes.get(index).filter(|_| state.generation == self.generation)?;
        Some(&outcome.name)
    }

    fn admit(&self, index: RuleIndex, tuple: Tuple, context: &mut Context<'_>) -> Result<FirewallState, DropReason> {
        let outcome = &self.outcomes[index.get()];
        context.count(index.get());
        if outcome.log {
            log(context, outcome.action, &outcome.name, tuple);
        }
        match outcome.action {
            Action::Accept => Ok(FirewallState {
                rule_number: index.0 + 1,
                generation: self.generation,
                ingress_number: u16::from(context.ingress.0) + 1,
            }),
            Action::Drop => Err(DropReason::FirewallDenied),
        }
    }
}

/// The ports that rules name, and the first that none names if there is one: every other port fares like the latter.
fn representative_ingresses(rules: &[Rule]) -> Vec<PortId> {
    let named: BTreeSet<PortId> = rules.iter().flat_map(|rule| rule.conditions.ingress.iter().copied()).collect();
    let other = (0..=u8::MAX).map(PortId).find(|port| !named.contains(port));
    named.into_iter().chain(other).collect()
}

fn log(context: &mut Context<'_>, action: Action, rule: &str, tuple: Tuple) {
    let source = LogSource { function: NAME, name: rule };
    context.log.push_limited(context.now, source, tuple, || format!("{} by rule {rule}", action.label()));
}

impl NetworkFunction for Firewall {
    type State = FirewallState;
    const HANDLES_PACKETS: bool = false;

    fn name(&self) -> &'static str {
        NAME
    }

    /// [`rule_counter_name`] of each rule, [`DEFAULT_COUNTER_NAME`] and [`RELATED_COUNTER_NAME`] behind them.
    fn counter_names(&self) -> Vec<String> {
        let rules = self.outcomes.iter().map(|outcome| rule_counter_name(outcome.action, &outcome.name));
        rules.chain([DEFAULT_COUNTER_NAME, RELATED_COUNTER_NAME].map(|name| name.to_string())).collect()
    }

    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<FirewallState, DropReason> {
        if self.related == Related::Accept && context.expected.is_some() {
            context.count(self.outcomes.len() + 1);
            return Ok(FirewallState { ingress_number: u16::from(context.ingress.0) + 1, ..FirewallState::default() });
        }
        let tuple = context.outgoing();
        let key = RuleKey::new(tuple, &packet.headers.transport, context.ingress).of_class(context.class);
        if let Some(index) = self.rules.classify(&key) {
            return self.admit(index, tuple, context);
        }
        context.count(self.outcomes.len());
        if self.log_default {
            log(context, Action::Drop, "default", tuple);
        }
        Err(DropReason::FirewallDenied)
    }

    fn classify_stray(&self, packet: &Packet<'_, '_>) -> Stray {
        let Headers { tuple, transport, .. } = &*packet.headers;
        let index = self.rules.classify(&RuleKey::new(*tuple, transport, packet.frame.ingress));
        let is_permitted = index.is_some_and(|index| self.outcomes[index.get()].action == Action::Accept);
        if is_permitted { Stray::Unknown } else { Stray::Denied }
    }

    fn decides_by_class(&self) -> bool {
        self.rules.has_classes()
    }

    fn reevaluate(&self, state: &mut FirewallState, outgoing: &Tuple, class: Class) -> ReevaluationOutcome {
        self.evaluate(state, outgoing, class)
    }

    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    /// Except for expected connections, and those that only earlier rules permitted.
    fn is_restorable(&self, state: &FirewallState) -> bool {
        self.is_of_these_rules(state)
    }

    fn restore(&self, restoring: &mut Restoring) -> Option<FirewallState> {
        self.remake(&restoring.outgoing(), restoring.ingress, restoring.class)
    }

    fn on_packet(
        &self,
        _state: &mut FirewallState,
        _context: &mut Context<'_>,
        _packet: &mut Packet<'_, '_>,
        _direction: Direction,
    ) -> Verdict {
        Verdict::Forward
    }
}
