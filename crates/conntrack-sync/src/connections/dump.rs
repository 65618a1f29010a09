//! Detects missed changes: reads the kernel's table and compares it with the mirror.
//!
//! ```text
//!  events lost ─► wanted ─► running (entries are compared as they come) ─► ended ─► each unseen connection is queried from
//!      ▲            ▲                                                        │       the kernel before it is replicated as ended
//!      │            └────────── failed, interrupted, or events lost again ───┘
//! ```
//! Events continue during a dump, so a dump proves the presence of a connection but not its absence: only the kernel's
//! reply to a query for that connection does.

use core::time::Duration;

use flow::Instant;
use flow::netfilter::{Entry, Expectation, Status};
use replication::Handle;

use super::dump_state::DumpResult;
use super::expectation_table::is_same;
use super::kernel::KernelEvent;
use super::{Connections, ends_s};
use crate::config::{Mode, SyncRole};
use crate::event::SyncEvent;
use crate::mirror::{Record, flag};

/// The delay before a failed dump is repeated, doubled each time,
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
/// up to this.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);

/// Connections that a full table rejected are looked for when one part in so many of it is free.
const FREE_SHARE_MIN: u32 = 16;

impl Connections {
    pub(crate) fn events_lost(&mut self, now: Instant) {
        self.counters.overruns += 1;
        if !self.dump.is_due() {
            self.events.push(now, SyncEvent::EventsLost);
            self.dump.repaired_before = self.counters.repaired;
        }
        if self.dump.is_running {
            self.dump.was_overrun = true;
        } else if !self.dump.is_wanted {
            (self.dump.is_wanted, self.dump.wanted_at) = (true, now);
        }
    }

    /// It is worth the work to look for connections that a full mirror rejected.
    pub(crate) fn has_ample_room(&self) -> bool {
        self.mirror.room() > self.mirror.slots_max() / FREE_SHARE_MIN
    }

    /// The mirror has room again for connections that it rejected.
    pub(crate) fn note_room(&mut self) {
        if self.lacks_room && self.has_ample_room() {
            self.lacks_room = false;
            self.request_dump(Instant::ZERO);
        }
    }

    /// Requests a dump, whether changes were missed or not.
    pub(crate) fn request_dump(&mut self, now: Instant) {
        if !self.dump.is_due() {
            (self.dump.is_wanted, self.dump.wanted_at) = (true, now);
            self.dump.repaired_before = self.counters.repaired;
        }
    }

    pub(crate) fn poll_dump(&mut self, now: Instant) -> bool {
        let is_due = self.dump.is_wanted && !self.dump.is_running && self.dump.wanted_at <= now;
        if is_due {
            let number = self.dump.number.checked_add(1).unwrap_or(1);
            let dump = &mut self.dump;
            (dump.is_wanted, dump.is_running, dump.was_overrun, dump.number) = (false, true, false, number);
        }
        is_due
    }

    pub(crate) fn dump_entry(&mut self, now: Instant, entry: &Entry) {
        match self.mirror.find(&entry.original, entry.zone) {
            Some(handle) => self.compare(now, handle, entry),
            None if !self.dump.ended.is_empty() && self.dump.ended.contains(&self.ended_name(entry)) => {}
            None if self.dump.is_initialised => {
                let began = self.counters.began;
                self.add_own(now, entry, false);
                self.counters.repaired += self.counters.began - began;
            }
            // It is unknown which node gets its packets, unless this node gets them all.
            None => self.add_own(now, entry, self.role != SyncRole::Primary || self.mode == Mode::MultiPrimary),
        }
    }

    fn ended_name(&self, entry: &Entry) -> (u32, u32) {
        (self.mirror.hash(&entry.original, entry.zone), entry.id.unwrap_or(0))
    }

    /// Records that the kernel has ended a connection.
    pub(crate) fn note_ended(&mut self, entry: &Entry) {
        if self.dump.is_running {
            let (hash, id) = self.ended_name(entry);
            self.dump.note_ended(id, hash);
        }
    }

    pub(crate) fn dump_expectation(&mut self, now: Instant, expectation: &Expectation) {
        let Some(handle) = self.mirror.find(&expectation.master, expectation.zone) else { return };
        let is_known = self.mirror.get(handle).is_some_and(|record| {
            let injected = record.rare.as_ref().map_or(&[][..], |rare| &rare.injected);
            record.expectations().iter().chain(injected).any(|known| is_same(known, expectation))
        });
        if !is_known {
            self.handle_event(now, KernelEvent::Expected(expectation));
        }
    }

