//! What the decoder asked for.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::limits::REQUESTS_MAX;

/// Ranges of numbers that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(VecDeque<Range<u64>>);

impl Requests {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Beyond the bound it is left out: the decoder asks again.
    pub(super) fn push(&mut self, range: Range<u64>) {
        if self.0.len() < REQUESTS_MAX && !self.0.contains(&range) {
            self.0.push_back(range);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Range<u64>> {
        self.0.pop_front()
    }

    /// The rest of a range that was answered in part: it is next.
    pub(super) fn put_back(&mut self, rest: Range<u64>) {
        self.0.push_front(rest);
    }
}
