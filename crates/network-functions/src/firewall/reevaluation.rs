//! Connections held against rules that are newer than they are.

use flow::wire::ip_protocol;
use flow::{PortId, Tuple};

use super::{Action, Firewall, FirewallState, Related};
use crate::function::Judgement;
use crate::rule_set::RuleKey;

/// The code of ICMP queries: all that begin connections have this one (RFC 792, RFC 4443 section 4).
const ICMP_QUERY_CODE: u8 = 0;

impl Firewall {
    /// Whether the first packet of the connection would be let in now. The rule that does so becomes the connection's. One
    /// that no rule let in was announced by another: it stays as long as those need no rule.
    pub(super) fn judge(&self, state: &mut FirewallState, outgoing: &Tuple) -> Judgement {
        if state.rule_number == 0 && self.related == Related::Accept {
            return Judgement::Stays;
        }
        let Some(key) = state.key(outgoing) else { return Judgement::Stays };
        self.hold(state, &key)
    }

    /// The state of a connection of which only the tuple is known: the rule that would let it in. Where it came in is known
    /// once a packet of it has, and until then it is not held against the rules.
    pub(super) fn remake(&self, outgoing: &Tuple, ingress: Option<PortId>) -> Option<FirewallState> {
        let ingress_number = ingress.map_or(0, |port| u16::from(port.0) + 1);
        let mut state = FirewallState { ingress_number, ..FirewallState::default() };
        let Some(key) = state.key(outgoing) else { return Some(state) };
        (self.hold(&mut state, &key) == Judgement::Stays).then_some(state)
    }

    /// A rule of these let the connection in: it is the one that would let it in again.
    pub(super) const fn is_of_these_rules(&self, state: &FirewallState) -> bool {
        state.rule_number != 0 && state.generation == self.generation
    }

    fn hold(&self, state: &mut FirewallState, key: &RuleKey) -> Judgement {
        let Some(index) = self.rules.classify(key) else { return Judgement::Ends };
        match self.outcomes[index.get()].action {
            Action::Accept => {
                (state.rule_number, state.generation) = (index.0 + 1, self.generation);
                Judgement::Stays
            }
            Action::Drop => Judgement::Ends,
        }
    }
}

impl FirewallState {
    /// What rules ask of the first packet of the connection; `None` when nobody knows where it came in.
    fn key(&self, outgoing: &Tuple) -> Option<RuleKey> {
        let ingress = u8::try_from(self.ingress_number.checked_sub(1)?).ok()?;
        // The tuple's discriminator is the type of the query, whichever way the packet went.
        let kind = u8::try_from(outgoing.discriminator).ok().filter(|kind| *kind != 0);
        let is_icmp = matches!(outgoing.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6);
        let icmp = kind.filter(|_| is_icmp).map(|kind| (kind, ICMP_QUERY_CODE));
        Some(RuleKey { tuple: *outgoing, icmp, ingress: PortId(ingress) })
    }
}
