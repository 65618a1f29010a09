//! Packets find the state of their connection on other nodes, and bogus ones cost little.

use super::*;
use crate::message::{Message, Side};
use flow::{Instant, Tuple};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;

use crate::index::IndexSecret;

/// A node: its service, and its table of states.
struct Node {
    service: StateService<u32>,
    table: TestTable,
}

#[derive(Default)]
struct TestTable {
    states: BTreeMap<Key, Vec<u8>>,
    handed_over: usize,
}

impl Table for TestTable {
    fn hand_over(&mut self, _to: NodeId, key: &Key, state: &mut Vec<u8>) -> bool {
        let Some(held) = self.states.get(key) else { return false };
        state.extend_from_slice(held);
        self.handed_over += 1;
        true
    }
}

/// Nodes joined by a network without delay.
struct Cluster {
    nodes: Vec<Node>,
    now: Instant,
    /// Messages from this node are lost.
    muted: Option<usize>,
    messages: usize,
}

impl Cluster {
    fn new(count: u8, limits: Limits) -> Self {
        let node = |number: u8| {
            let mut service =
                StateService::new(IndexSecret::new([1, 2]), 1000, u32::from(number) + 1, limits).expect("in range");
            (0..count).filter(|peer| *peer != number).for_each(|peer| {
                service.set_alive(Instant::ZERO, NodeId(peer), true);
            });
            Node { service, table: TestTable::default() }
        };
        Self { nodes: (0..count).map(node).collect(), now: Instant::from_millis(1), muted: None, messages: 0 }
    }

    fn hold(&mut self, node: usize, key: Key) {
        let node = &mut self.nodes[node];
        node.table.states.insert(key, vec![7; 20]);
        node.service.note_entered(&key).expect("room");
    }

    /// Delivers messages until there are none.
    fn deliver(&mut self) {
        let mut has_sent = true;
        while has_sent {
            has_sent = false;
            for from in 0..self.nodes.len() {
                let mut bytes = Vec::new();
                while let Some(to) = self.nodes[from].service.poll_transmit(&mut bytes) {
                    let bytes = core::mem::take(&mut bytes);
                    has_sent = true;
                    for receiver in (0..self.nodes.len()).filter(|node| *node != from) {
                        if self.muted != Some(from)
                            && [Receiver::All, Receiver::Node(NodeId(receiver as u8))].contains(&to)
                        {
                            self.messages += 1;
                            let Node { service, table } = &mut self.nodes[receiver];
                            service
                                .handle_peer(self.now, NodeId(from as u8), &bytes, table)
                                .expect("a message of a node");
                        }
                    }
                }
            }
        }
    }

    /// Time passes, a millisecond at a time.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now + Duration::from_millis(1);
            for node in &mut self.nodes {
                if node.service.poll_timeout() <= self.now {
                    node.service.handle_timeout(self.now);
                }
                assert!(node.service.poll_timeout() > self.now, "all that was due is done");
            }
            self.deliver();
        }
    }

    fn lookup(&mut self, node: usize, key: Key, packet: u32) -> Lookup<u32> {
        let held = if self.nodes[node].table.states.contains_key(&key) { Held::Owned } else { Held::Nothing };
        let now = self.now;
        self.nodes[node].service.lookup(now, key, packet, held, false)
    }
}

fn key(number: u32) -> Key {
    Key { side: Side::Incoming, tuple: Tuple::v4(6, (number.into(), 4000), (0x0a00_0001.into(), 80)) }
}

#[test]
fn a_connection_in_a_peers_index_is_pulled_with_one_request() {
    let mut cluster = Cluster::new(4, Limits::default());
    cluster.hold(2, key(1));
    cluster.pass(60);
    assert_eq!(cluster.lookup(0, key(1), 10), Lookup::Waits);
    assert_eq!(cluster.lookup(0, key(1), 11), Lookup::Waits);
    cluster.deliver();
    let outcome = cluster.nodes[0].service.poll_outcome();
    let (from, packets, state) = (NodeId(2), vec![10, 11], vec![7; 20]);
    assert_eq!(outcome, Some(Outcome::Pulled { key: key(1), from, state, packets }));
    let counters = cluster.nodes[0].service.counters();
    assert_eq!((counters.pulls, counters.pulled, counters.queries), (1, 1, 0));
    assert_eq!(cluster.nodes[2].table.handed_over, 1);
    assert_eq!(cluster.nodes[0].service.waiting(), 0);
}

