//! The edge's end: which nodes are alive, and whose connections they serve.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::random;
use flow::wire::MacAddress;
use flow::wire::ethernet::EthernetView;
use flow::{DropReason, Instant, NodeId, PortId};

use super::{EdgeState, NodeState};
use crate::failure_detector::{BfdError, Config, ConfigError, Session, State, TIME_TO_LIVE};
use crate::forwarding::{PathFrameKind, PathHeader, PathId};

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
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
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

/// The links of an edge to its nodes.
pub struct NodeLinks {
    edge: u8,
    links: Vec<NodeLink>,
    updates: VecDeque<NodeUpdate>,
    /// For each link: it serves the connections of these failed nodes, which has been reported.
    reported: Vec<u64>,
}

impl NodeLinks {
    /// Links to these nodes: their numbers below [`NODES_MAX`](super::NODES_MAX), this edge's ports, and the link addresses of the
    /// ports.
    ///
    /// # Errors
    /// The configuration of failure detection cannot be used.
    pub fn new(
        edge: u8,
        nodes: &[(NodeId, PortId, MacAddress)],
        config: Config,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let link = |(node, port, source): &(NodeId, PortId, MacAddress)| {
            let seed = random::mix(seed ^ u64::from(node.0));
            let discriminator = (seed >> 32) as u32 & !0xff | u32::from(node.0) | 0x100;
            NodeLink {
                node: *node,
                port: *port,
                source: *source,
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
        let links: Vec<NodeLink> = nodes.iter().map(link).collect();
        Ok(Self { edge, reported: alloc::vec![0; links.len()], links, updates: VecDeque::new() })
    }

    /// A frame that arrived on a port, of the type [`PATH_ETHER_TYPE`](crate::forwarding::PATH_ETHER_TYPE). False: it is not for an
    /// edge, but between nodes.
    ///
    /// # Errors
    /// Why it was not taken; nothing has changed.
    pub fn handle_frame(&mut self, now: Instant, port: PortId, frame: &[u8]) -> Result<bool, LinkError> {
        let (header, datagram) = PathHeader::read(frame).map_err(LinkError::Frame)?;
        if header.kind != PathFrameKind::ToEdge {
            return Ok(false);
        }
        let link = self.links.iter_mut().find(|link| link.port == port && header.to == self.edge);
        let link = link.ok_or(LinkError::OtherReceiver)?;
        if header.from != link.node.0 {
            return Err(LinkError::OtherNode { expected: link.node, from: NodeId(header.from) });
        }
        let (state, packet) = NodeState::decode(datagram).ok_or(LinkError::Frame(DropReason::Truncated))?;
        if !packet.is_empty() {
            link.detector.handle_packet(now, packet, TIME_TO_LIVE)?;
        }
        link.state = state;
        link.received_at = Some(now);
        let source = EthernetView::new_checked(frame).map(|link| link.source()).ok();
        if let Some(address) = source.filter(|address| link.address != Some(*address)) {
            link.address = Some(address);
            self.updates.push_back(NodeUpdate::LinkAddress { node: link.node, address });
        }
        self.update(now);
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
        self.links.iter_mut().for_each(|link| link.detector.handle_timeout(now));
        self.update(now);
    }

    /// When there is something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = self.state();
        let is_outdated = self.links.iter().any(|link| link.is_up && link.sent != Some(state));
        let heartbeat = |link: &NodeLink| {
            let interval = link.detector.receive_interval();
            let received_at = link.received_at.filter(|_| link.is_up && !interval.is_zero())?;
            Some(received_at + interval * (link.heartbeats_lost + 1) + interval / 4)
        };
        let detectors = self.links.iter().filter_map(|link| link.detector.poll_timeout());
        let outdated = is_outdated.then_some(Instant::ZERO);
        detectors.chain(self.links.iter().filter_map(heartbeat)).chain(outdated).min()
    }

    /// What nodes receive of this edge.
    fn state(&self) -> EdgeState {
        EdgeState { stopped: stopped(&self.links) }
    }

    /// Writes the next frame to a node over `out`, and returns its port.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PortId> {
        let (state, mut packet, mut datagram) = (self.state(), Vec::new(), Vec::new());
        for link in &mut self.links {
            let has_packet = link.detector.poll_transmit(now, &mut packet);
            if !has_packet && (!link.is_up || link.sent == Some(state)) {
                continue;
            }
            link.sent = Some(state);
            state.encode(&mut datagram);
            if has_packet {
                datagram.extend_from_slice(&packet);
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
