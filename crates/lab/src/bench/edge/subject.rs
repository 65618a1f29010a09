//! The edge that is measured, and the packets that pass it.

use std::time::Duration;

use config::edge::RecoveryPolicy;
use edge::{Edge, EdgeConfig, NodePort, RecoveryConfig};
use flow::wire::tcp_flags;
use flow::{Direction, Instant, NodeId, PortId};
use packet_io::usage::thread_cpu_time;

use crate::bench::BenchError;
use crate::bench::pipeline::setting::HASH_KEY;
use crate::bench::pipeline::traffic::{Flow, RING_FRAMES, Ring, Traffic, not_sent};

/// Lengths of frames, without a check sequence: the shortest and the longest without a tag.
pub(in crate::bench) const SHORT_FRAME_BYTES: usize = 60;
pub(super) const FULL_FRAME_BYTES: usize = 1514;
/// By how much the edge's clock goes on with every ring, as that of the gateway.
const RING_TIME: Duration = Duration::from_micros(64);
/// Memory for held packets: as much as all connections need.
const RECOVERY_MEMORY_BYTES: usize = 32 << 30;
/// Connections that the policy `heavy-hitters` holds segments of: the default of an edge's configuration.
const HEAVY_HITTERS: u32 = 10_000;
/// Nodes behind the edge. Packets leave the cluster from the first one.
const NODES: u8 = 2;

/// An edge, and the time that it is given.
pub(in crate::bench) struct MeasuredEdge {
    pub(super) edge: Edge,
    now: Instant,
}

impl MeasuredEdge {
    /// For at most `connections_max` connections. A policy that depends on heartbeats holds packets: the first node has lost two.
    pub(in crate::bench) fn new(connections_max: u32, policy: RecoveryPolicy) -> Self {
        let node = |number| NodePort { node: NodeId(number), port: PortId(1 + number), link_address: None };
        let recovery = policy.cache_policy(HEAVY_HITTERS).map(|policy| RecoveryConfig {
            policy,
            memory_bytes_max: RECOVERY_MEMORY_BYTES,
            ..RecoveryConfig::default()
        });
        let nodes = (0..NODES).map(node).collect();
        let config = EdgeConfig { connections_max, recovery, ..EdgeConfig::new(PortId(0), nodes, HASH_KEY) };
        let mut edge = Edge::new(config).expect("the configuration is valid");
        let now = Instant::from_millis(1000);
        edge.note_heartbeats_lost(now, NodeId(0), 2);
        Self { edge, now }
    }

    /// Lets all connections begin, up to the end of their handshakes.
    pub(in crate::bench) fn establish(&mut self, traffic: &mut Traffic, ring: &mut Ring) -> Result<(), BenchError> {
        for flows in traffic.flows.chunks_mut(RING_FRAMES) {
            // An edge translates nothing: the server sees the client.
            flows.iter_mut().for_each(|flow| flow.set_outgoing(&{ *flow.original() }));
            self.pass_of_each(flows, ring, Direction::Original, tcp_flags::SYN)?;
            self.pass_of_each(flows, ring, Direction::Reply, tcp_flags::SYN | tcp_flags::ACK)?;
            self.pass_of_each(flows, ring, Direction::Original, tcp_flags::ACK)?;
        }
        let (there, expected) = (self.edge.status().connections, traffic.flows.len() as u32);
        if there == expected { Ok(()) } else { Err(BenchError::Connections { there, expected }) }
    }

    /// A data packet of each connection enters the cluster, and is not acknowledged.
    pub(super) fn send_of_each(&mut self, traffic: &mut Traffic, ring: &mut Ring) -> Result<(), BenchError> {
        for flows in traffic.flows.chunks_mut(ring.frames_max()) {
            self.pass_of_each(flows, ring, Direction::Original, tcp_flags::ACK | tcp_flags::PSH)?;
        }
        Ok(())
    }

    fn pass_of_each(
        &mut self,
        flows: &mut [Flow],
        ring: &mut Ring,
        direction: Direction,
        flags: u8,
    ) -> Result<(), BenchError> {
        Flow::push_all(flows, ring, direction, flags);
        self.handle(ring).map(|_| ())
    }

    /// Passes `packets` packets of established connections. Returns the time that it took.
    pub(super) fn pass(
        &mut self,
        traffic: &mut Traffic,
        ring: &mut Ring,
        packets: u64,
    ) -> Result<Duration, BenchError> {
        let (mut spent, mut left) = (Duration::ZERO, packets);
        while left > 0 {
            left -= traffic.fill(ring, left).len() as u64;
            spent += self.handle(ring)?;
        }
        Ok(spent)
    }

    /// Handles what is in the ring, all of which must be sent. Returns the time that it took.
    pub(in crate::bench) fn handle(&mut self, ring: &mut Ring) -> Result<Duration, BenchError> {
        self.now = self.now + RING_TIME;
        let mut batches = ring.batches();
        let began = thread_cpu_time();
        for batch in &mut batches {
            self.edge.handle_packets(self.now, batch);
            self.edge.handle_timeout(self.now);
        }
        let spent = thread_cpu_time().saturating_sub(began);
        let (lost, packets) =
            (batches.iter().map(not_sent).sum(), batches.iter().map(|batch| batch.len() as u64).sum());
        if lost > 0 { Err(BenchError::Lost { what: "the edge", lost, packets }) } else { Ok(spent) }
    }
}
