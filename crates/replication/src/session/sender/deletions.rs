//! Ended connections whose end the peer has not acknowledged. Their records are gone, so their names are kept by value.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use arrayvec::ArrayVec;

/// The most bytes of attributes that name an ended connection.
pub const DELETION_BYTES_MAX: usize = 80;

/// Names the deletion while it is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DeletionId(u32);

type Attributes = ArrayVec<u8, DELETION_BYTES_MAX>;

/// A slab of deletions and the queue of those to be sent. Memory grows to what was once needed, up to the limit.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Deletions {
    slots: Vec<Attributes>,
    free: Vec<DeletionId>,
    queue: VecDeque<DeletionId>,
    slots_max: usize,
}

impl Deletions {
    pub(super) const fn new(deletions_max: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), queue: VecDeque::new(), slots_max: deletions_max as usize }
    }

    /// Deletions to be sent.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Queues one; false if there is no room for it.
    pub(super) fn push(&mut self, attributes: &[u8]) -> bool {
        let Ok(attributes) = Attributes::try_from(attributes) else { return false };
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.slots.len() < self.slots_max => {
                self.slots.push(Attributes::new());
                DeletionId(self.slots.len() as u32 - 1)
            }
            None => return false,
        };
        self.slots[id.0 as usize] = attributes;
        self.queue.push_back(id);
        true
    }

    /// The next to be sent.
    pub(super) fn front(&self) -> Option<(DeletionId, &[u8])> {
        self.queue.front().map(|id| (*id, &self.slots[id.0 as usize][..]))
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
        self.free.push(id);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.queue.clear();
    }
}

#[cfg(test)]
impl Deletions {
    /// Appends what its future depends on: the names, for what identifiers they have is of no consequence.
    pub(super) fn normal_form(&self, out: &mut Vec<u64>) {
        let Self { slots: _, free: _, queue, slots_max: _ } = self;
        out.push(queue.len() as u64);
        for id in queue {
            self.name(*id, out);
        }
    }

    /// Appends one name.
    pub(super) fn name(&self, id: DeletionId, out: &mut Vec<u64>) {
        out.extend(self.slots[id.0 as usize].iter().map(|byte| u64::from(*byte)));
    }
}
