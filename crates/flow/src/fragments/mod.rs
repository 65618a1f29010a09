//! Virtual reassembly: fragments are not put together, but each is told which connection it belongs to.
//!
//! The first fragment of a packet alone has the ports. Once it has gone its way, the others follow it under the same
//! verdict and translation; those that come before it are held, and handed in again when it has.
//!
//! ```text
//!   first fragment ──► First ──(the packet's way through table and functions)──► note_first ─┬─► others: Follows
//!                                                                                          └─► held ones: released
//!   another, before the first ──► Held        another, after it ──► Follows, or the reason for which the first was dropped
//! ```
//!
//! Nothing is believed twice: a fragment that was seen is dropped, one that overlaps another condemns its packet
//! (RFC 5722). The table is bounded in packets, in bytes, and in both for one source; see [`FragmentLimits`]. When it is
//! full the oldest packet gives way: the fragments of an honest one come within moments of each other, a flood's never
//! become whole.

mod config;
mod parts;
mod slots;

use alloc::vec::Vec;

use crate::frame::OwnedFrame;
use crate::source_counts::SourceCounts;
use crate::wire::Fragment;
use crate::{DropReason, Frame, HashKey, Instant, Tuple, WorkerId};

pub use config::{FragmentLimits, HELD_BYTES_PER_DATAGRAM_MAX, HELD_FRAGMENT_COST_BYTES};
pub use parts::PARTS_MAX;
use parts::{Misfit, Parts};
use slots::Slots;

/// The way that a packet's first fragment went, and the others go after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The packet's tuple as it came in.
    pub incoming: Tuple,
    /// Its tuple as it went out.
    pub outgoing: Tuple,
    /// Of a TCP segment: the sequence number behind it, had it been cut at byte 0 of what was cut. With the end of a
    /// fragment added, it is the sequence number behind that fragment.
    pub sequence_base: Option<u32>,
}

/// What became of a first fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It was sent on.
    Passed(Way),
    /// It was dropped, and so are the others.
    Refused(DropReason),
    /// It was kept back and will come again.
    KeptBack,
    /// It was handed to the worker that its connection lies with, and so are the others.
    Elsewhere(WorkerId),
}

/// What is to be done with a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// It is the first: it goes the way of a whole packet, and then [`FragmentTable::note_first`] is told.
    First,
    /// It follows the first.
    Follows(Way),
    /// A copy is held until the first comes.
    Held,
    /// It follows the first to another worker.
    Elsewhere(WorkerId),
}

/// How far the first fragment is.
#[derive(Clone, Debug)]
enum Progress {
    /// It has not come, or is on its way. These came before it.
    AwaitsFirst { held: Vec<OwnedFrame>, held_cost_bytes: u32 },
    /// It went this way.
    Passed(Way),
    /// It went to this worker.
    Elsewhere(WorkerId),
    /// None of the packet's fragments passes.
    Refused(DropReason),
}

impl Progress {
    const NEW: Self = Self::AwaitsFirst { held: Vec::new(), held_cost_bytes: 0 };
}

/// A packet in pieces.
#[derive(Clone, Debug)]
struct Datagram {
    name: Tuple,
    expires_at: Instant,
    parts: Parts,
    progress: Progress,
}

/// Packets in pieces, as far as they have come; see the [module](self).
pub struct FragmentTable {
    limits: FragmentLimits,
    slots: Slots,
    datagrams_by_source: SourceCounts,
    held_bytes_by_source: SourceCounts,
    held_bytes: u32,
    released: Vec<OwnedFrame>,
    lost: Vec<(DropReason, u64)>,
}

impl core::fmt::Debug for FragmentTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FragmentTable")
            .field("limits", &self.limits)
            .field("len", &self.len())
            .field("held_bytes", &self.held_bytes)
            .finish_non_exhaustive()
    }
}

