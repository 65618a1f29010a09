//! The firewall: ordered rules that say which connections may begin.
//!
//! Rules are evaluated once, when a connection begins, on the tuple as the functions before the firewall in the chain
//! have made it: a firewall in front of NAT sees the addresses that packets come in with, one behind NAT the
//! translated ones. Later packets pass on that decision, on whichever node they arrive; so does a connection that a
//! peer of the cluster let in, even if the rule's number is unknown here (pfsync and conntrackd decide likewise).
//! Connections that no rule matches are dropped.
//!
//! A connection that was announced within another one ([`crate::expectation`]) passes without a rule, unless
//! [`Related::Rules`] says otherwise.
//!
//! New rules are for new connections, unless the operator asks for the others to be held against them too
//! ([`NetworkFunction::reevaluate`]). Then a connection that a rule let in must be let in by one of the new rules.
//! Connections that were announced are judged likewise once announced connections pass by rules only. Those of which nobody
//! knows where they came in (they were there before the firewall was) are not judged.

mod reevaluation;
mod rule;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use flow::wire::Packet;
use flow::wire::tlv::{self, TlvError};
use flow::{Direction, DropReason, Tuple};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{Context, FlowState, Judgement, NetworkFunction, Verdict, state_attribute};
use crate::log::LogSource;
use crate::restoration::{Restoring, Unrestorable};
use crate::rule_set::{RuleIndex, RuleKey, RuleSet, RuleSetError};
pub use rule::{Action, FirewallConfig, Related, Rule};

/// The name of the function.
pub const NAME: &str = "firewall";

/// What the counter of connections that no rule matched is called.
pub const DEFAULT_COUNTER_NAME: &str = "default_hits";

/// What the counter of connections that another one announced, and that therefore needed no rule, is called.
pub const RELATED_COUNTER_NAME: &str = "related_hits";

/// What the counter of a rule is called: `rule/accept/web`. By the rule's name and not its place, so that it goes on when
/// rules come and go around it.
#[must_use]
pub fn rule_counter_name(action: Action, rule: &str) -> String {
    format!("rule/{}/{rule}", action.label())
}

/// The action and the rule of a counter that [`rule_counter_name`] named.
#[must_use]
pub fn rule_of_counter(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("rule/")?.split_once('/')
}

/// What the firewall keeps of a connection: who let it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirewallState {
    /// The number of the rule that let it in, from 1; 0 when that is not known, or it was announced and needed none.
    rule_number: u16,
    /// [`FirewallConfig::generation`] of the rules that the number counts.
    generation: u16,
    /// The port that its first packet came in on, from 1; 0 when that is not known.
    ingress_number: u16,
}

mod attribute {
    //! Attributes of the state.
    /// Rule number and generation, a u16 each.
    pub(super) const RULE: u16 = 1;
    /// Number of the port that the first packet came in on, u16.
    pub(super) const INGRESS: u16 = 2;
}

impl FlowState for FirewallState {
    const ATTRIBUTE: u16 = state_attribute::FIREWALL;

    fn encode(&self, out: &mut Vec<u8>) {
        if (self.rule_number, self.generation) != (0, 0) {
            let [a, b] = self.rule_number.to_be_bytes();
            let [c, d] = self.generation.to_be_bytes();
            tlv::put(out, attribute::RULE, &[a, b, c, d]);
        }
        if self.ingress_number != 0 {
            tlv::put(out, attribute::INGRESS, &self.ingress_number.to_be_bytes());
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

/// The firewall; see the module's text.
pub struct Firewall {
    rules: RuleSet,
    outcomes: Vec<RuleOutcome>,
    log_default: bool,
    generation: u16,
    related: Related,
}

impl Firewall {
    /// A firewall with these rules.
    ///
    /// # Errors
    /// There are too many rules, or one of them makes no sense.
    pub fn new(config: FirewallConfig) -> Result<Self, RuleSetError> {
        let rules = RuleSet::compile(config.rules.iter().map(|rule| &rule.conditions))?;
        let outcome = |rule: Rule| RuleOutcome { name: rule.name, action: rule.action, log: rule.log };
        Ok(Self {
            rules,
            outcomes: config.rules.into_iter().map(outcome).collect(),
            log_default: config.log_default,
            generation: config.generation,
            related: config.related,
        })
    }

    /// The name of the rule that let a connection in; `None` when that was under other rules than these.
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
        let key = RuleKey::new(tuple, &packet.headers.transport, context.ingress);
        if let Some(index) = self.rules.classify(&key) {
            return self.admit(index, tuple, context);
        }
        context.count(self.outcomes.len());
        if self.log_default {
            log(context, Action::Drop, "default", tuple);
        }
        Err(DropReason::FirewallDenied)
    }

    fn reevaluate(&self, state: &mut FirewallState, outgoing: &Tuple) -> Judgement {
        self.judge(state, outgoing)
    }

    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    /// Not a connection that another one announced, nor one that only earlier rules let in.
    fn is_restorable(&self, state: &FirewallState) -> bool {
        self.is_of_these_rules(state)
    }

    fn restore(&self, restoring: &mut Restoring) -> Option<FirewallState> {
        self.remake(&restoring.outgoing(), restoring.ingress)
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
