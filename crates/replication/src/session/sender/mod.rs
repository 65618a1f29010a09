//! The sending half: what is to be replicated, and the messages in flight.

mod acknowledging;
mod changes;
mod compare;
mod deletions;
mod filling;
mod full_sync;

#[cfg(test)]
use alloc::vec::Vec;

use flow::Instant;

use self::changes::Changes;
pub(super) use self::compare::{Answers, COMPARISON_BYTES_MAX};
pub use self::deletions::DELETION_BYTES_MAX;
use self::deletions::{DeletionId, Deletions};
use self::full_sync::{FullSync, Stage};
use super::{Handle, SessionConfig};
use crate::item::Item;
use crate::loss_recovery::{LossRecovery, ProbeTimeouts};

/// What a message in flight carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    Change(Handle),
    Deletion(DeletionId),
    ResyncEnd,
}

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

/// The sending half of a session. It sends only while the link is open.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Sender {
    changes: Changes,
    deletions: Deletions,
    full_sync: FullSync,
    /// The messages in flight.
    pub(super) recovery: LossRecovery<Sent>,
    open: bool,
    /// Under which items are hashed in this session.
    key: u64,
    /// When `poll` first saw changes that still wait for company.
    waiting_since: Option<Instant>,
    full_sync_resumes_at: Option<Instant>,
    last_message_bytes: usize,
    pub(super) counters: SenderCounters,
}

impl Sender {
    pub(super) fn new(config: &SessionConfig, first: u32) -> Self {
        let SessionConfig { probe_timeout_min: min, probe_timeout_max: max, ack_delay, .. } = *config;
        Self {
            changes: Changes::new(config.connections_max, config.changes_queued_max),
            deletions: Deletions::new(config.deletions_max),
            full_sync: FullSync::new(),
            recovery: LossRecovery::new(first, ProbeTimeouts { min, max, ack_delay }),
            open: false,
            key: 0,
            waiting_since: None,
            full_sync_resumes_at: None,
            last_message_bytes: 0,
            counters: SenderCounters::default(),
        }
    }

    /// Messages in flight.
    pub(super) fn in_flight(&self) -> u16 {
        u16::try_from(self.recovery.in_flight()).expect("the window is a u16")
    }

    /// The resynchronisation as the header has it.
    pub(super) const fn wire_round(&self) -> u8 {
        self.full_sync.wire_round()
    }

    /// Whether the full synchronisation is complete.
    pub(super) fn is_synchronised(&self) -> bool {
        self.full_sync.stage == Stage::Done
    }

    pub(super) fn queued(&self) -> usize {
        self.changes.len() + self.deletions.len()
    }

    /// When the oldest change was sent that is not acknowledged, or found waiting.
    pub(super) fn oldest_unacknowledged_at(&self) -> Option<Instant> {
        self.recovery.oldest_at().or(self.waiting_since)
    }

    /// A connection changed.
    pub(super) fn mark_changed(&mut self, handle: Handle) {
        if !self.open {
            self.changes.mark_uncovered(handle);
        } else if !self.changes.mark(handle) {
            self.leave_out();
        }
    }

    /// Connections that were marked as changed and that the peer does not have in any state.
    pub(super) const fn uncovered(&self) -> u32 {
        self.changes.uncovered()
    }

    /// From now on connections that the peer does not have yet are sent before others.
    pub(super) fn set_prefers_new(&mut self, prefers_new: bool) {
        self.changes.set_prefers_new(prefers_new);
    }

    /// A connection ended.
    pub(super) fn mark_deleted(&mut self, handle: Handle, attributes: &[u8]) {
        if let Some(item) = self.changes.forget(handle) {
            self.replicate_end(attributes, item);
        }
    }

    /// A connection ended that the peer knows from any sender.
    pub(super) fn mark_deleted_unconditionally(&mut self, handle: Handle, attributes: &[u8]) {
        let item = self.changes.forget(handle).unwrap_or_default();
        self.replicate_end(attributes, item);
    }

    /// Sends the end of a connection of which `item` was sent last.
    pub(super) fn replicate_end(&mut self, attributes: &[u8], item: Item) {
        if self.open && self.deletions.push(attributes, item) {
            return;
        }
        self.deletions.leave_unsent(attributes);
        if self.open {
            self.leave_out();
        }
    }

    /// The next ended connection that the peer may know and whose end is not sent.
    pub(super) fn pop_unsent_end(&mut self) -> Option<deletions::Attributes> {
        self.deletions.pop_unsent()
    }

    /// A slot is free, without a word to the peer.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.changes.forget(handle);
    }

    /// Whether the peer knows the connection, or is about to.
    pub(super) fn is_replicated(&self, handle: Handle) -> bool {
        self.changes.is_replicated(handle)
    }

    pub(super) fn is_known(&self, handle: Handle) -> bool {
        self.changes.is_known(handle)
    }

    fn leave_out(&mut self) {
        self.counters.left_out += 1;
        self.full_sync.leave_out();
    }

    /// The peer asks for a full synchronisation.
    pub(super) fn resync_requested(&mut self) {
        self.full_sync.requested();
    }

    /// The peer is there: a full synchronisation begins. `key` is for the items of this session.
    pub(super) fn open(&mut self, key: u64) {
        self.open = true;
        self.key = key;
        self.full_sync.restart();
    }

    /// The peer is away or has forgotten: nothing is kept for it, as a full synchronisation follows when it is there again.
    pub(super) fn suspend(&mut self) {
        self.open = false;
        let next = self.recovery.next();
        while let Some((_, sent)) = self.recovery.pop_settled(next) {
            match sent {
                Sent::Change(handle) => self.changes.abandon(handle),
                Sent::Deletion(id) => self.deletions.abandon(id),
                Sent::ResyncEnd => {}
            }
        }
        self.recovery.renumber(next);
        self.deletions.clear();
        self.changes.clear();
        self.full_sync.restart();
        self.waiting_since = None;
        self.full_sync_resumes_at = None;
    }

    /// Begins numbering anew. Only while suspended.
    pub(super) fn renumber(&mut self, first: u32) {
        self.recovery.renumber(first);
    }
}

#[cfg(test)]
impl Sender {
    /// Appends what its future depends on: times as seen from `now`, numbers from the next one.
    pub(super) fn normal_form(&self, now: Instant, config: &SessionConfig, out: &mut Vec<u64>) {
        // Named one by one, so that a new field does not compile until it is handled here.
        let Self {
            changes,
            deletions,
            full_sync,
            recovery,
            open,
            key: _,
            waiting_since,
            full_sync_resumes_at,
            last_message_bytes,
            counters: _,
        } = self;
        changes.normal_form(recovery.next(), full_sync.round, out);
        deletions.normal_form(out);
        full_sync.normal_form(recovery.next(), out);
        recovery.normal_form(now, out, |sent, out| match sent {
            Sent::Change(handle) => out.push(u64::from(handle.0)),
            Sent::Deletion(id) => deletions.name(*id, out),
            Sent::ResyncEnd => out.push(1 << 32),
        });
        let age = |since: Instant| now.saturating_since(since).min(config.batch_delay).as_micros() as u64 + 1;
        let resume = full_sync_resumes_at.map_or(0, |at| at.saturating_since(now).as_micros() as u64 + 1);
        out.extend([u64::from(*open), waiting_since.map_or(0, age), resume, *last_message_bytes as u64]);
    }
}
