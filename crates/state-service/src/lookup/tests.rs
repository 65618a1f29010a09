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

    fn copy(&mut self, key: &Key, state: &mut Vec<u8>) -> bool {
        let Some(held) = self.states.get(key) else { return false };
        state.extend_from_slice(held);
        true
    }
}

/// Nodes joined by a network without delay.
struct Cluster {
    nodes: Vec<Node>,
    limits: Limits,
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
        let nodes = (0..count).map(node).collect();
        Self { nodes, limits, now: Instant::from_millis(1), muted: None, messages: 0 }
    }

    /// As [`Cluster::new`], and all indexes are known.
    fn started(count: u8, limits: Limits) -> Self {
        let mut cluster = Self::new(count, limits);
        cluster.pass(60);
        cluster
    }

    /// A node loses everything, and the others find it alive again.
    fn restart(&mut self, number: usize) {
        let now = self.now;
        let incarnation = 1000 + now.as_nanos() as u32;
        let secret = IndexSecret::new([1, 2]);
        let mut service = StateService::new(secret, 1000, incarnation, self.limits).expect("in range");
        for peer in (0..self.nodes.len()).filter(|peer| *peer != number) {
            service.set_alive(now, NodeId(peer as u8), true);
            for is_alive in [false, true] {
                self.nodes[peer].service.set_alive(now, NodeId(number as u8), is_alive);
            }
        }
        self.nodes[number] = Node { service, table: TestTable::default() };
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
                while let Some(to) = self.nodes[from].service.poll_transmit(self.now, &mut bytes) {
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
                if node.service.poll_timeout().is_some_and(|at| at <= self.now) {
                    node.service.handle_timeout(self.now);
                }
                assert!(node.service.poll_timeout().is_none_or(|at| at > self.now), "all that was due is done");
            }
            self.deliver();
        }
    }

    /// A packet that cannot begin a connection.
    fn lookup(&mut self, node: usize, key: Key, packet: u32) -> Lookup<u32> {
        self.lookup_of(node, key, packet, false)
    }

    fn lookup_of(&mut self, node: usize, key: Key, packet: u32, may_begin: bool) -> Lookup<u32> {
        let held = if self.nodes[node].table.states.contains_key(&key) { Held::Owned } else { Held::Nothing };
        let now = self.now;
        self.nodes[node].service.lookup(now, key, packet, held, may_begin)
    }
}

