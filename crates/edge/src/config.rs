//! The configuration of an edge, checked before use.

use alloc::vec::Vec;
use core::time::Duration;

use flow::wire::MacAddress;
use flow::{Affinity, HashKey, NODES_MAX, NodeId, NodeSet, PortId};

use crate::flows::{CONNECTIONS_MAX, IdleTimeouts};

/// A node and the way to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePort {
    /// The node.
    pub node: NodeId,
    /// The port of this edge that leads to the node, and to no other.
    pub port: PortId,
    /// The node's link address, if packets must be addressed to it. `None`: link addresses stay as they came, because the
    /// nodes share one.
    pub link_address: Option<MacAddress>,
}

/// Which packets are held to be resent [HALR, section 3.3].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CachePolicy {
    /// The lowest unacknowledged segment of every connection, always.
    #[default]
    Always,
    /// The same, once a node has lost two heartbeats in a row, for connections of this node. It needs the least copying, but
    /// misses segments that the node lost before.
    FromSecondLostHeartbeat,
    /// SYN segments alone.
    SynOnly,
    /// The segments of the connections with the most bytes.
    HeavyHitters {
        /// Connections at most.
        connections_max: u32,
    },
}

/// Local recovery [HALR, chapter 3].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryConfig {
    /// Which packets are held.
    pub policy: CachePolicy,
    /// Bytes of memory for held packets: seven eighths for segments, one for acknowledgements.
    pub memory_bytes_max: usize,
    /// Packets that are resent in a second after a switch-over.
    pub resends_per_s_max: u32,
}

impl Default for RecoveryConfig {
    /// Memory for 160 000 unacknowledged segments; 20 000 packets a second are 240 Mbit/s of full segments.
    fn default() -> Self {
        Self { policy: CachePolicy::Always, memory_bytes_max: 256 << 20, resends_per_s_max: 20_000 }
    }
}

/// The bytes of TCP payload that a node can forward in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// Known in advance, in bytes a second.
    Configured(u64),
    /// The highest goodput of an interval in which the node reported that its queue or processor was saturated
    /// ([`Edge::note_saturated`](crate::Edge::note_saturated)). Before the first such interval no window is clamped.
    Measured,
}

/// Rate control after a failover [HALR, chapter 6].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateControlConfig {
    /// What each node can forward.
    pub capacity: Capacity,
    /// α of equation 9: the weight of the last interval, above 0 and at most 2.
    pub alpha: f64,
    /// δ of equation 9: the target utilisation, above 0 and at most 1.
    pub delta: f64,
    /// T_gran of equation 9: the interval, 10 ms to 10 s.
    pub granularity: Duration,
    /// awnd_min of equation 10: the lowest clamp, in bytes.
    pub window_bytes_min: u32,
    /// The first clamp as a multiple of the fair share (capacity × round trip / connections), 1 to 10.
    pub initial_share: f64,
    /// The factor by which the clamp grows in each interval after all nodes have returned, above 1 and at most 4.
    pub release_factor: f64,
    /// The round trip of connections before one is measured.
    pub round_trip_default: Duration,
}

impl RateControlConfig {
    /// The defaults for a capacity.
    #[must_use]
    pub const fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            alpha: 1.0,
            delta: 0.98,
            granularity: Duration::from_millis(100),
            window_bytes_min: 2 * 1460,
            initial_share: 1.0,
            release_factor: 1.25,
            round_trip_default: Duration::from_millis(50),
        }
    }
}

/// The configuration of an edge.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// The port to the hosts and routers on this side of the cluster.
    pub network_port: PortId,
    /// The nodes.
    pub nodes: Vec<NodePort>,
    /// How connections are kept on a node.
    pub affinity: Affinity,
    /// The secret under which flows are hashed; the same at both edges.
    pub hash_key: HashKey,
    /// Connections at most.
    pub connections_max: u32,
    /// How long idle connections are kept.
    pub idle_timeouts: IdleTimeouts,
    /// Local recovery. `None`: nothing is held or resent.
    pub recovery: Option<RecoveryConfig>,
    /// Rate control after a failover. `None`: windows stay as they are.
    pub rate_control: Option<RateControlConfig>,
}

/// Why a configuration cannot be used. The operator's fault.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no node, or more than [`NODES_MAX`].
    #[error("{0} nodes; give 1 to 64")]
    NodeCount(usize),
    /// A node's number is [`NODES_MAX`] or more, or two nodes have it.
    #[error("node {}: give each node a number of its own from 0 to 63", .0.0)]
    NodeNumber(NodeId),
    /// Two nodes, or a node and the network, have the same port.
    #[error("port {} is used twice; give the network and each node a port of its own", .0.0)]
    PortInUse(PortId),
    /// The table has no room, or too much.
    #[error("connections_max is {0}; give 1 to {CONNECTIONS_MAX}")]
    Connections(u32),
    /// Nothing could be held.
    #[error("memory_bytes_max is {0}; give at least 65536, or leave local recovery out")]
    RecoveryMemory(usize),
    /// Nothing could be resent.
    #[error("resends_per_s_max is 0; give at least 1, or leave local recovery out")]
    ResendRate,
    /// No connection is a heavy hitter.
    #[error("connections_max of heavy hitters is 0; give at least 1")]
    HeavyHitters,
    /// A number is outside its range.
    #[error("{name} is {value}; give {least} to {most}")]
    OutOfRange {
        /// The number's name.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The least that is allowed.
        least: f64,
        /// The most that is allowed.
        most: f64,
    },
}