impl FragmentTable {
    /// An empty table. Names are hashed under `key`.
    #[must_use]
    pub fn new(limits: FragmentLimits, key: HashKey) -> Self {
        let datagrams_max = limits.datagrams_max.max(1) as usize;
        Self {
            limits,
            slots: Slots::new(datagrams_max, key),
            datagrams_by_source: SourceCounts::new(key, limits.sources, datagrams_max),
            held_bytes_by_source: SourceCounts::new(key, limits.sources, datagrams_max),
            held_bytes: 0,
            released: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Packets in pieces that are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// No packet in pieces is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that held fragments are charged for: their own, and [`HELD_FRAGMENT_COST_BYTES`] each.
    #[must_use]
    pub const fn held_bytes(&self) -> u32 {
        self.held_bytes
    }

    /// A fragment came in, in `frame`.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn handle_fragment(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        frame: &Frame<'_>,
    ) -> Result<Look, DropReason> {
        self.expire(now);
        let slot = match self.slots.find(&fragment.packet) {
            Some(slot) => slot,
            None => self.begin(now, &fragment.packet)?,
        };
        let Some(datagram) = self.slots.get_mut(slot) else { return Err(DropReason::FragmentTableFull) };
        if let Progress::Refused(reason) = datagram.progress {
            return Err(reason);
        }
        match datagram.parts.check(fragment.start, fragment.end, fragment.more) {
            Ok(()) => {}
            Err(Misfit::Duplicate) => return Err(DropReason::DuplicateFragment),
            Err(Misfit::Overlap) => return Err(self.condemn(slot, DropReason::OverlappingFragment)),
            Err(Misfit::TooScattered) => return Err(self.condemn(slot, DropReason::FragmentTableFull)),
        }
        match datagram.progress {
            _ if fragment.is_first() => Ok(Look::First),
            Progress::Passed(way) => {
                self.note_part(slot, fragment);
                Ok(Look::Follows(way))
            }
            Progress::Elsewhere(worker) => {
                self.note_part(slot, fragment);
                Ok(Look::Elsewhere(worker))
            }
            Progress::AwaitsFirst { .. } | Progress::Refused(_) => self.hold(slot, fragment, frame),
        }
    }

    /// What became of a first fragment, for which [`FragmentTable::handle_fragment`] said so.
    pub fn note_first(&mut self, fragment: &Fragment, fate: Fate) {
        let Some(slot) = self.slots.find(&fragment.packet) else { return };
        match fate {
            Fate::KeptBack => {}
            Fate::Refused(reason) => {
                self.condemn(slot, reason);
            }
            Fate::Passed(way) => self.release(slot, fragment, Progress::Passed(way)),
            Fate::Elsewhere(worker) => self.release(slot, fragment, Progress::Elsewhere(worker)),
        }
    }

    /// The first fragment has gone its way: the others follow it.
    fn release(&mut self, slot: u32, first: &Fragment, progress: Progress) {
        let held = self.take_held(slot);
        self.released.extend(held);
        // What was held comes again, and is noted then.
        if let Some(datagram) = self.slots.get_mut(slot) {
            datagram.parts = Parts::default();
            datagram.progress = progress;
        }
        self.note_part(slot, first);
    }

    /// Fragments that were held and whose first one has passed: they are to be handed in again, in this order.
    #[must_use]
    pub fn take_released(&mut self) -> Option<Vec<OwnedFrame>> {
        (!self.released.is_empty()).then(|| core::mem::take(&mut self.released))
    }

    /// Fragments were released and not yet taken.
    #[must_use]
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Held fragments that were dropped since the last call, by reason.
    pub fn take_lost(&mut self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        self.lost.drain(..)
    }

    /// Gives up packets whose fragments have not all come in time.
    pub fn expire(&mut self, now: Instant) {
        while let Some(slot) = self.slots.oldest() {
            if self.slots.get(slot).is_some_and(|datagram| datagram.expires_at > now) {
                break;
            }
            self.give_up(slot, DropReason::FragmentTimeout);
        }
    }

    /// When [`FragmentTable::expire`] next has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.slots.oldest().and_then(|slot| self.slots.get(slot)).map(|datagram| datagram.expires_at)
    }