    /// Compares a known connection with the kernel's entry from a dump or a query, without an event.
    pub(crate) fn compare(&mut self, now: Instant, handle: Handle, entry: &Entry) {
        let (dump, node) = (self.dump.number(), self.node);
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.dump = dump;
        record.set(flag::VERIFY, false);
        let is_another = entry.id.is_some_and(|id| record.id != 0 && id != record.id);
        let is_own = record.owner() == node;
        if is_own && record.is_any(flag::UNSEEN) && !is_another {
            let is_other = record.set_reply(&entry.reply);
            let is_changed = record.merge(entry) || is_other;
            record.set(flag::IN_KERNEL | flag::FOUND, true);
            record.id = entry.id.unwrap_or(record.id);
            record.expires_s = ends_s(now, entry.timeout_s.unwrap_or(0));
            if is_changed {
                // Only packets can have changed it.
                record.set(flag::UNSEEN, false);
                self.counters.repaired += 1;
                self.replicate(handle);
            }
        } else if is_own {
            let version = record.version;
            self.update_from_kernel(now, handle, entry);
            let is_changed = self.mirror.get(handle).is_some_and(|record| record.version != version);
            self.counters.repaired += u64::from(is_changed);
        } else if record.is_any(flag::GONE) {
            record.set(flag::IN_KERNEL, true);
        } else if is_ahead(record, entry) {
            self.counters.repaired += 1;
            self.update_from_kernel(now, handle, entry);
        } else if !record.is_any(flag::IN_KERNEL) || is_behind(record, entry) {
            record.set(flag::IN_KERNEL, true);
            self.queue(handle, flag::DIRTY);
        }
    }

    pub(crate) fn dump_ended(&mut self, now: Instant, result: DumpResult) {
        self.dump.is_running = false;
        self.dump.ended.clear();
        if result == DumpResult::Failed {
            self.events.push(now, SyncEvent::DumpFailed);
            return self.restart_dump(now);
        }
        self.counters.dumps += 1;
        self.ask_after_unseen();
        self.dump.is_initialised = true;
        if result == DumpResult::Interrupted || self.dump.was_overrun {
            return self.restart_dump(now);
        }
        self.dump.failures = 0;
    }

    fn restart_dump(&mut self, now: Instant) {
        let delay = (RETRY_DELAY_MIN * (1 << self.dump.failures.min(8))).min(RETRY_DELAY_MAX);
        self.dump.failures += 1;
        (self.dump.is_wanted, self.dump.wanted_at) = (true, now + delay);
    }

    fn ask_after_unseen(&mut self) {
        let mut from = Handle(0);
        while let Some(handle) = self.mirror.next_occupied(from) {
            from = Handle(handle.0 + 1);
            let number = self.dump.number;
            let is_missing = self.mirror.get(handle).is_some_and(|record| {
                record.dump != number && record.is_any(flag::IN_KERNEL) && !record.is_any(flag::GONE)
            });
            if is_missing {
                self.queue(handle, flag::VERIFY);
            }
        }
    }

    /// Reports recovery once all changes missed by lost events are known.
    pub(crate) fn note_recovered(&mut self, now: Instant) {
        let is_over = self.counters.overruns > self.counters.recoveries
            && self.dump.is_initialised
            && !self.dump.is_due()
            && self.queue.pending() == 0;
        if is_over {
            self.counters.recoveries = self.counters.overruns;
            let repaired = self.counters.repaired - self.dump.repaired_before;
            self.events.push(now, SyncEvent::Recovered { repaired });
        }
    }
}

/// Whether the kernel lacks the state that a replica's owner sent.
fn is_behind(record: &Record, entry: &Entry) -> bool {
    entry.tcp().is_some_and(|info| record.tcp_state().is_some_and(|state| state != info.state))
}

/// Whether the kernel's entry of a replica is ahead of its owner's state: permanent bits or later states.
fn is_ahead(record: &Record, entry: &Entry) -> bool {
    let known = record.status();
    let lasting = Status::SEEN_REPLY.union(Status::ASSURED);
    let is_more = entry.status.is_some_and(|status| status.without(known).intersects(lasting));
    let state = entry.tcp().map(|info| info.state);
    is_more || super::updates::is_further(record.protocol(), state, record.tcp_state())
}
