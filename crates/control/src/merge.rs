//! The gateway's answer, put together from the answers of its workers.

use std::collections::HashMap;

use api::metrics::{Merge, Sample, Samples};
use api::{Status, catalogue};

/// The status of the whole from those of the workers, of which the first is the lead's.
pub(super) fn status(mut workers: Vec<Status>) -> Status {
    let others = workers.split_off(workers.len().min(1));
    let mut whole = workers.pop().unwrap_or_default();
    for (number, other) in (1..).zip(others) {
        add(&mut whole, number, &other);
    }
    whole
}

fn add(whole: &mut Status, number: u8, other: &Status) {
    if whole.takeover.ready && !other.takeover.ready {
        // The lead's reasons hold for all workers; where it has none, the worker has one of its own.
        let of_worker = |reason: &String| format!("worker {number}: {reason}");
        whole.takeover.obstacles = other.takeover.obstacles.iter().map(of_worker).collect();
        whole.takeover.ready = false;
    }
    whole.add_worker(other);
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
        let metric = catalogue().iter().find(|metric| metric.name == sample.name);
        // The parts of a histogram have names of their own.
        match metric.map_or(Merge::Sum, |metric| metric.merge) {
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
    use crate::metrics::add_status;
    use api::metrics::Metric;
    use api::{
        ConnectionsStatus, DropCount, LazyStatus, PeerStatus, PortStatus, SessionState, TakeoverStatus, WorkerStatus,
    };

    fn worker(number: u8) -> Status {
        Status {
            connections: ConnectionsStatus { count: 10, max: 100, unanswered: 0, master: None },
            takeover: TakeoverStatus { ready: true, obstacles: Vec::new() },
            peers: vec![PeerStatus {
                session: SessionState::Open,
                synchronised: true,
                sent: 5,
                ..PeerStatus::default()
            }],
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
        late.peers[0] = PeerStatus { session: SessionState::Seeking, ..PeerStatus::default() };
        let whole = status(vec![worker(0), late]);
        assert!(!whole.takeover.ready && !whole.peers[0].synchronised);
        assert_eq!(whole.takeover.obstacles, ["worker 1: node 1 is still synchronising"]);
        assert_eq!(whole.peers[0].session, SessionState::Seeking);
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
        let of = |count: u64, ready: bool, lag_ms: f64| {
            let mut status = worker(count as u8);
            (status.uptime_s, status.connections.count, status.takeover.ready) = (9.0, count, ready);
            (status.peers[0].lag_ms, status.workers[0].taken) = (lag_ms, count);
            let mut samples = Samples::default();
            add_status(&mut samples, &status);
            samples.add_count(Metric::Takeovers, &[], 2);
            samples.add_count(Metric::ConnectionsOpened, &[], count);
            samples
        };
        let whole = samples(vec![of(3, true, 100.0), of(4, false, 200.0)]);
        let values = |name: &str| -> Vec<f64> {
            let of_name = whole.as_slice().iter().filter(|sample| sample.name == format!("mainstay_{name}"));
            of_name.map(|sample| sample.value).collect()
        };
        assert_eq!((values("uptime_seconds"), values("takeover_ready")), (vec![9.0], vec![0.0]));
        assert_eq!((values("connections"), values("replication_sent_messages_total")), (vec![7.0], vec![10.0]));
        assert_eq!((values("replication_lag_seconds"), values("peer_synchronised")), (vec![0.2], vec![1.0]));
        assert_eq!(values("worker_taken_packets_total"), [3.0, 4.0], "each worker has its own");
        assert_eq!((values("takeovers_total"), values("connections_opened_total")), (vec![2.0], vec![7.0]));
    }
}
