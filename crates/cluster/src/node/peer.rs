//! What a node has for each of its peers.

use core::time::Duration;

use flow::table::Slot;
use flow::{Instant, NodeId};
use replication::compact::CompactReceiver;
use replication::secure::Channel;
use replication::{Handle, Resync, Session, SessionEvent};

use super::elsewhere::LastKnown;
use super::event::{Events, NodeEvent};
use super::paths::Paths;
use super::replication_set::compact::{Compact, Readvertised};
use super::split_brain::SplitWatch;
use super::store::ReplicaCounters;
use crate::failure_detector;
use crate::role::{Division, Heartbeats};

/// A peer: its failure detector, and the session with it unless replication is off.
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
    /// It has told all its connections at some time, though it may have started anew since.
    pub(super) has_told_all: bool,
    /// This worker runs its failure detector. The others are told by it.
    pub(super) is_watched: bool,
    /// What the lead says of it where it is not watched here.
    pub(super) is_said_up: bool,
    /// How it divides its packets, if that is not how this node does: then it is not spoken with.
    pub(super) refused: Option<Division>,
    /// What was last known of its role.
    pub(super) last_known: LastKnown,
    /// What is said to it, and what it says, is encrypted.
    pub(super) channel: Option<Channel>,
    /// What it tells compactly.
    pub(super) compact: Option<CompactReceiver>,
    /// What it tells on for nodes that are gone.
    pub(super) readvertised: Option<Readvertised>,
    /// When anything that it tells compactly was heard last.
    pub(super) heard_compactly_at: Option<Instant>,
}

impl Peer {
    /// Passes on what happened to the session. Whether the peer was started anew.
    pub(super) fn collect_session_events(
        &mut self,
        now: Instant,
        events: &mut Events,
        compact: Option<&mut Compact>,
    ) -> bool {
        let (mut compact, mut has_restarted) = (compact, false);
        let Some(session) = &mut self.session else { return false };
        while let Some(event) = session.poll_event() {
            match event {
                SessionEvent::PeerSilent | SessionEvent::PeerLeft => self.resync.unsettle(),
                SessionEvent::PeerRestarted => self.resync.restart(),
                _ => {}
            }
            has_restarted |= event == SessionEvent::PeerRestarted;
            compact.iter_mut().for_each(|compact| compact.note_session(now, self.id, event));
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
        if self.resync.lacks_room && !self.is_replica_incomplete {
            events.push(now, NodeEvent::ReplicaIncomplete(self.id));
        }
        self.is_replica_incomplete = self.resync.lacks_room;
        has_restarted
    }

    /// The peer has said something of connections at most so long ago.
    pub(super) fn replicated_within(&self, now: Instant, age: Duration) -> bool {
        let heard = self.session.as_ref().and_then(|session| session.status().last_heard);
        heard.max(self.heard_compactly_at).is_some_and(|at| now < at + age)
    }

    /// The peer is up: on one path at least, each side receives the other.
    pub(super) fn is_up(&self) -> bool {
        let is_replication_up = self.detector.status().state == failure_detector::State::Up;
        if self.is_watched { is_replication_up || self.paths.is_service_up() } else { self.is_said_up }
    }

    /// When the detector or the session has something to do next.
    pub(super) fn poll_timeouts(&self) -> [Option<Instant>; 4] {
        let channel = self.channel.as_ref().and_then(Channel::poll_timeout);
        if !self.can_be_told() {
            return [None, None, None, channel];
        }
        let session = self.session.as_ref().filter(|_| self.refused.is_none());
        let detector = self.detector.poll_timeout().filter(|_| self.is_watched).into_iter();
        let detector = detector.chain(self.paths.poll_timeout()).min();
        let readvertised = self.readvertised.as_ref().and_then(Readvertised::poll_timeout);
        let compact =
            self.compact.as_ref().and_then(CompactReceiver::poll_timeout).into_iter().chain(readvertised).min();
        [detector, session.and_then(Session::poll_timeout), compact, channel]
    }

    /// Notes it if the peer has told all its connections.
    pub(super) fn note_told_all(&mut self) {
        self.has_told_all |=
            self.session.as_ref().is_none_or(|session| session.status().heard) && self.has_told_filter();
    }

    /// This node has a copy of all that the peer has, or there is nobody to copy from.
    pub(super) fn is_synchronised_or_away(&self) -> bool {
        let Some(session) = &self.session else { return true };
        let status = session.status();
        let has_all = status.is_synchronised() && !self.resync.lacks_room && self.has_told_filter();
        self.orphaned_at.is_some() || has_all
    }
}

/// The sessions with all peers that are told of connections.
pub(super) fn sessions(peers: &mut [Peer]) -> impl Iterator<Item = &mut Session> {
    peers.iter_mut().filter_map(|peer| peer.session.as_mut())
}

/// Whether every peer that listens has confirmed the connection as it is.
pub(super) fn is_backed_up(peers: &[Peer], slot: Slot) -> bool {
    peers.iter().filter_map(|peer| peer.session.as_ref()).all(|session| session.is_acknowledged(Handle(slot.0)))
}
