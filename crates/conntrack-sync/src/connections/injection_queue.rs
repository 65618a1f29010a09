//! The connections that wait to be told to the kernel, and what it was asked and has not answered.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use flow::Instant;
use replication::Handle;

use crate::request::{InjectionCounters, KernelRefusal};

/// A backup lets requests wait so long for further changes of the same connections.
const REQUEST_DELAY: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Create,
    Update,
    Delete,
    /// Before a create of the same connection.
    DeleteFirst,
    Get,
    Expectation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    None,
    Refused(KernelRefusal),
    Found,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub(super) handle: Handle,
    pub(super) generation: u32,
    pub(super) asked: Asked,
    pub(super) answer: Answer,
}

/// The queue of what the kernel is to be told.
#[derive(Debug, Default)]
pub(crate) struct InjectionQueue {
    pub(super) ring: VecDeque<u32>,
    /// So many of the ring's first have waited long enough.
    pub(super) ripe: usize,
    /// So many of the ring's first were there at the last tick, and are ripe at the next.
    ripening: usize,
    pub(super) next_tick_at: Instant,
    pub(super) retries: BinaryHeap<Reverse<(Instant, u32, u32)>>,
    pub(super) outstanding: Vec<Outstanding>,
    pub(super) batch: u32,
    /// The kernel refuses, and that was said.
    pub(super) failing: Option<KernelRefusal>,
    /// Connections that the kernel refused and does not have.
    pub(crate) refused_now: u32,
    pub(crate) counters: InjectionCounters,
}

impl InjectionQueue {
    /// Connections that wait to be told to the kernel, or that it has not answered yet.
    pub(crate) fn pending(&self) -> usize {
        self.ring.len() + self.outstanding.len()
    }

    pub(crate) fn retries(&self) -> usize {
        self.retries.len()
    }

    pub(crate) const fn failing(&self) -> Option<KernelRefusal> {
        self.failing
    }

    /// Notes which connections have waited long enough.
    pub(super) fn ripen(&mut self, now: Instant, is_delayed: bool) {
        if !is_delayed {
            (self.ripe, self.ripening) = (self.ring.len(), self.ring.len());
        } else if self.next_tick_at <= now {
            (self.ripe, self.ripening) = (self.ripening, self.ring.len());
            self.next_tick_at = now + REQUEST_DELAY;
        }
    }

    pub(super) fn pop_ripe(&mut self) -> Option<u32> {
        self.ripe = self.ripe.checked_sub(1)?;
        self.ripening -= 1;
        self.ring.pop_front()
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retries.peek().map(|Reverse((at, ..))| *at)
    }
}
