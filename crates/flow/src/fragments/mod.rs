//! Virtual reassembly: fragments are not reassembled, but each is assigned to its connection.
//!
//! Only the first fragment of a packet has the ports. Once it has been processed, the others follow it with the same
//! verdict and translation. Fragments that arrive before it are held and then reinjected.
//!
//! ```text
//!   first fragment ──► First ──(the packet's way through table and functions)──► note_first ─┬─► later: Follows
//!                                                                                          └─► held: released
//!   later one, before the first ──► Held      later one, after it ──► Follows, or the first one's drop reason
//! ```
//!
//! A duplicate fragment is dropped; an overlapping one discards its packet (RFC 5722). The table is bounded in packets,
//! in bytes, and in both per source; see [`FragmentLimits`]. When it is full, the oldest packet is evicted: the
//! fragments of an honest packet arrive within moments of each other, those of a flood never complete.

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

/// The forwarding of a packet's first fragment, which the others follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentRoute {
    /// The packet's tuple on arrival.
    pub incoming: Tuple,
    /// Its tuple on departure.
    pub outgoing: Tuple,
    /// For a TCP segment: the sequence number behind it, as if it ended at byte 0 of the unfragmented payload. Adding a
    /// fragment's end yields the sequence number behind that fragment.
    pub sequence_base: Option<u32>,
}

/// The outcome of a first fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstOutcome {
    /// It was forwarded.
    Passed(FragmentRoute),
    /// It was dropped, as the others will be.
    Dropped(DropReason),
    /// It waits and will be reinjected.
    Waiting,
    /// It was handed to its connection's worker, as the others will be.
    OtherWorker(WorkerId),
}

/// The treatment of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FragmentAction {
    /// It is the first: it is processed like a whole packet, and then the caller calls [`FragmentTable::note_first`].
    First,
    /// It follows the first.
    Follows(FragmentRoute),
    /// It is copied and held until the first arrives.
    Held,
    /// It follows the first to another worker.
    OtherWorker(WorkerId),
}

/// The progress of the first fragment.
#[derive(Clone, Debug)]
enum Progress {
    /// It has not arrived, or is being processed. These fragments arrived earlier.
    AwaitsFirst { held: Vec<OwnedFrame>, held_cost_bytes: u32 },
    /// It was forwarded so.
    Passed(FragmentRoute),
    /// It was handed to this worker.
    OtherWorker(WorkerId),
    /// The packet's fragments are all dropped.
    Dropped(DropReason),
}

impl Progress {
    const NEW: Self = Self::AwaitsFirst { held: Vec::new(), held_cost_bytes: 0 };
}

/// A fragmented packet.
#[derive(Clone, Debug)]
struct Datagram {
    name: Tuple,
    expires_at: Instant,
    parts: Parts,
    progress: Progress,
}

