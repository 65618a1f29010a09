//! Plain UDP.

use core::time::Duration;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use flow::{Instant, NodeId};

use super::table::{SLOTS, Table, small_config};
use crate::baseline::DatagramSession;
use crate::message::Kind;
use crate::session::{Handle, Link, PeerError, Session, SessionConfig, SessionEvent};

const MILLISECOND: Duration = Duration::from_millis(1);

struct Node {
    session: DatagramSession,
    table: Table,
}

/// Two nodes, and a network that takes no time and loses what it is told to.
struct Pair {
    now: Instant,
    nodes: [Node; 2],
    config: SessionConfig,
    lose: fn(usize, &[u8]) -> bool,
    datagrams: usize,
}

impl Pair {
    fn with_config(config: SessionConfig) -> Self {
        let nodes = [0, 1].map(|index| Self::node(config, index, 7));
        Self { now: Instant::from_millis(1000), nodes, config, lose: |_, _| false, datagrams: 0 }
    }

    fn node(config: SessionConfig, index: u8, seed: u64) -> Node {
        let session = DatagramSession::new(config, NodeId(index), NodeId(1 - index), seed << 40).unwrap();
        Node { session, table: Table::default() }
    }

    fn synchronised() -> Self {
        let mut pair = Self::with_config(small_config());
        pair.run_until_synchronised();
        pair
    }

    fn set(&mut self, slot: u32, name: u32, value: u32) {
        self.nodes[0].table.slots[slot as usize] = Some((name, value));
        self.nodes[0].session.mark_changed(Handle(slot));
    }

    fn end(&mut self, slot: u32) {
        let (name, _) = self.nodes[0].table.slots[slot as usize].take().expect("a connection");
        self.nodes[0].session.mark_deleted(Handle(slot), &name.to_be_bytes());
    }

    /// All that a node would send now.
    fn poll(&mut self, from: usize) -> Vec<Vec<u8>> {
        let Node { session, table } = &mut self.nodes[from];
        let mut datagrams = Vec::new();
        let mut datagram = Vec::new();
        while session.poll_transmit(self.now, table, &mut datagram) {
            assert!(datagram.len() <= self.config.datagram_bytes_max);
            datagrams.push(datagram.clone());
            assert!(datagrams.len() < 1000, "the session never stops sending");
        }
        datagrams
    }

    fn deliver(&mut self, to: usize, datagram: &[u8]) -> Result<(), PeerError> {
        let Node { session, table } = &mut self.nodes[to];
        session.handle_datagram(self.now, datagram, table)
    }

    /// Exchanges what is to be said at this moment.
    fn exchange(&mut self) {
        loop {
            let before = self.datagrams;
            for from in 0..2 {
                for datagram in self.poll(from) {
                    self.datagrams += 1;
                    if !(self.lose)(from, &datagram) {
                        self.deliver(1 - from, &datagram).expect("it is well formed");
                    }
                }
            }
            if self.datagrams == before {
                return;
            }
        }
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.exchange();
            let timeouts = self.nodes.iter().filter_map(|node| node.session.poll_timeout());
            let next = timeouts.min().unwrap_or(until).max(self.now + Duration::from_micros(1)).min(until);
            self.now = next;
            self.nodes.iter_mut().for_each(|node| node.session.handle_timeout(next));
        }
        self.exchange();
    }

    fn is_synchronised(&self) -> bool {
        self.nodes.iter().all(|node| node.session.status().is_synchronised())
    }

    fn run_until_synchronised(&mut self) {
        let until = self.now + Duration::from_secs(20);
        while !self.is_synchronised() {
            assert!(self.now < until, "{:?}", self.nodes[0].session.status());
            self.run_for(MILLISECOND);
        }
    }

    fn copies_are_equal(&self) -> bool {
        self.nodes[1].table.copies == self.nodes[0].table.own()
    }
}

fn lose_nothing(_: usize, _: &[u8]) -> bool {
    false
}

