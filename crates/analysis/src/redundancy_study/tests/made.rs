//! Packets made by hand.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use flow::Instant;
use flow::wire::tcp_flags;

use crate::redundancy_study::{Observed, Source};

/// So many random bytes, the same for the same seed.
pub(super) fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(byte).collect()
}

struct Packet {
    at: Instant,
    source: SocketAddr,
    destination: SocketAddr,
    sequence: u32,
    payload: Vec<u8>,
}

/// A capture.
#[derive(Default)]
pub(super) struct Made {
    packets: Vec<Packet>,
    sequences: HashMap<(SocketAddr, SocketAddr), u32>,
}

impl Made {
    /// What a flow sends next.
    pub(super) fn tcp(&mut self, at_ms: u64, source: &str, destination: &str, payload: &[u8]) {
        let [source, destination] = [source, destination].map(|end| end.parse().expect("an address and a port"));
        let sequence = self.sequences.entry((source, destination)).or_insert(1);
        let at = Instant::from_millis(at_ms);
        self.packets.push(Packet { at, source, destination, sequence: *sequence, payload: payload.to_vec() });
        *sequence += payload.len() as u32;
    }

    /// The last packet once more, as it was.
    pub(super) fn retransmit(&mut self, at_ms: u64) {
        let last = self.packets.last().expect("there is one");
        let Packet { source, destination, sequence, .. } = *last;
        let payload = last.payload.clone();
        self.packets.push(Packet { at: Instant::from_millis(at_ms), source, destination, sequence, payload });
    }
}

pub(super) struct MadeSource {
    made: Made,
    next: usize,
}

impl MadeSource {
    pub(super) const fn new(made: Made) -> Self {
        Self { made, next: 0 }
    }
}

impl Source for MadeSource {
    fn feed(&mut self, visit: &mut dyn FnMut(&Observed<'_>)) -> bool {
        let Some(packet) = self.made.packets.get(self.next) else { return false };
        self.next += 1;
        visit(&Observed {
            at: packet.at,
            source: packet.source.ip(),
            destination: packet.destination.ip(),
            source_port: packet.source.port(),
            destination_port: packet.destination.port(),
            ip_protocol: 6,
            tcp: Some((packet.sequence, tcp_flags::ACK)),
            ip_bytes: packet.payload.len() as u32 + 40,
            payload: &packet.payload,
        });
        true
    }

    fn read_bytes(&self) -> [Option<u64>; 2] {
        [Some(self.next as u64), Some(self.made.packets.len() as u64)]
    }

    fn skipped(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn damaged(&self) -> Vec<String> {
        Vec::new()
    }
}
