//! A scan over all slots: does the table have the replicas that are known to be there?

use core::time::Duration;

use flow::{Instant, NodeId};

use super::{AntiEntropy, Phase, SCAN_PERIOD};
use crate::session::sender::Sender;
use crate::session::store::Holding;
use crate::session::{Handle, Store};

/// Slots looked at in one step, at least, unless there are fewer.
const STEP_SLOTS_MIN: u32 = 64;
/// Time between two steps, at least.
const STEP_INTERVAL_MIN: Duration = Duration::from_millis(5);
/// Steps of a walk at least, so that a table that grows meanwhile makes it little longer, and at most.
const STEPS_MIN: u32 = 8;
const STEPS_MAX: u32 = (SCAN_PERIOD.as_millis() / STEP_INTERVAL_MIN.as_millis()) as u32;

#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Scan {
    cursor: u32,
    at: Option<Instant>,
}

impl Scan {
    pub(super) const fn start(&mut self, now: Instant) {
        self.cursor = 0;
        self.at = Some(now);
    }

    pub(super) const fn stop(&mut self) {
        self.at = None;
    }

    pub(super) const fn at(&self) -> Option<Instant> {
        self.at
    }
}

impl AntiEntropy {
    /// Scans the next part, if it is time. What is found changed is compared at once.
    pub(in crate::session) fn scan(&mut self, now: Instant, peer: NodeId, sender: &mut Sender, store: &impl Store) {
        if self.scan.at.is_none_or(|at| now < at) {
            return;
        }
        let end = store.slots_used().max(sender.changes().items_end());
        let steps = end.div_ceil(STEP_SLOTS_MIN).clamp(STEPS_MIN, STEPS_MAX);
        let step_slots = end.div_ceil(steps).max(1);
        let stop = end.min(self.scan.cursor.saturating_add(step_slots));
        let mut found = 0;
        for handle in (self.scan.cursor..stop).map(Handle) {
            let holding = store.holding(sender.key(), peer, handle);
            let known = sender.changes().held(handle);
            let is_as_known = match holding {
                Holding::Peers(item) => item == known,
                Holding::Nothing | Holding::Own | Holding::Others => known.is_none(),
            };
            if !is_as_known {
                sender.hold(handle, holding);
                found += 1;
            }
        }
        self.status.unnoted_changes += found;
        if found > 0 && self.phase == Phase::Resting {
            self.at = Some(now);
        }
        self.scan.cursor = if stop == end { 0 } else { stop };
        self.scan.at = Some(now + SCAN_PERIOD / steps);
    }
}
