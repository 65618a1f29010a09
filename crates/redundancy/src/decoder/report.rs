//! What the decoder tells it holds: from time to time what came since, and all of it to an encoder that is new.

use core::ops::Range;
use core::time::Duration;

use flow::Instant;

use crate::limits::RANGES_MAX;
use crate::packet_cache::Ranges;
use crate::wire::control::NumberRanges;

/// What came is told after so long ...
const REPORT_AFTER: Duration = Duration::from_millis(20);
/// ... or so many granules.
const REPORT_GRANULES: u64 = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// What came since the last report, as it came.
    recent: Ranges,
    /// The end of the last report, so that what is missing between the two shows. And a report may be lost.
    former: NumberRanges,
    granules: u64,
    due_at: Option<Instant>,
    /// All is told, and so far it has been.
    pub(super) all_from: Option<u64>,
}

impl Report {
    pub(super) fn add(&mut self, now: Instant, range: Range<u64>) {
        self.granules += range.end - range.start;
        // What finds no room is not told: it is not pointed to by retransmissions, and that is all.
        self.recent.add(range, RANGES_MAX / 2);
        let at = if self.granules >= REPORT_GRANULES { now } else { now + REPORT_AFTER };
        self.due_at = Some(self.due_at.map_or(at, |due| due.min(at)));
    }

    pub(super) fn add_unmerged(&mut self, range: Range<u64>) {
        self.recent.add(range, RANGES_MAX / 2);
    }

    pub(super) const fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    pub(super) const fn is_of_all(&self) -> bool {
        self.all_from.is_some()
    }

    /// All is to be told.
    pub(super) fn tell_all(&mut self) {
        *self = Self { all_from: Some(0), ..Self::default() };
    }

    pub(super) fn take(&mut self) -> NumberRanges {
        let mut ranges = core::mem::take(&mut self.former);
        let recent = self.recent.as_slice();
        self.former = recent[recent.len().saturating_sub(RANGES_MAX / 2)..].to_vec();
        ranges.extend_from_slice(recent);
        self.recent.clear();
        self.granules = 0;
        self.due_at = None;
        ranges
    }
}