/// The fragmented packets in progress; see the [module](self).
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

    /// The number of fragmented packets in progress.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no fragmented packet is in progress.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes charged for held fragments: their own, and [`HELD_FRAGMENT_COST_BYTES`] each.
    #[must_use]
    pub const fn held_bytes(&self) -> u32 {
        self.held_bytes
    }

    /// Handles a fragment in `frame`.
    ///
    /// # Errors
    /// The reason for which it is dropped.
    pub fn handle_fragment(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        frame: &Frame<'_>,
    ) -> Result<FragmentAction, DropReason> {
        self.expire(now);
        let slot = match self.slots.find(&fragment.packet) {
            Some(slot) => slot,
            None => self.begin(now, &fragment.packet)?,
        };
        let Some(datagram) = self.slots.get_mut(slot) else { return Err(DropReason::FragmentTableFull) };
        if let Progress::Dropped(reason) = datagram.progress {
            return Err(reason);
        }
        match datagram.parts.check(fragment.start, fragment.end, fragment.more) {
            Ok(()) => {}
            Err(Misfit::Duplicate) => return Err(DropReason::DuplicateFragment),
            Err(Misfit::Overlap) => return Err(self.drop_all(slot, DropReason::OverlappingFragment)),
            Err(Misfit::TooScattered) => return Err(self.drop_all(slot, DropReason::FragmentTableFull)),
        }
        match datagram.progress {
            _ if fragment.is_first() => Ok(FragmentAction::First),
            Progress::Passed(way) => {
                self.note_part(slot, fragment);
                Ok(FragmentAction::Follows(way))
            }
            Progress::OtherWorker(worker) => {
                self.note_part(slot, fragment);
                Ok(FragmentAction::OtherWorker(worker))
            }
            Progress::AwaitsFirst { .. } | Progress::Dropped(_) => self.hold(slot, fragment, frame),
        }
    }

    /// Records the outcome of a first fragment, for which [`FragmentTable::handle_fragment`] returned
    /// [`FragmentAction::First`].
    pub fn note_first(&mut self, fragment: &Fragment, outcome: FirstOutcome) {
        let Some(slot) = self.slots.find(&fragment.packet) else { return };
        match outcome {
            FirstOutcome::Waiting => {}
            FirstOutcome::Dropped(reason) => {
                self.drop_all(slot, reason);
            }
            FirstOutcome::Passed(way) => self.release(slot, fragment, Progress::Passed(way)),
            FirstOutcome::OtherWorker(worker) => self.release(slot, fragment, Progress::OtherWorker(worker)),
        }
    }

    /// The first fragment has been processed: the others follow it.
    fn release(&mut self, slot: u32, first: &Fragment, progress: Progress) {
        let held = self.take_held(slot);
        self.released.extend(held);
        // Held fragments are reinjected, and recorded then.
        if let Some(datagram) = self.slots.get_mut(slot) {
            datagram.parts = Parts::default();
            datagram.progress = progress;
        }
        self.note_part(slot, first);
    }

    /// Held fragments whose first one has passed, in order: the caller reinjects them.
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

    /// Discards packets whose fragments have not all arrived in time.
    pub fn expire(&mut self, now: Instant) {
        while let Some(slot) = self.slots.oldest() {
            if self.slots.get(slot).is_some_and(|datagram| datagram.expires_at > now) {
                break;
            }
            self.discard(slot, DropReason::FragmentTimeout);
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
            self.discard(oldest, DropReason::FragmentTableFull);
        }
        self.datagrams_by_source.add(name, 1);
        Ok(self.slots.insert(Datagram {
            name: *name,
            expires_at: now + self.limits.timeout,
            parts: Parts::default(),
            progress: Progress::NEW,
        }))
    }

    fn hold(&mut self, slot: u32, fragment: &Fragment, frame: &Frame<'_>) -> Result<FragmentAction, DropReason> {
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
        Ok(FragmentAction::Held)
    }

    /// Records a part that passes; a packet that has passed completely is removed.
    fn note_part(&mut self, slot: u32, fragment: &Fragment) {
        let Some(datagram) = self.slots.get_mut(slot) else { return };
        datagram.parts.add(fragment.start, fragment.end, fragment.more);
        if datagram.parts.is_whole() {
            self.remove(slot);
        }
    }

    /// Drops all fragments of the packet until its timeout.
    fn drop_all(&mut self, slot: u32, reason: DropReason) -> DropReason {
        let dropped = self.take_held(slot).len();
        self.count_lost(reason, dropped);
        if let Some(datagram) = self.slots.get_mut(slot) {
            datagram.progress = Progress::Dropped(reason);
        }
        reason
    }

    /// Removes an incomplete packet.
    fn discard(&mut self, slot: u32, reason: DropReason) {
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
                matches!(&datagram.progress, Progress::Passed(_) | Progress::OtherWorker(_) | Progress::Dropped(_))
                    || matches!(&datagram.progress, Progress::AwaitsFirst { held, .. } if held.is_empty()),
                "what was held has been released or counted"
            );
            self.datagrams_by_source.subtract(&datagram.name, 1);
        }
    }
}

#[cfg(test)]
mod tests;
