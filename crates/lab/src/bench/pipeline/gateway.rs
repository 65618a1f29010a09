//! The node's pipeline with its connections.

use std::time::Duration;

use cluster::forwarding::{Admission, PlannedLink};
use cluster::pipeline::{Edge, Pipeline, ReplicaExpiry};
use flow::wire::{MacAddress, Packet, tcp_flags};
use flow::{Direction, Disposition, Frame, Instant, IpFamily, PortId, Tuple};
use network_functions::chain::Chain;
use packet_io::usage::thread_cpu_time;

use super::setting::{HASH_KEY, NODES, chain, tracker};
use super::traffic::{Flow, RING_FRAMES, Ring, Traffic, not_sent};
use crate::bench::BenchError;

/// By how much the measured node's clock goes on with every ring: its connections' times are not those of the machine.
const RING_TIME: Duration = Duration::from_micros(64);

/// Takes every packet and sends it by the other port: routes and neighbours are not measured.
pub(super) struct Egress {
    /// Whether the way of a connection may be planned.
    pub(super) plans: bool,
}

impl Edge for Egress {
    fn handle_arp(&mut self, _: Instant, _: &mut Frame<'_>, _: u16) -> Disposition {
        Disposition::Consumed
    }

    fn admit(&mut self, _: Instant, _: &Packet<'_, '_>) -> Admission {
        Admission::Transit
    }

    fn handle_local(&mut self, _: Instant, _: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Consumed
    }

    fn forward(&mut self, _: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Transmit(PortId(1 - packet.frame.ingress.0))
    }

    fn plan_revision(&self) -> Option<u32> {
        self.plans.then_some(1)
    }

    fn planned_hop(&self, _: &Tuple) -> Option<u16> {
        Some(0)
    }

    fn planned_link(&mut self, _: Instant, _: u16, packet: &Packet<'_, '_>) -> Option<PlannedLink> {
        let egress = PortId(1 - packet.frame.ingress.0);
        Some(PlannedLink { egress, source: MacAddress::default(), destination: MacAddress::default() })
    }
}

/// What became of the frames in a ring.
pub(super) struct Handled {
    pub(super) spent: Duration,
    pub(super) packets: u64,
    /// Packets that were not sent.
    pub(super) lost: u64,
}

/// The pipeline, and the time that it is given.
pub(in crate::bench) struct Gateway {
    pub(in crate::bench) pipeline: Pipeline,
    pub(in crate::bench) now: Instant,
    /// Whether the ways of connections are planned, as a node plans them.
    plans: bool,
}

impl Gateway {
    /// For at most `connections_max` connections, with so many firewall rules.
    pub(in crate::bench) fn new(connections_max: u32, firewall_rules: u16) -> Self {
        Self::with_chain(connections_max, chain(firewall_rules))
    }

    /// For at most `connections_max` connections, with this chain.
    pub(in crate::bench) fn with_chain(connections_max: u32, chain: Chain) -> Self {
        let pipeline = Pipeline::new(NODES[0], connections_max, HASH_KEY, tracker(), chain);
        Self { pipeline, now: Instant::from_millis(1000), plans: true }
    }

    /// The same, but every packet passes the chain.
    pub(in crate::bench) fn without_plans(self) -> Self {
        Self { plans: false, ..self }
    }

    /// Lets all connections begin, up to the end of their handshakes.
    pub(in crate::bench) fn establish(&mut self, traffic: &mut Traffic, ring: &mut Ring) -> Result<(), BenchError> {
        for flows in traffic.flows.chunks_mut(RING_FRAMES) {
            self.begin(flows, ring)?;
            self.pass_of_each(flows, ring, Direction::Reply, tcp_flags::SYN | tcp_flags::ACK)?;
            self.pass_of_each(flows, ring, Direction::Original, tcp_flags::ACK)?;
        }
        self.check_connections(traffic.flows.len() as u32)
    }

    /// Passes `packets` packets of established connections. Returns the time that it took.
    pub(in crate::bench) fn pass(
        &mut self,
        traffic: &mut Traffic,
        ring: &mut Ring,
        packets: u64,
    ) -> Result<Duration, BenchError> {
        let mut spent = Duration::ZERO;
        let mut left = packets;
        while left > 0 {
            left -= traffic.fill(ring, left).len() as u64;
            spent += self.handle(ring)?;
        }
        Ok(spent)
    }

    /// Lets `number` new connections begin, with numbers from `first` on, that their servers then refuse. Returns the time
    /// that either took.
    pub(super) fn open_and_close(
        &mut self,
        first: u32,
        number: u32,
        ring: &mut Ring,
    ) -> Result<[Duration; 2], BenchError> {
        let before = self.pipeline.table().len();
        let mut flows: Vec<_> = (first..first + number).map(|number| Flow::new(IpFamily::V4, number)).collect();
        let [mut open_time, mut close_time] = [Duration::ZERO; 2];
        for flows in flows.chunks_mut(RING_FRAMES) {
            open_time += self.begin(flows, ring)?;
        }
        self.check_connections(before + number)?;
        for flows in flows.chunks_mut(RING_FRAMES) {
            close_time += self.pass_of_each(flows, ring, Direction::Reply, tcp_flags::RST | tcp_flags::ACK)?;
        }
        self.check_connections(before)?;
        Ok([open_time, close_time])
    }

    fn begin(&mut self, flows: &mut [Flow], ring: &mut Ring) -> Result<Duration, BenchError> {
        let spent = self.pass_of_each(flows, ring, Direction::Original, tcp_flags::SYN)?;
        Flow::set_all_outgoing(flows, ring);
        Ok(spent)
    }

    fn pass_of_each(
        &mut self,
        flows: &mut [Flow],
        ring: &mut Ring,
        direction: Direction,
        flags: u8,
    ) -> Result<Duration, BenchError> {
        Flow::push_all(flows, ring, direction, flags);
        self.handle(ring)
    }

    /// Handles what is in the ring, all of which must be sent. Returns the time that it took.
    pub(in crate::bench) fn handle(&mut self, ring: &mut Ring) -> Result<Duration, BenchError> {
        let Handled { spent, packets, lost } = self.try_handle(ring);
        if lost > 0 { Err(BenchError::Lost { what: "the pipeline", lost, packets }) } else { Ok(spent) }
    }

    /// Handles what is in the ring.
    pub(super) fn try_handle(&mut self, ring: &mut Ring) -> Handled {
        self.now = self.now + RING_TIME;
        let mut batches = ring.batches();
        let began = thread_cpu_time();
        for batch in &mut batches {
            self.pipeline.handle_packets(self.now, batch, &mut Egress { plans: self.plans });
            self.pipeline.expire(self.now, 1, |_| ReplicaExpiry::Recheck(Duration::ZERO));
            let changes = self.pipeline.take_changes();
            self.pipeline.return_changes(changes);
        }
        let spent = thread_cpu_time().saturating_sub(began);
        let packets = batches.iter().map(|batch| batch.len() as u64).sum();
        Handled { spent, packets, lost: batches.iter().map(not_sent).sum() }
    }

    fn check_connections(&self, expected: u32) -> Result<(), BenchError> {
        let there = self.pipeline.table().len();
        if there == expected { Ok(()) } else { Err(BenchError::Connections { there, expected }) }
    }
}
