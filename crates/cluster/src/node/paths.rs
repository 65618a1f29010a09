//! Failure detection over every path there is: the replication path, and the link of each service port.
//!
//! Each path has a BFD session of its own. A peer is up while any path is, and down once all are: a cut replication link alone makes
//! nobody take over. Heartbeats travel over all paths, so that roles stay coordinated, and handshakes of the secure channel as
//! long as the replication path is not up. What travels over a service path is what the replication port would carry, encrypted
//! by the same channel; a packet of failure detection is followed by its path's number, so that nobody can move it to another.
//!
//! A path that never came up counts for nothing: the peer is of a release without service paths, or has no such port.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::random;
use flow::{Instant, NodeId, PortId};
use replication::secure::Content;

use super::peer::Peer;
use super::{Node, NodeError, NodeEvent};
use crate::failure_detector::{
    self, CONTROL_PACKET_BYTES, ConfigError, Diagnostic, Event, Session, State, TIME_TO_LIVE,
};
use crate::forwarding::{OutFrame, PathFrame, PathFrameKind, PathId};
use crate::role::{self, Heartbeats};

/// A peer that receives nothing sends its detection packets once a second (RFC 5880 section 6.8.3), but its heartbeats and
/// messages as before: one that is younger than so many tenths of the detection time shows that it lives. Those of a dead peer
/// are about as old as the detection time. They are younger only if three detection packets, a tenth apart, were lost before
/// its death; its addresses are then taken over when its last heartbeat has expired.
const FRESH_TENTHS: u32 = 7;
/// How long the replication path alone must be down before that is reported: when a peer dies, all paths fall silent, but not in
/// the same millisecond.
const DEGRADED_AFTER: Duration = Duration::from_millis(200);
/// Datagrams of handshakes that wait to be sent over service paths; the oldest gives way.
const HANDSHAKES_MAX: usize = 8;

/// A way between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// That of replication.
    Replication,
    /// The link of a service port.
    Port(PortId),
}

/// How a path stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathStatus {
    /// The path.
    pub path: Path,
    /// The state of its BFD session.
    pub state: State,
    /// Since when it is up, or down; `None`: it was never up.
    pub since: Option<Instant>,
}

/// The path by way of a service port.
struct ServicePath {
    port: PortId,
    id: PathId,
    detector: Session,
    is_up: bool,
    changed_at: Option<Instant>,
    /// A heartbeat that waits to be sent.
    heartbeats: Option<Heartbeats>,
}

/// How the paths to a peer stand, and the sessions of those by way of service ports.
#[derive(Default)]
pub(super) struct Paths {
    service: Vec<ServicePath>,
    /// As the events of the replication path's detector say, and since when.
    is_replication_up: bool,
    replication_changed_at: Option<Instant>,
    /// When the peer counts as reachable by service paths alone, unless that changes before.
    degraded_at: Option<Instant>,
    is_degraded: bool,
    /// Datagrams of the secure channel's handshakes, for a service path.
    handshakes: VecDeque<Vec<u8>>,
    /// The place of the path that takes the next of them.
    next: usize,
}

impl Paths {
    pub(super) fn is_service_up(&self) -> bool {
        self.service.iter().any(|path| path.is_up)
    }

    fn is_any_up(&self) -> bool {
        self.is_replication_up || self.is_service_up()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.service.iter_mut().for_each(|path| path.detector.handle_timeout(now));
    }

    pub(super) fn handle_absence(&mut self, now: Instant, absence: Duration) {
        self.service.iter_mut().for_each(|path| path.detector.handle_absence(now, absence));
    }

    pub(super) fn set_config(&mut self, now: Instant, config: failure_detector::Config) -> Result<(), ConfigError> {
        self.service.iter_mut().try_for_each(|path| path.detector.set_config(now, config))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let has_frames = !self.handshakes.is_empty() || self.service.iter().any(|path| path.heartbeats.is_some());
        let waiting = has_frames.then_some(Instant::ZERO);
        let detectors = self.service.iter().filter_map(|path| path.detector.poll_timeout());
        detectors.chain(waiting).chain(self.degraded_at).min()
    }

