//! The pipeline with replication at its most eager: every packet's connection is told to a peer.

use std::time::Duration;

use cluster::node::ChainStates;
use cluster::pipeline::Pipeline;
use flow::table::Slot;
use flow::{BATCH_FRAMES_MAX, Instant, NodeId};
use packet_io::clock;
use replication::representation::precise;
use replication::{ApplyError, Handle, Kind, Session, SessionConfig, Store};

use super::gateway::{Egress, Gateway};
use super::setting::NODES;
use super::traffic::{Flow, Ring, Traffic, not_sent};
use crate::bench::BenchError;

/// By how much time goes on with every batch.
const BATCH_TIME: Duration = Duration::from_micros(4);
/// While the other variants are measured the peers do not hear of each other.
const PEER_TIMEOUT: Duration = Duration::from_secs(3600);
/// Exchanges of datagrams after which the peers must know everything of each other, for each connection and at least.
const EXCHANGES_MAX: [u64; 2] = [2, 10_000];

/// The node's connections, as the session sees them.
struct Told<'a>(&'a Pipeline);

impl Store for Told<'_> {
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
pub(super) struct Replicated {
    session: Session,
    peer: Session,
    /// The slot of each connection, by its number.
    slots: Vec<Slot>,
    /// Datagrams to the peer, to be used again.
    datagrams: Vec<Vec<u8>>,
    answer: Vec<u8>,
    packets: u64,
    bytes_sent_before: u64,
}

impl Replicated {
    /// Tells the peer all connections of the gateway.
    pub(super) fn new(gateway: &mut Gateway, traffic: &Traffic) -> Result<Self, BenchError> {
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
            answer: Vec::new(),
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
            self.exchange(gateway.now, &gateway.pipeline);
            if self.session.status().is_synchronised() && self.session.status().in_flight == 0 {
                self.bytes_sent_before = self.session.status().bytes_sent;
                return Ok(());
            }
        }
        Err(BenchError::NotSynchronised)
    }

    /// Passes `packets` packets, each of which changes its connection. Returns the time that it took this node.
    pub(super) fn pass(
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
            for (batch, numbers) in ring.batches().iter_mut().zip(numbers.chunks(BATCH_FRAMES_MAX)) {
                gateway.now = gateway.now + BATCH_TIME;
                let handles: Vec<_> = numbers.iter().map(|number| Handle(self.slots[*number as usize].0)).collect();
                let began = clock::now();
                gateway.pipeline.handle_packets(gateway.now, batch, &mut Egress);
                for handle in handles {
                    self.session.mark_changed(handle);
                }
                spent += clock::now().saturating_since(began);
                spent += self.exchange(gateway.now, &gateway.pipeline);
                lost += not_sent(batch);
            }
        }
        self.packets += packets;
        if lost > 0 { Err(BenchError::Lost { what: "the replicated pipeline", lost, packets }) } else { Ok(spent) }
    }

    /// Sends what there is to the peer and takes its answers. Returns the time that it took this node.
    fn exchange(&mut self, now: Instant, pipeline: &Pipeline) -> Duration {
        let mut store = Told(pipeline);
        let began = clock::now();
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
        }
        let mut sent = 0;
        loop {
            if sent == self.datagrams.len() {
                self.datagrams.push(Vec::new());
            }
            if !self.session.poll_transmit(now, &mut store, &mut self.datagrams[sent]) {
                break;
            }
            sent += 1;
        }
        let mut spent = clock::now().saturating_since(began);
        self.peer.handle_timeout(now);
        for datagram in &self.datagrams[..sent] {
            // What the session makes of it shows in whether it synchronises.
            let _ = self.peer.handle_datagram(now, datagram, &mut Forgetful);
        }
        while self.peer.poll_transmit(now, &mut Forgetful, &mut self.answer) {
            let began = clock::now();
            let _ = self.session.handle_datagram(now, &self.answer, &mut store);
            spent += clock::now().saturating_since(began);
        }
        spent
    }

    /// Bytes of datagrams sent for each packet that [`Replicated::pass`] passed.
    pub(super) fn datagram_bytes_per_packet(&self) -> f64 {
        (self.session.status().bytes_sent - self.bytes_sent_before) as f64 / self.packets.max(1) as f64
    }
}
