//! Processes the kernel's events.
//!
//! The owner of a connection is the node whose kernel sees its packets. So an event makes this node the owner: of a new
//! connection, and of a replica that a packet has advanced.

use flow::Instant;
use flow::netfilter::{Entry, Expectation};
use replication::Handle;

use super::injection::is_closing;
use super::{Connections, ends_s};
use crate::event::SyncEvent;
use crate::mirror::flag;

/// The cause of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Packets, or the kernel's timers.
    Packets,
    /// Another program (`conntrack -U`). Changes by this program must not be reported to it.
    OtherProgram,
}

/// An event of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelEvent<'a> {
    /// A connection began.
    Began(&'a Entry),
    /// A connection changed.
    Changed(&'a Entry),
    /// A connection ended.
    Ended(&'a Entry),
    /// An expectation was created.
    Expected(&'a Expectation),
    /// It is not expected any more: it add_own, or its time is over.
    ExpectationEnded(&'a Expectation),
}

impl Connections {
    pub(crate) fn handle_event(&mut self, now: Instant, event: KernelEvent<'_>) {
        self.counters.events += 1;
        match event {
            KernelEvent::Began(entry) | KernelEvent::Changed(entry) => {
                match self.mirror.find(&entry.original, entry.zone) {
                    Some(handle) => self.update_from_kernel(now, handle, entry),
                    None => self.add_own(now, entry, false),
                }
            }
            KernelEvent::Ended(entry) => {
                self.note_ended(entry);
                match self.mirror.find(&entry.original, entry.zone) {
                    Some(handle) => self.kernel_ended(handle, entry),
                    None => self.counters.unknown_ends += 1,
                }
            }
            KernelEvent::Expected(expectation) => self.expected(expectation, true),
            KernelEvent::ExpectationEnded(expectation) => self.expected(expectation, false),
        }
    }

    /// Adds an unknown connection. With `is_unseen`, it is unknown which node gets its packets.
    pub(crate) fn add_own(&mut self, now: Instant, entry: &Entry, is_unseen: bool) {
        if self.filter.ignores(entry) {
            self.counters.filtered += 1;
            return;
        }
        let dump = self.dump.number();
        let Ok((handle, record)) = self.mirror.insert(entry, self.node) else {
            self.note_full(now, SyncEvent::TableFull);
            return;
        };
        record.id = entry.id.unwrap_or(0);
        record.dump = dump;
        record.expires_s = ends_s(now, entry.timeout_s.unwrap_or(0));
        record.set(flag::IN_KERNEL | flag::FOUND, true);
        record.set(flag::UNSEEN, is_unseen);
        self.own += 1;
        self.counters.began += 1;
        self.begin_deferral(now, handle);
        self.replicate(handle);
    }

    /// Updates a known connection by an event of the kernel.
    pub(crate) fn update_from_kernel(&mut self, now: Instant, handle: Handle, entry: &Entry) {
        let (dump, node) = (self.dump.number(), self.node);
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let is_another = entry.id.is_some_and(|id| record.id != 0 && id != record.id);
        let is_own = record.owner() == node;
        if is_another {
            record.clear_content();
        }
        let mut is_changed = is_another || record.is_any(flag::UNSEEN);
        is_changed |= record.set_reply(&entry.reply);
        is_changed |= record.merge(entry);
        record.id = entry.id.unwrap_or(record.id);
        record.dump = dump;
        if let Some(timeout_s) = entry.timeout_s {
            record.expires_s = ends_s(now, timeout_s);
        }
        record.set(flag::IN_KERNEL | flag::FOUND, true);
        record.set(flag::UNSEEN | flag::VERIFY | flag::DIRTY | flag::REPLACE, false);
        if !is_own {
            self.counters.taken_over += 1;
            self.take_over(handle, false);
        } else if is_changed {
            self.note_event(now, handle);
            self.replicate(handle);
        } else {
            self.counters.idle_events += 1;
        }
    }

    fn kernel_ended(&mut self, handle: Handle, entry: &Entry) {
        let Some(record) = self.mirror.get(handle) else { return };
        if entry.id.is_some_and(|id| record.id != 0 && id != record.id) {
            self.counters.stale_ends += 1;
            return;
        }
        self.gone_from_kernel(handle);
    }

    /// The kernel ended the connection.
    pub(crate) fn gone_from_kernel(&mut self, handle: Handle) {
        let (node, alive) = (self.node, self.alive);
        let Some(record) = self.mirror.get_mut(handle) else { return };
        if record.owner() == node {
            return self.end_own(handle);
        }
        record.id = 0;
        record.set(flag::IN_KERNEL | flag::FOUND, false);
        record.rare.iter_mut().for_each(|rare| rare.injected.clear());
        if record.is_any(flag::GONE | flag::ENDING) || !alive.contains(record.owner()) {
            self.drop_replica(handle);
        } else if !is_closing(record) {
            // Its owner is alive, and so is the connection.
            self.counters.replicas_ended_early += 1;
            self.queue(handle, flag::DIRTY);
        }
    }

    /// The kernel's reply to a query: the connection exists.
    pub(crate) fn verified_there(&mut self, now: Instant, handle: Handle, entry: &Entry) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        if !record.is_any(flag::ENDING) {
            return self.compare(now, handle, entry);
        }
        let ends_s = ends_s(now, entry.timeout_s.unwrap_or(0));
        if ends_s.abs_diff(record.expires_s) > TIMER_TOLERANCE_S {
            // Only packets can have set its timer: forward, or back from a replica's timeout.
            self.counters.ends_refused += 1;
            self.update_from_kernel(now, handle, entry);
        } else {
            self.queue(handle, flag::GONE);
        }
    }

    /// The kernel's reply to a query: the connection does not exist.
    pub(crate) fn verified_gone(&mut self, _now: Instant, handle: Handle) {
        self.counters.repaired += 1;
        self.gone_from_kernel(handle);
    }
}

/// The minimum difference of the kernel's timer from the expected value that proves packets: rounding and the duration
/// of a request are less.
const TIMER_TOLERANCE_S: u32 = 3;
