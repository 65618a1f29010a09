//! What a node has for each of its peers.

use alloc::vec::Vec;
use core::time::Duration;

use flow::table::Slot;
use flow::{Instant, NodeId, NodeSet};
use replication::compact::CompactReceiver;
use replication::secure::{Channel, ChannelEvent, Content};
use replication::{Handle, Resync, Session, SessionEvent};

use super::event::{Events, NodeEvent, Path};
use super::paths::{Paths, ServiceRoute};
use super::replication_set::compact::Readvertised;
use super::split_brain::SplitWatch;
use super::status::PeerStatus;
use super::store::ReplicaCounters;
use crate::failure_detector::{self, Diagnostic, Event};
use crate::forwarding::PathFrameKind;
use crate::pipeline::{Pipeline, StaleReplicas};
use crate::role::{Capabilities, Division, Heartbeats, Roles};

/// A peer that receives nothing sends its detection packets once a second (RFC 5880 section 6.8.3), but its heartbeats and
/// messages as before: one that is younger than so many tenths of the detection time shows that it lives. Those of a dead peer
/// are about as old as the detection time. They are younger only if three detection packets, a tenth apart, were lost before
/// its death; its addresses are then taken over when its last heartbeat has expired.
const FRESH_TENTHS: u32 = 7;
/// A heartbeat of a peer that is up, older than this, is late: ten are sent in this time.
pub const HEARTBEAT_AGE_MAX: Duration = Duration::from_millis(500);

/// What was last known of a peer's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LastKnown {
    /// Nothing was received of it since the start.
    #[default]
    Nothing,
    /// It has left the choice of who holds the addresses, by its heartbeat.
    Left,
    /// Its heartbeat has another state.
    Present,
    /// It has been silent since then, and may forward.
    SilentSince(Instant),
}

/// A peer: its failure detector, the paths to it, the channel and the session with it, and its filters.
pub(super) struct Peer {
    pub(super) id: NodeId,
    pub(super) detector: failure_detector::Session,
    pub(super) session: Option<Session>,
    pub(super) resync: Resync,
    pub(super) replica: ReplicaCounters,
    /// The paths over service ports, and how all paths stand.
    pub(super) paths: Paths,
    /// Whether it may hold the same addresses as this node.
    pub(super) split: SplitWatch,
    /// Since when the peer is down, if it is.
    pub(super) orphaned_at: Option<Instant>,
    /// Heartbeats that wait to be sent to it.
    pub(super) heartbeats: Option<Heartbeats>,
    pub(super) is_replica_incomplete: bool,
    /// It has sent all its connections at some time, though it may have restarted since.
    pub(super) has_sent_all: bool,
    /// It has been up at some time since this node began.
    pub(super) has_been_up: bool,
    /// This worker runs its failure detector. The other workers follow it.
    pub(super) is_watched: bool,
    /// Whether it is up according to the lead worker, where it is not watched here.
    pub(super) is_up_by_lead: bool,
    /// It forwards packets of a group, as its heartbeats were last.
    pub(super) is_forwarding: bool,
    /// Since when it has left the choice of every group, as its heartbeats were last.
    pub(super) drained_at: Option<Instant>,
    /// How it divides its packets, if that is not how this node does: then nothing is replicated.
    pub(super) refused: Option<Division>,
    /// Whether its heartbeats announce a state service with messages of the same version; `None`: it has sent none yet.
    pub(super) has_state_service: Option<bool>,
    /// The run of the values that its functions share, as its heartbeats announce it, if this node reads the same version.
    pub(super) shared_values_run: Option<u64>,
    /// What was last known of its role.
    pub(super) last_known: LastKnown,
    /// Encrypts what is sent to it, and decrypts what it sends.
    pub(super) channel: Option<Channel>,
    /// Its filter.
    pub(super) compact: Option<CompactReceiver>,
    /// The filters that it re-advertises for nodes that are gone.
    pub(super) readvertised: Option<Readvertised>,
    /// When a compact datagram of it was received last.
    pub(super) compact_received_at: Option<Instant>,
}

impl Peer {
    /// Does what is due by `now` of the channel, the failure detectors and the session. Replicas that a full synchronisation
    /// has left over are removed, or claimed if this node claims all connections.
    pub(super) fn handle_timeout(&mut self, now: Instant, pipeline: &mut Pipeline, claims_all: bool) {
        self.channel.iter_mut().for_each(|channel| channel.handle_timeout(now));
        self.detector.handle_timeout(now);
        self.paths.handle_timeout(now, &self.detector);
        self.session.iter_mut().for_each(|session| session.handle_timeout(now));
        let claims = claims_all || self.resync.has_restarted();
        let (id, stale) = (self.id, if claims { StaleReplicas::Claim } else { StaleReplicas::Remove });
        let sweep = |epoch, cursor, slots| pipeline.replicas().sweep(now, id, epoch, stale, cursor, slots);
        if self.resync.step(sweep) {
            self.session.iter_mut().for_each(Session::request_resync);
        }
    }

