//! The decoder's reports of held data: periodically the data received since the last one, and all of it to a new
//! encoder.

use core::ops::Range;
use core::time::Duration;

use flow::Instant;

use crate::limits::RANGES_MAX;
use crate::packet_cache::Ranges;
use crate::wire::control::NumberRanges;

/// The interval of reports,
const REPORT_AFTER: Duration = Duration::from_millis(20);
/// or the number of granules after which one is due earlier.
const REPORT_GRANULES: u64 = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct HeldReport {
    /// The ranges received since the last report, in order of arrival.
    recent: Ranges,
    /// The end of the last report, so that gaps between two reports are visible, also after a lost one.
    former: NumberRanges,
    granules: u64,
    due_at: Option<Instant>,
    /// The progress of a report of all data.
    pub(super) all_from: Option<u64>,
}

impl HeldReport {
    pub(super) fn add(&mut self, now: Instant, range: Range<u64>) {
        self.granules += range.end - range.start;
        // Ranges beyond the limit are not reported: retransmissions will not point to them, without further harm.
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

    /// Starts a report of all held data.
    pub(super) fn report_all(&mut self) {
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
