//! Packets on their way, the next to arrive first.

use std::cmp::{Ordering, Reverse};

use flow::Instant;

/// A packet in flight.
#[derive(Clone, Debug)]
pub(super) struct Underway<T> {
    pub(super) due: Instant,
    /// Which packet it is: those due at the same time arrive as they were given.
    pub(super) number: u64,
    pub(super) length_bytes: u64,
    pub(super) packet: T,
}

impl<T> Underway<T> {
    /// The heap has the greatest on top.
    const fn key(&self) -> Reverse<(Instant, u64)> {
        Reverse((self.due, self.number))
    }
}

impl<T> PartialEq for Underway<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Underway<T> {}

impl<T> PartialOrd for Underway<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Underway<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