    /// The peer may have started anew: what it does not send again it may never have known.
    pub(super) fn note_restart(&mut self) {
        self.resync = restarted(core::mem::take(&mut self.resync));
    }

    /// This node stood still: the peer's silence meanwhile counts for nothing.
    pub(super) fn handle_stall(&mut self, now: Instant, stall: Duration) {
        self.detector.handle_absence(now, stall);
        self.paths.handle_stall(now, stall);
    }

    /// Passes on what happened to the channel.
    pub(super) fn report_channel_events(&mut self, now: Instant, events: &mut Events) {
        while let Some(event) = self.channel.as_mut().and_then(Channel::poll_event) {
            let event = match event {
                ChannelEvent::Established => NodeEvent::ChannelSecured(self.id),
                ChannelEvent::KeysExchanged => NodeEvent::SessionKeysExchanged(self.id),
            };
            events.push(now, event);
        }
    }

    /// Passes on what happened to the session, also to `note`. Whether the peer was started anew.
    pub(super) fn report_session_events(
        &mut self,
        now: Instant,
        events: &mut Events,
        mut note: impl FnMut(SessionEvent),
    ) -> bool {
        let mut has_restarted = false;
        let Some(session) = &mut self.session else { return false };
        while let Some(event) = session.poll_event() {
            match event {
                SessionEvent::PeerSilent | SessionEvent::PeerLeft => self.resync.unsettle(),
                SessionEvent::PeerRestarted => self.resync = restarted(core::mem::take(&mut self.resync)),
                _ => {}
            }
            has_restarted |= event == SessionEvent::PeerRestarted;
            note(event);
            let event = match event {
                SessionEvent::PeerUp => NodeEvent::ReplicationUp(self.id),
                SessionEvent::PeerSilent | SessionEvent::PeerLeft => NodeEvent::ReplicationDown(self.id),
                SessionEvent::PeerRestarted => NodeEvent::PeerRestarted(self.id),
                SessionEvent::Renumbered => continue,
                SessionEvent::ResyncStarted => NodeEvent::ResyncStarted(self.id),
                SessionEvent::ResyncCompleted => NodeEvent::ResyncCompleted(self.id),
                SessionEvent::Synchronised => NodeEvent::Synchronised(self.id),
                SessionEvent::Diverged { connections } => NodeEvent::ReplicasDiffer { peer: self.id, connections },
                SessionEvent::Agreed { repaired } => NodeEvent::ReplicasAgree { peer: self.id, repaired },
            };
            events.push(now, event);
        }
        self.resync.note_agreed(session.agreed_at());
        if self.resync.lacks_room() && !self.is_replica_incomplete {
            events.push(now, NodeEvent::ReplicaIncomplete(self.id));
        }
        self.is_replica_incomplete = self.resync.lacks_room();
        has_restarted
    }

    /// The next event of a path's detector.
    pub(super) fn poll_path_event(&mut self) -> Option<(Path, Event)> {
        match self.detector.poll_event() {
            Some(event) => Some((Path::Replication, event)),
            None => self.paths.poll_event(),
        }
    }

    /// Handles an event of a path's detector. Whether the peer is lost by it.
    pub(super) fn handle_path_event(
        &mut self,
        now: Instant,
        path: Path,
        event: Event,
        roles: &mut Roles,
        events: &mut Events,
    ) -> bool {
        let peer = self.id;
        if event == Event::Up && !self.paths.is_any_up() {
            self.split.remember_suspicion(!roles.active().is_empty());
        }
        let (was_up, is_up) = self.paths.note(now, path, event);
        if self.paths.has_service() {
            let is_path_up = event == Event::Up;
            let event = if is_path_up { NodeEvent::PathUp { peer, path } } else { NodeEvent::PathDown { peer, path } };
            events.push(now, event);
        }
        let result = match (was_up, is_up, event) {
            (false, true, _) => {
                self.orphaned_at = None;
                events.push(now, NodeEvent::PeerUp(peer));
                roles.handle_peer_up(now, peer)
            }
            (true, false, Event::Down { diagnostic }) => {
                self.orphaned_at = Some(now);
                events.push(now, NodeEvent::PeerDown(peer));
                let detection_time = self.detector.status().detection_time.max(self.paths.detection_time());
                let fresh = detection_time * FRESH_TENTHS / 10;
                let is_alive = roles.was_received_within(now, peer, fresh) || self.replicated_within(now, fresh);
                if is_alive || diagnostic == Diagnostic::NeighbourSignalledDown {
                    roles.handle_peer_deaf(now, peer)
                } else {
                    roles.handle_peer_down(now, peer)
                }
            }
            _ => Ok(()),
        };
        debug_assert!(result.is_ok(), "the role automaton is built with the same peers");
        was_up && !is_up
    }

