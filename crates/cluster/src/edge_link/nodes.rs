//! The edge's end: which nodes are alive, and whose connections they serve.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::random;
use flow::wire::MacAddress;
use flow::wire::ethernet::EthernetView;
use flow::{DropReason, Instant, NodeId, PortId};
use replication::secure::{Channel, ChannelError, is_channel};

use super::security::{LinkSecurity, open, seal};
use super::{EdgeState, NodeState};
use crate::failure_detector::{BfdError, Config, ConfigError, Session, State, TIME_TO_LIVE};
use crate::forwarding::{PathFrameKind, PathHeader, PathId};

/// A channel under which nothing was received for so long begins anew: the node may have been restarted.
const SILENT_AFTER: Duration = Duration::from_millis(500);

/// What happened to a node, as an edge sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeUpdate {
    /// The node is alive and forwards packets.
    Forwards(NodeId),
    /// It is dead, or it does not forward packets any more.
    Stopped(NodeId),
    /// So many of its heartbeats in a row did not arrive; 0: one has arrived.
    HeartbeatsLost {
        /// The node.
        node: NodeId,
        /// How many.
        count: u32,
    },
    /// Frames to the node are to have this link address.
    LinkAddress {
        /// The node.
        node: NodeId,
        /// The address of its port.
        address: MacAddress,
    },
    /// The node serves the connections of all nodes that do not forward packets.
    Serves(NodeId),
}

/// Why a frame was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// It came from where only hosts are.
    #[error("a host sends frames in the name of nodes or edges; they are dropped")]
    FromHost,
    /// Only edges send such frames, and this is one.
    #[error("a frame in the name of an edge, which none sends here; it is dropped")]
    FromEdge,
    /// It is in plain text, though this edge has a key; or the other way round.
    #[error(
        "the node and this edge do not authenticate each other alike: [security] of this edge needs a key of the node's \
         [replication.security]; if it has one, somebody pretends to be the node"
    )]
    NotAlike,
    /// The node is up at another link address.
    #[error(
        "a frame in the name of a node that is up at another link address: a stranger's, or two nodes have one number"
    )]
    OtherLinkAddress,
    /// The keys do not open it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// It is no frame of a node, or damaged.
    #[error("no frame of a node: {}", .0.label())]
    Frame(DropReason),
    /// It is for another edge, or between nodes.
    #[error("a frame for another receiver")]
    OtherReceiver,
    /// The port leads to another node: cables were exchanged, or two nodes have the same number.
    #[error("node {} sends by the port of node {}: check the cables and the interfaces of [[edge.node]]", .from.0, .expected.0)]
    OtherNode {
        /// The node that the port leads to.
        expected: NodeId,
        /// The one that sent the frame.
        from: NodeId,
    },
    /// Its packet of failure detection was discarded.
    #[error(transparent)]
    Bfd(#[from] BfdError),
}

impl LinkError {
    /// The reason that the frame counts as dropped for.
    #[must_use]
    pub const fn reason(&self) -> DropReason {
        match self {
            Self::FromHost | Self::FromEdge => DropReason::ControlFromHost,
            Self::NotAlike | Self::OtherLinkAddress | Self::Channel(_) | Self::Bfd(_) => {
                DropReason::ControlUnauthenticated
            }
            Self::Frame(reason) => *reason,
            Self::OtherReceiver | Self::OtherNode { .. } => DropReason::OtherHost,
        }
    }

    /// It happens without a fault, when a node was restarted: counted, and not complained of.
    #[must_use]
    pub const fn is_routine(&self) -> bool {
        matches!(self, Self::Channel(error) if error.is_routine())
    }
}

/// How the link to a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeLinkStatus {
    /// The node.
    pub node: NodeId,
    /// The state of its failure detection.
    pub state: State,
    /// Since when the node is alive, or not; `None`: it never was.
    pub since: Option<Instant>,
    /// Its link address. `None`: it was never received.
    pub address: Option<MacAddress>,
    /// What it serves.
    pub serves: NodeState,
}

