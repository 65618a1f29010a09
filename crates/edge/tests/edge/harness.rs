//! An edge with three nodes, and a TCP connection whose segments pass it.

use std::net::Ipv4Addr;
use std::time::Duration;

use edge::{Edge, EdgeConfig, EdgeEvent, NodePort, Transmit};
use flow::wire::build::{self, Tcp};
use flow::wire::{self, Headers, MacAddress, Parsed, TcpSegment, Transport, ip_protocol, tcp_flags};
use flow::{Checksum, Disposition, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Segmentation, Tuple};

pub(crate) use tcp_flags::{ACK, FIN, PSH, RST, SYN};

pub(crate) const NETWORK: PortId = PortId(0);
pub(crate) const NODES: u8 = 3;
/// First sequence numbers: the near end's numbers wrap.
pub(crate) const NEAR: u32 = u32::MAX - 1000;
pub(crate) const FAR: u32 = 9000;

pub(crate) fn port(node: NodeId) -> PortId {
    PortId(node.0 + 1)
}

pub(crate) fn node_address(node: NodeId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, node.0])
}

pub(crate) fn config() -> EdgeConfig {
    let node = |n| NodePort { node: NodeId(n), port: port(NodeId(n)), link_address: Some(node_address(NodeId(n))) };
    EdgeConfig { connections_max: 1000, ..EdgeConfig::new(NETWORK, (0..NODES).map(node).collect(), HashKey([5, 6])) }
}

pub(crate) fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn tcp_tuple(client_port: u16) -> Tuple {
    Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(10, 0, 0, 2), client_port), (Ipv4Addr::new(192, 0, 2, 1), 443))
}

/// An edge and the time.
pub(crate) struct World {
    pub(crate) edge: Edge,
    pub(crate) now: Instant,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        Self { edge: Edge::new(config).expect("the configuration is valid"), now: ms(1000) }
    }

    pub(crate) fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    /// A frame arrives; returns what becomes of it. Its bytes are changed as the edge changes them.
    pub(crate) fn arrive(&mut self, ingress: PortId, bytes: &mut [u8]) -> Disposition {
        self.arrive_with(ingress, bytes, Checksum::Unverified, Segmentation::default())
    }

    pub(crate) fn arrive_with(
        &mut self,
        ingress: PortId,
        bytes: &mut [u8],
        checksum: Checksum,
        segmentation: Segmentation,
    ) -> Disposition {
        let length_bytes = bytes.len();
        let mut frame = Frame::new(bytes, 0, length_bytes, ingress).expect("it fits");
        (frame.checksum, frame.segmentation) = (checksum, segmentation);
        let mut batch = PacketBatch::new();
        batch.push(frame);
        self.edge.handle_packets(self.now, &mut batch);
        batch[0].disposition
    }

    /// A frame of the near host arrives; returns its node.
    pub(crate) fn enter(&mut self, mut bytes: Vec<u8>) -> NodeId {
        match self.arrive(NETWORK, &mut bytes) {
            Disposition::Transmit(PortId(port)) if port > 0 => {
                assert_eq!(bytes[..6], node_address(NodeId(port - 1)).0, "it is addressed to the node");
                NodeId(port - 1)
            }
            other => panic!("the frame did not enter: {other:?}"),
        }
    }

    /// A frame leaves the cluster from a node; returns it as the near host gets it.
    pub(crate) fn leave(&mut self, node: NodeId, mut bytes: Vec<u8>) -> Vec<u8> {
        assert_eq!(self.arrive(port(node), &mut bytes), Disposition::Transmit(NETWORK));
        bytes
    }

    /// The node fails, and the survivors take its connections over.
    pub(crate) fn fail(&mut self, node: NodeId) {
        self.edge.set_node_alive(self.now, node, false);
        self.edge.switched_over(self.now, node);
    }

    pub(crate) fn confirm_all(&mut self) {
        (0..NODES).for_each(|node| self.edge.owner_confirmed(self.now, NodeId(node)));
    }

    /// All frames that the edge sends now or later, with the time at which it sends them.
    pub(crate) fn resent(&mut self) -> Vec<(Instant, Transmit, Vec<u8>)> {
        let (mut sent, mut buffer) = (Vec::new(), Vec::new());
        let mut now = self.now;
        for _ in 0..10_000 {
            match self.edge.poll_transmit(now, &mut buffer) {
                Some(transmit) => sent.push((now, transmit, buffer.clone())),
                None => now = now + Duration::from_micros(10),
            }
            if now > self.now + Duration::from_millis(20) {
                break;
            }
        }
        sent
    }

    pub(crate) fn events(&mut self) -> Vec<EdgeEvent> {
        std::iter::from_fn(|| self.edge.poll_event()).map(|(_, event)| event).collect()
    }
}

/// Reads a frame, whose checksums must be right.
pub(crate) fn read(bytes: &[u8]) -> (Headers, TcpSegment) {
    let mut copy = bytes.to_vec();
    let frame = Frame::new(&mut copy, 0, bytes.len(), NETWORK).expect("it fits");
    match wire::parse(&frame) {
        Ok(Parsed::Ip(headers)) => match headers.transport {
            Transport::Tcp(segment) => (headers, segment),
            other => panic!("not TCP: {other:?}"),
        },
        other => panic!("not a valid packet: {other:?}"),
    }
}

/// A TCP connection; numbers count from the first of each end.
#[derive(Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) tuple: Tuple,
    pub(crate) sack: bool,
    pub(crate) scale: Option<u8>,
    pub(crate) timestamps: Option<(u32, u32)>,
}

impl Connection {
    pub(crate) fn new(client_port: u16) -> Self {
        Self { tuple: tcp_tuple(client_port), sack: true, scale: Some(2), timestamps: None }
    }

    fn fields(&self, flags: u8, window: u16) -> Tcp<'static> {
        let is_syn = flags & SYN != 0;
        Tcp {
            flags,
            window,
            maximum_segment_bytes: is_syn.then_some(1460),
            window_scale: self.scale.filter(|_| is_syn),
            sack_permitted: self.sack && is_syn,
            timestamps: self.timestamps,
            ..Tcp::default()
        }
    }

    /// A segment of the near end.
    pub(crate) fn near(&self, flags: u8, sequence: u32, acknowledgement: u32, payload: &[u8]) -> Vec<u8> {
        let (sequence, acknowledgement) = (NEAR.wrapping_add(sequence), FAR.wrapping_add(acknowledgement));
        let fields = Tcp { sequence, acknowledgement, ..self.fields(flags, u16::MAX) };
        build::tcp(&self.tuple, fields, payload)
    }

    /// A segment of the far end, whose window field is `window`.
    pub(crate) fn far(&self, flags: u8, sequence: u32, acknowledgement: u32, window: u16) -> Vec<u8> {
        let (sequence, acknowledgement) = (FAR.wrapping_add(sequence), NEAR.wrapping_add(acknowledgement));
        let fields = Tcp { sequence, acknowledgement, ..self.fields(flags, window) };
        build::tcp(&self.tuple.inverse(), fields, b"")
    }

    /// The handshake passes; returns the node.
    pub(crate) fn open(&self, world: &mut World) -> NodeId {
        let node = world.enter(self.near(SYN, 0, 0, b""));
        world.leave(node, self.far(SYN | ACK, 0, 1, u16::MAX));
        world.enter(self.near(ACK, 1, 1, b""));
        world.leave(node, self.far(ACK, 1, 1, u16::MAX));
        node
    }
}
