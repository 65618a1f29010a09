//! One node of the cluster, as a value: packets, datagrams and time go in, packets, datagrams and events come out.
//!
//! The same value runs in the daemon, in the simulator and in tests. It owns the [`Pipeline`] (connections), the
//! [`Forwarder`] (addresses, routes, neighbours), the [`Roles`] (who holds which addresses) and, for each peer,
//! a failure detector and a replication session.
//!
//! ```text
//!   packets ──► handle_packets ─► pipeline ─► forwarding ─► dispositions
//!                                    │ changes
//!                                    ▼
//!   peers ◄──── poll_transmit ◄── sessions, detectors, role ◄── handle_peer ◄── peers
//! ```

mod absence;
mod again;
mod config;
mod drain;
mod elsewhere;
mod event;
mod held;
mod judging;
mod leaving;
mod mirroring;
mod passive;
mod paths;
mod peer;
mod readiness;
mod reload;
mod replicating;
mod replication_set;
mod roles;
mod securing;
mod sharing;
mod split_brain;
mod status;
mod store;
mod surroundings;
mod tracking;
mod wan;
mod workers;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::{Checksum, Instant, NodeId, PacketBatch, PortId, Segmentation};
use replication::PeerError;
use replication::compact::CompactError;
use replication::secure::ChannelError;
use tunnel::mirror::{self, MirrorError};

use crate::failure_detector::{self, BfdError};
use crate::forwarding::{self, Forwarder};
use crate::pipeline::{Pipeline, Remnants};
use crate::role::{self, Division, Heartbeats, Roles};

pub use config::{ConfigError, NodeConfig, PeerConfig};
pub use drain::{DRAIN_HANDOVER_MAX, DrainRefused};
pub use event::NodeEvent;
pub use held::{HELD_REPLIES_MAX, HELD_REPLY_BYTES_MAX};
pub use leaving::REPLICATED_WITHIN;
pub use passive::{PassiveReason, Rejection};
pub use paths::{Path, PathStatus};
pub use readiness::{
    HEARTBEAT_AGE_MAX, LAG_MAX, NodeObstacle, Obstacle, Readiness, SERVICE_GAP_COUNTS_FOR, SERVICE_GAP_MAX,
};
pub use reload::{PeerReconfiguration, Reconfiguration, Reevaluation, ReloadError, Reloaded};
pub use replication_set::compact::{
    CompactNodeConfig, CompactStatus, InheritedStatus, PrecisionCounters, WhichPrecise,
};
pub use split_brain::SplitBrain;
pub use status::{GroupStatus, NodeStatus, PeerStatus};
pub use store::{ChainStates, ReplicaCounters};
pub use tracking::{
    Consequence, LinkState, NEXT_HOPS_TRACKED_MAX, NextHopState, NextHopTrack, PortTrack, TRACKED_WEIGHT_MAX, Target,
    Tracked, TrackingConfig,
};
pub use wan::SiteConfig;
pub use workers::{LETTERS_WAITING_MAX, Letter, Report, Standing, USABLE_WITHIN};

use elsewhere::Announcing;
use event::Events;
use held::HeldReplies;
use judging::Judging;
use leaving::Leaving;
use passive::Passive;
use peer::Peer;
use replication_set::ReplicationSet;
use securing::PlainText;
use surroundings::Surroundings;
use tracking::Tracking;
use wan::Site;
use workers::Others;

/// The most frames of the node's own making that wait to be polled; further ones are dropped as
/// [`DropReason::TransmitFailed`].
const OUTBOX_FRAMES_MAX: usize = 8192;

/// Where a datagram or frame that was polled is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// A datagram for the peer's replication port: all that a peer is told with which the channel is secured.
    Replication(NodeId),
    /// A failure-detection packet for the peer (time to live 255); not where the channel is secured.
    Detection(NodeId),
    /// A frame for one of the node's ports.
    Port {
        /// The port.
        port: PortId,
        /// What is left undone of its checksum.
        checksum: Checksum,
        /// How it is to be cut.
        segmentation: Segmentation,
    },
}

