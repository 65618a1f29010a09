//! The queue of requests to the kernel: connections that wait, and requests without an answer.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use flow::Instant;
use replication::Handle;

use crate::request::{InjectionCounters, KernelRefusal};

/// The delay of a backup's requests, in which further changes of the same connections are collected.
const REQUEST_DELAY: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    Create,
    Update,
    Delete,
    /// Before a create of the same connection.
    DeleteFirst,
    Get,
    Expectation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestResult {
    None,
    Refused(KernelRefusal),
    Found,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub(super) handle: Handle,
    pub(super) generation: u32,
    pub(super) asked: RequestKind,
    pub(super) answer: RequestResult,
}

/// The queue of requests to the kernel.
#[derive(Debug, Default)]
pub(crate) struct InjectionQueue {
    pub(super) ring: VecDeque<u32>,
    /// The number of the ring's first connections whose delay is over.
    pub(super) ripe: usize,
    /// The number of the ring's first connections that were there at the last tick, and are ripe at the next.
    ripening: usize,
    pub(super) next_tick_at: Instant,
    pub(super) retries: BinaryHeap<Reverse<(Instant, u32, u32)>>,
    pub(super) outstanding: Vec<Outstanding>,
    pub(super) batch: u32,
    /// The reason of the kernel's current refusals, which has been reported.
    pub(super) failing: Option<KernelRefusal>,
    /// Connections that the kernel refused and lacks.
    pub(crate) refused_now: u32,
    pub(crate) counters: InjectionCounters,
}

impl InjectionQueue {
    /// Connections whose requests are queued or unanswered.
    pub(crate) fn pending(&self) -> usize {
        self.ring.len() + self.outstanding.len()
    }

    pub(crate) fn retries(&self) -> usize {
        self.retries.len()
    }

    pub(crate) const fn failing(&self) -> Option<KernelRefusal> {
        self.failing
    }

    /// Determines the connections whose delay is over.
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