/// The link to a node.
struct NodeLink {
    node: NodeId,
    port: PortId,
    /// The link address of this edge's port.
    source: MacAddress,
    /// `None`: plain text.
    channel: Option<Channel>,
    /// When something was received under the keys of the channel, or the channel began.
    authentic_at: Instant,
    detector: Session,
    is_up: bool,
    since: Option<Instant>,
    address: Option<MacAddress>,
    state: NodeState,
    received_at: Option<Instant>,
    heartbeats_lost: u32,
    /// The state of this edge that it was sent last.
    sent: Option<EdgeState>,
    /// It counts as forwarding packets.
    forwards: bool,
    /// The edge's port has carrier.
    has_carrier: bool,
}

impl NodeLink {
    /// Heartbeats that have been missed since the last one. One may be late by a jitter of a quarter.
    fn missed(&self, now: Instant) -> u32 {
        let interval = self.detector.receive_interval();
        let Some(received_at) = self.received_at.filter(|_| self.is_up && !interval.is_zero()) else { return 0 };
        let silence = now.saturating_since(received_at).saturating_sub(interval / 4);
        u32::try_from(silence.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX)
    }
}

impl NodeLink {
    /// What the node reports, with a packet of failure detection behind it, from this link address.
    fn handle_content(&mut self, now: Instant, content: &[u8]) -> Result<(), LinkError> {
        let (state, packet) = NodeState::decode(content).ok_or(LinkError::Frame(DropReason::Truncated))?;
        if !packet.is_empty() && self.channel.is_some() {
            self.detector.handle_authentic_packet(now, packet)?;
        } else if !packet.is_empty() {
            self.detector.handle_packet(now, packet, TIME_TO_LIVE)?;
        }
        self.state = state;
        self.received_at = Some(now);
        self.authentic_at = now;
        Ok(())
    }

    /// Takes a datagram of the node. False: it was of the channel's handshake.
    fn handle(&mut self, now: Instant, source: MacAddress, datagram: &[u8]) -> Result<bool, LinkError> {
        if self.channel.is_some() != is_channel(datagram) {
            return Err(LinkError::NotAlike);
        }
        match &mut self.channel {
            Some(channel) => match open(channel, now, datagram)? {
                Some(content) => self.handle_content(now, &content).map(|()| true),
                None => Ok(false),
            },
            None if self.is_up && self.address.is_some_and(|address| address != source) => {
                Err(LinkError::OtherLinkAddress)
            }
            None => self.handle_content(now, datagram).map(|()| true),
        }
    }

    /// Whether something can be sent under the channel's keys, or is sent in plain text.
    fn can_send(&self) -> bool {
        self.channel.as_ref().is_none_or(Channel::is_ready)
    }

    /// Writes the next datagram to the node over `datagram`; `packet` is a buffer. False: there is none.
    fn poll_transmit(&mut self, now: Instant, state: EdgeState, packet: &mut Vec<u8>, datagram: &mut Vec<u8>) -> bool {
        if self.channel.as_mut().is_some_and(|channel| channel.poll_transmit(datagram)) {
            return true;
        }
        if !self.can_send() {
            return false;
        }
        let has_packet = self.detector.poll_transmit(now, packet);
        if !has_packet && (!self.is_up || self.sent == Some(state)) {
            return false;
        }
        self.sent = Some(state);
        datagram.clear();
        state.encode(datagram);
        if has_packet {
            datagram.extend_from_slice(packet);
        }
        self.channel.as_mut().is_none_or(|channel| seal(channel, now, datagram))
    }

    /// When the detector is due. While nothing can be sent, it has nothing to send; a node that is up has its detection time.
    fn detector_due(&self) -> Option<Instant> {
        self.detector.poll_timeout().filter(|_| self.can_send())
    }

    /// When the channel begins anew, if nothing is received until then and the node is not up.
    fn renewed_at(&self) -> Option<Instant> {
        self.channel.as_ref().filter(|channel| channel.is_ready() && !self.is_up)?;
        Some(self.authentic_at + SILENT_AFTER.max(self.detector.receive_interval() * 3))
    }
}

