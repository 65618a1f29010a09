//! What peers send, by the replication port, by the failure-detection port and over service paths, and what is sent to them.
//!
//! Where a peer has a channel, all that it is sent travels in it, and nothing that comes past it is taken: neither replication nor
//! heartbeats, nor failure detection, by which a stranger could make a dead node look alive.

use alloc::vec::Vec;

use flow::wire::MacAddress;
use flow::{DropReason, Instant, NodeId};
use network_functions::shared_values::{self, SharedValues, is_shared_values};
use replication::compact::is_compact;
use replication::secure::{ChannelError, Content, is_channel};
use state_service::message::{self, is_state_service};
use tunnel::mirror::is_mirror;

use super::Node;
use super::error::NodeError;
use super::event::Path;
use super::outbox::Transmit;
use crate::failure_detector::{CONTROL_PACKET_BYTES, TIME_TO_LIVE};
use crate::forwarding::{PathFrame, PathFrameKind};
use crate::role::{Capabilities, Division, Heartbeats, State, is_heartbeat};

/// How a datagram came.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    path: Path,
    /// Of a service path: the link address that it came from.
    link_address: Option<MacAddress>,
}

impl Arrival {
    const REPLICATION: Self = Self { path: Path::Replication, link_address: None };
}

/// Datagrams in.
impl Node {
    /// A datagram on the replication port.
    ///
    /// # Errors
    /// Why it was not taken; the node goes on.
    pub fn handle_replication(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        let result = self.handle_datagram(now, Arrival::REPLICATION, from, datagram);
        result.inspect_err(|error| self.note_rejected(now, from, error))
    }

    /// A packet on the failure-detection port, with the time to live that it arrived with.
    ///
    /// # Errors
    /// Why it was not taken; the node goes on.
    pub fn handle_detection(&mut self, now: Instant, from: NodeId, packet: &[u8], ttl: u8) -> Result<(), NodeError> {
        let peer = self.replication.peers.get_mut(from);
        if let Some(channel) = peer.and_then(|peer| peer.channel.as_mut()) {
            let error = channel.refuse_plain_text().into();
            self.note_rejected(now, from, &error);
            return Err(error);
        }
        self.handle_packet(now, Path::Replication, from, packet, Some(ttl))
    }

    /// Takes what peers and edges sent over the links of service ports.
    pub(super) fn take_path_frames(&mut self, now: Instant) {
        while let Some(frame) = self.forwarder.poll_path_frame() {
            if frame.kind == PathFrameKind::FromEdge {
                self.handle_edge_frame(now, &frame);
            } else if let Err(error) = self.handle_path_frame(now, &frame) {
                let reason = match error {
                    NodeError::Channel(_)
                    | NodeError::NotSecured
                    | NodeError::OtherLinkAddress
                    | NodeError::Detection(_) => DropReason::ControlUnauthenticated,
                    _ => DropReason::LocalUnhandled,
                };
                self.pipeline.count_drop(reason);
            }
        }
    }

    fn handle_path_frame(&mut self, now: Instant, frame: &PathFrame) -> Result<(), NodeError> {
        let PathFrame { port, from, kind, datagram, link_address } = frame;
        let path = Path::Port(*port);
        let arrival = Arrival { path, link_address: Some(*link_address) };
        match (&mut self.replication.peers.find(*from)?.channel, kind) {
            (Some(channel), PathFrameKind::Detection) => Err(channel.refuse_plain_text().into()),
            (None, PathFrameKind::Detection) => {
                self.handle_packet(now, path, *from, datagram, Some(TIME_TO_LIVE))?;
                self.note_link_address(*from, arrival);
                Ok(())
            }
            (_, PathFrameKind::Replication) => self.handle_datagram(now, arrival, *from, datagram),
            (_, PathFrameKind::OfWorker) => match datagram.split_first() {
                Some((worker, datagram)) if *worker == self.place().worker.0 => {
                    self.handle_datagram(now, arrival, *from, datagram)
                }
                _ => Err(NodeError::NotOnServicePath),
            },
            // Not among peers.
            (_, PathFrameKind::FromEdge | PathFrameKind::ToEdge) => Ok(()),
        }
    }

    /// A frame was found to be the peer's own: frames to the peer go where it came from.
    fn note_link_address(&mut self, from: NodeId, Arrival { path, link_address }: Arrival) {
        if let (Path::Port(port), Some(link_address)) = (path, link_address)
            && let Some(peer) = self.replication.peers.get_mut(from)
        {
            peer.paths.note_link_address(port, link_address);
        }
    }

    /// The peer is up on the service path, and its packets of failure detection came from another link address.
    fn is_elsewhere(&self, from: NodeId, path: Path, address: MacAddress) -> bool {
        let Path::Port(port) = path else { return false };
        let known = self.replication.peers.get(from).and_then(|peer| peer.paths.link_address(port));
        known.is_some_and(|known| known != address)
    }

