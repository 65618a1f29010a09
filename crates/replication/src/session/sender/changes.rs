//! What is known of each handle, and the queue of changed ones.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::item::{Item, Sums, Unsettled};
use crate::session::Handle;
use crate::session::config::BYTES_PER_CONNECTION;
use crate::session::store::Holding;

/// The connection changed since it was last sent.
const WANTED: u16 = 1;
/// The handle is in the queue.
const QUEUED: u16 = 2;
/// A message with the connection's state is unacknowledged; `last_number` is the newest one's.
const IN_FLIGHT: u16 = 4;
/// The peer has acknowledged a message about the connection.
const KNOWN: u16 = 8;
/// The current full synchronisation is not complete before the connection is sent.
const ROUND_PENDING: u16 = 16;
/// Its newest message is not acknowledged, or was lost and is to be sent again: what the peer has is not known.
const UNSETTLED: u16 = 32;
/// The peer may know it: a message about it was in flight when the peer went away.
const MAYBE_KNOWN: u16 = 64;
/// The slot holds a replica of the peer's, and `item` is the replica's.
const PEERS: u16 = 128;
/// The peer does not have the connection in any state: it was marked, and no message about it was acknowledged.
const UNCOVERED: u16 = 256;

#[derive(Clone, Copy, Default)]
struct Entry {
    /// What was sent last of this node's connection, or what is held of the peer's.
    item: Item,
    last_number: u32,
    sent_round: u16,
    flags: u16,
}

const _: () = assert!(size_of::<Entry>() == BYTES_PER_CONNECTION, "the documented memory of an entry");
const _: () = assert!(64 / BYTES_PER_CONNECTION == 4, "four connections a cache line, for scans over all");

/// What was found out about a message that is acknowledged as missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// The connection has ended, or the slot has another one.
    Moot,
    /// A newer message, with this number, is in flight.
    NewerInFlight(u32),
    /// The connection waits in the queue (since now, or already).
    Queued,
    /// It ought to wait in the queue, which is full.
    Overflow,
}

/// The queue holds handles and never bytes, each at most once: a connection that changes while it waits costs nothing.
#[cfg_attr(test, derive(Clone))]
pub(in crate::session) struct Changes {
    entries: Vec<Entry>,
    queue: VecDeque<Handle>,
    /// Connections that the peer does not have yet. They go before those in `queue`.
    first: VecDeque<Handle>,
    /// Connections that the peer does not have yet are queued in `first`.
    prefers_new: bool,
    queued_max: usize,
    round_pending: u32,
    /// Connections with [`UNCOVERED`].
    uncovered: u32,
    /// What was sent to the peer.
    pub(in crate::session) sent_items: Sums,
    /// Of that, what is in flight.
    pub(in crate::session) unsettled: Unsettled,
    /// What is held of the peer's.
    pub(in crate::session) copied: Sums,
    /// Every entry with an item lies below this.
    items_end: u32,
}

