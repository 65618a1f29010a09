//! The final checks of a run.

use std::time::Duration;

use flow::{Instant, NodeId};

use super::{World, view};
use crate::Sabotage;
use crate::checkers::{replicas, zombies};
use crate::report::{Outcome, Problem};
use crate::sabotage;
use crate::scenario::Dialect;
use crate::topology::NODES;

/// The interval and the time limit of comparing replicas at the end.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(20);
const COMPARISONS_MAX: u32 = 250;
/// Differing replicas are detected and repaired within this time.
const REPAIR_WAIT: Duration = Duration::from_secs(10);
/// Longer than ended connections stay in the tables.
const EXPIRY_WAIT: Duration = Duration::from_secs(100);

impl World<'_> {
    /// In a quiet state, the two tables must become equal.
    pub(super) fn compare_replicas(&mut self) {
        let [one, other] = &self.machines;
        // A filter leaves the other node's table empty.
        let is_compact = self.scenario.representation.is_some();
        if one.node.is_none() || other.node.is_none() || !self.have_same_version() || is_compact {
            return;
        }
        let mut difference = None;
        for _ in 0..COMPARISONS_MAX {
            let end = self.now + COMPARISON_INTERVAL;
            self.run_until(end, |_| false);
            if self.options.sabotage == Some(Sabotage::DroppedReplicas)
                && let Some(value) = &mut self.machines[0].node
            {
                sabotage::drop_replica(value, self.now);
            }
            let [one, other] = &self.machines;
            let (Some(one), Some(other)) = (&one.node, &other.node) else { return };
            difference = replicas::difference(self.scenario.selection, one, other, self.checkers.survival.full);
            if difference.is_none() {
                return;
            }
        }
        if let Some(text) = difference {
            self.outcome.problem(self.now, Problem::ReplicasDiffer, text);
        }
    }

    /// Corrupted replicas are repaired.
    pub(super) fn corrupt_and_compare(&mut self) {
        let Some(sabotage) = self.options.sabotage.filter(|sabotage| sabotage.requires_repair()) else { return };
        if !self.outcome.is_sound() {
            return;
        }
        for (node, machine) in self.machines.iter_mut().enumerate() {
            let now = machine.clock.own(self.now);
            if let Some(value) = &mut machine.node {
                // The nodes did not cause the time that has passed.
                self.checkers.order.forget(node);
                self.outcome.replicas_corrupted += sabotage::corrupt_replicas(NodeId(node as u8), value, sabotage, now);
            }
        }
        self.run_until(self.now + REPAIR_WAIT, |_| false);
        self.compare_replicas();
    }

    /// In a quiet state, no node holds connections as open that both ends have closed.
    pub(super) fn find_zombies(&mut self) {
        for node in 0..NODES {
            if self.options.sabotage == Some(Sabotage::Zombies)
                && let Some(value) = &mut self.machines[node].node
            {
                sabotage::revive(value, self.now);
            }
            let found = self.machines[node].node.as_ref().and_then(|value| zombies::found(value, &self.hosts));
            if let Some(text) = found {
                self.outcome.problem(self.now, Problem::Zombie, format!("node {node}: {text}"));
            }
        }
    }

    /// Long after the last packet no ended connection may be left, and the tables must still be equal.
    pub(super) fn wait_for_expiry(&mut self) {
        self.run_until(self.now + EXPIRY_WAIT, |_| false);
        for node in 0..NODES {
            if let Some(text) = self.machines[node].node.as_ref().and_then(replicas::leaked) {
                self.outcome.problem(self.now, Problem::Leaked, format!("node {node}: {text}"));
            }
        }
        self.compare_replicas();
    }

    pub(super) fn finish(mut self) -> Outcome {
        let view = view(self.scenario, &self.hosts, &self.machines);
        self.checkers.finish(self.now, &view, &mut self.outcome);
        for machine in &self.machines {
            let Some(node) = &machine.node else { continue };
            let now = machine.clock.own(self.now);
            for session in node.status(now).peers.into_iter().filter_map(|peer| peer.session) {
                self.outcome.messages_lost += session.lost;
                self.outcome.replicas_differing += session.anti_entropy.divergent_found;
                self.outcome.replicas_repaired += session.anti_entropy.repaired + session.anti_entropy.extra_removed;
            }
        }
        self.outcome.simulated = self.now.saturating_since(Instant::ZERO);
        self.outcome.digest = self.trace.digest();
        self.outcome.trace = self.trace.into_lines();
        self.outcome
    }

    /// Whether nodes accept each other's protocol version.
    pub(super) fn have_same_version(&self) -> bool {
        let version = |dialect| if let Dialect::Version(version) = dialect { Some(version) } else { None };
        let [one, other] = self.machines.each_ref().map(|machine| version(machine.interpreter.dialect));
        one == other
    }
}
