//! A whole node with a firewall and NAT, and everything that reaches it: frames on both ports, time, and its peer's
//! datagrams on either channel.

mod events;
mod node_config;

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use cluster::node::{Node, Transmit};
use cluster::pipeline::{LookupLimits, StateServiceConfig};
use flow::{Checksum, Disposition, Frame, Instant, NodeId, PacketBatch, PortId};

use events::{Arrival, Event};
use node_config::{CONNECTIONS_MAX, PORTS, node_config};

const EVENTS_MAX: usize = 200;
/// More than a node has to send at once, whatever has happened.
const TRANSMITS_MAX: usize = 10_000;
const TAILROOM_BYTES: usize = 64;

/// The events, one behind the other.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let now = Instant::from_millis(1000);
    let service = StateServiceConfig { key: [1, 2], limits: LookupLimits::default() };
    let node = Node::new(node_config(), now).and_then(|node| node.with_state_service(service, 1));
    let node = node.expect("the configuration is sound");
    let mut world = World { node, now, last: [Vec::new(), Vec::new()] };
    for _ in 0..EVENTS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(event) = Event::arbitrary(&mut input) else { return };
        world.handle(event);
        world.check();
    }
}

struct World {
    node: Node,
    now: Instant,
    /// The last frame that left by each port, for answers and for errors about it.
    last: [Vec<u8>; 2],
}

impl World {
    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Arrives(arrival) => self.arrives(&arrival),
            Event::Wait { milliseconds } => {
                self.now = self.now + Duration::from_millis(milliseconds.into());
                self.node.handle_timeout(self.now);
            }
            Event::WaitLong { minutes } => {
                self.now = self.now + Duration::from_secs(60 * u64::from(minutes));
                self.node.handle_timeout(self.now);
            }
            Event::Replication { datagram } => {
                let _ = self.node.handle_replication(self.now, NodeId(1), datagram);
            }
            Event::Detection { packet, ttl } => {
                let _ = self.node.handle_detection(self.now, NodeId(1), packet, ttl);
            }
            Event::Leave => self.node.leave(self.now),
        }
    }

    fn arrives(&mut self, arrival: &Arrival<'_>) {
        let ingress = usize::from(arrival.is_outside);
        let mut bytes = arrival.frame(&self.last);
        let length_bytes = bytes.len();
        bytes.resize(length_bytes + TAILROOM_BYTES, 0);
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(ingress as u8)).expect("it fits its buffer");
        if let Some((start, offset)) = arrival.partial_checksum {
            frame.checksum = Checksum::Partial { start: start.into(), offset: offset.into() };
        }
        let mut batch = PacketBatch::new();
        batch.push(frame);
        self.node.handle_packets(self.now, &mut batch);
        let frame = &batch[0];
        match frame.disposition {
            Disposition::Undecided => panic!("the node left a frame undecided"),
            Disposition::Transmit(port) => {
                assert!(port.0 < PORTS, "there is no port {}", port.0);
                self.last[usize::from(port.0)] = frame.bytes().to_vec();
            }
            Disposition::Drop(_) | Disposition::Consumed => {}
        }
    }

    /// What must hold of a node at any time.
    fn check(&mut self) {
        let mut buffer = Vec::new();
        let mut transmits = 0;
        while let Some(transmit) = self.node.poll_transmit(self.now, &mut buffer) {
            assert!(!buffer.is_empty(), "nothing is not sent");
            if let Transmit::Port { port, .. } = transmit {
                assert!(port.0 < PORTS);
                self.last[usize::from(port.0)].clone_from(&buffer);
            }
            transmits += 1;
            assert!(transmits < TRANSMITS_MAX, "a node does not send for ever");
        }
        while self.node.poll_event().is_some() {}
        let _ = self.node.poll_timeout();
        let table = self.node.pipeline().table();
        assert!(table.len() <= CONNECTIONS_MAX);
        for (slot, connection) in table.iter() {
            for direction in [flow::Direction::Original, flow::Direction::Reply] {
                let tuple = connection.tuple(direction);
                let found = table.lookup(table.hash(tuple), tuple).map(|(slot, _)| slot);
                assert_eq!(found, Some(slot), "a connection is found by each of its tuples");
            }
        }
        let status = self.node.status(self.now);
        assert_eq!(status.peers.len(), 1);
    }
}