/// Why a datagram from a peer was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeError {
    /// No such peer is configured.
    #[error("node {} is not among the configured peers", .0.0)]
    UnknownPeer(NodeId),
    /// The failure detector discarded it.
    #[error(transparent)]
    Detection(#[from] BfdError),
    /// The replication session discarded it.
    #[error(transparent)]
    Replication(#[from] PeerError),
    /// The peer divides its packets otherwise.
    #[error(
        "node {} runs {theirs} workers, this node {ours}: give both the same workers.count, and the same release", .peer.0
    )]
    WorkersDiffer {
        /// The peer.
        peer: NodeId,
        /// Its number of workers.
        theirs: u8,
        /// This node's number of workers.
        ours: u8,
    },
    /// A heartbeat that cannot be read.
    #[error(transparent)]
    Heartbeat(#[from] role::HeartbeatError),
    /// A heartbeat that speaks for another node.
    #[error("node {} says a heartbeat as node {}: give each node its own node.id", .peer.0, .named.0)]
    NotItsOwn {
        /// Who said it.
        peer: NodeId,
        /// For whom.
        named: NodeId,
    },
    /// The peer tells its connections compactly, and this node does not.
    #[error("node {} tells its connections by a filter, this node does not: give both the same replication.representation", .0.0)]
    NotCompact(NodeId),
    /// A compact datagram was refused.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// The peer stands by for a tunnel to another site, and this node has none.
    #[error("node {} mirrors the caches of a tunnel to another site, this node has none: give both the same [redundancy]", .0.0)]
    NoTunnel(NodeId),
    /// A datagram about the tunnel's caches was refused.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The secure channel refused it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A packet of failure detection that is of another path.
    #[error("a packet of failure detection that was made for another path; somebody moves packets between links")]
    OtherPath,
    /// A service path carries failure detection, heartbeats and handshakes only.
    #[error("something else than failure detection or a heartbeat on a service port; somebody pretends to be the node")]
    NotOnServicePath,
    /// The peer encrypts, and this node does not.
    #[error("it encrypts what it says, this node does not: give this node the same [replication.security]")]
    NotSecured,
}

/// A frame of the node's own making, or one that was kept back.
struct OutFrame {
    bytes: Vec<u8>,
    port: PortId,
    checksum: Checksum,
    segmentation: Segmentation,
}

/// One node of the cluster.
pub struct Node {
    id: NodeId,
    pipeline: Pipeline,
    replication: ReplicationSet,
    forwarder: Forwarder,
    roles: Roles,
    held: HeldReplies,
    /// The node's other workers.
    others: Others,
    outbox: VecDeque<OutFrame>,
    events: Events,
    /// A take-over happened and none of its connections has sent a packet yet: how many were taken over before.
    awaiting_first_packet: Option<u64>,
    more_expiries: bool,
    judging: Judging,
    /// What the node reaches; the lead worker's.
    tracking: Tracking,
    /// When a node that is being drained goes on if nobody has taken its addresses.
    drain_given_up_at: Option<Instant>,
    leaving: Leaving,
    /// When it last looked at what its peers say, and at the time.
    served_at: Instant,
    service_gap: readiness::ServiceGap,
    /// Why it must not take addresses after its start.
    passive: Passive,
    announcing: Announcing,
    /// What is about to be encrypted, and what was decrypted.
    plain: PlainText,
    /// The tunnel to another site.
    site: Option<Box<Site>>,
}

impl Node {
    /// A node that begins to listen at `now`.
    ///
    /// # Errors
    /// The configuration of a part is unsound: which, and why.
    pub fn new(config: NodeConfig, now: Instant) -> Result<Self, ConfigError> {
        config.build(now)
    }