fn without_broadcast() -> Limits {
    Limits { broadcast: false, ..Limits::default() }
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
fn the_answer_of_a_node_that_was_not_asked_is_ignored() {
    let mut cluster = Cluster::new(4, Limits::default());
    cluster.hold(2, key(1));
    cluster.pass(60);
    assert_eq!(cluster.lookup(0, key(1), 10), Lookup::Waits);
    let now = cluster.now;
    let Node { service, table } = &mut cluster.nodes[0];
    for answer in [Message::State { key: key(1), state: &[9; 20] }, Message::NotHeld(key(1))] {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        service.handle_peer(now, NodeId(3), &bytes, table).expect("a message of a node");
        assert_eq!((service.poll_outcome(), service.waiting()), (None, 1));
    }
    cluster.deliver();
    let (from, packets, state) = (NodeId(2), vec![10], vec![7; 20]);
    let outcome = cluster.nodes[0].service.poll_outcome();
    assert_eq!(outcome, Some(Outcome::Pulled { key: key(1), from, state, packets }));
    assert_eq!(cluster.nodes[0].service.counters().pulls, 1);
}

#[test]
fn a_packet_that_shows_too_little_gets_a_copy_and_the_owner_stays() {
    let mut cluster = Cluster::new(4, Limits::default());
    cluster.hold(2, key(1));
    cluster.pass(60);
    let now = cluster.now;
    assert_eq!(cluster.nodes[0].service.lookup_copy(now, key(1), 10, false), Lookup::Waits);
    cluster.deliver();
    let (from, packets, state) = (NodeId(2), vec![10], vec![7; 20]);
    let outcome = cluster.nodes[0].service.poll_outcome();
    assert_eq!(outcome, Some(Outcome::Copied { key: key(1), from, state, packets }));
    assert_eq!(cluster.nodes[2].table.handed_over, 0);
    // One that no index has is found by a query, as a copy, too; one that no node has is dropped.
    cluster.hold(3, key(2));
    let now = cluster.now;
    for number in [2, 3] {
        assert_eq!(cluster.nodes[0].service.lookup_copy(now, key(number), number, false), Lookup::Waits);
    }
    cluster.pass(5);
    let outcomes: Vec<_> = core::iter::from_fn(|| cluster.nodes[0].service.poll_outcome()).collect();
    assert!(outcomes.iter().any(|one| matches!(one, Outcome::Copied { from: NodeId(3), .. })), "{outcomes:?}");
    assert!(outcomes.iter().any(|one| matches!(one, Outcome::Dropped { reason: LookupDrop::Unknown, .. })));
    assert_eq!(cluster.nodes[3].table.handed_over, 0);
}

#[test]
fn what_the_table_has_needs_no_message() {
    let mut cluster = Cluster::started(2, Limits::default());
    let now = cluster.now;
    let service = &mut cluster.nodes[0].service;
    assert_eq!(service.lookup(now, key(1), 1, Held::Owned, false), Lookup::Process(1));
    assert_eq!(service.lookup(now, key(1), 2, Held::Replica, false), Lookup::TakeOver(2));
    assert_eq!(service.lookup(now, key(1), 3, Held::Nothing, true), Lookup::Begin(3));
    assert_eq!(service.poll_transmit(now, &mut Vec::new()), None);
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
    assert_eq!(waits, 2, "with the others half of the places");
    assert_eq!(cluster.nodes[0].service.counters().dropped[LookupDrop::WaitingFull as usize], 2 + 18);
}

#[test]
fn what_peers_cause_is_queued_within_the_limit_of_packets() {
    let mut cluster = Cluster::started(2, Limits { packets_max: 10, ..Limits::default() });
    let (now, mut bytes) = (cluster.now, vec![]);
    Message::Predict { hash: 7, failures: 0 }.encode(&mut bytes);
    let Node { service, table } = &mut cluster.nodes[0];
    for _ in 0..100 {
        service.handle_peer(now, NodeId(1), &bytes, table).expect("it is a message");
    }
    assert_eq!(core::iter::from_fn(|| service.poll_outcome()).count(), 10);
}

#[test]
fn packets_whose_pull_would_exceed_the_rate_are_dropped() {
    let mut cluster = Cluster::started(2, Limits { pulls: flow::RateLimit::new(1, 4), ..Limits::default() });
    (0..20).for_each(|number| cluster.hold(1, key(number)));
    cluster.pass(60);
    let is_refused = |lookup| matches!(lookup, Lookup::Dropped(_, LookupDrop::PullBudget));
    let refused = (0..20).filter(|number| is_refused(cluster.lookup(0, key(*number), *number))).count();
    assert_eq!(refused, 16);
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

#[test]
fn a_syn_that_a_false_positive_delays_begins_its_connection_afterwards() {
    let mut cluster = Cluster::started(3, Limits::default());
    cluster.hold(1, key(1));
    cluster.pass(60);
    // Advertised, and gone.
    cluster.nodes[1].table.states.clear();
    assert_eq!(cluster.lookup_of(0, key(1), 10, true), Lookup::Waits);
    cluster.pass(30);
    assert_eq!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Begin { key: key(1), packets: vec![10] }));
    let counters = cluster.nodes[0].service.counters();
    assert_eq!((counters.not_held, counters.dropped), (2, [0; 4]));
}

#[test]
fn a_node_that_returns_requests_all_indexes_before_connections_begin_there() {
    let mut cluster = Cluster::started(3, Limits::default());
    cluster.hold(1, key(1));
    cluster.pass(60);
    cluster.restart(0);
    assert_eq!(cluster.lookup_of(0, key(1), 10, true), Lookup::Waits, "no index is known yet");
    assert_eq!(cluster.lookup_of(0, key(2), 20, true), Lookup::Waits);
    cluster.pass(5);
    let outcomes: Vec<_> = core::iter::from_fn(|| cluster.nodes[0].service.poll_outcome()).collect();
    assert!(matches!(outcomes[..], [Outcome::Begin { .. }, Outcome::Pulled { from: NodeId(1), .. }]), "{outcomes:?}");
    assert!(cluster.nodes[0].service.has_index(NodeId(1)) && cluster.nodes[0].service.has_index(NodeId(2)));
    assert_eq!(cluster.lookup_of(0, key(3), 30, true), Lookup::Begin(30));
}

#[test]
fn a_lost_update_is_requested_without_a_packet() {
    let mut cluster = Cluster::started(2, Limits::default());
    cluster.muted = Some(1);
    cluster.hold(1, key(1));
    cluster.pass(60);
    cluster.muted = None;
    cluster.hold(1, key(2));
    cluster.pass(60);
    assert_eq!(cluster.nodes[0].service.counters().gaps, 2, "of both sides");
    cluster.pass(300);
    let before = cluster.nodes[0].service.counters().queries;
    assert_eq!(cluster.lookup_of(0, key(1), 10, true), Lookup::Waits, "the index has it");
    assert_eq!(cluster.nodes[0].service.counters().queries, before);
}