/// The links of an edge to its nodes.
pub struct NodeLinks {
    edge: u8,
    security: Option<LinkSecurity>,
    links: Vec<NodeLink>,
    updates: VecDeque<NodeUpdate>,
    /// For each link: it serves the connections of these failed nodes, which has been reported.
    reported: Vec<u64>,
}

impl NodeLinks {
    /// Links to these nodes: their numbers below [`NODES_MAX`](super::NODES_MAX), this edge's ports, and the link addresses of the
    /// ports. `security` authenticates the nodes; without it, they are taken in plain text.
    ///
    /// # Errors
    /// The configuration of failure detection cannot be used.
    pub fn new(
        edge: u8,
        nodes: &[(NodeId, PortId, MacAddress)],
        config: Config,
        seed: u64,
        (now, mut security): (Instant, Option<LinkSecurity>),
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let mut link = |(node, port, source): &(NodeId, PortId, MacAddress)| {
            let seed = random::mix(seed ^ u64::from(node.0));
            let discriminator = (seed >> 32) as u32 & !0xff | u32::from(node.0) | 0x100;
            NodeLink {
                node: *node,
                port: *port,
                source: *source,
                channel: security.as_mut().and_then(|security| security.channel(now, edge, node.0)),
                authentic_at: now,
                detector: Session::new(config, discriminator, seed),
                is_up: false,
                since: None,
                address: None,
                state: NodeState::default(),
                received_at: None,
                heartbeats_lost: 0,
                sent: None,
                forwards: false,
                has_carrier: true,
            }
        };
        let links: Vec<NodeLink> = nodes.iter().map(&mut link).collect();
        Ok(Self { edge, security, reported: alloc::vec![0; links.len()], links, updates: VecDeque::new() })
    }

    /// A frame that arrived on a port, of the type [`PATH_ETHER_TYPE`](crate::forwarding::PATH_ETHER_TYPE). False: it is not for an
    /// edge, but between nodes.
    ///
    /// # Errors
    /// Why it was not taken; nothing has changed.
    pub fn handle_frame(&mut self, now: Instant, port: PortId, frame: &[u8]) -> Result<bool, LinkError> {
        let link = self.links.iter_mut().find(|link| link.port == port).ok_or(LinkError::FromHost)?;
        let (header, datagram) = PathHeader::read(frame).map_err(LinkError::Frame)?;
        match header.kind {
            PathFrameKind::ToEdge => {}
            PathFrameKind::FromEdge => return Err(LinkError::FromEdge),
            PathFrameKind::Replication | PathFrameKind::Detection | PathFrameKind::OfWorker => return Ok(false),
        }
        if header.to != self.edge {
            return Err(LinkError::OtherReceiver);
        }
        if header.from != link.node.0 {
            return Err(LinkError::OtherNode { expected: link.node, from: NodeId(header.from) });
        }
        let source = EthernetView::new_checked(frame).map_err(LinkError::Frame)?.source();
        if link.handle(now, source, datagram)? {
            if link.address != Some(source) {
                link.address = Some(source);
                self.updates.push_back(NodeUpdate::LinkAddress { node: link.node, address: source });
            }
            self.update(now);
        }
        Ok(true)
    }

    /// A port of this edge has carrier, or has none: a node without is as good as dead at once.
    pub fn set_carrier(&mut self, now: Instant, port: PortId, has_carrier: bool) {
        self.links.iter_mut().filter(|link| link.port == port).for_each(|link| link.has_carrier = has_carrier);
        self.update(now);
    }

    /// The edge was not served for `gap` until `now`: the nodes' silence meanwhile counts for nothing.
    pub fn handle_absence(&mut self, now: Instant, gap: Duration) {
        self.links.iter_mut().for_each(|link| link.detector.handle_absence(now, gap));
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for link in &mut self.links {
            if link.renewed_at().is_some_and(|at| at <= now) {
                let new = self.security.as_mut().and_then(|security| security.channel(now, self.edge, link.node.0));
                (link.channel, link.authentic_at) = (new, now);
            }
            link.channel.iter_mut().for_each(|channel| channel.handle_timeout(now));
            link.detector.handle_timeout(now);
        }
        self.update(now);
    }

