//! Connections that are replicated only once they have lived for a while: see [`replication::deferral`].
//!
//! | a deferred connection | |
//! |---|---|
//! | ends, or is reset, or both sides have closed it | it is never replicated |
//! | grows older than the threshold | it is replicated as it is then |
//! | announces others | it is replicated at once |
//! | is one of a node that ceases to be primary | it is replicated at once |
//!
//! Connections that were announced, and those found in the kernel's table at the start, are never deferred: the age of the latter is not
//! known.
//!
//! The age of a connection of TCP, SCTP or DCCP is the time since its first event. So is that of a connection without a reply, where the
//! filter has such connections replicated. The age of every other one is the time from its first event to its last: the kernel reports a
//! UDP flow once more when it has lasted for two seconds.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;
use flow::netfilter::{Status, TcpState};
use replication::Handle;
use replication::deferral::{Age, Config, DeferralQueue};

use super::Connections;
use crate::config::SyncRole;
use crate::mirror::{Record, flag};

/// Deferred connections that are looked at in one call.
const LOOKS_MAX: usize = 1024;
/// TCP, DCCP and SCTP.
const PROTOCOLS_WITH_END: [u8; 3] = [6, 33, 132];

/// What a node that defers connections keeps of them.
#[derive(Debug)]
pub(crate) struct Deferral {
    queue: DeferralQueue,
    /// Of each slot, when the kernel reported its connection last.
    last_events: Vec<Instant>,
}

impl Deferral {
    /// Nothing is deferred yet, for a table of so many connections.
    pub(crate) fn new(threshold: Duration, connections_max: u32, now: Instant) -> Self {
        let queue = DeferralQueue::new(Config::Fixed(threshold), connections_max, now);
        Self { queue, last_events: vec![Instant::ZERO; connections_max as usize] }
    }

    /// When a deferred connection is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.queue.poll_timeout()
    }
}

impl Connections {
    /// The kernel has reported a new connection.
    pub(super) fn begin_deferral(&mut self, now: Instant, handle: Handle) {
        let Some(record) = self.mirror.get(handle) else { return };
        let is_urgent = record.is_any(flag::UNSEEN)
            || record.status().contains(Status::EXPECTED)
            || !self.dump.is_initialised
            || self.role != SyncRole::Primary;
        let Some(deferral) = &mut self.deferral else { return };
        deferral.queue.begin(now, handle, is_urgent);
        deferral.last_events.get_mut(handle.0 as usize).into_iter().for_each(|at| *at = now);
    }

    /// The kernel has reported a connection of this node once more.
    pub(super) fn note_event(&mut self, now: Instant, handle: Handle) {
        let Some(deferral) = &mut self.deferral else { return };
        deferral.last_events.get_mut(handle.0 as usize).into_iter().for_each(|at| *at = now);
        if self.mirror.get(handle).is_some_and(is_over) {
            deferral.queue.complete(now, handle);
        }
    }

    /// The connection is not deferred, or is not this node's any more.
    pub(super) fn end_deferral(&mut self, handle: Handle) {
        self.deferral.iter_mut().for_each(|deferral| deferral.queue.forget(handle));
    }

    /// Whether the connection is not replicated for now.
    pub(super) fn is_deferred(&self, handle: Handle) -> bool {
        self.deferral.as_ref().is_some_and(|deferral| deferral.queue.is_deferred(handle))
    }

    /// Replicates the connections that are old enough by now.
    pub(crate) fn replicate_due(&mut self, now: Instant) {
        for _ in 0..LOOKS_MAX {
            if !self.replicate_next_due(now) {
                return;
            }
        }
    }

    /// Looks at the next one. False: none is due.
    fn replicate_next_due(&mut self, now: Instant) -> bool {
        let Some(due) = self.deferral.as_ref().and_then(|deferral| deferral.queue.poll_due(now)) else { return false };
        let age = self.age(now, due.handle, due.began);
        let deferral = self.deferral.as_mut();
        if deferral.is_some_and(|deferral| deferral.queue.decide(now, due.handle, age)) {
            self.replicate(due.handle);
        } else {
            self.count_unreplicated(due.handle);
        }
        true
    }

    /// A node that ceases to be primary has everything replicated, and defers nothing.
    pub(super) fn follow_role(&mut self, now: Instant) {
        let is_primary = self.role == SyncRole::Primary;
        let Some(deferral) = &mut self.deferral else { return };
        if is_primary {
            deferral.queue.resume();
        } else {
            deferral.queue.suspend();
            while self.replicate_next_due(now) {}
        }
    }

    fn age(&self, now: Instant, handle: Handle, began: Instant) -> Age {
        let Some(record) = self.mirror.get(handle).filter(|record| self.is_own(record)) else { return Age::Gone };
        let is_answered = record.status().contains(Status::SEEN_REPLY);
        if PROTOCOLS_WITH_END.contains(&record.protocol()) || !is_answered {
            return Age::Open;
        }
        let last = self.deferral.as_ref().and_then(|deferral| deferral.last_events.get(handle.0 as usize));
        Age::Observed(last.copied().unwrap_or(now).saturating_since(began))
    }
}

/// Both sides have closed the connection, or one has broken off.
pub(super) fn is_over(record: &Record) -> bool {
    matches!(record.tcp_state(), Some(TcpState::TimeWait | TcpState::Close))
}