    /// Handles a batch of packets to completion: each frame's disposition is decided when this returns. Poll the
    /// datagrams for the peers *before* sending the frames: then the backup knows of a connection before its packets
    /// are on the wire.
    pub fn handle_packets(&mut self, now: Instant, batch: &mut PacketBatch<'_>) {
        let began_at_ns = self.pipeline.observation_mut().latency.begin_batch();
        self.note_absence(now);
        self.note_living();
        let mut surroundings = Surroundings {
            forwarder: &mut self.forwarder,
            peers: &self.replication.peers,
            held: Some(&mut self.held),
            hold_max: self.replication.hold_first_reply,
            site: self.site.as_deref_mut(),
        };
        self.pipeline.handle_packets(now, batch, &mut surroundings);
        self.take_path_frames(now);
        self.replicate_changes(now);
        self.note_first_packet(now);
        self.release_fragments(now);
        self.serve_site(now);
        if let Some(began_at_ns) = began_at_ns {
            self.pipeline.observation_mut().latency.end_batch(began_at_ns, batch.len());
        }
    }

    /// Replication or a heartbeat, as the peer wrote it.
    fn handle_plain_replication(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        self.note_service(now);
        if role::is_heartbeat(datagram) {
            let heartbeats = Heartbeats::decode(datagram)?;
            if heartbeats.first.node != from {
                return Err(NodeError::NotItsOwn { peer: from, named: heartbeats.first.node });
            }
            if !self.roles.admits(now, &heartbeats) {
                return Ok(());
            }
            self.note_heartbeats(now, &heartbeats);
            let active_before = self.active_groups();
            self.note_replicated(now);
            self.roles.handle_heartbeats(now, &heartbeats).map_err(|unknown| NodeError::UnknownPeer(unknown.0))?;
            self.note_peer_roles(now, from, active_before, &heartbeats);
            self.note_division(now, heartbeats.first.node, Division::decode(datagram));
            self.handle_role_events(now);
            self.look_for_other_forwarders(now);
            return Ok(());
        }
        if replication::compact::is_compact(datagram) {
            let forwards = self.forwards_any();
            let result = self.replication.handle_compact(now, &mut self.pipeline, forwards, from, datagram);
            self.handle_session_events(now);
            self.events.extend(now, result?);
            return Ok(());
        }
        if mirror::is_mirror(datagram) {
            return self.handle_mirror(now, from, datagram);
        }
        self.replication.remember_unsent_ends(now, &mut self.pipeline);
        let speaks_for_all = self.speaks_for_all();
        let peer = self.replication.peers.find(from)?;
        if let Some(theirs) = peer.refused {
            let ours = self.pipeline.place().steering.workers();
            return Err(NodeError::WorkersDiffer { peer: from, theirs: theirs.workers, ours });
        }
        let result = self.replication.handle_datagram(now, &mut self.pipeline, speaks_for_all, from, datagram);
        self.handle_session_events(now);
        self.release_held(now);
        self.release_waiting(now);
        self.replicate_changes(now);
        result
    }

    fn handle_plain_detection(&mut self, now: Instant, from: NodeId, packet: &[u8], ttl: u8) -> Result<(), NodeError> {
        self.note_service(now);
        let peer = self.replication.peers.find(from)?;
        let result = peer.detector.handle_packet(now, packet, ttl);
        self.handle_detector_events(now);
        Ok(result?)
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.note_service(now);
        self.leave_when_replicated(now);
        let speaks_for_all = self.speaks_for_all();
        self.handle_channel_timeouts(now);
        for peer in &mut self.replication.peers {
            peer.detector.handle_timeout(now);
            peer.paths.handle_timeout(now);
            if let Some(session) = &mut peer.session {
                session.handle_timeout(now);
            }
            let claims = speaks_for_all || peer.resync.has_restarted();
            let remnants = if claims { Remnants::Claim } else { Remnants::Remove };
            let (id, pipeline) = (peer.id, &mut self.pipeline);
            let needs_another = peer
                .resync
                .step(|epoch, cursor, slots| pipeline.replicas().sweep(now, id, epoch, remnants, cursor, slots));
            if needs_another && let Some(session) = &mut peer.session {
                session.request_resync();
            }
        }
        self.handle_detector_events(now);
        self.handle_session_events(now);
        self.go_on_when_usable(now);
        self.track(now);
        self.look_after_passive(now);
        self.note_replicated(now);
        self.roles.handle_timeout(now);
        self.handle_role_events(now);
        self.look_for_other_forwarders(now);
        self.report_conflicts(now);
        self.report_degraded(now);
        self.note_split_brain(now);
        self.look_after_drain(now);
        self.forwarder.handle_timeout(now);
        self.release_held(now);
        self.note_living();
        self.release_waiting(now);
        self.more_expiries = self.expire(now);
        self.judge_some(now);
        self.replicate_changes(now);
        self.serve_site(now);
        self.handle_replication_timeout(now);
        self.replication.remember_unsent_ends(now, &mut self.pipeline);
    }