    /// A heartbeat goes over each path that was up at some time: a path that only one side receives on carries it too.
    pub(super) fn set_heartbeats(&mut self, heartbeats: &Heartbeats) {
        for path in self.service.iter_mut().filter(|path| path.changed_at.is_some()) {
            path.heartbeats = Some(heartbeats.clone());
        }
    }

    /// A datagram of a handshake goes over the replication path; while that is not up, over a service path as well.
    pub(super) fn keep_handshake(&mut self, datagram: &[u8]) {
        if self.service.is_empty() || self.is_replication_up {
            return;
        }
        if self.handshakes.len() >= HANDSHAKES_MAX {
            self.handshakes.pop_front();
        }
        self.handshakes.push_back(datagram.to_vec());
    }

    /// The port that the next handshake's datagram goes by: those that are up take turns, or all if none is.
    fn next_port(&mut self) -> Option<PortId> {
        let is_service_up = self.is_service_up();
        let count = self.service.len();
        let mut places = (0..count).map(|offset| (self.next + offset) % count);
        let place = places.find(|place| self.service[*place].is_up || !is_service_up)?;
        self.next = place + 1;
        Some(self.service[place].port)
    }

    /// Takes note of a detector's event. Whether the peer was up before, and is now.
    fn note(&mut self, now: Instant, path: Path, event: Event) -> (bool, bool) {
        let was_up = self.is_any_up();
        let is_up = event == Event::Up;
        match path {
            Path::Replication => (self.is_replication_up, self.replication_changed_at) = (is_up, Some(now)),
            Path::Port(port) => {
                for path in self.service.iter_mut().filter(|path| path.port == port) {
                    (path.is_up, path.changed_at) = (is_up, Some(now));
                }
            }
        }
        if self.is_replication_up || !self.is_service_up() {
            (self.degraded_at, self.is_degraded) = (None, false);
        } else if !self.is_degraded {
            self.degraded_at = self.degraded_at.or(Some(now + DEGRADED_AFTER));
        }
        (was_up, self.is_any_up())
    }
}

impl Peer {
    /// The next event of a path's detector.
    pub(super) fn poll_path_event(&mut self) -> Option<(Path, Event)> {
        if let Some(event) = self.detector.poll_event() {
            return Some((Path::Replication, event));
        }
        let mut service = self.paths.service.iter_mut();
        service.find_map(|path| Some((Path::Port(path.port), path.detector.poll_event()?)))
    }

    /// The longest time for which the peer may be silent on a path.
    fn detection_time(&self) -> Duration {
        let service = self.paths.service.iter().map(|path| path.detector.status().detection_time);
        service.fold(self.detector.status().detection_time, Duration::max)
    }
}

/// How all paths to a peer stand, that of replication first.
pub(super) fn statuses(peer: &Peer) -> Vec<PathStatus> {
    let paths = &peer.paths;
    let replication = PathStatus {
        path: Path::Replication,
        state: peer.detector.status().state,
        since: paths.replication_changed_at,
    };
    let service = paths.service.iter().map(|path| PathStatus {
        path: Path::Port(path.port),
        state: path.detector.status().state,
        since: path.changed_at,
    });
    core::iter::once(replication).chain(service).collect()
}

