//! The thread that moves packets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::node::{Node, NodeEvent, Transmit};
use flow::{Frame, Instant, NodeId};
use packet_io::poller::{Poller, Token, Waker};
use packet_io::signal::{Signal, Signals};
use packet_io::udp::{TTL_MAX, UdpOptions, UdpSocket};
use packet_io::{IoError, PacketIo, clock};

use super::ports::Ports;
use super::reporting::Reporting;
use crate::config::validated::{Cluster, Config};
use crate::control::ControlReceiver;
use crate::control::types::EventKind;

const PORTS: Token = Token(0);
const REPLICATION: Token = Token(1);
const DETECTION: Token = Token(2);
const CONTROL: Token = Token(3);
const SIGNALS: Token = Token(4);

/// The longest wait: ports that went down are looked for, and rates are taken, at least this often.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Rounds of receiving before peers and timers have their turn, lest a flood of packets makes the node look dead.
const ROUNDS_PER_TURN_MAX: usize = 16;
/// Datagrams of a peer taken before packets have their turn.
const DATAGRAMS_PER_TURN_MAX: usize = 256;
/// A leaving node waits so long for a peer to take the addresses.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(6);

/// The sockets to the peers.
struct PeerSockets {
    replication: UdpSocket,
    detection: UdpSocket,
    /// Of each peer: its number and where its replication and its failure detection are.
    peers: Vec<(NodeId, SocketAddr, SocketAddr)>,
}

impl PeerSockets {
    fn open(cluster: &Cluster) -> Result<Self, IoError> {
        let replication = UdpSocket::bind(cluster.replication.local, &UdpOptions::default())?;
        let options = UdpOptions { ttl: Some(TTL_MAX), ..UdpOptions::default() };
        let detection = UdpSocket::bind(cluster.failure_detection.local, &options)?;
        if cluster.replication.test_loss > 0.0 {
            replication.attach_random_loss(cluster.replication.test_loss)?;
            detection.attach_random_loss(cluster.replication.test_loss)?;
        }
        let peers = cluster.replication.peers.iter();
        let peers = peers.map(|peer| (peer.id, peer.address, peer.failure_detection_address)).collect();
        Ok(Self { replication, detection, peers })
    }

    /// Sends a datagram to a peer. What the kernel does not take is lost like any other datagram.
    fn send(&self, to: Transmit, datagram: &[u8]) -> Result<(), IoError> {
        let address_of = |id: NodeId| self.peers.iter().find(|(peer, _, _)| *peer == id);
        match to {
            Transmit::Replication(id) => {
                address_of(id).map(|(_, address, _)| self.replication.send_to(datagram, *address)).transpose()?;
            }
            Transmit::Detection(id) => {
                address_of(id).map(|(_, _, address)| self.detection.send_to(datagram, *address)).transpose()?;
            }
            Transmit::Port { .. } => {}
        }
        Ok(())
    }
}

/// The node, what it sends and receives on, and what it tells operators.
pub(super) struct DataPath {
    node: Node,
    ports: Ports,
    peers: Option<PeerSockets>,
    poller: Poller,
    waker: Arc<Waker>,
    signals: Signals,
    receiver: ControlReceiver,
    reporting: Reporting,
    buffer: Vec<u8>,
    datagram: Vec<u8>,
    /// When the ports are looked at even if none is readable.
    look_at_ports_at: Instant,
    /// A signal asked the node to end: when it ends even if nobody takes the addresses.
    leaving_until: Option<Instant>,
}

impl DataPath {
    /// Opens the sockets to the peers.
    pub(super) fn open(
        config: &Config,
        node: Node,
        ports: Ports,
        signals: Signals,
        waker: Arc<Waker>,
        receiver: ControlReceiver,
    ) -> Result<Self, IoError> {
        let peers = config.cluster.as_ref().map(PeerSockets::open).transpose()?;
        let poller = Poller::new()?;
        for descriptor in ports.descriptors() {
            poller.add(descriptor, PORTS)?;
        }
        if let Some(peers) = &peers {
            poller.add(&peers.replication, REPLICATION)?;
            poller.add(&peers.detection, DETECTION)?;
        }
        poller.add(&*waker, CONTROL)?;
        poller.add(&signals, SIGNALS)?;
        Ok(Self {
            node,
            ports,
            peers,
            poller,
            waker,
            signals,
            receiver,
            reporting: Reporting::new(config, clock::now()),
            buffer: Vec::with_capacity(65_536),
            datagram: vec![0; 65_536],
            look_at_ports_at: Instant::ZERO,
            leaving_until: None,
        })
    }

    /// Moves packets until a signal ends it.
    pub(super) fn run(&mut self) -> Result<(), IoError> {
        let mut ready = Vec::new();
        self.reporting.note(clock::now(), EventKind::Started, env!("CARGO_PKG_VERSION"));
        loop {
            let wait = self.wait_until_due(clock::now());
            self.poller.wait(&mut ready, Some(wait))?;
            self.receive(&ready)?;
            let now = clock::now();
            if self.node.poll_timeout().is_some_and(|due| due <= now) {
                self.node.handle_timeout(now);
            }
            self.send_all(now)?;
            self.report(now);
            if ready.contains(&CONTROL) {
                self.answer_control();
            }
            if self.may_end(now) {
                self.reporting.note(now, EventKind::Stopping, "");
                return self.send_all(now);
            }
        }
    }

