//! Ended objects whose end the peer has not acknowledged. The table no longer has them, so they are kept by value.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Names an end while it is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EndId(u32);

/// An end that waits.
#[derive(Clone, Copy)]
struct Waiting {
    id: EndId,
    is_retransmission: bool,
}

/// A slab of ended objects and the queue of those to be sent. Memory grows to what was once needed, up to the limit.
pub(super) struct Endings<O> {
    slots: Vec<Option<O>>,
    free: Vec<EndId>,
    queue: VecDeque<Waiting>,
    slots_max: usize,
}

impl<O> Endings<O> {
    pub(super) const fn new(slots_max: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), queue: VecDeque::new(), slots_max: slots_max as usize }
    }

    /// Ends to be sent.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Queues one. When there is no room, the oldest that waits is discarded; false if that had never been sent, or none waits.
    pub(super) fn push(&mut self, object: O) -> bool {
        let mut is_lossless = true;
        if self.free.is_empty() && self.slots.len() >= self.slots_max {
            let Some(oldest) = self.queue.pop_front() else { return false };
            is_lossless = oldest.is_retransmission;
            self.release(oldest.id);
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.slots.push(None);
                EndId(self.slots.len() as u32 - 1)
            }
        };
        self.slots[id.0 as usize] = Some(object);
        self.queue.push_back(Waiting { id, is_retransmission: false });
        is_lossless
    }

    /// The next to be sent, and whether it was sent before.
    pub(super) fn front(&self) -> Option<(EndId, &O, bool)> {
        let Waiting { id, is_retransmission } = *self.queue.front()?;
        Some((id, self.slots[id.0 as usize].as_ref()?, is_retransmission))
    }

    /// Takes the next off the queue, as it is in flight now.
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Queues one again that was in flight and got lost.
    pub(super) fn requeue(&mut self, id: EndId) {
        self.queue.push_back(Waiting { id, is_retransmission: true });
    }

    /// The peer knows, or need not know. The end must not be in the queue any more.
    pub(super) fn release(&mut self, id: EndId) {
        self.slots[id.0 as usize] = None;
        self.free.push(id);
    }
}
