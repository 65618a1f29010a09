//! What there is at a site, and what of it could not be studied.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::analysis::Analysis;
use super::limits::HOSTS_MAX;
use super::packet::{Packet, SiteDirection};
use super::tally::Savings;

/// What there is. Nothing is saved in it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct LedgerOutcome {
    /// The traffic that was studied.
    pub traffic: Savings,
    /// Addresses at the site, at most as many as the limit.
    pub hosts: u64,
    /// Nanoseconds from the Unix epoch to the first packet and to the last.
    pub time_nanos: Option<[u64; 2]>,
    /// Packets that were not studied, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Captures that end before they should, and where.
    pub damaged: Vec<String>,
}

impl LedgerOutcome {
    /// Those of two sites together. Of the time, the longer.
    pub(super) fn merge(&mut self, other: &Self) {
        self.traffic.merge(&other.traffic);
        self.hosts += other.hosts;
        let length = |time: Option<[u64; 2]>| time.map_or(0, |[first, last]| last - first);
        if length(other.time_nanos) > length(self.time_nanos) {
            self.time_nanos = other.time_nanos;
        }
        for (reason, count) in &other.skipped {
            *self.skipped.entry(reason.clone()).or_default() += count;
        }
        self.damaged.extend_from_slice(&other.damaged);
    }
}

#[derive(Default)]
pub(super) struct Ledger {
    outcome: LedgerOutcome,
    hosts: HashSet<IpAddr>,
}

impl Analysis for Ledger {
    type Outcome = LedgerOutcome;

    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        self.outcome.traffic.add(packet, payload.len(), 0);
        if self.hosts.len() < HOSTS_MAX {
            self.hosts.insert(if packet.way == SiteDirection::Outbound { packet.source } else { packet.destination });
        }
        let at = packet.at.as_nanos();
        let [first, last] = self.outcome.time_nanos.unwrap_or([at; 2]);
        self.outcome.time_nanos = Some([first.min(at), last.max(at)]);
    }

    fn finish(self) -> LedgerOutcome {
        let hosts = self.hosts.len() as u64;
        LedgerOutcome { hosts, ..self.outcome }
    }
}
