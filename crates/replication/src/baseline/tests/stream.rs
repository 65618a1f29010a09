//! TCP.

use std::vec;
use std::vec::Vec;

use flow::{Instant, NodeId};

use super::table::{SLOTS, Table, small_config};
use crate::baseline::{QUEUE_BYTES_MAX, StreamError, StreamSession};
use crate::message::Kind;
use crate::session::{Handle, Link, PeerError, SessionConfig, SessionEvent};

const NOW: Instant = Instant::from_millis(1);

struct Node {
    session: StreamSession,
    table: Table,
}

/// Two nodes, and a stream between them that takes what it is told to take.
struct Pair {
    nodes: [Node; 2],
    config: SessionConfig,
}

impl Pair {
    fn with_config(config: SessionConfig) -> Self {
        Self { nodes: [0, 1].map(|index| Self::node(config, index, 7)), config }
    }

    fn node(config: SessionConfig, index: u8, seed: u64) -> Node {
        let session = StreamSession::new(config, NodeId(index), NodeId(1 - index), seed << 40).unwrap();
        Node { session, table: Table::default() }
    }

    fn connected() -> Self {
        let mut pair = Self::with_config(small_config());
        pair.connect();
        pair.exchange();
        pair
    }

    fn connect(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.session.handle_connected());
    }

    fn disconnect(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.session.handle_disconnected());
    }

    fn set(&mut self, slot: u32, name: u32, value: u32) {
        self.nodes[0].table.slots[slot as usize] = Some((name, value));
        self.nodes[0].session.mark_changed(Handle(slot));
    }

    fn end(&mut self, slot: u32) {
        let (name, _) = self.nodes[0].table.slots[slot as usize].take().expect("a connection");
        self.nodes[0].session.mark_deleted(Handle(slot), &name.to_be_bytes());
    }

    /// The end of a batch of packets: what changed is put into the queue, of which the stream takes so much.
    fn take(&mut self, from: usize, taken_bytes_max: usize) -> Vec<u8> {
        let Node { session, table } = &mut self.nodes[from];
        let waiting = session.poll_stream(NOW, table);
        assert!(waiting.len() <= QUEUE_BYTES_MAX);
        let taken = waiting[..waiting.len().min(taken_bytes_max)].to_vec();
        session.handle_taken(taken.len());
        taken
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) -> Result<(), StreamError> {
        let Node { session, table } = &mut self.nodes[to];
        session.handle_bytes(NOW, bytes, table)
    }

    /// Passes bytes on in pieces of this size until none are left.
    fn exchange_in_pieces(&mut self, piece_bytes: usize) {
        loop {
            let mut is_quiet = true;
            for from in 0..2 {
                let bytes = self.take(from, piece_bytes);
                is_quiet &= bytes.is_empty() && !self.nodes[from].session.has_more_to_tell();
                self.deliver(1 - from, &bytes).expect("it is well formed");
            }
            if is_quiet {
                return;
            }
        }
    }

    fn exchange(&mut self) {
        self.exchange_in_pieces(usize::MAX);
    }

    fn copies_are_equal(&self) -> bool {
        self.nodes[1].table.copies == self.nodes[0].table.own()
    }
}

#[test]
fn a_new_stream_begins_with_everything() {
    let mut pair = Pair::with_config(small_config());
    (0..SLOTS).for_each(|slot| pair.nodes[0].table.slots[slot as usize] = Some((100 + slot, 1)));
    pair.connect();
    pair.exchange();
    assert!(pair.copies_are_equal());
    assert!(pair.nodes.iter().all(|node| node.session.status().is_synchronised()));
    let events: Vec<_> = std::iter::from_fn(|| pair.nodes[1].session.poll_event()).collect();
    let whole =
        [SessionEvent::PeerUp, SessionEvent::ResyncStarted, SessionEvent::ResyncCompleted, SessionEvent::Synchronised];
    assert_eq!(events, whole);
}

#[test]
fn every_change_comes_in_order_outdated_or_not() {
    let mut pair = Pair::connected();
    let mut bytes = Vec::new();
    for value in 1..=3 {
        pair.set(3, 77, value);
        pair.set(4, 78, value);
        // The stream takes nothing: the queue holds the changes as they were.
        assert!(pair.take(0, 0).is_empty());
    }
    pair.end(4);
    bytes.extend(pair.take(0, usize::MAX));
    pair.deliver(1, &bytes).unwrap();
    let applied = &pair.nodes[1].table.applied;
    let values: Vec<u32> = applied.iter().filter(|(_, name, _)| *name == 77).map(|(_, _, value)| *value).collect();
    assert_eq!(values, [1, 2, 3]);
    assert_eq!(applied[0].0, Kind::New);
    assert!(applied[2..].iter().all(|(kind, ..)| *kind == Kind::Update), "{applied:?}");
    assert!(pair.copies_are_equal());
}

#[test]
fn what_is_delayed_delays_all_that_follows() {
    let mut pair = Pair::connected();
    pair.set(3, 77, 1);
    let held_up = pair.take(0, usize::MAX);
    pair.set(4, 78, 1);
    let behind = pair.take(0, usize::MAX);
    // A stream never turns things round: the receiver has neither until it has both.
    assert!(pair.nodes[1].table.copies.is_empty());
    pair.deliver(1, &[held_up, behind].concat()).unwrap();
    assert!(pair.copies_are_equal());
}

