//! Whether the rules still translate a connection as they did when it began.

use flow::Tuple;

use super::deterministic::port_setter;
use super::restoring::rule_key;
use super::rule::Pool;
use super::{Nat, NatState, has_ports};
use crate::function::TranslatedTuples;

impl Nat {
    /// Whether the rules in force may have given the connection its translation. Each function checks only its own translations.
    pub(super) fn still_translates(&self, state: NatState, tuples: &TranslatedTuples) -> bool {
        // No tuple answers a condition on the ingress.
        self.asks_ingress || (self.keeps_destination(state, tuples) && self.keeps_source(state, tuples))
    }

    fn keeps_destination(&self, state: NatState, tuples: &TranslatedTuples) -> bool {
        let TranslatedTuples { original, outgoing, .. } = tuples;
        // An identifier in the place of the port is that of source NAT.
        let end = |tuple: &Tuple| (tuple.destination, has_ports(tuple.protocol).then_some(tuple.destination_port));
        let is_ours = state.destination_rule_number != 0;
        if !is_ours && end(original) != end(outgoing) {
            return true;
        }
        let mut translated = *original;
        let rule = self.translate_destination(&mut translated, &rule_key(*original, None));
        rule.is_some() == is_ours && end(&translated) == end(outgoing)
    }

    fn keeps_source(&self, state: NatState, tuples: &TranslatedTuples) -> bool {
        let TranslatedTuples { original, outgoing, .. } = tuples;
        let is_ours = state.source_rule_number != 0;
        if !is_ours && original.source != outgoing.source {
            return true;
        }
        let mut incoming = Tuple { destination: outgoing.destination, ..*original };
        if has_ports(original.protocol) {
            incoming.destination_port = outgoing.destination_port;
        }
        let rule = self.source_rules.classify(&rule_key(incoming, None));
        match rule.map_or(&Pool::Exempt, |index| &self.pools[index.get()]) {
            Pool::Exempt => !is_ours,
            Pool::Chosen(addresses) | Pool::Endpoints(addresses, _) => {
                let has_port =
                    port_setter(outgoing.protocol).is_none() || self.all_ports.contains(outgoing.source_port);
                is_ours && addresses.contains(&outgoing.source) && has_port
            }
            Pool::Computed(mapping) => {
                let candidates = mapping.candidates(&incoming);
                is_ours && candidates.is_some_and(|mut candidates| candidates.any(|candidate| candidate == *outgoing))
            }
        }
    }
}
