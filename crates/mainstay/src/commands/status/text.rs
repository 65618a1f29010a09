//! What the parts of a status have alike as text.

use std::time::Duration;

/// Characters of a line at most: those of a terminal as it is opened.
pub(super) const COLUMNS_MAX: usize = 80;

/// The time since a moment, as people read it.
pub(super) fn ago(now_ns: u64, then_ns: u64) -> String {
    console::duration(Duration::from_nanos(now_ns.saturating_sub(then_ns)))
}
