//! Translations made again from a connection's tuple, and tuples from a translation.

use alloc::vec::Vec;

use flow::wire::ip_protocol;
use flow::{PortId, Tuple};

use super::rule::Pool;
use super::{Nat, NatState};
use crate::restoration::{Restoring, Unrestorable};
use crate::rule_set::RuleKey;

/// The code of ICMP queries: all that begin connections have this one (RFC 792, RFC 4443 section 4).
const ICMP_QUERY_CODE: u8 = 0;

impl Nat {
    /// Port forwarding follows from the rules; source NAT where the mapping is computed.
    pub(super) fn check_restorable(&self) -> Result<(), Unrestorable> {
        let is_chosen = self.pools.iter().any(|pool| matches!(pool, Pool::Chosen(_)));
        if is_chosen {
            return Err(Unrestorable {
                reason: "chooses the ports of source NAT among those that are free, which nobody can tell from a tuple",
                cure: "compute them (mapping = \"deterministic\"), or tell connections precisely",
            });
        }
        Ok(())
    }

    /// The translation of a connection with this tuple, if nothing stood in the way when it began.
    pub(super) fn remake(&self, restoring: &mut Restoring) -> Option<NatState> {
        let mut outgoing = restoring.outgoing();
        let mut state = NatState::default();
        let mut key = rule_key(outgoing, restoring.ingress);
        if let Some(index) = self.translate_destination(&mut outgoing, &key) {
            state.destination_rule_number = index.0 + 1;
            key.tuple = outgoing;
        }
        if let Some(index) = self.source_rules.classify(&key) {
            match &self.pools[index.get()] {
                Pool::Exempt => {}
                Pool::Chosen(_) => return None,
                Pool::Computed(mapping) => {
                    outgoing = mapping.translate(&outgoing)?;
                    state.source_rule_number = index.0 + 1;
                }
            }
        }
        restoring.reply = outgoing.inverse();
        Some(state)
    }

    /// The tuples that may have become `outgoing`: untranslated; from behind its source, if that is computed; to addresses that
    /// are forwarded to its destination; and both at once. Whoever asks tries each, so rules' other conditions are not asked.
    pub(super) fn invert(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>) {
        let first = incoming.len();
        incoming.push(*outgoing);
        for pool in &self.pools {
            if let Pool::Computed(mapping) = pool {
                mapping.invert(outgoing, incoming);
            }
        }
        let sources = first..incoming.len();
        for (index, target) in
            self.targets.iter().enumerate().filter(|(_, target)| target.address == outgoing.destination)
        {
            for at in sources.clone() {
                let translated = incoming[at];
                let port = match target.moved {
                    Some((from, to)) => {
                        let Some(offset) = translated.destination_port.checked_sub(to) else { continue };
                        let Some(port) = from.checked_add(offset) else { continue };
                        port
                    }
                    None => translated.destination_port,
                };
                let forwarded = self.destinations[index].iter();
                incoming.extend(forwarded.map(|&destination| Tuple {
                    destination,
                    destination_port: port,
                    ..translated
                }));
            }
        }
    }
}

/// What rules ask of the first packet of a connection. NAT's rules do not ask where it came in.
fn rule_key(tuple: Tuple, ingress: Option<PortId>) -> RuleKey {
    let kind = u8::try_from(tuple.discriminator).ok().filter(|kind| *kind != 0);
    let is_icmp = matches!(tuple.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6);
    let icmp = kind.filter(|_| is_icmp).map(|kind| (kind, ICMP_QUERY_CODE));
    RuleKey { tuple, icmp, ingress: ingress.unwrap_or_default() }
}
