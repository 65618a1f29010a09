//! Ended connections whose end the peer has not acknowledged. Their records are gone, so their names are kept by value.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use arrayvec::ArrayVec;

use crate::item::{Item, Unsettled};

/// The most bytes of attributes that name an ended connection.
pub const DELETION_BYTES_MAX: usize = 80;

/// Names the deletion while it is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::session) struct DeletionId(u32);

pub(in crate::session) type Attributes = ArrayVec<u8, DELETION_BYTES_MAX>;

/// A connection that has ended: its name, and the last item that was sent of it.
#[derive(Clone)]
struct Ended {
    attributes: Attributes,
    item: Item,
}

/// A slab of deletions and the queue of those to be sent. Memory grows to what was once needed, up to the limit.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Deletions {
    slots: Vec<Ended>,
    free: Vec<DeletionId>,
    queue: VecDeque<DeletionId>,
    slots_max: usize,
    /// Buckets of those that the peer does not know of.
    pub(super) unsettled: Unsettled,
    /// Those whose end is not sent, as the peer is away or there was no room: the node keeps tombstones of them.
    unsent: VecDeque<Attributes>,
}

impl Deletions {
    pub(super) fn new(deletions_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            slots_max: deletions_max as usize,
            unsettled: Unsettled::new(),
            unsent: VecDeque::new(),
        }
    }

    /// Deletions to be sent.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Queues the end of a connection whose last sent item is `item`; false if there is no room for it.
    pub(super) fn push(&mut self, attributes: &[u8], item: Item) -> bool {
        let Ok(attributes) = Attributes::try_from(attributes) else { return false };
        let ended = Ended { attributes, item };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id.0 as usize] = ended;
                id
            }
            None if self.slots.len() < self.slots_max => {
                self.slots.push(ended);
                DeletionId(self.slots.len() as u32 - 1)
            }
            None => return false,
        };
        self.unsettled.add(item);
        self.queue.push_back(id);
        true
    }

    /// Notes an end that will not be sent; the oldest is discarded.
    pub(super) fn leave_unsent(&mut self, attributes: &[u8]) {
        let Ok(attributes) = Attributes::try_from(attributes) else { return };
        if self.unsent.len() >= self.slots_max {
            self.unsent.pop_front();
        }
        self.unsent.push_back(attributes);
    }

    /// One in flight will not be acknowledged any more.
    pub(super) fn abandon(&mut self, id: DeletionId) {
        let attributes = self.slots[id.0 as usize].attributes.clone();
        self.leave_unsent(&attributes);
    }

    /// The next end that will not be sent.
    pub(super) fn pop_unsent(&mut self) -> Option<Attributes> {
        self.unsent.pop_front()
    }

    /// The next to be sent.
    pub(super) fn front(&self) -> Option<(DeletionId, &[u8])> {
        self.queue.front().map(|id| (*id, &self.slots[id.0 as usize].attributes[..]))
    }

    /// Takes the next off the queue, as it is in flight now.
    pub(super) fn pop_front(&mut self) {
        self.queue.pop_front();
    }

    /// Queues one again that was in flight and got lost.
    pub(super) fn requeue(&mut self, id: DeletionId) {
        self.queue.push_back(id);
    }

    /// The peer knows, or need not know. The deletion must not be in the queue any more.
    pub(super) fn release(&mut self, id: DeletionId) {
        self.unsettled.subtract(self.slots[id.0 as usize].item);
        self.free.push(id);
    }

    /// Gives up all; those that are still in the queue are left untold.
    pub(super) fn clear(&mut self) {
        while let Some(id) = self.queue.pop_front() {
            self.abandon(id);
        }
        self.unsettled.clear();
        self.slots.clear();
        self.free.clear();
    }
}

#[cfg(test)]
impl Deletions {
    /// Appends what its future depends on: the names, for what identifiers they have is of no consequence.
    pub(super) fn normal_form(&self, out: &mut Vec<u64>) {
        let Self { slots: _, free: _, queue, slots_max: _, unsettled: _, unsent: _ } = self;
        out.push(queue.len() as u64);
        for id in queue {
            self.name(*id, out);
        }
    }

    /// Appends one name.
    pub(super) fn name(&self, id: DeletionId, out: &mut Vec<u64>) {
        out.extend(self.slots[id.0 as usize].attributes.iter().map(|byte| u64::from(*byte)));
    }
}