impl Node {
    /// Has failures detected also over the links of these ports, each named as the same link's port is on the peers. The lead
    /// alone does; paths that there are already go on. `config` is for the sessions of new ones.
    ///
    /// # Errors
    /// The configuration of the sessions cannot be used.
    pub fn set_service_paths(
        &mut self,
        ports: &[(PortId, PathId)],
        config: failure_detector::Config,
        seed: u64,
    ) -> Result<(), ConfigError> {
        config.check()?;
        if !self.place().leads() {
            return Ok(());
        }
        self.forwarder.set_paths(self.id, ports.to_vec());
        for peer in &mut self.replication.peers {
            peer.paths.service.retain(|path| ports.contains(&(path.port, path.id)));
            for (port, id) in ports {
                if peer.paths.service.iter().any(|path| path.port == *port) {
                    continue;
                }
                let seed = random::mix(seed ^ (u64::from(id.0) << 8) ^ u64::from(peer.id.0));
                // RFC 5880 section 6.8.1: unique among this system's sessions and not 0; random besides.
                let discriminator = (seed >> 32) as u32 & !0x1ff | u32::from(port.0) | 0x200;
                peer.paths.service.push(ServicePath {
                    port: *port,
                    id: *id,
                    detector: Session::new(config, discriminator, seed),
                    is_up: false,
                    changed_at: None,
                    heartbeats: None,
                });
            }
        }
        Ok(())
    }

    /// Handles an event of a path's detector. Whether the peer is lost by it.
    pub(super) fn note_path_event(&mut self, now: Instant, index: usize, path: Path, event: Event) -> bool {
        let id = self.replication.peers[index].id;
        if event == Event::Up && !self.replication.peers[index].paths.is_any_up() {
            self.remember_suspicion(index);
        }
        let peer = &mut self.replication.peers[index];
        let (was_up, is_up) = peer.paths.note(now, path, event);
        if !peer.paths.service.is_empty() {
            let event = if event == Event::Up {
                NodeEvent::PathUp { peer: id, path }
            } else {
                NodeEvent::PathDown { peer: id, path }
            };
            self.events.push(now, event);
        }
        let told = match (was_up, is_up, event) {
            (false, true, _) => {
                peer.orphaned_at = None;
                self.events.push(now, NodeEvent::PeerUp(id));
                self.roles.handle_peer_up(now, id)
            }
            (true, false, Event::Down { diagnostic }) => {
                peer.orphaned_at = Some(now);
                self.events.push(now, NodeEvent::PeerDown(id));
                self.passive.note_lost_peer(now);
                let fresh = peer.detection_time() * FRESH_TENTHS / 10;
                let is_heard = self.roles.was_heard_within(now, id, fresh) || peer.replicated_within(now, fresh);
                if is_heard || diagnostic == Diagnostic::NeighbourSignalledDown {
                    self.roles.handle_peer_deaf(now, id)
                } else {
                    self.roles.handle_peer_down(now, id)
                }
            }
            _ => Ok(()),
        };
        debug_assert!(told.is_ok(), "the role automaton is built with the same peers");
        was_up && !is_up
    }

    /// Reports peers that are up on service paths alone.
    pub(super) fn report_degraded(&mut self, now: Instant) {
        for peer in &mut self.replication.peers {
            if peer.paths.degraded_at.is_some_and(|at| at <= now) {
                (peer.paths.degraded_at, peer.paths.is_degraded) = (None, true);
                self.events.push(now, NodeEvent::Degraded(peer.id));
            }
        }
    }

    /// Takes what peers sent over service paths.
    pub(super) fn take_path_frames(&mut self, now: Instant) {
        while let Some(frame) = self.forwarder.poll_path_frame() {
            let result = self.handle_path_frame(now, &frame);
            if result.is_err() {
                self.pipeline.count_drop(flow::DropReason::LocalUnhandled);
            }
        }
    }