    /// The next datagram for the peer over a service path, as it is to be sent: handshakes first, without which there is nothing
    /// else.
    pub(super) fn poll_path_datagram(
        &mut self,
        now: Instant,
        ours: Capabilities,
    ) -> Option<(ServiceRoute, PathFrameKind, Vec<u8>)> {
        if let Some((route, datagram)) = self.paths.poll_handshake() {
            return Some((route, PathFrameKind::Replication, datagram));
        }
        if !self.is_reachable() {
            return None;
        }
        let (kind, content, (route, mut plain)) = match self.paths.poll_detection(now) {
            Some(packet) => (PathFrameKind::Detection, Content::Detection, packet),
            None => {
                let (route, heartbeats) = self.paths.poll_heartbeats()?;
                let mut plain = Vec::new();
                encode_heartbeats(&heartbeats, ours, &mut plain);
                (PathFrameKind::Replication, Content::Replication, (route, plain))
            }
        };
        let Some(channel) = &mut self.channel else { return Some((route, kind, plain)) };
        let mut datagram = Vec::new();
        // Where the keys have been used too often it is lost, as the network may lose it.
        let is_sealed = channel.seal(now, content, &mut plain, &mut datagram);
        is_sealed.then_some((route, PathFrameKind::Replication, datagram))
    }

    /// The service path that carries updates to the peer while the replication path is down. None without a channel: there a stranger
    /// could write them as well.
    pub(super) fn service_route(&self) -> Option<ServiceRoute> {
        self.paths.service_route().filter(|_| self.channel.is_some())
    }

    /// Datagrams reach the peer: the channel, if there is one, has keys.
    pub(super) fn is_reachable(&self) -> bool {
        self.channel.as_ref().is_none_or(Channel::is_ready)
    }

    /// The peer receives what this node replicates, and can use it.
    pub(super) fn takes_updates(&self) -> bool {
        self.is_reachable() && self.refused.is_none()
    }

    /// Connections can be looked up at the peer.
    pub(super) fn looks_up(&self) -> bool {
        self.has_state_service == Some(true) && self.is_up() && self.takes_updates()
    }

    /// Connections can have the peer as a backup.
    pub(super) fn can_back_up(&self) -> bool {
        self.is_up() && self.takes_updates() && self.session.is_some()
    }

    /// The peer decides its connections: it lives, its session with this node is open, and this node has
    /// received all that it has.
    pub(super) fn is_live_owner(&self) -> bool {
        let is_open = self.session.as_ref().is_some_and(Session::is_open);
        self.is_up() && self.refused.is_none() && is_open && self.resync.is_settled()
    }

    /// Whether the peer's filter is whole, or there is none.
    pub(super) fn has_whole_filter(&self) -> bool {
        self.compact.as_ref().is_none_or(CompactReceiver::is_complete)
    }

    /// Whether the filters that the peer re-advertises are whole. They may be dropped before.
    fn has_readvertised(&self) -> bool {
        self.readvertised.as_ref().is_none_or(Readvertised::is_complete)
    }

    /// All filters of the peer, inherited ones included.
    pub(super) fn received_filters(&self) -> impl Iterator<Item = &CompactReceiver> {
        self.compact.iter().chain(self.readvertised.iter().flat_map(Readvertised::receivers))
    }

    /// The peer has replicated something at most so long ago.
    pub(super) fn replicated_within(&self, now: Instant, age: Duration) -> bool {
        let received_at = self.session.as_ref().and_then(|session| session.status().last_received_at);
        received_at.max(self.compact_received_at).is_some_and(|at| now < at + age)
    }

    /// The peer is up: on one path at least, each side receives the other.
    pub(super) fn is_up(&self) -> bool {
        let is_replication_up = self.detector.status().state == failure_detector::State::Up;
        if self.is_watched { is_replication_up || self.paths.is_service_up() } else { self.is_up_by_lead }
    }

