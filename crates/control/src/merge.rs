//! The gateway's answer, put together from the answers of its workers.

use std::collections::HashMap;

use api::metrics::{Metric, Sample, Samples};
use api::{AntiEntropy, DropCount, FastPathStatus, PeerStatus, PortStatus, Status};

/// The status of the whole from those of the workers, of which the first is the lead's.
pub(super) fn status(mut workers: Vec<Status>) -> Status {
    let others = workers.split_off(workers.len().min(1));
    let mut whole = workers.pop().unwrap_or_default();
    for (number, other) in (1..).zip(others) {
        add(&mut whole, number, other);
    }
    whole
}

fn add(whole: &mut Status, number: u8, other: Status) {
    whole.connections.count += other.connections.count;
    whole.connections.max += other.connections.max;
    whole.connections.unanswered += other.connections.unanswered;
    whole.connections.master = whole.connections.master.zip(other.connections.master).map(|(a, b)| a + b);
    if let Some((lazy, others)) = whole.lazy.as_mut().zip(other.lazy) {
        lazy.add(&others);
    }
    if let Some((segments, others)) = whole.segments.as_mut().zip(other.segments) {
        segments.add(&others);
    }
    whole.rates.packets_per_s += other.rates.packets_per_s;
    whole.rates.bits_per_s += other.rates.bits_per_s;
    whole.rates.connections_per_s += other.rates.connections_per_s;
    if whole.takeover.ready && !other.takeover.ready {
        // The lead's reasons hold for all workers; where it has none, the worker has one of its own.
        let of_worker = |reason: String| format!("worker {number}: {reason}");
        whole.takeover.obstacles = other.takeover.obstacles.into_iter().map(of_worker).collect();
        whole.takeover.ready = false;
    }
    for (peer, others) in whole.peers.iter_mut().zip(&other.peers) {
        add_peer(peer, others);
    }
    for (port, others) in whole.ports.iter_mut().zip(&other.ports) {
        add_port(port, others);
    }
    for drop in other.drops {
        match whole.drops.iter_mut().find(|known| known.reason == drop.reason) {
            Some(known) => known.packets += drop.packets,
            None => whole.drops.push(DropCount { ..drop }),
        }
    }
    for (class, others) in whole.classes.iter_mut().zip(&other.classes) {
        class.connections += others.connections;
        class.packets += others.packets;
        class.bytes += others.bytes;
    }
    if let (Some(service), Some(others)) = (&mut whole.state_service, &other.state_service) {
        service.add(others);
    }
    if let (Some(filter), Some(others)) = (&mut whole.filter, &other.filter) {
        filter.add(others);
    }
    if let (Some(fast_path), Some(others)) = (&mut whole.fast_path, &other.fast_path) {
        add_fast_path(fast_path, others);
    }
    whole.workers.extend(other.workers);
}

/// The lead alone knows the outcomes, which are those of all workers' packets.
fn add_fast_path(fast_path: &mut FastPathStatus, other: &FastPathStatus) {
    fast_path.forwarding &= other.forwarding;
    fast_path.connections += other.connections;
    fast_path.packets += other.packets;
    fast_path.bytes += other.bytes;
    fast_path.full += other.full;
    fast_path.refused += other.refused;
}

/// Every worker has a session with the same peer. The lead alone runs its failure detector and receives its role.
fn add_peer(peer: &mut PeerStatus, other: &PeerStatus) {
    // The least good session is that of the peer.
    if peer.session == "open" {
        peer.session.clone_from(&other.session);
    }
    peer.synchronised &= other.synchronised;
    peer.lag_ms = peer.lag_ms.max(other.lag_ms);
    peer.rtt_ms = [peer.rtt_ms, other.rtt_ms].into_iter().flatten().reduce(f64::max);
    peer.queued += other.queued;
    peer.uncovered += other.uncovered;
    peer.in_flight += other.in_flight;
    peer.sent += other.sent;
    peer.received += other.received;
    peer.resent += other.resent;
    peer.lost += other.lost;
    add_anti_entropy(&mut peer.anti_entropy, &other.anti_entropy);
    peer.channel.add(&other.channel);
    if let (Some(filter), Some(others)) = (&mut peer.filter, &other.filter) {
        filter.add(others);
    }
    peer.last_received_ns = peer.last_received_ns.max(other.last_received_ns);
}

/// All agree since the time at which the last of them was found to.
fn add_anti_entropy(anti_entropy: &mut AntiEntropy, other: &AntiEntropy) {
    anti_entropy.agreed_ns = anti_entropy.agreed_ns.zip(other.agreed_ns).map(|(one, other)| one.min(other));
    anti_entropy.divergent += other.divergent;
    anti_entropy.rounds = anti_entropy.rounds.min(other.rounds);
    anti_entropy.found += other.found;
    anti_entropy.repaired += other.repaired;
    anti_entropy.extra_removed += other.extra_removed;
    anti_entropy.unnoted_changes += other.unnoted_changes;
}

fn add_port(port: &mut PortStatus, other: &PortStatus) {
    port.received_packets += other.received_packets;
    port.received_bytes += other.received_bytes;
    port.sent_packets += other.sent_packets;
    port.sent_bytes += other.sent_bytes;
    port.missed_packets += other.missed_packets;
}

/// How the workers' values of a metric become the gateway's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Merge {
    Sum,
    Least,
    Greatest,
    /// The lead knows it, or all know the same.
    Lead,
}

