//! The sending half: what is to be told, what was told, and what became of it.

mod acknowledging;
mod changes;
mod compare;
mod deletions;
mod filling;
mod walk;

use alloc::collections::VecDeque;
#[cfg(test)]
use alloc::vec::Vec;
#[cfg(test)]
use core::time::Duration;

use flow::Instant;

use self::changes::Changes;
pub(super) use self::compare::{Answers, COMPARISON_BYTES_MAX};
pub use self::deletions::DELETION_BYTES_MAX;
use self::deletions::{DeletionId, Deletions};
use self::walk::{Stage, Walk};
use super::round_trip::RoundTrip;
use super::{Handle, SessionConfig};
use crate::item::Item;

/// What a message in flight says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    Change(Handle),
    Deletion(DeletionId),
    ResyncEnd,
}

/// A datagram with messages in flight.
#[derive(Clone, Copy)]
struct SentDatagram {
    /// The number behind its last message.
    end: u32,
    at: Instant,
}

/// The peer acknowledges what was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NeverSent;

/// Counters since the session was made.
#[derive(Clone, Copy, Default)]
pub(super) struct SenderCounters {
    pub(super) messages: u64,
    pub(super) lost: u64,
    pub(super) resent: u64,
    pub(super) left_out: u64,
    pub(super) too_long: u64,
    pub(super) rounds: u64,
}

/// What is to be told, what was told, and what became of it. It sends only while the link is open.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Sender {
    changes: Changes,
    deletions: Deletions,
    walk: Walk,
    /// What the messages in flight say, the oldest first; the newest has number `next - 1`.
    log: VecDeque<Sent>,
    datagrams: VecDeque<SentDatagram>,
    next: u32,
    open: bool,
    /// Under which items are hashed in this session.
    key: u64,
    /// When `poll` first saw changes that still wait for company.
    waiting_since: Option<Instant>,
    walk_again_at: Option<Instant>,
    last_message_bytes: usize,
    probed_at: Instant,
    probes: u32,
    pub(super) round_trip: RoundTrip,
    pub(super) counters: SenderCounters,
}

impl Sender {
    pub(super) fn new(config: &SessionConfig, first: u32) -> Self {
        Self {
            changes: Changes::new(config.connections_max, config.changes_queued_max),
            deletions: Deletions::new(config.deletions_max),
            walk: Walk::new(),
            log: VecDeque::new(),
            datagrams: VecDeque::new(),
            next: first,
            open: false,
            key: 0,
            waiting_since: None,
            walk_again_at: None,
            last_message_bytes: 0,
            probed_at: Instant::ZERO,
            probes: 0,
            round_trip: RoundTrip::default(),
            counters: SenderCounters::default(),
        }
    }

    /// Number of the next message.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Messages in flight.
    pub(super) fn in_flight(&self) -> u16 {
        u16::try_from(self.log.len()).expect("the window is a u16")
    }

    fn base(&self) -> u32 {
        self.next.wrapping_sub(self.log.len() as u32)
    }

    /// The resynchronisation as the header has it.
    pub(super) const fn wire_round(&self) -> u8 {
        self.walk.wire_round()
    }

    /// Whether the peer has been told everything.
    pub(super) fn is_synchronised(&self) -> bool {
        self.walk.stage == Stage::Done
    }

    pub(super) fn queued(&self) -> usize {
        self.changes.len() + self.deletions.len()
    }

    /// When the oldest change was sent that is not acknowledged, or found waiting.
    pub(super) fn oldest_unacknowledged_at(&self) -> Option<Instant> {
        self.datagrams.front().map(|datagram| datagram.at).or(self.waiting_since)
    }

    /// A connection changed.
    pub(super) fn mark_changed(&mut self, handle: Handle) {
        if self.open && !self.changes.mark(handle) {
            self.leave_out();
        }
    }

    /// A connection ended.
    pub(super) fn mark_deleted(&mut self, handle: Handle, attributes: &[u8]) {
        if let Some(item) = self.changes.forget(handle) {
            self.tell_end(attributes, item);
        }
    }

    /// A connection ended that the peer knows of, whoever told it.
    pub(super) fn mark_deleted_anyway(&mut self, handle: Handle, attributes: &[u8]) {
        let item = self.changes.forget(handle).unwrap_or_default();
        self.tell_end(attributes, item);
    }

