//! Re-evaluation of connections by newer rules.

use flow::wire::ip_protocol;
use flow::{PortId, Tuple};

use super::{Action, Firewall, FirewallState, Related};
use crate::class::Class;
use crate::function::ReevaluationOutcome;
use crate::rule_set::RuleKey;

/// The code of ICMP queries: all that begin connections have this one (RFC 792, RFC 4443 section 4).
const ICMP_QUERY_CODE: u8 = 0;

impl Firewall {
    /// Whether the rules permit the connection's first packet now. The permitting rule becomes the connection's. A
    /// connection without a rule was expected: it stays as long as expected connections need no rule.
    pub(super) fn evaluate(&self, state: &mut FirewallState, outgoing: &Tuple, class: Class) -> ReevaluationOutcome {
        if state.rule_number == 0 && self.related == Related::Accept {
            return ReevaluationOutcome::Allowed;
        }
        let Some(key) = state.key(outgoing) else { return ReevaluationOutcome::Allowed };
        self.hold(state, &key.of_class(class))
    }

    /// The state of a connection of which the tuple is known: the rule that permits it. Without an ingress, a connection is
    /// permitted that could have begun at some port. Its rule stays unknown if it may depend on the port, and it is not
    /// re-evaluated.
    pub(super) fn remake(&self, outgoing: &Tuple, ingress: Option<PortId>, class: Class) -> Option<FirewallState> {
        let permit = |port: PortId, ingress_number: u16| {
            let mut state = FirewallState { ingress_number, ..FirewallState::default() };
            (self.hold(&mut state, &key(outgoing, port).of_class(class)) == ReevaluationOutcome::Allowed)
                .then_some(state)
        };
        if let Some(port) = ingress {
            return permit(port, u16::from(port.0) + 1);
        }
        let permitted = self.ingresses.iter().find_map(|port| permit(*port, 0))?;
        Some(if self.ingresses.len() == 1 { permitted } else { FirewallState::default() })
    }

    /// A rule of the current configuration permitted the connection: it would do so again.
    pub(super) const fn is_of_these_rules(&self, state: &FirewallState) -> bool {
        state.rule_number != 0 && state.generation == self.generation
    }

    fn hold(&self, state: &mut FirewallState, key: &RuleKey) -> ReevaluationOutcome {
        let Some(index) = self.rules.classify(key) else { return ReevaluationOutcome::Denied };
        match self.outcomes[index.get()].action {
            Action::Accept => {
                (state.rule_number, state.generation) = (index.0 + 1, self.generation);
                ReevaluationOutcome::Allowed
            }
            Action::Drop => ReevaluationOutcome::Denied,
        }
    }
}

impl FirewallState {
    /// The rule key of the connection's first packet; `None` when its ingress is unknown.
    fn key(&self, outgoing: &Tuple) -> Option<RuleKey> {
        let ingress = u8::try_from(self.ingress_number.checked_sub(1)?).ok()?;
        Some(key(outgoing, PortId(ingress)))
    }
}

/// The rule key of a connection's first packet that came in at this port.
fn key(outgoing: &Tuple, ingress: PortId) -> RuleKey {
    // The tuple's discriminator is the type of the query, in either direction.
    let kind = u8::try_from(outgoing.discriminator).ok().filter(|kind| *kind != 0);
    let is_icmp = matches!(outgoing.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6);
    let icmp = kind.filter(|_| is_icmp).map(|kind| (kind, ICMP_QUERY_CODE));
    RuleKey { tuple: *outgoing, icmp, ingress, class: Class::Unknown }
}