#[test]
fn what_the_table_has_needs_no_message() {
    let mut cluster = Cluster::new(2, Limits::default());
    let now = cluster.now;
    let service = &mut cluster.nodes[0].service;
    assert_eq!(service.lookup(now, key(1), 1, Held::Owned, false), Lookup::Process(1));
    assert_eq!(service.lookup(now, key(1), 2, Held::Replica, false), Lookup::TakeOver(2));
    assert_eq!(service.lookup(now, key(1), 3, Held::Nothing, true), Lookup::Begin(3));
    assert_eq!(service.poll_transmit(&mut Vec::new()), None);
}

#[test]
fn a_connection_that_is_not_yet_advertised_is_found_by_a_query() {
    let mut cluster = Cluster::new(4, Limits::default());
    cluster.pass(60);
    cluster.hold(3, key(1));
    assert_eq!(cluster.lookup(0, key(1), 10), Lookup::Waits);
    cluster.pass(2);
    assert!(matches!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Pulled { from: NodeId(3), .. })));
    assert_eq!(cluster.nodes[0].service.counters().queries, 1);
}

#[test]
fn packets_of_no_connection_are_dropped_after_one_query_for_all() {
    let mut cluster = Cluster::new(4, Limits::default());
    cluster.hold(1, key(999));
    cluster.pass(60);
    let before = cluster.messages;
    (0..64).for_each(|number| assert_eq!(cluster.lookup(0, key(number), number), Lookup::Waits));
    cluster.pass(5);
    let outcomes: Vec<_> = core::iter::from_fn(|| cluster.nodes[0].service.poll_outcome()).collect();
    assert_eq!(outcomes.len(), 64);
    assert!(outcomes.iter().all(|one| matches!(one, Outcome::Dropped { reason: LookupDrop::Unknown, .. })));
    // A query to each of three peers, and the answer for each side.
    assert_eq!(cluster.messages - before, 3 + 3 * 2);
}

#[test]
fn a_flood_causes_no_more_queries_than_the_rate_permits() {
    let limits = Limits { queries: flow::RateLimit::new(10, 2), ..Limits::default() };
    let mut cluster = Cluster::new(4, limits);
    cluster.pass(60);
    let mut number = 0;
    for _ in 0..1000 {
        for _ in 0..200 {
            number += 1;
            let _ = cluster.lookup(0, key(1000 + number), number);
        }
        assert!(cluster.nodes[0].service.waiting() <= limits.packets_max);
        cluster.pass(1);
        while cluster.nodes[0].service.poll_outcome().is_some() {}
    }
    let counters = cluster.nodes[0].service.counters();
    assert!((10..=13).contains(&counters.queries), "{counters:?}");
    let dropped: u64 = counters.dropped.iter().sum();
    assert!(dropped + cluster.nodes[0].service.waiting() as u64 == u64::from(number), "{counters:?}");
    // The connection of another node is still found: pulls have a budget of their own.
    cluster.hold(1, key(1));
    cluster.pass(60);
    while cluster.nodes[0].service.poll_outcome().is_some() {}
    assert_eq!(cluster.lookup(0, key(1), 1), Lookup::Waits);
    cluster.deliver();
    assert!(matches!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Pulled { .. })));
}

#[test]
fn a_backup_that_does_not_answer_is_replaced_by_the_next() {
    let mut cluster = Cluster::new(3, Limits::default());
    cluster.hold(1, key(1));
    cluster.hold(2, key(1));
    cluster.pass(60);
    for muted in [1, 2] {
        cluster.muted = Some(muted);
        assert_eq!(cluster.lookup(0, key(1), 10), Lookup::Waits);
        cluster.pass(25);
        let other = NodeId(3 - muted as u8);
        assert!(matches!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Pulled { from, .. }) if from == other));
    }
}

#[test]
fn a_dead_backup_is_not_asked_and_a_pull_from_it_goes_to_the_next() {
    let mut cluster = Cluster::new(3, Limits::default());
    cluster.hold(1, key(1));
    cluster.hold(2, key(1));
    cluster.pass(60);
    assert_eq!(cluster.lookup(0, key(1), 10), Lookup::Waits);
    let now = cluster.now;
    for dead in [1, 2] {
        cluster.nodes[0].service.set_alive(now, NodeId(dead), false);
    }
    cluster.pass(3);
    let outcome = cluster.nodes[0].service.poll_outcome();
    assert!(matches!(outcome, Some(Outcome::Dropped { reason: LookupDrop::Unknown, .. })), "{outcome:?}");
}