    /// When the detector or the session has something to do next. What goes over service paths waits until `service_paths_free_at`.
    pub(super) fn poll_timeouts(&self, service_paths_free_at: Instant) -> [Option<Instant>; 4] {
        let channel = self.channel.as_ref().and_then(Channel::poll_timeout);
        if !self.is_reachable() {
            return [None, None, None, channel];
        }
        let session = self.session.as_ref().filter(|_| self.refused.is_none());
        let detector = self.detector.poll_timeout().filter(|_| self.is_watched).into_iter();
        let detector = detector.chain(self.paths.poll_timeout(&self.detector)).min();
        let readvertised = self.readvertised.as_ref().and_then(Readvertised::poll_timeout);
        let compact =
            self.compact.as_ref().and_then(CompactReceiver::poll_timeout).into_iter().chain(readvertised).min();
        let free_at = self.service_route().map_or(Instant::ZERO, |_| service_paths_free_at);
        let updates = [session.and_then(Session::poll_timeout), compact].map(|at| at.map(|at| at.max(free_at)));
        [detector, updates[0], updates[1], channel]
    }

    /// Notes it if the peer has sent all its connections.
    pub(super) fn note_sent_all(&mut self) {
        self.has_sent_all |=
            self.session.as_ref().is_none_or(|session| session.status().received_all) && self.has_whole_filter();
    }

    /// This node has a copy of all that the peer has, or there is no peer to copy from.
    pub(super) fn is_synchronised_or_away(&self) -> bool {
        let Some(session) = &self.session else { return true };
        let status = session.status();
        let has_all = status.is_synchronised() && !self.resync.lacks_room() && self.has_whole_filter();
        self.orphaned_at.is_some() || has_all
    }

    /// How the peer stands. `leads`: this is the worker that receives heartbeats.
    pub(super) fn status(&self, now: Instant, roles: &Roles, leads: bool) -> PeerStatus {
        let session = self.session.as_ref().map(Session::status);
        let detector = self.detector.status();
        // That of the peer: up while any path is. Where the peer is not watched, the lead decides.
        let state = match (self.is_up(), self.is_watched) {
            (true, _) => failure_detector::State::Up,
            (false, true) => detector.state,
            (false, false) => failure_detector::State::Down,
        };
        PeerStatus {
            id: self.id,
            detector: failure_detector::Status { state, ..detector },
            paths: self.paths.status(detector.state),
            split_brain: self.split.status(self.is_up(), !roles.active().is_empty()),
            down_since: self.orphaned_at,
            heartbeats: roles.groups().map(|group| roles.peer(now, self.id, group)).collect(),
            heartbeats_late: leads && self.is_up() && !roles.was_received_within(now, self.id, HEARTBEAT_AGE_MAX),
            refused: self.refused,
            session,
            lag: session.map_or(Duration::ZERO, |session| session.lag(now)),
            replica: self.replica,
            channel: self.channel.as_ref().map(Channel::status),
            compact: self.compact.as_ref().map(CompactReceiver::status),
            has_whole_filter: self.has_whole_filter() && self.has_readvertised(),
        }
    }
}

/// The marks of a peer's replicas once it has started anew. A walk that removes what it had ended before does not reach what is left now.
const fn restarted(mut resync: Resync) -> Resync {
    if resync.is_sweeping() {
        resync.start();
    }
    resync.restart();
    resync
}

/// Writes heartbeats as they are sent, with what this node announces of itself, over `datagram`.
pub(super) fn encode_heartbeats(heartbeats: &Heartbeats, ours: Capabilities, datagram: &mut Vec<u8>) {
    datagram.clear();
    heartbeats.encode(datagram);
    ours.encode(datagram);
}

/// The sessions with all peers that connections are replicated to.
pub(super) fn sessions(peers: &mut [Peer]) -> impl Iterator<Item = &mut Session> {
    peers.iter_mut().filter_map(|peer| peer.session.as_mut())
}

/// The sessions with these of the peers; `None`: with all.
pub(super) fn sessions_with(peers: &mut [Peer], nodes: Option<NodeSet>) -> impl Iterator<Item = &mut Session> {
    let is_meant = move |peer: &&mut Peer| nodes.is_none_or(|nodes| nodes.contains(peer.id));
    peers.iter_mut().filter(is_meant).filter_map(|peer| peer.session.as_mut())
}

/// Whether every peer among `nodes` that is alive has acknowledged the connection; `None`: among all. The session with one that has
/// just died is still open.
pub(super) fn is_backed_up(peers: &[Peer], nodes: Option<NodeSet>, slot: Slot) -> bool {
    let is_meant = |peer: &&Peer| peer.is_up() && nodes.is_none_or(|nodes| nodes.contains(peer.id));
    let mut sessions = peers.iter().filter(is_meant).filter_map(|peer| peer.session.as_ref());
    sessions.all(|session| session.is_acknowledged(Handle(slot.0)))
}
