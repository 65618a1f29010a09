//! What redundancy elimination would need of end hosts (seed, section 4.5 and figure 4.9): a cache for each pair of a client and a
//! server, of a size that depends on their protocol, and removed when they have been silent for ten hours.
//!
//! A cache is filled by what the server sends the client, and each of the two has one: the client the bytes, the server the bytes and
//! an index of them (Max-Match), or the index alone (Chunk-Match).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use flow::Instant;
use serde::{Deserialize, Serialize};

use super::analysis::Analysis;
use super::limits::PAIRS_MAX;
use super::packet::Packet;

/// Caches by a pair's protocol: the paper's choice, from the knees of figure 4.8.
const CACHES: [(&str, u64); 3] = [("http", 10 << 20), ("smb", 4 << 20), ("netbios", 4 << 20)];
/// The cache of a pair with none of these protocols.
const CACHE_BYTES_ELSE: u64 = 1 << 20;
/// A pair that was silent for so long keeps no cache in memory.
const SILENCE: Duration = Duration::from_secs(10 * 3600);
/// Silent pairs are looked for so often.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// Bytes in memory, now and at most.
#[derive(Clone, Copy, Default, Debug)]
struct Memory {
    now: u64,
    most: u64,
}

impl Memory {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.most = self.most.max(self.now);
    }
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    sent_bytes: u64,
    cache_bytes_max: u64,
    /// What of its cache is in memory: none, or all that was sent and fits.
    held_bytes: u64,
    last_at: Instant,
}

/// The most that nodes ever needed, in KB, and how many needed that.
type Needs = BTreeMap<u64, u64>;

/// What was found.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct EndHostsOutcome {
    /// Of clients.
    pub clients: Needs,
    /// Of servers: the bytes of their caches.
    pub servers: Needs,
    /// Pairs that were followed.
    pub pairs: u64,
    /// Packets of pairs that were not, because there are too many.
    pub packets_left_out: u64,
}

impl EndHostsOutcome {
    /// Those of two sites together.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in [(&mut self.clients, &other.clients), (&mut self.servers, &other.servers)] {
            other.iter().for_each(|(kilobytes, nodes)| *own.entry(*kilobytes).or_default() += nodes);
        }
        self.pairs += other.pairs;
        self.packets_left_out += other.packets_left_out;
    }
}

#[derive(Default)]
pub(super) struct EndHosts {
    /// By client and server.
    pairs: HashMap<[IpAddr; 2], Pair>,
    clients: HashMap<IpAddr, Memory>,
    servers: HashMap<IpAddr, Memory>,
    looked_at: Instant,
    packets_left_out: u64,
}

impl EndHosts {
    /// What silent pairs hold is let go.
    fn let_go(&mut self, now: Instant) {
        self.looked_at = now;
        for ([client, server], pair) in &mut self.pairs {
            if pair.held_bytes == 0 || now.saturating_since(pair.last_at) < SILENCE {
                continue;
            }
            let held_bytes = std::mem::take(&mut pair.held_bytes);
            for memory in [self.clients.get_mut(client), self.servers.get_mut(server)].into_iter().flatten() {
                memory.now -= held_bytes;
            }
        }
    }
}

impl Analysis for EndHosts {
    type Outcome = EndHostsOutcome;

    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        if packet.at.saturating_since(self.looked_at) >= LOOK_EVERY {
            self.let_go(packet.at);
        }
        let ends = [packet.source, packet.destination];
        let [client, server] = if packet.is_from_client { ends } else { [ends[1], ends[0]] };
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&[client, server]) {
            self.packets_left_out += 1;
            return;
        }
        let new = Pair { sent_bytes: 0, cache_bytes_max: CACHE_BYTES_ELSE, held_bytes: 0, last_at: packet.at };
        let pair = self.pairs.entry([client, server]).or_insert(new);
        let name = packet.protocol.protocol().name;
        let of_protocol = CACHES.iter().find(|(protocol, _)| *protocol == name).map_or(CACHE_BYTES_ELSE, |of| of.1);
        pair.cache_bytes_max = pair.cache_bytes_max.max(of_protocol);
        pair.last_at = packet.at;
        if !packet.is_from_client {
            pair.sent_bytes += payload.len() as u64;
        }
        let holds_bytes = pair.sent_bytes.min(pair.cache_bytes_max);
        let more_bytes = holds_bytes - pair.held_bytes;
        pair.held_bytes = holds_bytes;
        self.clients.entry(client).or_default().add(more_bytes);
        self.servers.entry(server).or_default().add(more_bytes);
    }

    fn finish(self) -> EndHostsOutcome {
        let needs = |nodes: &HashMap<IpAddr, Memory>| {
            let mut needs = Needs::new();
            nodes.values().for_each(|memory| *needs.entry(memory.most.div_ceil(1 << 10)).or_default() += 1);
            needs
        };
        EndHostsOutcome {
            clients: needs(&self.clients),
            servers: needs(&self.servers),
            pairs: self.pairs.len() as u64,
            packets_left_out: self.packets_left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy_study::classify::Classifier;
    use crate::redundancy_study::packet::{Batch, Observed};

    /// What servers send clients: hours, server, client, port, megabytes.
    fn needs(sent: &[(u64, &str, &str, u16, usize)]) -> EndHostsOutcome {
        let (mut classifier, mut end_hosts) = (Classifier::new(&[]), EndHosts::default());
        let payload = vec![0; 1 << 16];
        for (hours, server, client, port, megabytes) in sent {
            for _ in 0..megabytes << 4 {
                let observed = Observed {
                    at: Instant::from_millis(hours * 3_600_000),
                    source: server.parse().expect("an address"),
                    destination: client.parse().expect("an address"),
                    source_port: *port,
                    destination_port: 40_000,
                    ip_protocol: 6,
                    tcp: Some((0, flow::wire::tcp_flags::ACK)),
                    ip_bytes: 0,
                    payload: &payload,
                };
                let mut batch = Batch::default();
                batch.push(&observed, classifier.look(&observed));
                batch.iter().for_each(|(packet, payload)| end_hosts.handle(packet, payload));
            }
        }
        end_hosts.finish()
    }

    #[test]
    fn a_cache_is_as_large_as_what_was_sent_and_what_is_spoken_allows() {
        let [one, other, server] = ["10.0.0.1", "10.0.0.2", "192.0.2.1"];
        let found = needs(&[(1, server, one, 80, 3), (1, server, other, 80, 12), (1, server, other, 5000, 1)]);
        assert_eq!(found.pairs, 2);
        assert_eq!(found.clients, [(3 << 10, 1), (10 << 10, 1)].into(), "3 MB, and of 13 the 10 that HTTP is given");
        assert_eq!(found.servers, [(13 << 10, 1)].into(), "it has a cache for either");
        assert_eq!(needs(&[(1, server, one, 5000, 3)]).clients, [(1 << 10, 1)].into());
        assert_eq!(needs(&[(1, server, one, 445, 30)]).clients, [(4 << 10, 1)].into());
    }

    #[test]
    fn what_was_silent_for_ten_hours_is_not_in_memory_with_what_comes_then() {
        let [one, first, second] = ["10.0.0.1", "192.0.2.1", "192.0.2.2"];
        let within = |hours: u64| needs(&[(1, first, one, 80, 5), (1 + hours, second, one, 80, 4)]).clients;
        assert_eq!(within(9), [(9 << 10, 1)].into());
        assert_eq!(within(11), [(5 << 10, 1)].into());
    }
}
