//! Bytes in and bytes saved, by way and by protocol: what every job counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::packet::{Packet, Secrecy, SiteDirection};

/// Bytes on the wire without and with redundancy elimination. Headers are in both.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Their bytes behind the transport's header.
    pub payload_bytes: u64,
    /// Bytes that were saved less those that shims added.
    pub saved_bytes: i64,
}

impl Tally {
    pub(super) fn add(&mut self, packet: &Packet, payload_bytes: usize, saved_bytes: i64) {
        self.packets += 1;
        self.bytes += u64::from(packet.ip_bytes);
        self.payload_bytes += payload_bytes as u64;
        self.saved_bytes += saved_bytes;
    }

    /// Both together.
    pub(super) fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.payload_bytes += other.payload_bytes;
        self.saved_bytes += other.saved_bytes;
    }

    /// The share of all bytes on the wire that is saved: the seed's bandwidth savings.
    #[must_use]
    pub(super) fn saved(&self) -> f64 {
        share(self.saved_bytes as f64, self.bytes)
    }
}

/// `part` of `whole`, 0 of nothing, to six digits.
#[must_use]
pub(super) fn share(part: f64, whole: u64) -> f64 {
    let share = if whole == 0 { 0.0 } else { part / whole as f64 };
    rounded(share)
}

/// To six digits behind the point, so that what is printed is what is meant.
#[must_use]
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6 + 0.0
}

/// What one way of saving did with the traffic.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct Savings {
    /// To the site and from it.
    pub ways: [Tally; 2],
    /// By protocol.
    pub protocols: BTreeMap<String, Tally>,
    /// What is encrypted by its port, and what looks so by its bytes.
    pub encrypted: [Tally; 2],
    /// What was sent before in the same flow.
    pub repeated: Tally,
}

impl Savings {
    pub(super) fn add(&mut self, packet: &Packet, payload_bytes: usize, saved_bytes: i64) {
        self.ways[packet.way as usize].add(packet, payload_bytes, saved_bytes);
        let name = packet.protocol.protocol().name;
        match self.protocols.get_mut(name) {
            Some(tally) => tally.add(packet, payload_bytes, saved_bytes),
            None => self.protocols.entry(name.to_owned()).or_default().add(packet, payload_bytes, saved_bytes),
        }
        match packet.secrecy {
            Secrecy::Open => {}
            Secrecy::ByPort => self.encrypted[0].add(packet, payload_bytes, saved_bytes),
            Secrecy::ByEntropy => self.encrypted[1].add(packet, payload_bytes, saved_bytes),
        }
        if packet.is_repeated {
            self.repeated.add(packet, payload_bytes, saved_bytes);
        }
    }

    /// Those of two sites together.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.ways.iter_mut().zip(&other.ways) {
            own.merge(other);
        }
        for (name, other) in &other.protocols {
            self.protocols.entry(name.clone()).or_default().merge(other);
        }
        for (own, other) in self.encrypted.iter_mut().zip(&other.encrypted) {
            own.merge(other);
        }
        self.repeated.merge(&other.repeated);
    }

    /// Of both ways together.
    #[must_use]
    pub(super) fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.ways.iter().for_each(|way| total.merge(way));
        total
    }

    /// Of one way.
    #[must_use]
    pub(super) const fn way(&self, way: SiteDirection) -> &Tally {
        &self.ways[way as usize]
    }
}
