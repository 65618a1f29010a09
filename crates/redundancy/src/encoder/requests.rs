//! The decoder's requests for missing data.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::limits::REQUESTS_MAX;

/// Ranges of numbers that were requested.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(VecDeque<Range<u64>>);

impl Requests {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Ranges beyond the limit are omitted: the decoder requests them again.
    pub(super) fn push(&mut self, range: Range<u64>) {
        if self.0.len() < REQUESTS_MAX && !self.0.contains(&range) {
            self.0.push_back(range);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Range<u64>> {
        self.0.pop_front()
    }

    /// Returns the rest of a partly answered range to the front.
    pub(super) fn put_back(&mut self, rest: Range<u64>) {
        self.0.push_front(rest);
    }
}