    /// When there is something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = self.state();
        let is_outdated = self.links.iter().any(|link| link.is_up && link.can_send() && link.sent != Some(state));
        let heartbeat = |link: &NodeLink| {
            let interval = link.detector.receive_interval();
            let received_at = link.received_at.filter(|_| link.is_up && !interval.is_zero())?;
            Some(received_at + interval * (link.heartbeats_lost + 1) + interval / 4)
        };
        let detectors = self.links.iter().filter_map(NodeLink::detector_due);
        let handshakes = self.links.iter().filter_map(|link| link.channel.as_ref()?.poll_timeout());
        let channels = handshakes.chain(self.links.iter().filter_map(NodeLink::renewed_at));
        let outdated = is_outdated.then_some(Instant::ZERO);
        detectors.chain(channels).chain(self.links.iter().filter_map(heartbeat)).chain(outdated).min()
    }

    /// What nodes receive of this edge.
    fn state(&self) -> EdgeState {
        EdgeState { stopped: stopped(&self.links) }
    }

    /// Writes the next frame to a node over `out`, and returns its port.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PortId> {
        let (state, mut packet, mut datagram) = (self.state(), Vec::new(), Vec::new());
        for link in &mut self.links {
            if !link.poll_transmit(now, state, &mut packet, &mut datagram) {
                continue;
            }
            let (from, to) = (self.edge, link.node.0);
            let header = PathHeader { kind: PathFrameKind::FromEdge, from, to, path: PathId::OF_EDGES };
            header.write(link.source, &datagram, out)?;
            return Some(link.port);
        }
        None
    }

    /// What happened next.
    pub fn poll_update(&mut self) -> Option<NodeUpdate> {
        self.updates.pop_front()
    }

    /// How the links stand, in the order of the nodes as given.
    pub fn status(&self) -> impl Iterator<Item = NodeLinkStatus> + '_ {
        self.links.iter().map(|link| NodeLinkStatus {
            node: link.node,
            state: link.detector.status().state,
            since: link.since,
            address: link.address,
            serves: link.state,
        })
    }

    /// Makes updates of what has changed. Each call makes few, and the owner polls after each.
    fn update(&mut self, now: Instant) {
        for link in &mut self.links {
            while let Some(event) = link.detector.poll_event() {
                link.is_up = event == crate::failure_detector::Event::Up;
                link.since = Some(now);
            }
            let missed = link.missed(now);
            if link.is_up && missed != link.heartbeats_lost {
                link.heartbeats_lost = missed;
                self.updates.push_back(NodeUpdate::HeartbeatsLost { node: link.node, count: missed });
            }
            let forwards = link.is_up && link.has_carrier && link.state.forwards;
            if forwards != link.forwards {
                link.forwards = forwards;
                let node = link.node;
                self.updates.push_back(if forwards { NodeUpdate::Forwards(node) } else { NodeUpdate::Stopped(node) });
            }
        }
        self.report_service();
    }

    /// Reports nodes that serve the connections of all that stopped, once for each node that stopped.
    fn report_service(&mut self) {
        let stopped = stopped(&self.links);
        for (link, reported) in self.links.iter().zip(&mut self.reported) {
            *reported &= stopped;
            let serves_all = link.forwards && stopped & !link.state.serves == 0;
            if serves_all && *reported != stopped {
                *reported = stopped;
                self.updates.push_back(NodeUpdate::Serves(link.node));
            }
        }
    }
}

/// The nodes that do not forward packets; bit n stands for node n.
fn stopped(links: &[NodeLink]) -> u64 {
    let bit = |node: NodeId| 1_u64.checked_shl(node.0.into()).unwrap_or(0);
    links.iter().filter(|link| !link.forwards).fold(0, |nodes, link| nodes | bit(link.node))
}
