//! What is to be sent of one kind of objects.

use alloc::vec::Vec;

use flow::Instant;

use super::endings::{EndId, Endings};
use super::log::Log;
use super::marks::Marks;
use super::object::Object;
use super::{Limits, SenderCounters};
use crate::conntrackd::message::{Kind, begin, finish};
use crate::conntrackd::{FtfwConfig, Table};
use crate::session::Handle;

/// Objects that a full synchronisation looks at for one datagram, most of which may wait in the queue already.
const FULL_SYNC_STEPS_MAX: u32 = 512;

/// How a part of a datagram was filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// All of it is in.
    All,
    /// There was no room for more, in the datagram or in flight.
    Full,
}

/// Where the attempt to write a message ended.
enum Written {
    Done,
    /// It goes into the next datagram.
    NoRoom,
    /// conntrackd has no words for it.
    Inexpressible,
}

/// What is to be sent of one kind of objects.
pub(super) struct Outbox<O> {
    pub(super) marks: Marks,
    pub(super) endings: Endings<O>,
}

impl<O: Object> Outbox<O> {
    pub(super) const fn new(handles_max: u32, deletions_max: u32) -> Self {
        Self { marks: Marks::new(handles_max), endings: Endings::new(deletions_max) }
    }

    pub(super) fn queued(&self) -> usize {
        self.marks.queued() + self.endings.queued()
    }

    pub(super) fn fill_endings(
        &mut self,
        now: Instant,
        limits: &Limits<'_>,
        (log, counters): (&mut Log, &mut SenderCounters),
        table: &mut impl Table,
        out: &mut Vec<u8>,
    ) -> Filled {
        while let Some((id, object, is_retransmission)) = self.endings.front() {
            // A successor that was sent replaces it at the peer; a later deletion would end the wrong one.
            if object.successor(table, now, is_retransmission).is_some_and(|handle| self.marks.is_replicated(handle)) {
                self.drop_ending(id);
                continue;
            }
            if !limits.allows(log) {
                return Filled::Full;
            }
            match write(object, O::KINDS[2], log.next(), limits.config, out) {
                Written::Done => {
                    self.endings.pop();
                    log.push(now, O::end(id));
                    counters.messages += 1;
                }
                Written::NoRoom => return Filled::Full,
                Written::Inexpressible => self.drop_ending(id),
            }
        }
        Filled::All
    }

    fn drop_ending(&mut self, id: EndId) {
        self.endings.pop();
        self.endings.release(id);
    }

    pub(super) fn fill_changes(
        &mut self,
        now: Instant,
        limits: &Limits<'_>,
        (log, counters): (&mut Log, &mut SenderCounters),
        table: &mut impl Table,
        out: &mut Vec<u8>,
    ) -> Filled {
        while let Some(handle) = self.marks.front() {
            if !limits.allows(log) {
                return Filled::Full;
            }
            let kind = if self.marks.is_known(handle) { O::KINDS[1] } else { O::KINDS[0] };
            match self.write_change(now, (handle, kind), limits.config, (log, counters), table, out) {
                Filled::All => self.marks.pop(),
                Filled::Full => return Filled::Full,
            }
        }
        Filled::All
    }

    /// Continues from `cursor` over what is there. [`Filled::All`] when it has come to the end.
    pub(super) fn fill_full_sync(
        &mut self,
        now: Instant,
        limits: &Limits<'_>,
        (log, counters): (&mut Log, &mut SenderCounters),
        table: &mut impl Table,
        cursor: &mut Handle,
        out: &mut Vec<u8>,
    ) -> Filled {
        for _ in 0..FULL_SYNC_STEPS_MAX {
            let Some(handle) = O::next(table, *cursor) else { return Filled::All };
            // The queue sends what waits in it.
            if !self.marks.is_wanted(handle) {
                if !limits.allows(log) {
                    return Filled::Full;
                }
                // As to a peer that knows nothing: that is why everything is sent.
                let change = (handle, O::KINDS[0]);
                if self.write_change(now, change, limits.config, (log, counters), table, out) == Filled::Full {
                    return Filled::Full;
                }
            }
            let Some(next) = handle.0.checked_add(1) else { return Filled::All };
            *cursor = Handle(next);
        }
        Filled::Full
    }

    fn write_change(
        &mut self,
        now: Instant,
        (handle, kind): (Handle, Kind),
        config: &FtfwConfig,
        (log, counters): (&mut Log, &mut SenderCounters),
        table: &mut impl Table,
        out: &mut Vec<u8>,
    ) -> Filled {
        let Some(object) = O::current(table, now, handle) else { return Filled::All };
        match write(&object, kind, log.next(), config, out) {
            Written::Done => {
                self.marks.sent(handle, log.next());
                log.push(now, O::change(handle));
                counters.messages += 1;
            }
            Written::NoRoom => return Filled::Full,
            Written::Inexpressible => counters.inexpressible += 1,
        }
        Filled::All
    }
}

fn write(object: &impl Object, kind: Kind, number: u32, config: &FtfwConfig, out: &mut Vec<u8>) -> Written {
    let at = begin(out, kind, 0, number);
    if object.encode(config, out).is_err() {
        out.truncate(at);
        return Written::Inexpressible;
    }
    finish(out, at);
    if out.len() <= config.datagram_bytes_max {
        return Written::Done;
    }
    out.truncate(at);
    Written::NoRoom
}
