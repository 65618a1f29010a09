//! What is known of each handle, and the queue of changed ones.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::session::Handle;

/// The object changed since it was last sent.
const WANTED: u8 = 1;
/// The handle is in the queue.
const QUEUED: u8 = 2;
/// A message with the object's state is unacknowledged; `last_number` is the newest one's.
const IN_FLIGHT: u8 = 4;
/// The peer has, or may have, the object.
const KNOWN: u8 = 8;

#[derive(Clone, Copy, Default)]
struct Mark {
    last_number: u32,
    flags: u8,
}

const _: () = assert!(size_of::<Mark>() == 8, "what a handle costs is promised");

/// The queue holds handles and never objects, each at most once: one that changes while it waits costs nothing. Memory grows to
/// the highest handle that was used.
pub(super) struct Marks {
    marks: Vec<Mark>,
    queue: VecDeque<Handle>,
    handles_max: u32,
}

impl Marks {
    pub(super) const fn new(handles_max: u32) -> Self {
        Self { marks: Vec::new(), queue: VecDeque::new(), handles_max }
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    fn mark(&mut self, handle: Handle) -> Option<&mut Mark> {
        if handle.0 >= self.handles_max {
            return None;
        }
        let index = handle.0 as usize;
        if self.marks.len() <= index {
            self.marks.resize(index + 1, Mark::default());
        }
        Some(&mut self.marks[index])
    }

    fn flags(&self, handle: Handle) -> u8 {
        self.marks.get(handle.0 as usize).map_or(0, |mark| mark.flags)
    }

    /// Queues a changed object.
    pub(super) fn want(&mut self, handle: Handle) {
        let Some(mark) = self.mark(handle) else { return };
        let was_queued = mark.flags & QUEUED != 0;
        mark.flags |= WANTED | QUEUED;
        if !was_queued {
            self.queue.push_back(handle);
        }
    }

    /// The object has ended. True if the peer may know of it.
    pub(super) fn forget(&mut self, handle: Handle) -> bool {
        let Some(mark) = self.marks.get_mut(handle.0 as usize) else { return false };
        let may_be_known = mark.flags & (IN_FLIGHT | KNOWN) != 0;
        // What is in the queue stays there; nothing is wanted of it any more.
        mark.flags &= QUEUED;
        may_be_known
    }

    /// Whether the object was sent, or is queued.
    pub(super) fn is_replicated(&self, handle: Handle) -> bool {
        self.flags(handle) & (WANTED | IN_FLIGHT | KNOWN) != 0
    }

    /// Whether the queue will send it.
    pub(super) fn is_wanted(&self, handle: Handle) -> bool {
        self.flags(handle) & WANTED != 0
    }

    /// Whether the peer has acknowledged a message about it.
    pub(super) fn is_known(&self, handle: Handle) -> bool {
        self.flags(handle) & KNOWN != 0
    }

    /// The next object to send. It stays at the head of the queue until [`Marks::pop`].
    pub(super) fn front(&mut self) -> Option<Handle> {
        while let Some(handle) = self.queue.front().copied() {
            if self.is_wanted(handle) {
                return Some(handle);
            }
            self.pop();
        }
        None
    }

    /// Takes the head off the queue: it was sent, or cannot be.
    pub(super) fn pop(&mut self) {
        if let Some(handle) = self.queue.pop_front() {
            self.marks[handle.0 as usize].flags &= !(QUEUED | WANTED);
        }
    }

    /// An object was sent under `number`.
    pub(super) fn sent(&mut self, handle: Handle, number: u32) {
        if let Some(mark) = self.mark(handle) {
            *mark = Mark { last_number: number, flags: mark.flags | IN_FLIGHT };
        }
    }

    /// The message `number` about the handle's object was received.
    pub(super) fn received(&mut self, handle: Handle, number: u32) {
        let Some(mark) = self.mark(handle) else { return };
        if mark.flags & IN_FLIGHT != 0 && mark.last_number == number {
            mark.flags = mark.flags & !IN_FLIGHT | KNOWN;
        }
    }

    /// The message `number` about the handle's object was lost. True if its current state must go again, and now waits: not if
    /// a later message takes care of that, or the object has ended.
    pub(super) fn lost(&mut self, handle: Handle, number: u32) -> bool {
        let Some(mark) = self.mark(handle) else { return false };
        let is_newest = mark.flags & IN_FLIGHT != 0 && mark.last_number == number;
        if !is_newest {
            return false;
        }
        // It may have arrived all the same, if what was lost is the acknowledgement.
        mark.flags = mark.flags & !IN_FLIGHT | KNOWN;
        self.want(handle);
        true
    }

    /// What is in flight counts no more, and nothing waits; what the peer may know is remembered.
    pub(super) fn suspend(&mut self) {
        for mark in &mut self.marks {
            let may_be_known = mark.flags & (IN_FLIGHT | KNOWN) != 0;
            mark.flags = if may_be_known { KNOWN } else { 0 };
        }
        self.queue.clear();
    }
}
