//! Restores translations from a connection's tuple, and tuples from a translation.

use alloc::vec::Vec;

use flow::wire::ip_protocol;
use flow::{PortId, Tuple};

use super::rule::Pool;
use super::{Nat, NatState, has_ports};
use crate::class::Class;
use crate::restoration::{CANDIDATES_MAX, Restoring, Unrestorable};
use crate::rule_set::RuleKey;

/// The code of ICMP queries: all that begin connections have this one (RFC 792, RFC 4443 section 4).
const ICMP_QUERY_CODE: u8 = 0;

impl Nat {
    /// Destination NAT follows from the rules; source NAT where the mapping is computed.
    pub(super) fn check_restorable(&self) -> Result<(), Unrestorable> {
        let is_chosen = self.pools.iter().any(|pool| matches!(pool, Pool::Chosen(_) | Pool::Endpoints(..)));
        if is_chosen {
            return Err(Unrestorable {
                reason: "chooses free ports for source NAT, which do not follow from a tuple",
                remedy: "compute them (mapping = \"deterministic\"), or replicate connections precisely",
            });
        }
        if self.asks_ingress {
            return Err(Unrestorable {
                reason: "has rules with an ingress condition, which a tuple cannot answer",
                remedy: "name addresses in them instead of ports of the gateway, or replicate connections precisely",
            });
        }
        Ok(())
    }

    /// The translation of a connection with this tuple, if every port was free when it began.
    pub(super) fn recompute(&self, restoring: &mut Restoring) -> Option<NatState> {
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
                Pool::Chosen(_) | Pool::Endpoints(..) => return None,
                Pool::Computed(mapping) => {
                    outgoing = mapping.translate(&outgoing)?;
                    state.source_rule_number = index.0 + 1;
                }
            }
        }
        restoring.reply = outgoing.inverse();
        Some(state)
    }

    /// The distinct tuples that may have become `outgoing`: untranslated; by computed source NAT; by destination NAT to
    /// its destination; and by both. The caller checks each, so the rules' other conditions are not evaluated.
    pub(super) fn invert(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>) {
        let first = incoming.len();
        incoming.push(*outgoing);
        for pool in &self.pools {
            // Each address has at most one computed mapping, so this yields one tuple at most.
            if let Pool::Computed(mapping) = pool {
                mapping.invert(outgoing, incoming);
            }
        }
        // An inside host may have the outside address.
        if let Some(same) = incoming[first + 1..].iter().position(|tuple| tuple == outgoing) {
            incoming.swap_remove(first + 1 + same);
        }
        let forwarded = self.forwarded_to(outgoing);
        for at in first..incoming.len() {
            if incoming.len() - first > CANDIDATES_MAX {
                return;
            }
            let translated = incoming[at];
            incoming.extend(forwarded.iter().map(|&(destination, destination_port)| Tuple {
                destination,
                destination_port: if has_ports(outgoing.protocol) {
                    destination_port
                } else {
                    translated.destination_port
                },
                ..translated
            }));
        }
    }

    /// The addresses and ports that are forwarded to the destination of `outgoing`, each once.
    fn forwarded_to(&self, outgoing: &Tuple) -> Vec<([u8; 16], u16)> {
        let mut forwarded = Vec::new();
        let targets = self.targets.iter().zip(&self.destinations);
        for (target, destinations) in targets.filter(|(target, _)| target.address == outgoing.destination) {
            let Some(port) = target.port_before(outgoing.destination_port) else { continue };
            for end in destinations.iter().map(|destination| (*destination, port)) {
                if end != (outgoing.destination, outgoing.destination_port) && !forwarded.contains(&end) {
                    forwarded.push(end);
                }
            }
        }
        forwarded
    }
}

/// The rule key of a connection's first packet. No rule depends on the ingress where connections are restored
/// ([`Nat::check_restorable`]).
pub(super) fn rule_key(tuple: Tuple, ingress: Option<PortId>) -> RuleKey {
    let kind = u8::try_from(tuple.discriminator).ok().filter(|kind| *kind != 0);
    let is_icmp = matches!(tuple.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6);
    let icmp = kind.filter(|_| is_icmp).map(|kind| (kind, ICMP_QUERY_CODE));
    RuleKey { tuple, icmp, ingress: ingress.unwrap_or_default(), class: Class::Unknown }
}
