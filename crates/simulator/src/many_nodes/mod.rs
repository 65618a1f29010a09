//! A cluster of many nodes whose connections have few backups: what is lost, and what must be pulled, when nodes fail, return and
//! are added [TRIPOD, section VI].
//!
//! The nodes are [`state_service::lookup::StateService`] and [`placement::Placer`] values, whose encoded messages pass a network that
//! loses some. Packets, tables and states are counted, not processed: the processing of packets is what [`crate::run`] simulates.
//!
//! ```text
//!  place ─► fail: nodes die at once, every connection sends a packet ─► place anew
//!        ─► rejoin: they return empty, every connection sends a packet ─► place anew
//!        ─► add: a further node, every connection sends a packet ─► flood: packets of no connection
//! ```

mod cluster;
mod comparators;
mod distribution;
mod phases;

use std::time::Duration;

use placement::BATCH_MAX;
use serde::Serialize;
use state_service::prediction::FAILURES_MAX;

pub use comparators::OfPlacements;
pub use distribution::DistributionKind;

/// The fewest nodes: one is added at the end, one fails, and one survives.
pub const NODES_MIN: u8 = 3;
/// The most connections.
pub const CONNECTIONS_MAX: u32 = 1 << 20;

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ManyNodesConfig {
    /// The nodes, of which the last one is added at the end: [`NODES_MIN`] to 64.
    pub nodes: u8,
    /// Nodes that fail at once; at least one and the added one remain. The placement is prepared for as many, at most
    /// [`FAILURES_MAX`].
    pub failures: u8,
    /// Backups of each connection.
    pub backups: usize,
    /// The connections, at most [`CONNECTIONS_MAX`].
    pub connections: u32,
    /// What distributes packets to nodes.
    pub distribution: DistributionKind,
    /// The probability that a node fails, for the placement.
    pub failure_probability: f64,
    /// Lost messages between nodes, in thousandths.
    pub loss_per_mille: u32,
    /// Everything is drawn from it.
    pub seed: u64,
}

/// Why a simulation is not possible: misuse.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum ManyNodesError {
    /// Too few or too many nodes.
    #[error("{0} nodes: choose {NODES_MIN} to {most}", most = flow::NODES_MAX)]
    Nodes(u8),
    /// Too few or too many failures.
    #[error("{failures} failures: choose 1 to {most}, as one node of {nodes} is added later and one must survive")]
    Failures {
        /// The rejected number.
        failures: u8,
        /// The nodes.
        nodes: u8,
        /// The most.
        most: u8,
    },
    /// Too few or too many backups.
    #[error("{0} backups: choose 1 to {FAILURES_MAX}")]
    Backups(usize),
    /// Too few or too many connections.
    #[error("{0} connections: choose 1 to {CONNECTIONS_MAX}")]
    Connections(u32),
    /// The failure model is invalid.
    #[error(transparent)]
    Failure(#[from] state_service::prediction::FailureModelError),
}

impl ManyNodesConfig {
    fn check(&self) -> Result<(), ManyNodesError> {
        if !(usize::from(NODES_MIN)..=flow::NODES_MAX).contains(&usize::from(self.nodes)) {
            return Err(ManyNodesError::Nodes(self.nodes));
        }
        let most = self.nodes - 2;
        if !(1..=most).contains(&self.failures) {
            return Err(ManyNodesError::Failures { failures: self.failures, nodes: self.nodes, most });
        }
        if !(1..=FAILURES_MAX).contains(&self.backups) {
            return Err(ManyNodesError::Backups(self.backups));
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(ManyNodesError::Connections(self.connections));
        }
        Ok(())
    }
}

/// What an event has done to connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PhaseReport {
    /// The event: `fail`, `rejoin` or `add`.
    pub phase: &'static str,
    /// Connections whose packets reach another node than before.
    pub moved: u64,
    /// Of those, connections whose new node had no replica and pulled the state.
    pub pulled: u64,
    /// Connections whose state no packet found again.
    pub broken: u64,
    /// Queries for increments.
    pub queries: u64,
}

/// What packets of no connection have cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FloodReport {
    /// Packets, all at one node within 200 ms.
    pub packets: u64,
    /// Milliseconds until each of them was decided.
    pub millis: u64,
    /// Of those, dropped.
    pub dropped: u64,
    /// Queries that they caused.
    pub queries: u64,
    /// Pulls that false positives of indexes caused.
    pub pulls: u64,
}

/// The result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ManyNodesReport {
    /// The nodes.
    pub nodes: u8,
    /// Nodes that failed at once.
    pub failures: u8,
    /// Backups of each connection.
    pub backups: usize,
    /// The connections.
    pub connections: u32,
    /// What distributed packets.
    pub distribution: DistributionKind,
    /// The RNG seed.
    pub seed: u64,
    /// Connections whose state was lost, in all phases.
    pub broken: u64,
    /// Of the connections that the failure moved, the share that was pulled, from 0 to 1.
    pub pulls_share: f64,
    /// The median time to place a batch of connections in milliseconds.
    pub placement_ms: f64,
    /// The longest time.
    pub placement_max_ms: f64,
    /// The most connections of a batch.
    pub placement_batch: usize,
    /// Of the connections that the failure moved, the share whose new node has no replica, by placement.
    pub churn: OfPlacements,
    /// Replicas of a connection beside the original, on average.
    pub replicas: OfPlacements,
    /// The phases.
    pub phases: Vec<PhaseReport>,
    /// The flood.
    pub flood: FloodReport,
    /// Messages of the state service, without replication.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Of the messages, lost ones.
    pub messages_lost: u64,
}

/// Simulates it. `clock` is the time since any moment, and only measures placements.
///
/// # Errors
/// A number is out of range.
pub fn run_many_nodes(
    config: &ManyNodesConfig,
    clock: &mut dyn FnMut() -> Duration,
) -> Result<ManyNodesReport, ManyNodesError> {
    config.check()?;
    let mut world = phases::World::new(config, clock)?;
    world.place();
    let (churn, replicas) = world.fail();
    world.place();
    world.rejoin();
    world.place();
    world.add();
    world.flood();
    let phases = world.phases().to_vec();
    let [placement_ms, placement_max_ms] = world.placement_ms();
    let (messages, message_bytes, messages_lost) = world.messages();
    Ok(ManyNodesReport {
        nodes: config.nodes,
        failures: config.failures,
        backups: config.backups,
        connections: config.connections,
        distribution: config.distribution,
        seed: config.seed,
        broken: phases.iter().map(|phase| phase.broken).sum(),
        pulls_share: phases[0].pulled as f64 / phases[0].moved.max(1) as f64,
        placement_ms,
        placement_max_ms,
        placement_batch: BATCH_MAX,
        churn,
        replicas,
        phases,
        flood: world.flood_report(),
        messages,
        message_bytes,
        messages_lost,
    })
}

#[cfg(test)]
mod tests;