    fn begin(&mut self, now: Instant, name: &Tuple) -> Result<u32, DropReason> {
        if self.datagrams_by_source.count(name) >= self.limits.datagrams_per_source_max {
            return Err(DropReason::FragmentSourceLimit);
        }
        if self.slots.len() >= self.limits.datagrams_max.max(1) as usize
            && let Some(oldest) = self.slots.oldest()
        {
            self.give_up(oldest, DropReason::FragmentTableFull);
        }
        self.datagrams_by_source.add(name, 1);
        Ok(self.slots.insert(Datagram {
            name: *name,
            expires_at: now + self.limits.timeout,
            parts: Parts::default(),
            progress: Progress::NEW,
        }))
    }

    fn hold(&mut self, slot: u32, fragment: &Fragment, frame: &Frame<'_>) -> Result<Look, DropReason> {
        let cost_bytes = (frame.bytes().len() + HELD_FRAGMENT_COST_BYTES) as u32;
        let of_source = self.held_bytes_by_source.count(&fragment.packet).saturating_add(cost_bytes);
        if of_source > self.limits.held_bytes_per_source_max {
            return Err(DropReason::FragmentSourceLimit);
        }
        let is_full = self.held_bytes.saturating_add(cost_bytes) > self.limits.held_bytes_max;
        let Some(Datagram { parts, progress: Progress::AwaitsFirst { held, held_cost_bytes }, .. }) =
            self.slots.get_mut(slot)
        else {
            return Err(DropReason::FragmentTableFull);
        };
        if is_full || (*held_cost_bytes + cost_bytes) as usize > HELD_BYTES_PER_DATAGRAM_MAX {
            return Err(DropReason::FragmentTableFull);
        }
        parts.add(fragment.start, fragment.end, fragment.more);
        held.push(OwnedFrame::copy_of(frame));
        *held_cost_bytes += cost_bytes;
        self.held_bytes += cost_bytes;
        self.held_bytes_by_source.add(&fragment.packet, cost_bytes);
        Ok(Look::Held)
    }

    /// Notes a part that passes; a packet of which all has passed is forgotten.
    fn note_part(&mut self, slot: u32, fragment: &Fragment) {
        let Some(datagram) = self.slots.get_mut(slot) else { return };
        datagram.parts.add(fragment.start, fragment.end, fragment.more);
        if datagram.parts.is_whole() {
            self.remove(slot);
        }
    }

    /// None of the packet's fragments passes from now on, until its time is over.
    fn condemn(&mut self, slot: u32, reason: DropReason) -> DropReason {
        let dropped = self.take_held(slot).len();
        self.count_lost(reason, dropped);
        if let Some(datagram) = self.slots.get_mut(slot) {
            datagram.progress = Progress::Refused(reason);
        }
        reason
    }

    /// Forgets a packet that did not become whole.
    fn give_up(&mut self, slot: u32, reason: DropReason) {
        let dropped = self.take_held(slot).len();
        self.count_lost(reason, dropped);
        self.remove(slot);
    }

    fn count_lost(&mut self, reason: DropReason, frames: usize) {
        if frames > 0 {
            self.lost.push((reason, frames as u64));
        }
    }

    fn take_held(&mut self, slot: u32) -> Vec<OwnedFrame> {
        let Some(datagram) = self.slots.get_mut(slot) else { return Vec::new() };
        let Progress::AwaitsFirst { held, held_cost_bytes } = &mut datagram.progress else { return Vec::new() };
        let (held, cost_bytes) = (core::mem::take(held), core::mem::take(held_cost_bytes));
        if cost_bytes > 0 {
            self.held_bytes -= cost_bytes;
            self.held_bytes_by_source.subtract(&datagram.name, cost_bytes);
        }
        held
    }

    fn remove(&mut self, slot: u32) {
        if let Some(datagram) = self.slots.remove(slot) {
            debug_assert!(
                matches!(&datagram.progress, Progress::Passed(_) | Progress::Elsewhere(_) | Progress::Refused(_))
                    || matches!(&datagram.progress, Progress::AwaitsFirst { held, .. } if held.is_empty()),
                "what was held has been released or counted"
            );
            self.datagrams_by_source.subtract(&datagram.name, 1);
        }
    }
}

#[cfg(test)]
mod tests;