    /// A connection has ended: the peer, which was told `item` of it, is to learn so.
    pub(super) fn tell_end(&mut self, attributes: &[u8], item: Item) {
        if self.open && self.deletions.push(attributes, item) {
            return;
        }
        self.deletions.leave_untold(attributes);
        if self.open {
            self.leave_out();
        }
    }

    /// The next ended connection of which the peer may know and will not be told.
    pub(super) fn pop_untold_end(&mut self) -> Option<deletions::Attributes> {
        self.deletions.pop_untold()
    }

    /// A slot is free, without a word to the peer.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.changes.forget(handle);
    }

    /// Whether the peer knows of the connection, or is about to.
    pub(super) fn is_told(&self, handle: Handle) -> bool {
        self.changes.is_told(handle)
    }

    pub(super) fn is_known(&self, handle: Handle) -> bool {
        self.changes.is_known(handle)
    }

    fn leave_out(&mut self) {
        self.counters.left_out += 1;
        self.walk.leave_out();
    }

    /// The peer asks to be told everything.
    pub(super) fn resync_requested(&mut self) {
        self.walk.requested();
    }

    /// The peer is there: what it must know is told from the start. `key` is for the items of this session.
    pub(super) fn open(&mut self, key: u64) {
        self.open = true;
        self.key = key;
        self.walk.restart();
    }

    /// The peer is away or has forgotten: nothing is kept for it, as it is told everything when it is there again.
    pub(super) fn suspend(&mut self) {
        self.open = false;
        for sent in self.log.drain(..) {
            match sent {
                Sent::Change(handle) => self.changes.abandon(handle),
                Sent::Deletion(id) => self.deletions.abandon(id),
                Sent::ResyncEnd => {}
            }
        }
        self.datagrams.clear();
        self.deletions.clear();
        self.changes.clear();
        self.walk.restart();
        self.waiting_since = None;
        self.walk_again_at = None;
        self.probes = 0;
        self.round_trip = RoundTrip::default();
    }

    /// Begins numbering anew. Only while suspended.
    pub(super) fn renumber(&mut self, first: u32) {
        self.next = first;
    }
}

#[cfg(test)]
impl Sender {
    /// Appends what its future depends on: times as seen from `now`, numbers from the next one. With
    /// `probe_timeout_min` and `probe_timeout_max` equal, that leaves out the measured round trip.
    pub(super) fn normal_form(&self, now: Instant, config: &SessionConfig, out: &mut Vec<u64>) {
        assert_eq!(config.probe_timeout_min, config.probe_timeout_max);
        // Named one by one, so that whoever adds a field is asked here what hangs on it.
        let Self {
            changes,
            deletions,
            walk,
            log,
            datagrams,
            next,
            open,
            key: _,
            waiting_since,
            walk_again_at,
            last_message_bytes,
            probed_at,
            probes,
            round_trip: _,
            counters: _,
        } = self;
        let age = |at: Instant, max: Duration| now.saturating_since(at).min(max).as_micros() as u64 + 1;
        changes.normal_form(*next, walk.round, out);
        deletions.normal_form(out);
        walk.normal_form(*next, out);
        out.push(log.len() as u64);
        for sent in log {
            match sent {
                Sent::Change(handle) => out.push(u64::from(handle.0)),
                Sent::Deletion(id) => deletions.name(*id, out),
                Sent::ResyncEnd => out.push(1 << 32),
            }
        }
        out.push(datagrams.len() as u64);
        for SentDatagram { end, at } in datagrams {
            let max = config.ack_delay + config.probe_timeout_max;
            out.push(u64::from(next.wrapping_sub(*end)) << 32 | age(*at, max));
        }
        let waiting = waiting_since.map_or(0, |since| age(since, config.batch_delay));
        let again = walk_again_at.map_or(0, |at| at.saturating_since(now).as_micros() as u64 + 1);
        let probed = if *probes > 0 { age(*probed_at, config.probe_timeout_max) } else { 0 };
        out.extend([u64::from(*open), waiting, again, probed, *last_message_bytes as u64]);
    }
}
