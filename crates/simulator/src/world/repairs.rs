//! Copies broken behind the nodes' backs, to be put right.

use std::time::Duration;

use flow::NodeId;

use super::World;
use crate::sabotage;

/// What is wrong with copies is found and put right within this time.
const REPAIR_WAIT: Duration = Duration::from_secs(10);

impl World<'_> {
    /// Breaks copies, if that is the sabotage, and sees that they are put right.
    pub(super) fn break_and_compare(&mut self) {
        let Some(sabotage) = self.options.sabotage.filter(|sabotage| sabotage.is_to_be_repaired()) else { return };
        if !self.outcome.is_sound() {
            return;
        }
        for (node, machine) in self.machines.iter_mut().enumerate() {
            if let Some(value) = &mut machine.node {
                let (node, now) = (NodeId(node as u8), machine.clock.own(self.now));
                self.outcome.copies_broken += sabotage::break_copies(node, value, sabotage, now);
            }
        }
        self.run_until(self.now + REPAIR_WAIT, |_| false);
        self.compare_replicas();
    }
}