fn merge_of(name: &str) -> Merge {
    let metric = Metric::ALL.iter().find(|metric| metric.name() == name);
    match metric {
        Some(
            Metric::BuildInfo
            | Metric::Uptime
            | Metric::NodeActive
            | Metric::GroupActive
            | Metric::Passive
            | Metric::PeerUp
            | Metric::PortUp
            | Metric::NextHopUp
            | Metric::FastPathHook
            | Metric::Takeovers,
        ) => Merge::Lead,
        Some(Metric::TakeoverReady | Metric::PeerSynchronised | Metric::ChannelSecured) => Merge::Least,
        // A worker's recovery ends when the entries of its part of the filter have been recovered.
        Some(
            Metric::ReplicationLag
            | Metric::LazyThreshold
            | Metric::LazyLevel
            | Metric::LazyUtilisation
            | Metric::RecoveryActive,
        ) => Merge::Greatest,
        _ => Merge::Sum,
    }
}

/// The values of the whole from those of the workers, in the order in which they first occur.
pub(super) fn samples(workers: Vec<Samples>) -> Samples {
    let mut merged: Vec<Sample> = Vec::new();
    let mut places = HashMap::new();
    for sample in workers.into_iter().flatten() {
        let at = *places.entry((sample.name.clone(), sample.labels.clone())).or_insert(merged.len());
        let Some(known) = merged.get_mut(at) else {
            merged.push(sample);
            continue;
        };
        match merge_of(&sample.name) {
            Merge::Sum => known.value += sample.value,
            Merge::Least => known.value = known.value.min(sample.value),
            Merge::Greatest => known.value = known.value.max(sample.value),
            Merge::Lead => {}
        }
    }
    let mut whole = Samples::default();
    merged.into_iter().for_each(|sample| whole.push(sample));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{ConnectionsStatus, LazyStatus, TakeoverStatus, WorkerStatus};

    fn worker(number: u8) -> Status {
        Status {
            connections: ConnectionsStatus { count: 10, max: 100, unanswered: 0, master: None },
            takeover: TakeoverStatus { ready: true, obstacles: Vec::new() },
            peers: vec![PeerStatus { session: "open".into(), synchronised: true, sent: 5, ..PeerStatus::default() }],
            ports: vec![PortStatus { received_packets: 7, ..PortStatus::default() }],
            drops: vec![DropCount { reason: format!("reason_{number}"), packets: 1 }],
            workers: vec![WorkerStatus { number, ..WorkerStatus::default() }],
            ..Status::default()
        }
    }

    #[test]
    fn what_workers_hold_and_move_is_added_up() {
        let whole = status(vec![worker(0), worker(1), worker(1)]);
        assert_eq!((whole.connections.count, whole.connections.max), (30, 300));
        assert_eq!((whole.peers[0].sent, whole.ports[0].received_packets), (15, 21));
        let drops: Vec<_> = whole.drops.iter().map(|drop| (drop.reason.as_str(), drop.packets)).collect();
        assert_eq!(drops, [("reason_0", 1), ("reason_1", 2)]);
        assert_eq!(whole.workers.len(), 3);
        assert!(whole.takeover.ready && whole.peers[0].synchronised);
    }

    #[test]
    fn one_worker_that_is_not_ready_makes_the_node_not_ready() {
        let mut late = worker(1);
        late.takeover = TakeoverStatus { ready: false, obstacles: vec!["node 1 is still synchronising".into()] };
        late.peers[0] = PeerStatus { session: "seeking".into(), ..PeerStatus::default() };
        let whole = status(vec![worker(0), late]);
        assert!(!whole.takeover.ready && !whole.peers[0].synchronised);
        assert_eq!(whole.takeover.obstacles, ["worker 1: node 1 is still synchronising"]);
        assert_eq!(whole.peers[0].session, "seeking");
    }

    #[test]
    fn the_deferral_of_the_most_degraded_worker_is_that_of_the_node() {
        let with = |number: u8, threshold_ms: f64, level: u8, deferred: u64| {
            let lazy =
                LazyStatus { threshold_ms, level, levels: 10, deferred, never_replicated: 5, ..LazyStatus::default() };
            Status { lazy: Some(lazy), ..worker(number) }
        };
        let whole = status(vec![with(0, 50.0, 1, 7), with(1, 200.0, 4, 70)]).lazy.expect("it is configured");
        assert_eq!((whole.threshold_ms, whole.level, whole.deferred, whole.never_replicated), (200.0, 4, 77, 10));
    }

    #[test]
    fn the_answer_of_one_worker_alone_is_unchanged() {
        assert_eq!(status(vec![worker(0)]), worker(0));
    }

    #[test]
    fn values_are_added_unless_they_measure_the_same_thing() {
        let of = |count: u64, ready: bool, lag_s: f64| {
            let mut samples = Samples::default();
            samples.add(Metric::Uptime, &[], 9.0);
            samples.add_count(Metric::Connections, &[], count);
            samples.add_flag(Metric::TakeoverReady, &[], ready);
            samples.add_flag(Metric::RecoveryActive, &[], !ready);
            samples.add(Metric::ReplicationLag, &["1"], lag_s);
            samples.add_count(Metric::WorkerTaken, &[&count.to_string()], count);
            samples
        };
        let whole = samples(vec![of(3, true, 0.1), of(4, false, 0.2)]);
        let values: Vec<f64> = whole.as_slice().iter().map(|sample| sample.value).collect();
        assert_eq!(values, [9.0, 7.0, 0.0, 1.0, 0.2, 3.0, 4.0]);
    }
}