impl Changes {
    pub(super) fn new(connections_max: u32, queued_max: u32) -> Self {
        Self {
            entries: vec![Entry::default(); connections_max as usize],
            queue: VecDeque::new(),
            first: VecDeque::new(),
            prefers_new: false,
            queued_max: queued_max as usize,
            round_pending: 0,
            uncovered: 0,
            sent_items: Sums::new(),
            unsettled: Unsettled::new(),
            copied: Sums::new(),
            items_end: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.first.len()
    }

    /// Connections that were marked and that the peer does not have in any state.
    pub(super) const fn uncovered(&self) -> u32 {
        self.uncovered
    }

    /// From now on connections that the peer does not have yet are sent before others. Those that wait already go to the front.
    pub(super) fn set_prefers_new(&mut self, prefers_new: bool) {
        if prefers_new && !self.prefers_new {
            let entries = &self.entries;
            let is_new =
                |handle: &Handle| entries[handle.0 as usize].flags & (UNCOVERED | WANTED) == UNCOVERED | WANTED;
            self.first.extend(self.queue.iter().copied().filter(is_new));
            self.queue.retain(|handle| !is_new(handle));
        }
        self.prefers_new = prefers_new;
    }

    /// Connections without which the current full synchronisation is not complete.
    pub(super) const fn round_pending(&self) -> u32 {
        self.round_pending
    }

    pub(super) fn is_valid(&self, handle: Handle) -> bool {
        (handle.0 as usize) < self.entries.len()
    }

    /// Queues a changed connection; false if the queue is full.
    pub(super) fn mark(&mut self, handle: Handle) -> bool {
        self.mark_uncovered(handle);
        let queued = self.len();
        let Some(entry) = self.entries.get_mut(handle.0 as usize) else { return true };
        // The queue may still have a place of the slot's former connection: that of a new one is further ahead.
        let goes_first = self.prefers_new && entry.flags & (UNCOVERED | WANTED) == UNCOVERED;
        if goes_first || entry.flags & QUEUED == 0 {
            if queued >= self.queued_max {
                return false;
            }
            let queue = if goes_first { &mut self.first } else { &mut self.queue };
            queue.push_back(handle);
        }
        entry.flags |= WANTED | QUEUED;
        true
    }

    /// A connection changed. If the peer does not have it in any state, it counts as uncovered from now on.
    pub(super) fn mark_uncovered(&mut self, handle: Handle) {
        let Some(entry) = self.entries.get_mut(handle.0 as usize) else { return };
        if entry.flags & (KNOWN | MAYBE_KNOWN | PEERS | UNCOVERED) == 0 {
            entry.flags |= UNCOVERED;
            self.uncovered += 1;
        }
    }

    /// The handle's connection has ended. If the peer may know of it: the item that was sent.
    pub(super) fn forget(&mut self, handle: Handle) -> Option<Item> {
        let entry = self.entries.get_mut(handle.0 as usize)?;
        let may_be_known = entry.flags & (WANTED | IN_FLIGHT | KNOWN | MAYBE_KNOWN) != 0;
        if entry.flags & ROUND_PENDING != 0 {
            self.round_pending -= 1;
        }
        self.uncovered -= u32::from(entry.flags & UNCOVERED != 0);
        let (item, flags) = (core::mem::take(&mut entry.item), entry.flags);
        // What is in the queue stays there; nothing is wanted of it any more.
        entry.flags &= QUEUED;
        entry.sent_round = 0;
        if flags & PEERS != 0 {
            self.copied.subtract(item);
        } else {
            self.sent_items.subtract(item);
            if flags & UNSETTLED != 0 {
                self.unsettled.subtract(item);
            }
        }
        may_be_known.then_some(item)
    }

    /// The slot holds this. What it held of the peer's before.
    pub(super) fn hold(&mut self, handle: Handle, holding: Holding) -> Item {
        let Some(entry) = self.entries.get(handle.0 as usize) else { return Item::NONE };
        let is_peers = entry.flags & PEERS != 0;
        let before = if is_peers { entry.item } else { Item::NONE };
        let is_known_so = match holding {
            Holding::Peers(item) => is_peers && before == item,
            // The end of a connection reaches the session by other calls.
            Holding::Own | Holding::Nothing => !is_peers,
            Holding::Others => false,
        };
        if is_known_so {
            return before;
        }
        self.forget(handle);
        if let Holding::Peers(item) = holding {
            self.copied.add(item);
            let entry = &mut self.entries[handle.0 as usize];
            entry.item = item;
            entry.flags |= PEERS;
            self.items_end = self.items_end.max(handle.0 + 1);
        }
        before
    }

    /// What is held of the peer's in the slot.
    pub(in crate::session) fn held(&self, handle: Handle) -> Item {
        let entry = self.entries.get(handle.0 as usize).filter(|entry| entry.flags & PEERS != 0);
        entry.map_or(Item::NONE, |entry| entry.item)
    }

    /// What was last sent of the connection in the slot, and whether that is in flight.
    pub(in crate::session) fn last_sent(&self, handle: Handle) -> (Item, bool) {
        let entry = self.entries.get(handle.0 as usize).filter(|entry| entry.flags & PEERS == 0);
        entry.map_or((Item::NONE, false), |entry| (entry.item, entry.flags & UNSETTLED != 0))
    }

    /// Every slot of which something was sent, or of whose replica something is known, lies below this.
    pub(in crate::session) const fn items_end(&self) -> u32 {
        self.items_end
    }

    /// Whether the handle's connection was sent, or is queued.
    pub(super) fn is_replicated(&self, handle: Handle) -> bool {
        self.entries.get(handle.0 as usize).is_some_and(|entry| entry.flags & (WANTED | IN_FLIGHT | KNOWN) != 0)
    }

    pub(super) fn is_known(&self, handle: Handle) -> bool {
        self.entries.get(handle.0 as usize).is_some_and(|entry| entry.flags & KNOWN != 0)
    }

    /// The queue whose head is sent next.
    fn next_queue(&mut self) -> &mut VecDeque<Handle> {
        if self.first.is_empty() { &mut self.queue } else { &mut self.first }
    }

    /// The next connection to send. It stays at the head of its queue until [`Changes::sent`] or [`Changes::skip_front`].
    pub(super) fn front(&mut self) -> Option<Handle> {
        while let Some(handle) = self.next_queue().front().copied() {
            let entry = &mut self.entries[handle.0 as usize];
            if entry.flags & WANTED != 0 {
                return Some(handle);
            }
            entry.flags &= !QUEUED;
            self.next_queue().pop_front();
        }
        None
    }

    /// Takes the head off its queue, as it cannot be sent.
    pub(super) fn skip_front(&mut self) {
        if let Some(handle) = self.next_queue().pop_front() {
            self.entries[handle.0 as usize].flags &= !(QUEUED | WANTED);
            self.settle_debt(handle);
        }
    }

    /// The head of its queue was sent. True if the current round was pending on it.
    pub(super) fn sent_front(&mut self, number: u32, round: u16, item: Item) -> bool {
        let Some(handle) = self.next_queue().pop_front() else { return false };
        self.entries[handle.0 as usize].flags &= !(QUEUED | WANTED);
        self.sent(handle, number, round, item);
        self.settle_debt(handle)
    }

    /// A connection was sent under `number`, during (or since) the full synchronisation `round`; `item` is what was sent.
    pub(super) fn sent(&mut self, handle: Handle, number: u32, round: u16, item: Item) {
        let entry = &mut self.entries[handle.0 as usize];
        entry.last_number = number;
        entry.sent_round = round;
        let before = core::mem::replace(&mut entry.item, item);
        let flags = entry.flags;
        entry.flags = flags & !PEERS | IN_FLIGHT | UNSETTLED;
        if flags & PEERS != 0 {
            self.copied.subtract(before);
        } else {
            self.sent_items.subtract(before);
            if flags & UNSETTLED != 0 {
                self.unsettled.subtract(before);
            }
        }
        self.sent_items.add(item);
        self.unsettled.add(item);
        self.items_end = self.items_end.max(handle.0 + 1);
    }

    fn settle_debt(&mut self, handle: Handle) -> bool {
        let entry = &mut self.entries[handle.0 as usize];
        let was_round_pending = entry.flags & ROUND_PENDING != 0;
        entry.flags &= !ROUND_PENDING;
        self.round_pending -= u32::from(was_round_pending);
        was_round_pending
    }

    /// The full synchronisation `round` has come to the connection. True if it must send it; otherwise it was sent, or the
    /// queue sends it.
    pub(super) fn needs_full_sync(&mut self, handle: Handle, round: u16) -> bool {
        let entry = self.entries[handle.0 as usize];
        if entry.flags & WANTED != 0 {
            self.add_to_round(handle);
            return false;
        }
        entry.sent_round != round
    }

    /// The current full synchronisation is not complete before the connection, which is in the queue, is sent.
    pub(super) fn add_to_round(&mut self, handle: Handle) {
        let entry = &mut self.entries[handle.0 as usize];
        if entry.flags & ROUND_PENDING == 0 {
            entry.flags |= ROUND_PENDING;
            self.round_pending += 1;
        }
    }

    /// The message `number` about the handle's connection was received.
    pub(super) fn received(&mut self, handle: Handle, number: u32) {
        let entry = &mut self.entries[handle.0 as usize];
        if entry.flags & IN_FLIGHT != 0 && entry.last_number == number {
            if entry.flags & UNSETTLED != 0 {
                self.unsettled.subtract(entry.item);
            }
            self.uncovered -= u32::from(entry.flags & UNCOVERED != 0);
            entry.flags = entry.flags & !(IN_FLIGHT | UNSETTLED | UNCOVERED) | KNOWN;
        }
    }

    /// The message `number` about the handle's connection was lost: its current state goes again, unless a later
    /// message takes care of that.
    pub(super) fn lost(&mut self, handle: Handle, number: u32) -> Loss {
        let entry = &mut self.entries[handle.0 as usize];
        let is_newest = entry.flags & IN_FLIGHT != 0 && entry.last_number == number;
        if is_newest {
            entry.flags &= !IN_FLIGHT;
        }
        if entry.flags & WANTED != 0 {
            Loss::Queued
        } else if is_newest {
            if self.mark(handle) { Loss::Queued } else { Loss::Overflow }
        } else if entry.flags & IN_FLIGHT != 0 {
            Loss::NewerInFlight(entry.last_number)
        } else {
            Loss::Moot
        }
    }

    /// The message about the handle's connection that is in flight counts no more.
    pub(super) fn abandon(&mut self, handle: Handle) {
        let entry = &mut self.entries[handle.0 as usize];
        if entry.flags & IN_FLIGHT != 0 {
            entry.flags = entry.flags & !IN_FLIGHT | MAYBE_KNOWN;
        }
    }

    /// Empties the queue.
    pub(super) fn clear(&mut self) {
        for handle in self.first.drain(..).chain(self.queue.drain(..)) {
            self.entries[handle.0 as usize].flags &= !(QUEUED | WANTED | ROUND_PENDING);
        }
        self.round_pending = 0;
    }
}

#[cfg(test)]
impl Changes {
    /// Appends what its future depends on: numbers as seen from `next`, rounds from `round`.
    pub(super) fn normal_form(&self, next: u32, round: u16, out: &mut Vec<u64>) {
        // On what is known of items hangs the comparison alone, which the check leaves out.
        // The count of uncovered connections follows from their flags, and which queue is preferred does not change here.
        let Self {
            entries,
            queue,
            first,
            prefers_new: _,
            queued_max: _,
            round_pending,
            uncovered: _,
            sent_items: _,
            unsettled: _,
            copied: _,
            items_end: _,
        } = self;
        for Entry { item: _, last_number, sent_round, flags } in entries.iter().copied() {
            let flags = flags & !(UNSETTLED | PEERS | UNCOVERED);
            let behind = if flags & IN_FLIGHT != 0 { next.wrapping_sub(last_number) } else { 0 };
            out.push(u64::from(flags) | u64::from(sent_round == round) << 16 | u64::from(behind) << 32);
        }
        out.push(u64::from(*round_pending) << 32 | queue.len() as u64);
        out.extend(first.iter().chain(queue).map(|handle| u64::from(handle.0)));
    }
}