#[test]
fn messages_may_be_cut_anywhere() {
    for piece_bytes in [1, 2, 3, 5, 7, 11, 64] {
        let mut pair = Pair::with_config(small_config());
        pair.nodes[0].table.padding_bytes = 5;
        (0..SLOTS).for_each(|slot| pair.nodes[0].table.slots[slot as usize] = Some((100 + slot, 1)));
        pair.connect();
        pair.exchange_in_pieces(piece_bytes);
        pair.end(7);
        pair.set(9, 109, 2);
        pair.exchange_in_pieces(piece_bytes);
        assert!(pair.copies_are_equal(), "pieces of {piece_bytes}");
    }
}

#[test]
fn a_queue_that_overflows_is_made_good_by_a_full_tell() {
    let mut pair = Pair::connected();
    pair.nodes[0].table.padding_bytes = 8000;
    let mut value = 0;
    while pair.nodes[0].session.status().left_out == 0 {
        value += 1;
        (0..8).for_each(|slot| pair.set(slot, 10 + slot, value));
        pair.take(0, 0);
        assert!(value < 1000, "the queue has no end");
    }
    pair.end(0);
    pair.set(1, 11, 5000);
    assert_eq!(pair.nodes[0].session.status().queued, 0, "nothing more is kept");
    assert!(!pair.nodes[0].session.status().told);
    pair.exchange_in_pieces(100_000);
    assert!(pair.copies_are_equal());
    assert!(pair.nodes[0].session.status().is_synchronised());
    assert_eq!(pair.nodes[0].session.status().rounds, 2);
}

#[test]
fn a_queue_of_changes_that_overflows_is_made_good_as_well() {
    let mut pair = Pair::with_config(SessionConfig { changes_queued_max: 4, ..small_config() });
    pair.connect();
    pair.exchange();
    (0..10).for_each(|slot| pair.set(slot, 10 + slot, 1));
    pair.exchange();
    assert!(pair.copies_are_equal());
    assert!(pair.nodes[1].session.status().is_synchronised());
}

#[test]
fn a_broken_stream_is_followed_by_a_full_tell_which_removes_what_has_ended() {
    let mut pair = Pair::connected();
    pair.set(3, 77, 1);
    pair.set(4, 78, 1);
    pair.exchange();
    pair.set(4, 78, 2);
    let lost = pair.take(0, usize::MAX);
    assert!(!lost.is_empty());
    pair.disconnect();
    pair.end(3);
    pair.set(5, 79, 1);
    let status = pair.nodes[0].session.status();
    assert_eq!((status.link, status.queued, pair.nodes[0].session.waiting_bytes()), (Link::Seeking, 0, 0));
    pair.connect();
    pair.exchange();
    assert!(pair.copies_are_equal());
    let events: Vec<_> = std::iter::from_fn(|| pair.nodes[1].session.poll_event()).collect();
    assert!(events.contains(&SessionEvent::PeerSilent), "{events:?}");
    assert!(!events.contains(&SessionEvent::PeerRestarted), "{events:?}");
}

#[test]
fn a_restarted_node_is_told_everything() {
    let mut pair = Pair::connected();
    pair.set(3, 77, 1);
    pair.exchange();
    pair.nodes[1] = Pair::node(pair.config, 1, 99);
    pair.connect();
    pair.exchange();
    assert!(pair.copies_are_equal());
    let events: Vec<_> = std::iter::from_fn(|| pair.nodes[0].session.poll_event()).collect();
    assert!(events.contains(&SessionEvent::PeerRestarted), "{events:?}");
}

#[test]
fn goodbye_ends_the_stream() {
    let mut pair = Pair::connected();
    pair.nodes[0].session.close();
    let bytes = pair.take(0, usize::MAX);
    assert_eq!(pair.deliver(1, &bytes), Err(StreamError::Left));
    assert_eq!(pair.nodes[0].session.status().link, Link::Closed);
}

#[test]
fn a_stream_of_something_else_is_refused() {
    let hello = |version, sender| vec![0x80, 0xf0, 0, 12, version, sender, 0, 0, 0, 0, 0, 1];
    let refused = |bytes: &[u8]| {
        let mut pair = Pair::with_config(small_config());
        pair.connect();
        pair.deliver(0, bytes).expect_err("it is not right")
    };
    assert_eq!(refused(&hello(9, 1)), PeerError::Incompatible { theirs: 9, ours: 1 }.into());
    let wrong_sender = PeerError::WrongSender { sender: NodeId(5), expected: NodeId(1) };
    assert_eq!(refused(&hello(1, 5)), wrong_sender.into());
    let malformed: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\n\r\n", &[0x80, 0xf0, 0, 3], &[0, 1, 0, 8, 0, 0, 0, 1], &[0x80, 0xf0, 0, 8, 1, 1, 0, 0]];
    for bytes in malformed {
        // The text's second word says that it has 20 527 bytes: the rest of them is waited for, and no more.
        let mut pair = Pair::with_config(small_config());
        pair.connect();
        let mut result = Ok(());
        for _ in 0..5000 {
            result = result.and_then(|()| pair.deliver(0, bytes));
        }
        assert!(matches!(result, Err(StreamError::Peer(PeerError::Malformed(_)))), "{bytes:?}: {result:?}");
    }
    let mut twice = hello(1, 1);
    twice.extend(hello(1, 1));
    assert!(matches!(refused(&twice), StreamError::Peer(PeerError::Malformed(_))));
}

#[test]
fn a_message_that_the_node_does_not_take_is_counted_and_passed_over() {
    let mut pair = Pair::connected();
    pair.set(3, 77, 1);
    let mut bytes = vec![0, 1, 0, 4];
    bytes.extend(pair.take(0, usize::MAX));
    pair.deliver(1, &bytes).unwrap();
    assert!(pair.copies_are_equal());
    assert_eq!(pair.nodes[1].session.status().apply_errors, 1);
}