    fn handle_path_frame(&mut self, now: Instant, frame: &PathFrame) -> Result<(), NodeError> {
        let from = frame.from;
        let peer = self.replication.peers.find(from)?;
        let Some(channel) = &mut peer.channel else {
            return match frame.kind {
                PathFrameKind::Detection => self.handle_path_detection(now, frame, &frame.datagram),
                PathFrameKind::Replication => self.handle_path_heartbeat(now, from, &frame.datagram),
            };
        };
        if frame.kind == PathFrameKind::Detection {
            return Err(channel.refuse_plain_text().into());
        }
        let mut content = core::mem::take(&mut self.plain.incoming);
        let result = match channel.handle_datagram(now, &frame.datagram, &mut content) {
            Ok(Some(Content::Replication)) => self.handle_path_heartbeat(now, from, &content),
            Ok(Some(Content::Detection)) => self.handle_path_detection(now, frame, &content),
            Ok(Some(Content::Nothing) | None) => Ok(()),
            // Counted.
            Err(error) if error.is_routine() => Ok(()),
            Err(error) => Err(error.into()),
        };
        self.plain.incoming = content;
        self.handle_channel_events(now);
        result
    }

    fn handle_path_heartbeat(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        if role::is_heartbeat(datagram) {
            self.handle_plain_replication(now, from, datagram)
        } else {
            Err(NodeError::NotOnServicePath)
        }
    }

    /// A packet of failure detection, followed by the number of its path.
    fn handle_path_detection(&mut self, now: Instant, frame: &PathFrame, content: &[u8]) -> Result<(), NodeError> {
        self.note_service(now);
        let (packet, of_path) = content.split_at_checked(CONTROL_PACKET_BYTES).ok_or(NodeError::OtherPath)?;
        let peer = self.replication.peers.get_mut(frame.from);
        let mut paths = peer.into_iter().flat_map(|peer| &mut peer.paths.service);
        let path = paths.find(|path| path.port == frame.port && of_path == path.id.0.to_be_bytes());
        let result = path.ok_or(NodeError::OtherPath)?.detector.handle_packet(now, packet, TIME_TO_LIVE);
        self.handle_detector_events(now);
        Ok(result?)
    }

    /// The next frame for a peer over a service path: handshakes first, without which there is nothing else.
    pub(super) fn poll_path_frame(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<OutFrame> {
        for index in 0..self.replication.peers.len() {
            while let Some((port, kind, datagram)) = self.next_path_datagram(now, index) {
                let to = self.replication.peers[index].id;
                if self.forwarder.write_path_frame(port, to, kind, &datagram, buffer).is_some() {
                    return Some(OutFrame::of_own(port));
                }
            }
        }
        None
    }

    /// The next datagram for the peer over a service path, as it is to be sent.
    fn next_path_datagram(&mut self, now: Instant, index: usize) -> Option<(PortId, PathFrameKind, Vec<u8>)> {
        let peer = &mut self.replication.peers[index];
        if let Some(datagram) = peer.paths.handshakes.pop_front() {
            return Some((peer.paths.next_port()?, PathFrameKind::Replication, datagram));
        }
        if !peer.can_be_told() {
            return None;
        }
        let (port, kind, content) = self.next_path_content(now, index)?;
        let Some(channel) = &mut self.replication.peers[index].channel else { return Some((port, kind, content)) };
        let of = if kind == PathFrameKind::Detection { Content::Detection } else { Content::Replication };
        let (mut content, mut datagram) = (content, Vec::new());
        // Where the keys have been used too often it is lost, as the network may lose it.
        channel.seal(now, of, &mut content, &mut datagram).then_some((port, PathFrameKind::Replication, datagram))
    }

    fn next_path_content(&mut self, now: Instant, index: usize) -> Option<(PortId, PathFrameKind, Vec<u8>)> {
        let mut content = Vec::new();
        for path in &mut self.replication.peers[index].paths.service {
            if path.detector.poll_transmit(now, &mut content) {
                content.extend_from_slice(&path.id.0.to_be_bytes());
                return Some((path.port, PathFrameKind::Detection, content));
            }
        }
        let mut service = self.replication.peers[index].paths.service.iter_mut();
        let (port, heartbeats) = service.find_map(|path| Some((path.port, path.heartbeats.take()?)))?;
        self.encode_heartbeats(&heartbeats, &mut content);
        Some((port, PathFrameKind::Replication, content))
    }
}