    /// When [`Node::handle_timeout`] has something to do next; `None` when only a packet can change that.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.more_expiries
            || self.pipeline.is_reevaluating()
            || self.replication.peers.iter().any(|peer| peer.resync.is_sweeping())
        {
            return Some(Instant::ZERO);
        }
        let peers = self.replication.peers.iter().flat_map(Peer::poll_timeouts);
        let own = [
            self.roles.poll_timeout(),
            self.forwarder.poll_timeout(),
            self.held.poll_timeout(),
            self.pipeline.next_expiry(),
            self.drain_given_up_at,
            self.tracking.poll_timeout(),
            self.others.poll_timeout(),
            self.pipeline.waiting_deadline(),
            self.site.as_ref().and_then(|site| site.poll_timeout()),
            self.replication.deferral.as_ref().and_then(|deferral| deferral.insertion.poll_timeout()),
            self.poll_leaving(),
            self.pipeline.recovery.ends_at(),
            self.replication.compact.as_ref().and_then(|compact| compact.poll_timeout()),
            self.passive.poll_timeout(),
            self.announcing.poll_timeout(),
        ];
        peers.chain(own).flatten().min()
    }

    /// The next datagram or frame to send, written over `buffer`; `None` when there is none at present.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_datagram(now, buffer).or_else(|| self.poll_frame(now, buffer))
    }

    /// The next datagram for a peer, not yet encrypted. Failure detection and heartbeats go first: they are few, and a peer
    /// must not take a node for dead, or act on its former role, because it has much to replicate.
    fn poll_plain_datagram(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        buffer.clear();
        if let Some(transmit) = self.poll_detection(now, buffer) {
            return Some(transmit);
        }
        // A peer that takes the addresses of a leaving node must have its latest updates first.
        let hands_over = self.roles.states().any(|state| state == role::State::Leaving);
        if !hands_over && let Some(id) = self.poll_heartbeats(now, buffer) {
            return Some(Transmit::Replication(id));
        }
        let speaks_for_all = self.speaks_for_all();
        let id = self
            .replication
            .poll_sessions(now, &mut self.pipeline, speaks_for_all, buffer)
            .or_else(|| self.replication.poll_compact(now, buffer))
            .or_else(|| self.poll_heartbeats(now, buffer))
            .or_else(|| self.poll_mirror(now, buffer));
        id.map(Transmit::Replication)
    }

    fn poll_detection(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let mut watched = self.replication.peers.iter_mut().filter(|peer| peer.is_watched && peer.can_be_told());
        watched.find_map(|peer| peer.detector.poll_transmit(now, buffer).then_some(Transmit::Detection(peer.id)))
    }

    /// The next heartbeat that is due to a peer.
    fn poll_heartbeats(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        if let Some(heartbeats) = self.roles.poll_heartbeats(now) {
            for peer in &mut self.replication.peers {
                let heartbeats = Heartbeats { answers: self.roles.latest_of(peer.id), ..heartbeats.clone() };
                peer.heartbeats = Some(heartbeats.clone());
                peer.paths.set_heartbeats(&heartbeats);
            }
        }
        let mut listening = self.replication.peers.iter_mut().filter(|peer| peer.can_be_told());
        let (id, heartbeats) = listening.find_map(|peer| Some((peer.id, peer.heartbeats.take()?)))?;
        self.encode_heartbeats(&heartbeats, buffer);
        Some(id)
    }

    fn encode_heartbeats(&self, heartbeats: &Heartbeats, buffer: &mut Vec<u8>) {
        buffer.clear();
        heartbeats.encode(buffer);
        Division::of(self.pipeline.place().steering).encode(buffer);
    }

    /// The next datagram of a replication session. Sessions take turns, so that a long queue for one peer does not keep the
    /// others waiting.
    /// As [`Node::poll_transmit`], only frames for the node's own ports.
    pub fn poll_frame(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(out) = self.poll_path_frame(now, buffer).or_else(|| self.forwarder.poll_transmit(now, buffer)) {
            return Some(Transmit::Port { port: out.port, checksum: out.checksum, segmentation: out.segmentation });
        }
        let frame = self.outbox.pop_front()?;
        *buffer = frame.bytes;
        Some(Transmit::Port { port: frame.port, checksum: frame.checksum, segmentation: frame.segmentation })
    }

    /// The next event, with its time.
    pub fn poll_event(&mut self) -> Option<(Instant, NodeEvent)> {
        self.events.pop()
    }

    /// Where this node stands in the choice of who holds the shared addresses: in a word, if there are several groups.
    #[must_use]
    pub fn role(&self) -> role::State {
        self.roles.summary()
    }

    /// The pipeline, to be read by operators.
    #[must_use]
    pub const fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The pipeline, for what the daemon counts and logs on its behalf.
    pub const fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// How the node stands.
    #[must_use]
    pub fn status(&self, now: Instant) -> NodeStatus {
        status::of(self, now)
    }

    fn note_first_packet(&mut self, now: Instant) {
        if self.awaiting_first_packet.is_some_and(|before| self.pipeline.counters().taken_over > before) {
            self.awaiting_first_packet = None;
            self.events.push(now, NodeEvent::FirstPacketAfterTakeOver);
        }
    }

    fn handle_detector_events(&mut self, now: Instant) {
        let mut is_anyone_lost = false;
        for index in 0..self.replication.peers.len() {
            while let Some((path, event)) = self.replication.peers[index].poll_path_event() {
                is_anyone_lost |= self.note_path_event(now, index, path, event);
            }
        }
        if is_anyone_lost {
            self.begin_recovery(now, false);
        }
        self.handle_role_events(now);
    }

    fn handle_session_events(&mut self, now: Instant) {
        for index in 0..self.replication.peers.len() {
            let peer = &mut self.replication.peers[index];
            if peer.collect_session_events(now, &mut self.events, self.replication.compact.as_deref_mut()) {
                let restarted = peer.id;
                if !self.forwards_any() {
                    self.replication.keep_filter_of_restarted(now, restarted);
                }
            }
        }
        let synchronised = self.has_all_copies();
        self.replication.peers.iter_mut().for_each(Peer::note_told_all);
        let informed = self.replication.peers.iter().all(|peer| peer.has_told_all) && self.others.are_synchronised();
        self.roles.set_informed(now, informed);
        self.roles.set_filling(now, self.site.as_ref().is_some_and(|site| site.is_filling_mirror()));
        self.roles.set_synchronised(now, synchronised);
        self.handle_role_events(now);
    }

    /// Whether this node has a copy of every connection that it is to back up.
    fn has_all_copies(&self) -> bool {
        self.replication.peers.iter().all(Peer::is_synchronised_or_away) && self.others.are_synchronised()
    }

    /// Sends on the first replies whose connection a backup knows by now, or whose time is over.
    fn release_held(&mut self, now: Instant) {
        if self.held.is_empty() {
            return;
        }
        let peers = &self.replication.peers;
        let released = self.held.release(now, |slot| peer::is_backed_up(peers, slot));
        self.hand_in_again(now, released);
    }
}

#[cfg(test)]
mod tests;
