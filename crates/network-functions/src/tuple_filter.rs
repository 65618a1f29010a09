//! Conditions on tuples, with which operators select packets and connections to inspect.

use flow::Tuple;

use crate::address::{Prefix, from_tuple_bytes};

/// Conditions on a tuple, all of which must match; an absent one always does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TupleFilter {
    /// The IP protocol's number.
    pub protocol: Option<u8>,
    /// The prefix of the source.
    pub source: Option<Prefix>,
    /// The prefix of the destination.
    pub destination: Option<Prefix>,
    /// The port of either end.
    pub port: Option<u16>,
}

impl TupleFilter {
    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a tuple matches all conditions.
    #[must_use]
    pub fn matches(&self, tuple: &Tuple) -> bool {
        self.matches_any(core::slice::from_ref(tuple))
    }

    /// Whether each condition matches at least one of the tuples: those of a connection before and after translation.
    #[must_use]
    pub fn matches_any(&self, tuples: &[Tuple]) -> bool {
        let lies_within = |prefix: Option<Prefix>, end: fn(&Tuple) -> [u8; 16]| {
            let is_inside =
                |prefix: Prefix, tuple: &Tuple| prefix.contains(&from_tuple_bytes(end(tuple), tuple.family()));
            prefix.is_none_or(|prefix| tuples.iter().any(|tuple| is_inside(prefix, tuple)))
        };
        self.protocol.is_none_or(|protocol| tuples.iter().any(|tuple| tuple.protocol == protocol))
            && self.port.is_none_or(|port| {
                tuples.iter().any(|tuple| [tuple.source_port, tuple.destination_port].contains(&port))
            })
            && lies_within(self.source, |tuple| tuple.source)
            && lies_within(self.destination, |tuple| tuple.destination)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use flow::wire::ip_protocol::{TCP, UDP};

    use super::*;

    const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
    const SHARED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

    #[test]
    fn all_conditions_must_match_and_an_empty_filter_always_matches() {
        let tuple = Tuple::v4(TCP, (INSIDE, 4000), (SERVER, 80));
        let prefix = |text: &str| Some(text.parse().unwrap());
        assert!(TupleFilter::default().matches(&tuple));
        let all = TupleFilter {
            protocol: Some(TCP),
            source: prefix("10.0.0.0/8"),
            destination: prefix("198.51.100.10/32"),
            port: Some(80),
        };
        assert!(all.matches(&tuple));
        assert!(!all.matches(&tuple.inverse()), "the other way the ends are exchanged");
        assert!(!TupleFilter { protocol: Some(UDP), ..all.clone() }.matches(&tuple));
        assert!(!TupleFilter { source: prefix("10.2.0.0/16"), ..all.clone() }.matches(&tuple));
        assert!(!TupleFilter { destination: prefix("2001:db8::/32"), ..all.clone() }.matches(&tuple));
        assert!(TupleFilter { port: Some(4000), ..all.clone() }.matches(&tuple), "either port");
        assert!(!TupleFilter { port: Some(443), ..all }.matches(&tuple));
    }

    #[test]
    fn a_connection_matches_by_its_addresses_before_and_after_translation() {
        let tuples = [Tuple::v4(TCP, (INSIDE, 4000), (SERVER, 80)), Tuple::v4(TCP, (SHARED, 5000), (SERVER, 80))];
        for source in ["10.1.0.10/32", "198.51.100.1/32"] {
            let filter = TupleFilter { source: Some(source.parse().unwrap()), ..TupleFilter::default() };
            assert!(filter.matches_any(&tuples), "{source}");
        }
        assert!(!TupleFilter { port: Some(6000), ..TupleFilter::default() }.matches_any(&tuples));
    }
}
