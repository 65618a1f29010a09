//! A walk over all connections, a part at a time: copies are refreshed before the kernel ends them, and what the kernel
//! does not have ends when its time is over.
//!
//! The kernel makes no event when packets keep a connection alive, so that a copy's timer runs on at its holder while its
//! master's is set back. Once every [`WALK_PERIOD`] each copy is looked at, and refreshed if less than [`REFRESH_AHEAD`] is
//! left: so a copy whose master is heard is updated at most once in `timeout_floor` less [`REFRESH_AHEAD`].

use core::time::Duration;

use flow::Instant;
use replication::Handle;

use super::injection::is_closing;
use super::{Connections, seconds};
use crate::mirror::flag;

/// All connections are looked at once in this time.
pub const WALK_PERIOD: Duration = Duration::from_secs(8);
/// Copies that have less than this left are refreshed: the walk comes by twice before they end.
pub const REFRESH_AHEAD: Duration = Duration::from_secs(20);
/// Steps of a walk.
const STEPS: u32 = 256;
const STEP_INTERVAL: Duration = Duration::from_millis(WALK_PERIOD.as_millis() as u64 / STEPS as u64);
/// Slots looked at in a step, at least.
const STEP_SLOTS_MIN: u32 = 64;

/// Where the walk stands.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    cursor: u32,
    at: Instant,
}

impl Walk {
    pub(crate) const fn poll_timeout(&self) -> Instant {
        self.at
    }

    /// Walks on, if it is time.
    pub(crate) fn step(&mut self, now: Instant, connections: &mut Connections) {
        if now < self.at {
            return;
        }
        self.at = now + STEP_INTERVAL;
        let end = connections.mirror.slots_used();
        let stop = end.min(self.cursor + end.div_ceil(STEPS).max(STEP_SLOTS_MIN));
        let mut from = Handle(self.cursor);
        while let Some(handle) = connections.mirror.next_occupied_below(from, stop) {
            connections.look_after(now, handle);
            from = Handle(handle.0 + 1);
        }
        self.cursor = if stop == end { 0 } else { stop };
    }
}

impl Connections {
    fn look_after(&mut self, now: Instant, handle: Handle) {
        let now_s = seconds(now);
        let Some(record) = self.mirror.get(handle) else { return };
        let is_own = self.is_own(record);
        let is_in_masters_hands = !is_own && self.living.contains(record.owner());
        let is_over = record.expires_s <= now_s;
        if record.is_any(flag::IN_KERNEL) {
            let is_near = record.expires_s <= now_s + REFRESH_AHEAD.as_secs() as u32;
            if is_in_masters_hands && is_near && !is_closing(record) && !record.is_any(flag::GONE | flag::ENDING) {
                self.queue(handle, flag::DIRTY | flag::REFRESH);
            }
        } else if is_over && is_own {
            // It was claimed, and the kernel never took it.
            self.end_own(handle);
        } else if is_over && !is_in_masters_hands {
            self.drop_copy(handle);
        }
    }
}