fn lose_all(_: usize, _: &[u8]) -> bool {
    true
}

#[test]
fn two_nodes_find_each_other_and_tell_everything() {
    let mut pair = Pair::with_config(small_config());
    (0..SLOTS).for_each(|slot| pair.nodes[0].table.slots[slot as usize] = Some((100 + slot, 1)));
    pair.run_until_synchronised();
    assert!(pair.copies_are_equal());
    let events: Vec<_> = std::iter::from_fn(|| pair.nodes[1].session.poll_event()).collect();
    assert_eq!(events, vec![SessionEvent::PeerUp, SessionEvent::ResyncCompleted, SessionEvent::Synchronised]);
}

#[test]
fn a_change_is_in_the_next_datagram_first_as_new_then_as_update() {
    let mut pair = Pair::synchronised();
    pair.set(3, 77, 1);
    pair.exchange();
    pair.set(3, 77, 2);
    pair.exchange();
    assert_eq!(pair.nodes[1].table.applied, vec![(Kind::New, 77, 1), (Kind::Update, 77, 2)]);
    pair.end(3);
    pair.exchange();
    assert!(pair.nodes[1].table.copies.is_empty());
}

#[test]
fn a_lost_change_stays_lost_until_the_connection_changes_again() {
    let mut pair = Pair::synchronised();
    pair.lose = lose_all;
    pair.set(3, 77, 1);
    pair.exchange();
    pair.lose = lose_nothing;
    pair.run_for(Duration::from_secs(5));
    assert!(pair.nodes[1].table.copies.is_empty(), "nobody says it again");
    assert!(pair.is_synchronised(), "and nobody knows of it");
    pair.set(3, 77, 2);
    pair.exchange();
    assert!(pair.copies_are_equal());
}

#[test]
fn a_lost_end_leaves_a_copy_that_no_full_tell_removes() {
    let mut pair = Pair::synchronised();
    pair.set(3, 77, 1);
    pair.exchange();
    pair.lose = lose_all;
    pair.end(3);
    pair.exchange();
    pair.run_for(2 * pair.config.peer_timeout);
    pair.lose = lose_nothing;
    pair.run_until_synchronised();
    assert_eq!(pair.nodes[1].table.copies.len(), 1);
}

#[test]
fn what_comes_late_is_applied_all_the_same() {
    let mut pair = Pair::synchronised();
    pair.set(3, 77, 1);
    let early = pair.poll(0);
    pair.set(3, 77, 2);
    let late = pair.poll(0);
    for datagram in late.iter().chain(&early) {
        pair.deliver(1, datagram).unwrap();
    }
    assert_eq!(pair.nodes[1].table.copies[&77], 1);
}

#[test]
fn hello_is_said_until_the_end_of_a_full_tell_has_come() {
    let mut pair = Pair::with_config(small_config());
    pair.nodes[0].table.slots[0] = Some((77, 1));
    // Whatever says more than a bare header is lost.
    pair.lose = |_, datagram| datagram.len() > 8;
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.nodes[1].session.status().link, Link::Open);
    assert!(!pair.nodes[1].session.status().heard);
    pair.lose = lose_nothing;
    pair.run_until_synchronised();
    assert!(pair.copies_are_equal());
}

#[test]
fn after_silence_everything_is_told_anew_and_nothing_is_kept_meanwhile() {
    let mut pair = Pair::synchronised();
    pair.lose = lose_all;
    pair.run_for(2 * pair.config.peer_timeout);
    (0..8).for_each(|slot| pair.set(slot, 10 + slot, 1));
    let status = pair.nodes[0].session.status();
    assert_eq!((status.link, status.queued), (Link::Seeking, 0));
    pair.lose = lose_nothing;
    pair.run_until_synchronised();
    assert!(pair.copies_are_equal());
}