    fn wait_until_due(&self, now: Instant) -> Duration {
        self.node.poll_timeout().map_or(WAIT_MAX, |due| due.saturating_since(now).min(WAIT_MAX))
    }

    /// Takes what has come, where the poller says that there is something: a standby that asked everywhere each time
    /// that it is told of a connection would spend more on asking than on the connection.
    fn receive(&mut self, ready: &[Token]) -> Result<(), IoError> {
        if ready.contains(&SIGNALS) {
            self.take_signals();
        }
        if ready.contains(&DETECTION) {
            self.receive_detection()?;
        }
        if ready.contains(&REPLICATION) {
            self.receive_replication()?;
        }
        let now = clock::now();
        // A port that went down is never readable and must be looked for.
        if ready.contains(&PORTS) || self.look_at_ports_at <= now {
            self.look_at_ports_at = now + WAIT_MAX;
            self.receive_packets()?;
        }
        Ok(())
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.receive() {
            let now = clock::now();
            match signal {
                Signal::Terminate | Signal::Interrupt if self.leaving_until.is_none() => {
                    tracing::info!("leaving: handing the addresses over");
                    self.node.leave(now);
                    self.leaving_until = Some(now + LEAVE_WAIT_MAX);
                }
                // Asked twice: at once.
                Signal::Terminate | Signal::Interrupt => self.leaving_until = Some(now),
                Signal::Reload => tracing::warn!("the configuration is read at the start only: restart to apply it"),
            }
        }
    }

    /// A leaving node ends when it holds the addresses no more.
    fn may_end(&self, now: Instant) -> bool {
        self.leaving_until.is_some_and(|until| until <= now || !self.node.holds_addresses())
    }

    /// Handles packets; the peers are told of what changed before the packets leave.
    fn receive_packets(&mut self) -> Result<(), IoError> {
        for _ in 0..ROUNDS_PER_TURN_MAX {
            let Self { node, ports, peers, buffer, .. } = self;
            let mut failed = None;
            let received = ports.poll(&mut |batch| {
                let now = clock::now();
                node.handle_packets(now, batch);
                if let Some(Err(error)) = peers.as_ref().map(|peers| send_datagrams(node, peers, now, buffer)) {
                    failed = Some(error);
                }
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
            if received == 0 {
                break;
            }
        }
        Ok(())
    }

    fn receive_detection(&mut self) -> Result<(), IoError> {
        let Self { node, peers: Some(peers), datagram, reporting, .. } = self else { return Ok(()) };
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(received) = peers.detection.receive(datagram)? else { break };
            let bytes = &datagram[..received.length_bytes];
            let from = peers.peers.iter().find(|(_, _, address)| address.ip() == received.from.ip());
            match from {
                Some((id, _, _)) => {
                    let ttl = received.ttl.unwrap_or(0);
                    reporting.note_peer_error(*id, node.handle_detection(clock::now(), *id, bytes, ttl));
                }
                None => reporting.note_stranger(received.from),
            }
        }
        Ok(())
    }

    fn receive_replication(&mut self) -> Result<(), IoError> {
        let Self { node, peers: Some(peers), datagram, reporting, .. } = self else { return Ok(()) };
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(received) = peers.replication.receive(datagram)? else { break };
            let bytes = &datagram[..received.length_bytes];
            match peers.peers.iter().find(|(_, address, _)| *address == received.from) {
                Some((id, _, _)) => {
                    reporting.note_peer_error(*id, node.handle_replication(clock::now(), *id, bytes));
                }
                None => reporting.note_stranger(received.from),
            }
        }
        Ok(())
    }

    fn send_all(&mut self, now: Instant) -> Result<(), IoError> {
        let Self { node, ports, peers, buffer, .. } = self;
        if let Some(peers) = peers {
            send_datagrams(node, peers, now, buffer)?;
        }
        while let Some(transmit) = node.poll_frame(now, buffer) {
            let Transmit::Port { port, checksum, segmentation } = transmit else { continue };
            let length_bytes = buffer.len();
            let Some(mut frame) = Frame::new(buffer, 0, length_bytes, port) else { continue };
            (frame.checksum, frame.segmentation) = (checksum, segmentation);
            // A failure has been counted by the port; whoever waits for the frame asks again.
            let _ = ports.transmit(port, &frame);
        }
        Ok(())
    }

    fn report(&mut self, now: Instant) {
        while let Some((at, event)) = self.node.poll_event() {
            self.reporting.note_event(at, event);
            if event == NodeEvent::BecameStandby && self.leaving_until.is_some() {
                tracing::info!("handed over");
            }
        }
        self.reporting.log_functions(&mut self.node);
        self.reporting.take_rates(now, &self.node, &self.ports);
    }

    fn answer_control(&mut self) {
        self.waker.clear();
        let Self { node, ports, reporting, receiver, waker, .. } = self;
        let mut answers = reporting.answers(node, ports);
        if receiver.answer_one(&mut answers) {
            // Another may wait: packets have their turn first.
            waker.wake();
        }
    }
}

fn send_datagrams(node: &mut Node, peers: &PeerSockets, now: Instant, buffer: &mut Vec<u8>) -> Result<(), IoError> {
    while let Some(to) = node.poll_datagram(now, buffer) {
        peers.send(to, buffer)?;
    }
    Ok(())
}
