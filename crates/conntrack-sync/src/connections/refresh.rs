//! Scans all connections, a part at a time: refreshes replicas before the kernel ends them, and ends connections that
//! the kernel lacks when they expire.
//!
//! The kernel sends no event when packets keep a connection alive, so a replica's timer runs down while its owner's is
//! reset. Every [`REFRESH_PERIOD`] the scan visits each replica, and refreshes it if less than [`REFRESH_AHEAD`] is
//! left. A replica with a live owner is thus updated at most once in `timeout_floor` less [`REFRESH_AHEAD`].

use core::time::Duration;

use flow::Instant;
use replication::Handle;

use super::injection::is_closing;
use super::{Connections, seconds};
use crate::mirror::flag;

/// The duration of a scan of all connections.
pub const REFRESH_PERIOD: Duration = Duration::from_secs(8);
/// Replicas with less time left are refreshed: the scan visits them twice before they end.
pub const REFRESH_AHEAD: Duration = Duration::from_secs(20);
/// The number of steps of a scan.
const STEPS: u32 = 256;
const STEP_INTERVAL: Duration = Duration::from_millis(REFRESH_PERIOD.as_millis() as u64 / STEPS as u64);
/// The minimum number of slots in a step.
const STEP_SLOTS_MIN: u32 = 64;

/// The position of the scan.
#[derive(Debug, Default)]
pub(crate) struct RefreshScan {
    cursor: u32,
    at: Instant,
}

impl RefreshScan {
    pub(crate) const fn poll_timeout(&self) -> Instant {
        self.at
    }

    /// Continues the scan, if a step is due.
    pub(crate) fn step(&mut self, now: Instant, connections: &mut Connections) {
        if now < self.at {
            return;
        }
        self.at = now + STEP_INTERVAL;
        let end = connections.mirror.slots_used();
        let stop = end.min(self.cursor + end.div_ceil(STEPS).max(STEP_SLOTS_MIN));
        let mut from = Handle(self.cursor);
        while let Some(handle) = connections.mirror.next_occupied_below(from, stop) {
            connections.refresh_or_expire(now, handle);
            from = Handle(handle.0 + 1);
        }
        self.cursor = if stop == end { 0 } else { stop };
    }
}

impl Connections {
    fn refresh_or_expire(&mut self, now: Instant, handle: Handle) {
        let now_s = seconds(now);
        let Some(record) = self.mirror.get(handle) else { return };
        let is_own = self.is_own(record);
        let has_live_owner = !is_own && self.alive.contains(record.owner());
        let is_over = record.expires_s <= now_s;
        if record.is_any(flag::IN_KERNEL) {
            let is_near = record.expires_s <= now_s + REFRESH_AHEAD.as_secs() as u32;
            if has_live_owner && is_near && !is_closing(record) && !record.is_any(flag::GONE | flag::ENDING) {
                self.queue(handle, flag::DIRTY | flag::REFRESH);
            }
        } else if is_over && is_own {
            // It was claimed, but the kernel never accepted it.
            self.end_own(handle);
        } else if is_over && !has_live_owner {
            self.drop_replica(handle);
        }
    }
}