#[test]
fn a_restarted_node_is_told_everything() {
    let mut pair = Pair::synchronised();
    pair.set(3, 77, 1);
    pair.exchange();
    pair.nodes[1] = Pair::node(pair.config, 1, 99);
    pair.run_until_synchronised();
    assert!(pair.copies_are_equal());
    let events: Vec<_> = std::iter::from_fn(|| pair.nodes[0].session.poll_event()).collect();
    assert!(events.contains(&SessionEvent::PeerRestarted), "{events:?}");
}

#[test]
fn a_queue_that_overflows_becomes_a_full_tell() {
    let mut pair = Pair::with_config(SessionConfig { changes_queued_max: 4, ..small_config() });
    pair.run_until_synchronised();
    let rounds = pair.nodes[0].session.status().rounds;
    (0..10).for_each(|slot| pair.set(slot, 10 + slot, 1));
    assert!(pair.nodes[0].session.status().queued <= 5);
    pair.run_for(10 * MILLISECOND);
    assert!(pair.copies_are_equal());
    let status = pair.nodes[0].session.status();
    assert!(status.rounds > rounds && status.left_out > 0, "{status:?}");
}

#[test]
fn a_full_tell_takes_its_time_and_changes_do_not_wait_for_it() {
    let mut pair = Pair::with_config(small_config());
    pair.nodes[0].table.padding_bytes = 1400;
    (0..SLOTS).for_each(|slot| pair.nodes[0].table.slots[slot as usize] = Some((100 + slot, 1)));
    let mut waited = 0;
    while pair.nodes[1].table.copies.is_empty() {
        pair.run_for(MILLISECOND);
        waited += 1;
        assert!(waited < 100);
    }
    assert!(pair.nodes[1].table.copies.len() <= 16, "not all at once: {}", pair.nodes[1].table.copies.len());
    pair.set(SLOTS - 1, 100 + SLOTS - 1, 2);
    pair.exchange();
    assert_eq!(pair.nodes[1].table.copies[&(100 + SLOTS - 1)], 2);
    pair.run_until_synchronised();
    assert!(pair.copies_are_equal());
}

#[test]
fn a_tuple_used_again_in_another_slot_is_told_in_the_order_of_events() {
    let mut pair = Pair::synchronised();
    pair.set(3, 77, 1);
    pair.exchange();
    pair.end(3);
    pair.set(4, 77, 9);
    pair.exchange();
    assert!(pair.copies_are_equal());
    pair.end(4);
    pair.set(4, 77, 11);
    pair.exchange();
    assert!(pair.copies_are_equal());
}

#[test]
fn goodbye_is_the_last_word() {
    let mut pair = Pair::synchronised();
    pair.nodes[0].session.close();
    pair.exchange();
    assert_eq!(pair.nodes[1].session.status().link, Link::Seeking);
    assert_eq!(pair.nodes[0].session.poll_timeout(), None);
    let events: Vec<_> = std::iter::from_fn(|| pair.nodes[1].session.poll_event()).collect();
    assert_eq!(events.last(), Some(&SessionEvent::PeerLeft));
}

#[test]
fn what_is_not_of_this_transport_or_peer_is_refused_with_what_to_do() {
    let mut pair = Pair::synchronised();
    let mut native = Session::new(small_config(), NodeId(1), NodeId(0), 1).unwrap();
    let mut datagram = Vec::new();
    assert!(native.poll_transmit(pair.now, &mut Table::default(), &mut datagram));
    let refusal = pair.deliver(0, &datagram).unwrap_err().to_string();
    assert!(refusal.contains("replication.transport"), "{refusal}");
    assert!(matches!(pair.deliver(0, &[0xfe, 0, 9, 0, 0, 0, 0, 1]), Err(PeerError::WrongSender { .. })));
    assert!(matches!(pair.deliver(0, &[0xfe, 0, 1]), Err(PeerError::Malformed(_))));
    assert!(matches!(pair.deliver(0, &[0xfe, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 99]), Err(PeerError::Malformed(_))));
    assert_eq!(pair.nodes[0].session.status().bad_datagrams, 3);
}
