//! The choice of outside addresses and ports: the order of candidates, and the first one that is free.

use core::num::NonZeroU8;

use flow::{HashKey, NodeId, Tuple};

use super::deterministic::port_setter;
use crate::function::TupleUse;
use crate::port_range::PortRange;

/// The maximum number of candidate ports of a connection; then it is refused. It bounds the work of a packet when ports
/// are scarce: with a share `f` of them in use, a connection is refused with probability f^128 at most (0.1 % at 95 %).
pub const PORT_PROBES_MAX: usize = 128;

/// Primes above every number of ports: steps of such a length visit every port once before repeating.
const STEPS: [u32; 8] = [65537, 69001, 73939, 78541, 84017, 90001, 97001, 104_003];

/// The ports of `range` in the order of `hash`, each once.
pub(crate) fn candidates(range: PortRange, hash: u64) -> impl Iterator<Item = u16> {
    let count = u64::from(range.count());
    let start = (hash & 0xffff_ffff) % count;
    let step = u64::from(STEPS[usize::try_from(hash >> 61).unwrap_or(0)]) % count;
    (0..count).filter_map(move |probe| u16::try_from(u64::from(range.first()) + (start + probe * step) % count).ok())
}

/// A node's part of the ports for source translation, and the secret by which it chooses among them. Functions that share
/// outside addresses have equal ones: each checks in the table which tuples are in use.
///
/// Nodes with equal parts and secrets choose alike: a connection that is begun once more, of which no node has the record any
/// more, gets its former port if that is free.
#[derive(Clone, Copy)]
pub struct SourcePorts {
    ports: PortRange,
    key: HashKey,
}

impl SourcePorts {
    /// The part of `ports` of one of `nodes` nodes; `None` where it would be empty.
    #[must_use]
    pub fn new(ports: PortRange, node: NodeId, nodes: NonZeroU8, key: HashKey) -> Option<Self> {
        Some(Self { ports: ports.slice(node, nodes)?, key })
    }

    /// The ports that the node chooses from.
    #[must_use]
    pub const fn ports(&self) -> PortRange {
        self.ports
    }

    /// `outgoing` with a source address of `pool` (not empty) and a source port such that the reply tuple is free and its
    /// packets reach this worker; `None` if no probed port is. `is_reserved` excludes tuples.
    pub(crate) fn translate(
        &self,
        outgoing: &Tuple,
        pool: &[[u8; 16]],
        tuples: &dyn TupleUse,
        is_reserved: impl Fn(&Tuple) -> bool,
    ) -> Option<Tuple> {
        let (inside, address) = (inside_of(outgoing), self.address(outgoing, pool));
        let Some(set_port) = port_setter(outgoing.protocol) else {
            return Some(Tuple { source: address, ..*outgoing });
        };
        let with_port = |port| {
            let mut translated = Tuple { source: address, ..*outgoing };
            set_port(&mut translated, port);
            translated
        };
        self.free_port(&inside, with_port, tuples, is_reserved)
    }

    /// The address of `pool` (not empty) that the source of `outgoing` is translated to.
    pub(crate) fn address(&self, outgoing: &Tuple, pool: &[[u8; 16]]) -> [u8; 16] {
        let host = Tuple { source_port: 0, protocol: 0, discriminator: 0, ..inside_of(outgoing) };
        pool[pick(self.key.hash(&host), pool.len())]
    }

    /// The first of the ports, in the order of the keyed hash of `order`, for which the reply tuple is free and its packets
    /// reach this worker.
    pub(crate) fn free_port(
        &self,
        order: &Tuple,
        with_port: impl Fn(u16) -> Tuple,
        tuples: &dyn TupleUse,
        is_reserved: impl Fn(&Tuple) -> bool,
    ) -> Option<Tuple> {
        let is_here = |tuple: &Tuple| !tuples.belongs_to_other_worker(&tuple.inverse());
        let is_free = |tuple: &Tuple| !tuples.is_used(&tuple.inverse());
        let ordered = candidates(self.ports, self.key.hash(order)).map(with_port);
        ordered.filter(is_here).take(PORT_PROBES_MAX).find(|candidate| is_free(candidate) && !is_reserved(candidate))
    }
}

/// The inside end point. (An ICMP identifier is in both of the tuple's ports: the source's suffices.)
fn inside_of(outgoing: &Tuple) -> Tuple {
    Tuple { destination: [0; 16], destination_port: 0, ..*outgoing }
}

/// An index below `length` (not 0) from `hash`.
fn pick(hash: u64, length: usize) -> usize {
    usize::try_from(hash % length as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn the_steps_are_primes_above_every_number_of_ports() {
        for step in STEPS {
            assert!(step > 65536, "{step}");
            assert!((2..).take_while(|divisor| divisor * divisor <= step).all(|divisor| step % divisor != 0), "{step}");
        }
    }

    /// A node with two workers: packets to even ports reach its second worker. No tuple is in use.
    struct EvenPortsElsewhere;

    impl TupleUse for EvenPortsElsewhere {
        fn is_used(&self, _: &Tuple) -> bool {
            false
        }

        fn belongs_to_other_worker(&self, tuple: &Tuple) -> bool {
            tuple.destination_port.is_multiple_of(2)
        }
    }

    #[test]
    fn a_port_whose_replies_reach_another_worker_is_never_chosen() {
        let range = PortRange::new(1024, 2047).expect("in order");
        let ports = SourcePorts::new(range, NodeId(0), NonZeroU8::MIN, HashKey([1, 2])).expect("there are ports");
        let pool = [crate::address::tuple_bytes([198, 51, 100, 1].into())];
        let server = ([192, 0, 2, 1].into(), 80);
        for source_port in 1..200 {
            let outgoing = Tuple::v4(17, ([10, 0, 0, 2].into(), source_port), server);
            let translated = ports.translate(&outgoing, &pool, &EvenPortsElsewhere, |_| false).expect("ports are free");
            assert_eq!(translated.source_port % 2, 1, "{translated:?}");
        }
        // Where no port is of this worker, none is chosen.
        let even = PortRange::new(1024, 1024).expect("one port");
        let ports = SourcePorts::new(even, NodeId(0), NonZeroU8::MIN, HashKey([1, 2])).expect("there is a port");
        let outgoing = Tuple::v4(17, ([10, 0, 0, 2].into(), 1), server);
        assert_eq!(ports.translate(&outgoing, &pool, &EvenPortsElsewhere, |_| false), None);
    }

    proptest! {
        #[test]
        fn every_candidate_is_in_the_range_and_none_comes_twice(a in 0u16.., b in 0u16.., hash: u64) {
            let range = PortRange::new(a.min(b), a.max(b)).unwrap();
            let mut ports: Vec<u16> = candidates(range, hash).take(PORT_PROBES_MAX).collect();
            prop_assert!(ports.iter().all(|&port| range.contains(port)));
            let probes = ports.len();
            prop_assert_eq!(probes, PORT_PROBES_MAX.min(range.count() as usize));
            ports.sort_unstable();
            ports.dedup();
            prop_assert_eq!(ports.len(), probes);
        }
    }
}