#[test]
fn an_index_that_was_lost_is_requested_until_it_arrives() {
    let mut cluster = Cluster::new(2, Limits::default());
    cluster.hold(1, key(1));
    cluster.muted = Some(1);
    cluster.pass(2000);
    let requests = cluster.nodes[0].service.counters().index_requests;
    assert!((7..=9).contains(&requests), "every 250 ms: {requests}");
    assert!(!cluster.nodes[0].service.has_index(NodeId(1)));
    assert_eq!(cluster.lookup_of(0, key(2), 20, true), Lookup::Begin(20), "it does not delay connections for ever");
    cluster.muted = None;
    cluster.pass(260);
    assert!(cluster.nodes[0].service.has_index(NodeId(1)));
    assert_eq!(cluster.lookup(0, key(1), 10), Lookup::Waits);
    cluster.deliver();
    assert!(matches!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Pulled { .. })));
}

#[test]
fn parts_of_a_whole_index_are_sent_at_a_limited_rate() {
    let limits = Limits { index_parts: flow::RateLimit::new(1000, 2), ..Limits::default() };
    let mut service = StateService::<u32>::new(IndexSecret::new([1, 2]), 100_000, 1, limits).expect("in range");
    (0..20_000).for_each(|number| service.note_entered(&key(number)).expect("room"));
    service.set_alive(Instant::ZERO, NodeId(1), true);
    let mut query = Vec::new();
    let known = [crate::message::Known::default(); 2];
    Message::Query { number: 5, known }.encode(&mut query);
    let mut table = TestTable::default();
    for _ in 0..3 {
        service.handle_peer(Instant::ZERO, NodeId(1), &query, &mut table).expect("a query");
    }
    let sent_until = |service: &mut StateService<u32>, now: Instant| {
        service.handle_timeout(now);
        core::iter::from_fn(|| service.poll_transmit(now, &mut Vec::new())).count()
    };
    assert_eq!(sent_until(&mut service, Instant::from_millis(1)), 1 + 2, "a request, and two parts");
    let parts: usize = (2..200).map(|millis| sent_until(&mut service, Instant::from_millis(millis))).sum();
    // 20 000 fingerprints of two to a word, and an advertisement and an answer of both sides.
    assert!((110..=195).contains(&parts), "{parts}");
    assert_eq!(sent_until(&mut service, Instant::from_millis(220)), 0, "the second and third query change nothing");
}

#[test]
fn packets_of_no_connection_leave_room_for_those_of_others() {
    let limits = Limits { packets_max: 10, ..Limits::default() };
    let mut cluster = Cluster::started(2, limits);
    cluster.hold(1, key(1));
    cluster.pass(60);
    let waits = (0..20).filter(|number| cluster.lookup(0, key(100 + number), 1) == Lookup::Waits).count();
    assert_eq!(waits, 5);
    assert_eq!(cluster.lookup(0, key(1), 1), Lookup::Waits);
}

#[test]
fn without_indexes_the_state_is_requested_from_all_peers() {
    let mut cluster = Cluster::started(4, without_broadcast());
    cluster.hold(2, key(1));
    assert_eq!(cluster.messages, 0, "nothing is advertised");
    for may_begin in [false, true] {
        let before = cluster.messages;
        assert_eq!(cluster.lookup_of(0, key(1), 10, may_begin), Lookup::Waits);
        cluster.pass(2);
        assert!(matches!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Pulled { from: NodeId(2), .. })));
        assert_eq!(cluster.messages - before, 3 + 3);
    }
    assert_eq!(cluster.lookup_of(0, key(2), 20, true), Lookup::Waits);
    cluster.pass(2);
    assert_eq!(cluster.nodes[0].service.poll_outcome(), Some(Outcome::Begin { key: key(2), packets: vec![20] }));
    assert_eq!(cluster.lookup(0, key(3), 30), Lookup::Waits);
    cluster.pass(2);
    assert!(matches!(
        cluster.nodes[0].service.poll_outcome(),
        Some(Outcome::Dropped { reason: LookupDrop::Unknown, .. })
    ));
    assert_eq!(cluster.nodes[0].service.counters().queries, 0);
}

/// The messages that a flood of packets of no connection causes in a second.
fn messages_of_flood(limits: Limits, packets_per_ms: u32) -> usize {
    let mut cluster = Cluster::started(4, limits);
    let before = cluster.messages;
    for millis in 0..1000 {
        for number in 0..packets_per_ms {
            let _ = cluster.lookup(0, key(1000 + millis * 1000 + number), 1);
        }
        cluster.pass(1);
        while cluster.nodes[0].service.poll_outcome().is_some() {}
    }
    cluster.messages - before
}

#[test]
fn indexes_bound_the_messages_of_a_flood_whatever_its_rate() {
    let [slow, fast] = [5, 50].map(|rate| messages_of_flood(Limits::default(), rate));
    // At most 220 queries of three peers, each with answers of both sides.
    assert!(slow <= 2000 && fast <= 2000, "{slow} and {fast}");
    let [slow, fast] = [5, 50].map(|rate| messages_of_flood(without_broadcast(), rate));
    assert!(slow > 20_000 && fast > 9 * slow, "as many as the packets demand: {slow} and {fast}");
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