    /// A datagram as it came by the path: decrypted, if the peer has a channel.
    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: Arrival,
        from: NodeId,
        datagram: &[u8],
    ) -> Result<(), NodeError> {
        let path = arrival.path;
        let peer = self.replication.peers.get_mut(from);
        let Some(channel) = peer.and_then(|peer| peer.channel.as_mut()) else {
            let is_encrypted = is_channel(datagram);
            return match arrival.link_address {
                _ if is_encrypted => Err(NodeError::NotSecured),
                Some(address) if self.is_elsewhere(from, path, address) => Err(NodeError::OtherLinkAddress),
                _ => self.handle_plain(now, path, from, datagram),
            };
        };
        let mut content = core::mem::take(&mut self.decrypted);
        let opened = channel.handle_datagram(now, datagram, &mut content);
        let is_authentic = matches!(opened, Ok(Some(Content::Replication | Content::Detection)));
        let result = match (opened, path) {
            (Ok(Some(Content::Replication)), _) => self.handle_plain(now, path, from, &content),
            // It crossed no router, or it could not have been made: what the time to live shows, the keys show.
            // One of a service path names its path.
            (Ok(Some(Content::Detection)), Path::Replication) if content.len() != CONTROL_PACKET_BYTES => {
                Err(NodeError::OtherPath)
            }
            (Ok(Some(Content::Detection)), _) => self.handle_packet(now, path, from, &content, None),
            (Ok(Some(Content::Nothing) | None), _) => Ok(()),
            // Counted.
            (Err(error), _) if error.is_routine() => {
                if error == ChannelError::UnknownSession && path == Path::Replication {
                    self.note_rejected(now, from, &error.into());
                }
                Ok(())
            }
            (Err(error), _) => Err(error.into()),
        };
        self.decrypted = content;
        if is_authentic {
            self.note_link_address(from, arrival);
        }
        self.replication.peers.report_channel_events(now, &mut self.events);
        result
    }

    /// Replication or heartbeats, as the peer wrote them. A service path carries heartbeats, and updates that were encrypted.
    fn handle_plain(&mut self, now: Instant, path: Path, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        let is_heartbeat = is_heartbeat(datagram);
        let is_secured = || self.replication.peers.get(from).is_some_and(|peer| peer.channel.is_some());
        let is_update = || !is_mirror(datagram) && !is_state_service(datagram) && !is_shared_values(datagram);
        if !is_heartbeat && path != Path::Replication && !(is_secured() && is_update()) {
            return Err(NodeError::NotOnServicePath);
        }
        self.service_gap.note_service(now, &mut self.roles, &mut self.replication.peers);
        if is_heartbeat {
            return self.handle_heartbeats(now, from, datagram);
        }
        if is_compact(datagram) {
            let forwards = self.roles.forwards_any();
            let result = self.replication.handle_compact(now, &mut self.pipeline, forwards, from, datagram);
            self.handle_session_events(now);
            self.events.extend(now, result?);
            return Ok(());
        }
        if is_mirror(datagram) {
            self.replication.peers.place(from)?;
            let tunnel = self.tunnel.as_mut().ok_or(NodeError::NoTunnel(from))?;
            return tunnel.handle_mirror(now, from, datagram);
        }
        if is_shared_values(datagram) {
            self.replication.peers.place(from)?;
            let values = self.pipeline.chain().shared_values().ok_or(NodeError::NoSharedValues(from))?;
            return Ok(values.handle(now, from, datagram)?);
        }
        if is_state_service(datagram) {
            self.replication.peers.place(from)?;
            if !self.pipeline.has_state_service() {
                return Err(NodeError::NoStateService(from));
            }
            let result = self.pipeline.handle_state_message(now, from, datagram);
            self.reinject_waiting(now);
            self.replication.replicate_changes(now, &mut self.pipeline);
            return Ok(result?);
        }
        let claims_all = self.claims_all();
        let result = self.replication.handle_datagram(now, &mut self.pipeline, claims_all, from, datagram);
        self.handle_session_events(now);
        self.reinject_replies(now);
        self.reinject_waiting(now);
        self.replication.replicate_changes(now, &mut self.pipeline);
        result
    }

    /// What this node announces to its peers.
    pub(super) fn capabilities(&self) -> Capabilities {
        let state_service = self.pipeline.has_state_service().then_some(message::VERSION);
        let shared_values = self.shared_values().map(|values| (shared_values::VERSION, values.run()));
        Capabilities { division: Division::of(self.place().steering), state_service, slow_paths: true, shared_values }
    }

    /// What a function shares with those of other nodes. The workers of a node have it in common: the first one sends it.
    fn shared_values(&self) -> Option<&dyn SharedValues> {
        self.pipeline.chain().shared_values().filter(|_| self.place().worker.0 == 0)
    }

    /// The next datagram with shared values, for one of the peers that read them.
    fn poll_shared_values(&self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        let values = self.shared_values()?;
        let readers = self.replication.peers.iter().filter(|peer| peer.is_up() && peer.takes_updates());
        let mut readers = readers.filter_map(|peer| Some((peer.id, peer.shared_values_run?)));
        readers.find(|reader| values.poll(now, *reader, buffer)).map(|(id, _)| id)
    }

    /// Connections are looked up at the peers that are alive and have announced a state service.
    pub(super) fn follow_state_peers(&mut self, now: Instant) {
        if self.pipeline.has_state_service() {
            let peers = self.replication.peers.iter().filter(|peer| peer.looks_up()).map(|peer| peer.id).collect();
            self.pipeline.set_state_peers(now, peers);
        }
    }

    fn handle_heartbeats(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        let heartbeats = Heartbeats::decode(datagram)?;
        if heartbeats.first.node != from {
            return Err(NodeError::NotItsOwn { peer: from, named: heartbeats.first.node });
        }
        if !self.roles.admits(now, &heartbeats) {
            return Ok(());
        }
        if self.passive.handle_heartbeats(now, &heartbeats, &self.roles) {
            self.update_passive(now);
        }
        let active_before = self.roles.active();
        self.note_replicated(now);
        self.roles.handle_heartbeats(now, &heartbeats).map_err(|unknown| NodeError::UnknownPeer(unknown.0))?;
        let (ours, theirs) = (self.capabilities(), Capabilities::decode(datagram));
        let (peers, events) = (&mut self.replication.peers, &mut self.events);
        peers.handle_heartbeats(now, active_before, &self.roles, &heartbeats, events);
        peers.note_capabilities(now, from, ours, theirs, events);
        self.follow_state_peers(now);
        self.handle_role_events(now);
        self.update_announcing(now);
        Ok(())
    }

    /// A packet of failure detection; one of a service path is followed by the number of its path. `ttl`: the time to live that it
    /// arrived with; `None`: it is authentic.
    fn handle_packet(
        &mut self,
        now: Instant,
        path: Path,
        from: NodeId,
        content: &[u8],
        ttl: Option<u8>,
    ) -> Result<(), NodeError> {
        self.service_gap.note_service(now, &mut self.roles, &mut self.replication.peers);
        let peer = self.replication.peers.find(from)?;
        let (detector, packet) = match path {
            Path::Replication => (&mut peer.detector, content),
            Path::Port(port) => peer.paths.addressee(port, content).ok_or(NodeError::OtherPath)?,
        };
        let result = match ttl {
            Some(ttl) => detector.handle_packet(now, packet, ttl),
            None => detector.handle_authentic_packet(now, packet),
        };
        self.handle_path_events(now);
        Ok(result?)
    }

    /// A peer's packet was refused.
    fn note_rejected(&mut self, now: Instant, from: NodeId, error: &NodeError) {
        if self.passive.note_rejected(now, from, error) {
            self.update_passive(now);
        }
    }
}