/// Bytes of memory for held packets at least.
const RECOVERY_MEMORY_BYTES_MIN: usize = 64 << 10;

impl EdgeConfig {
    /// A configuration with the defaults: learned affinity, a million connections, local recovery, no rate control.
    #[must_use]
    pub fn new(network_port: PortId, nodes: Vec<NodePort>, hash_key: HashKey) -> Self {
        Self {
            network_port,
            nodes,
            affinity: Affinity::default(),
            hash_key,
            connections_max: 1 << 20,
            idle_timeouts: IdleTimeouts::default(),
            recovery: Some(RecoveryConfig::default()),
            rate_control: None,
        }
    }

    /// The nodes as a set.
    #[must_use]
    pub fn node_set(&self) -> NodeSet {
        self.nodes.iter().map(|node| node.node).collect()
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// What is wrong with it, and what to give instead.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=NODES_MAX).contains(&self.nodes.len()) {
            return Err(ConfigError::NodeCount(self.nodes.len()));
        }
        let (mut numbers, mut ports) = (NodeSet::EMPTY, Vec::from([self.network_port]));
        for NodePort { node, port, .. } in &self.nodes {
            if !numbers.insert(*node) {
                return Err(ConfigError::NodeNumber(*node));
            }
            if ports.contains(port) {
                return Err(ConfigError::PortInUse(*port));
            }
            ports.push(*port);
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections_max) {
            return Err(ConfigError::Connections(self.connections_max));
        }
        self.recovery.as_ref().map_or(Ok(()), RecoveryConfig::check)?;
        self.rate_control.as_ref().map_or(Ok(()), RateControlConfig::check)
    }
}

impl RecoveryConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if self.memory_bytes_max < RECOVERY_MEMORY_BYTES_MIN {
            return Err(ConfigError::RecoveryMemory(self.memory_bytes_max));
        }
        if self.resends_per_s_max == 0 {
            return Err(ConfigError::ResendRate);
        }
        match self.policy {
            CachePolicy::HeavyHitters { connections_max: 0 } => Err(ConfigError::HeavyHitters),
            _ => Ok(()),
        }
    }
}

impl RateControlConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let capacity = match self.capacity {
            Capacity::Configured(bytes_per_s) => bytes_per_s as f64,
            Capacity::Measured => 1.0,
        };
        in_range("capacity in bytes a second", capacity, 1.0, 1e12)?;
        in_range("alpha", self.alpha, 0.01, 2.0)?;
        in_range("delta", self.delta, 0.01, 1.0)?;
        in_range("granularity in seconds", self.granularity.as_secs_f64(), 0.01, 10.0)?;
        in_range("window_bytes_min", self.window_bytes_min.into(), 536.0, 1_048_576.0)?;
        in_range("initial_share", self.initial_share, 1.0, 10.0)?;
        in_range("release_factor", self.release_factor, 1.01, 4.0)?;
        in_range("round_trip_default in seconds", self.round_trip_default.as_secs_f64(), 0.0001, 10.0)
    }
}

fn in_range(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(ConfigError::OutOfRange { name, value, least, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn config() -> EdgeConfig {
        let nodes = (0..2).map(|n| NodePort { node: NodeId(n), port: PortId(n + 1), link_address: None }).collect();
        EdgeConfig {
            rate_control: Some(RateControlConfig::new(Capacity::Measured)),
            ..EdgeConfig::new(PortId(0), nodes, HashKey([1, 2]))
        }
    }

    #[test]
    fn each_fault_is_named_with_its_remedy() {
        assert_eq!(config().check(), Ok(()));
        type Change = fn(&mut EdgeConfig);
        let faults: [(Change, &str); 10] = [
            (|c| c.nodes.clear(), "0 nodes; give 1 to 64"),
            (|c| c.nodes[1].node = NodeId(0), "node 0: give each node a number of its own from 0 to 63"),
            (|c| c.nodes[1].node = NodeId(64), "node 64: give each node a number of its own from 0 to 63"),
            (|c| c.nodes[1].port = PortId(0), "port 0 is used twice; give the network and each node a port of its own"),
            (|c| c.connections_max = 0, "connections_max is 0; give 1 to 268435456"),
            (
                |c| set_recovery(c, |r| r.memory_bytes_max = 9),
                "memory_bytes_max is 9; give at least 65536, or leave local recovery out",
            ),
            (
                |c| set_recovery(c, |r| r.resends_per_s_max = 0),
                "resends_per_s_max is 0; give at least 1, or leave local recovery out",
            ),
            (
                |c| set_recovery(c, |r| r.policy = CachePolicy::HeavyHitters { connections_max: 0 }),
                "connections_max of heavy hitters is 0; give at least 1",
            ),
            (|c| c.rate_control.as_mut().unwrap().delta = f64::NAN, "delta is NaN; give 0.01 to 1"),
            (
                |c| c.rate_control.as_mut().unwrap().capacity = Capacity::Configured(0),
                "capacity in bytes a second is 0; give 1 to 1000000000000",
            ),
        ];
        for (change, expected) in faults {
            let mut config = config();
            change(&mut config);
            assert_eq!(config.check().expect_err(expected).to_string(), expected);
        }
    }

    fn set_recovery(config: &mut EdgeConfig, change: fn(&mut RecoveryConfig)) {
        config.recovery.iter_mut().for_each(change);
    }

    #[test]
    fn the_hash_key_is_not_printed() {
        assert!(!alloc::format!("{:?}", EdgeConfig::new(PortId(0), vec![], HashKey([77_777, 0]))).contains("77777"));
    }
}
