//! The pipeline with replication at its most eager: every packet's connection is sent to a peer.

use std::time::Duration;

use cluster::pipeline::ChainStates;
use cluster::pipeline::Pipeline;
use flow::table::Slot;
use flow::{BATCH_FRAMES_MAX, Instant, NodeId, PacketBatch};
use packet_io::usage::thread_cpu_time;
use replication::representation::precise;
use replication::{ApplyError, Handle, Kind, Session, SessionConfig, Store};

use super::gateway::{Egress, Gateway};
use super::setting::NODES;
use super::traffic::{Flow, Ring, Traffic, not_sent};
use crate::bench::BenchError;

/// By how much time goes on with every batch.
const BATCH_TIME: Duration = Duration::from_micros(4);
/// While the other variants are measured the peers receive nothing from each other.
const PEER_TIMEOUT: Duration = Duration::from_secs(3600);
/// Exchanges of datagrams after which the peers must know everything of each other, for each connection and at least.
const EXCHANGES_MAX: [u64; 2] = [2, 10_000];

/// The node's connections, as the session sees them.
struct PipelineStore<'a>(&'a Pipeline);

impl Store for PipelineStore<'_> {
    fn encode(&mut self, now: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some(connection) = self.0.connection(Slot(handle.0)) else { return false };
        precise::encode(now, connection, &ChainStates(self.0.chain()), out);
        true
    }

    fn apply(&mut self, _: Instant, _: NodeId, _: Kind, _: &[u8]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn delete(&mut self, _: Instant, _: NodeId, _: &[u8]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn find(&self, _: &[u8]) -> Option<Handle> {
        None
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        self.0.table().next_occupied(Slot(from.0)).map(|slot| Handle(slot.0))
    }
}

/// The peer: it acknowledges and forgets.
struct Forgetful;

impl Store for Forgetful {
    fn encode(&mut self, _: Instant, _: Handle, _: &mut Vec<u8>) -> bool {
        false
    }

    fn apply(&mut self, _: Instant, _: NodeId, _: Kind, _: &[u8]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn delete(&mut self, _: Instant, _: NodeId, _: &[u8]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn find(&self, _: &[u8]) -> Option<Handle> {
        None
    }

    fn next_for_resync(&self, _: Handle) -> Option<Handle> {
        None
    }
}

/// The session with the peer, and the peer.
pub(in crate::bench) struct Replicated {
    session: Session,
    peer: Session,
    /// The slot of each connection, by its number.
    slots: Vec<Slot>,
    /// Datagrams to the peer, to be used again.
    datagrams: Vec<Vec<u8>>,
    /// What it answers, to be used again.
    answers: Vec<Vec<u8>>,
    packets: u64,
    bytes_sent_before: u64,
}

impl Replicated {
    /// Sends the peer all connections of the gateway.
    pub(in crate::bench) fn new(gateway: &mut Gateway, traffic: &Traffic) -> Result<Self, BenchError> {
        let config =
            |connections_max| SessionConfig { connections_max, peer_timeout: PEER_TIMEOUT, ..SessionConfig::default() };
        let session = |own: usize, connections_max| {
            Session::new(config(connections_max), NODES[own], NODES[1 - own], own as u64)
                .expect("the configuration is the default's but for its size")
        };
        let slot = |flow: &Flow| {
            let found = gateway.pipeline.lookup(flow.original());
            found.map(|(slot, _)| slot).ok_or(BenchError::NotSynchronised)
        };
        let slots = traffic.flows.iter().map(slot).collect::<Result<_, _>>()?;
        let mut replicated = Self {
            session: session(0, gateway.pipeline.table().capacity()),
            peer: session(1, 1),
            slots,
            datagrams: Vec::new(),
            answers: Vec::new(),
            packets: 0,
            bytes_sent_before: 0,
        };
        replicated.synchronise(gateway)?;
        Ok(replicated)
    }

    fn synchronise(&mut self, gateway: &mut Gateway) -> Result<(), BenchError> {
        let [each, least] = EXCHANGES_MAX;
        for _ in 0..(each * self.slots.len() as u64).max(least) {
            gateway.now = gateway.now + BATCH_TIME;
            let sent = self.transmit(gateway.now, &gateway.pipeline, 0);
            self.receive_answers(gateway.now, &gateway.pipeline, sent);
            if self.session.status().is_synchronised() && self.session.status().in_flight == 0 {
                self.bytes_sent_before = self.session.status().bytes_sent;
                return Ok(());
            }
        }
        Err(BenchError::NotSynchronised)
    }

    /// Passes `packets` packets, each of which changes its connection. Returns the time that it took this node.
    pub(in crate::bench) fn pass(
        &mut self,
        gateway: &mut Gateway,
        traffic: &mut Traffic,
        ring: &mut Ring,
        packets: u64,
    ) -> Result<Duration, BenchError> {
        let (mut spent, mut lost) = (Duration::ZERO, 0);
        let mut left = packets;
        while left > 0 {
            let numbers = traffic.fill(ring, left);
            left -= numbers.len() as u64;
            let mut batches = ring.batches();
            let began = thread_cpu_time();
            let sent = self.handle(gateway, &mut batches, &numbers);
            spent += thread_cpu_time().saturating_sub(began);
            spent += self.receive_answers(gateway.now, &gateway.pipeline, sent);
            lost += batches.iter().map(not_sent).sum::<u64>();
        }
        self.packets += packets;
        if lost > 0 { Err(BenchError::Lost { what: "the replicated pipeline", lost, packets }) } else { Ok(spent) }
    }

    /// Handles batches whose packets belong to the connections with these numbers, and sends each connection to the peer. Returns how
    /// many datagrams that takes.
    pub(in crate::bench) fn handle(
        &mut self,
        gateway: &mut Gateway,
        batches: &mut [PacketBatch<'_>],
        numbers: &[u32],
    ) -> usize {
        let mut sent = 0;
        for (batch, numbers) in batches.iter_mut().zip(numbers.chunks(BATCH_FRAMES_MAX)) {
            gateway.now = gateway.now + BATCH_TIME;
            gateway.pipeline.handle_packets(gateway.now, batch, &mut Egress { plans: true });
            for number in numbers {
                self.session.mark_changed(Handle(self.slots[*number as usize].0));
            }
            sent += self.transmit(gateway.now, &gateway.pipeline, sent);
        }
        sent
    }

    /// Writes the queued updates, behind the first `before` datagrams. Returns how many datagrams it takes.
    fn transmit(&mut self, now: Instant, pipeline: &Pipeline, before: usize) -> usize {
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
        }
        for sent in 0.. {
            if before + sent == self.datagrams.len() {
                self.datagrams.push(Vec::new());
            }
            if !self.session.poll_transmit(now, &mut PipelineStore(pipeline), &mut self.datagrams[before + sent]) {
                return sent;
            }
        }
        unreachable!("a session has finitely many updates")
    }

    /// Hands the first `sent` datagrams to the peer, and its answers to this node. Returns the time that it took this node.
    pub(in crate::bench) fn receive_answers(&mut self, now: Instant, pipeline: &Pipeline, sent: usize) -> Duration {
        self.peer.handle_timeout(now);
        let mut answers = 0;
        for datagram in &self.datagrams[..sent] {
            // What the sessions make of it shows in whether they synchronise.
            let _ = self.peer.handle_datagram(now, datagram, &mut Forgetful);
            loop {
                if answers == self.answers.len() {
                    self.answers.push(Vec::new());
                }
                if !self.peer.poll_transmit(now, &mut Forgetful, &mut self.answers[answers]) {
                    break;
                }
                answers += 1;
            }
        }
        let began = thread_cpu_time();
        for answer in &self.answers[..answers] {
            let _ = self.session.handle_datagram(now, answer, &mut PipelineStore(pipeline));
        }
        thread_cpu_time().saturating_sub(began)
    }

    /// Bytes of datagrams sent for each packet that [`Replicated::pass`] passed.
    pub(super) fn datagram_bytes_per_packet(&self) -> f64 {
        (self.session.status().bytes_sent - self.bytes_sent_before) as f64 / self.packets.max(1) as f64
    }
}