#[test]
fn false_positives_cost_a_pull_and_one_query() {
    let mut cluster = Cluster::new(3, Limits::default());
    cluster.hold(1, key(1));
    cluster.pass(60);
    // Advertised, and gone.
    cluster.nodes[1].table.states.clear();
    assert_eq!(cluster.lookup(0, key(1), 10), Lookup::Waits);
    cluster.pass(30);
    let counters = cluster.nodes[0].service.counters();
    assert_eq!((counters.pulls, counters.pulls_failed, counters.queries), (2, 2, 1), "again after the query");
    assert!(matches!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Dropped { .. })));
}

#[test]
fn states_that_were_not_requested_are_ignored() {
    let mut cluster = Cluster::new(2, Limits::default());
    let mut bytes = Vec::new();
    Message::State { key: key(1), state: &[1] }.encode(&mut bytes);
    let (now, Node { service, table }) = (cluster.now, &mut cluster.nodes[0]);
    service.handle_peer(now, NodeId(1), &bytes, table).expect("a message");
    assert_eq!(service.poll_outcome(), None);
}

#[test]
fn packets_beyond_the_limits_are_dropped() {
    let limits = Limits { packets_max: 10, packets_per_connection_max: 3, ..Limits::default() };
    let mut cluster = Cluster::new(2, limits);
    cluster.hold(1, key(1));
    cluster.pass(60);
    let waits = (0..5).filter(|packet| cluster.lookup(0, key(1), *packet) == Lookup::Waits).count();
    assert_eq!(waits, 3);
    let waits = (0..20).filter(|number| cluster.lookup(0, key(100 + number), 1) == Lookup::Waits).count();
    assert_eq!(waits, 7);
    assert_eq!(cluster.nodes[0].service.counters().dropped[LookupDrop::WaitingFull as usize], 2 + 13);
}

#[test]
fn forged_packets_are_confirmed_and_loads_are_passed_on() {
    let mut cluster = Cluster::new(2, Limits::default());
    let mut bytes = Vec::new();
    Message::Predict { hash: 5, failures: 2 }.encode(&mut bytes);
    let (now, Node { service, table }) = (cluster.now, &mut cluster.nodes[1]);
    service.handle_peer(now, NodeId(0), &bytes, table).expect("a message");
    assert_eq!(service.poll_outcome(), Some(Outcome::Forged { from: NodeId(0), hash: 5, failures: 2 }));
    service.confirm(NodeId(0), 5, 2, 1);
    service.send_loads([(NodeId(0), 9)].into_iter().collect());
    cluster.deliver();
    let service = &mut cluster.nodes[0].service;
    assert_eq!(service.poll_outcome(), Some(Outcome::Answer { hash: 5, failures: 2, rank: 1 }));
    assert!(matches!(service.poll_outcome(), Some(Outcome::Loads { from: NodeId(1), .. })));
}

proptest! {
    /// Whatever peers send, and whenever they are alive, packets are neither lost nor doubled.
    #[test]
    fn every_packet_has_one_result(
        steps in proptest::collection::vec((0_u32..30, 0_u8..6, 0_u64..12), 1..150),
    ) {
        let limits = Limits { packets_max: 40, batch_max: 4, queries: flow::RateLimit::new(50, 4), ..Limits::default() };
        let mut cluster = Cluster::new(3, limits);
        (0..10).for_each(|number| cluster.hold(1 + number as usize % 2, key(number)));
        let (mut packet, mut results) = (0, Vec::new());
        for (number, action, millis) in steps {
            match action {
                0 => cluster.muted = [None, Some(1), Some(2)][number as usize % 3],
                1 => {
                    let now = cluster.now;
                    cluster.nodes[0].service.set_alive(now, NodeId(1 + (number % 2) as u8), number % 3 > 0);
                }
                _ => {
                    packet += 1;
                    match cluster.lookup(0, key(number), packet) {
                        Lookup::Waits => {}
                        Lookup::Process(packet) | Lookup::Dropped(packet, _) => results.push(packet),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
            }
            cluster.pass(millis);
        }
        cluster.pass(200);
        while let Some(outcome) = cluster.nodes[0].service.poll_outcome() {
            match outcome {
                Outcome::Pulled { packets, .. } | Outcome::Dropped { packets, .. } => results.extend(packets),
                other => prop_assert!(false, "{:?}", other),
            }
        }
        results.sort_unstable();
        prop_assert_eq!(results, (1..=packet).collect::<Vec<_>>());
        prop_assert_eq!(cluster.nodes[0].service.waiting(), 0);
    }
}