/// Datagrams out.
impl Node {
    /// The next datagram or frame to send, written over `buffer`; `None` when there is none at present.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_datagram(now, buffer).or_else(|| self.poll_frame(now, buffer))
    }

    /// As [`Node::poll_transmit`], only what goes to peers.
    pub fn poll_datagram(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(id) = self.replication.peers.poll_handshake(buffer) {
            return Some(Transmit::Replication(id));
        }
        while let Some(transmit) = self.poll_plain_datagram(now, buffer) {
            let sealed = self.replication.peers.seal(now, transmit, buffer);
            if sealed.is_some() {
                return sealed;
            }
        }
        None
    }

    /// The next datagram for a peer, not yet encrypted. Failure detection and heartbeats go first: they are few, and a peer
    /// must not take a node for dead, or act on its former role, because it has much to replicate.
    fn poll_plain_datagram(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        buffer.clear();
        if let Some(id) = self.replication.peers.poll_detection(now, buffer) {
            return Some(Transmit::Detection(id));
        }
        let ours = self.capabilities();
        // A peer that takes the addresses of a leaving node must have its latest updates first.
        let hands_over = self.roles.states().any(|state| state == State::Leaving);
        if !hands_over && let Some(id) = self.replication.peers.poll_heartbeats(now, &mut self.roles, ours, buffer) {
            return Some(Transmit::Replication(id));
        }
        let claims_all = self.claims_all();
        // A packet waits for these.
        let state_message = self.pipeline.poll_state_message(now, buffer);
        let id = state_message
            .or_else(|| self.replication.poll_transmit(now, &mut self.pipeline, claims_all, buffer))
            .or_else(|| self.replication.peers.poll_heartbeats(now, &mut self.roles, ours, buffer))
            .or_else(|| self.poll_shared_values(now, buffer))
            .or_else(|| self.tunnel.as_mut()?.poll_mirror(now, &self.replication.peers, buffer));
        id.map(Transmit::Replication)
    }
}
