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
//!   peers ◄──── poll_transmit ◄── sessions, detectors, roles ◄── handle_replication ◄── peers
//! ```
//!
//! Each part owns its state, is lent what it needs, and does not know the node. The node calls them in order: `packets` for
//! packets, `datagrams` for what peers send and receive, `coordination` for time, roles, operators and other workers.

mod announcing;
mod config;
mod coordination;
mod datagrams;
mod departure;
mod edges;
mod error;
mod event;
mod held;
mod outbox;
mod packets;
mod passive;
mod paths;
mod peer;
mod peers;
mod ports;
mod readiness;
mod reevaluation;
mod reload;
mod replication_set;
mod split_brain;
mod stall;
mod status;
mod store;
mod tracking;
mod tunnel_endpoint;
mod worker_link;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use flow::conntrack::Tracker;
use flow::table::Slot;
use flow::{HashKey, Instant, NodeId, PortId, Tuple};
use replication::deferral;
use replication::representation::Start;

use crate::edge_link::EdgeSessions;
use crate::forwarding::{Forwarder, PathTraffic, Sharing};
use crate::pipeline::{FilterMatch, Pipeline, Place, StateServiceConfig};
use crate::role::{self, Roles};

pub use config::{NodeConfig, PeerConfig};
pub use departure::{DRAIN_HANDOVER_MAX, DrainRefused, REPLICATED_WITHIN};
pub use error::{ConfigError, NodeError, ReloadError};
pub use event::{Consequence, NodeEvent, PassiveReason, Path, Rejection, Target};
pub use held::{HELD_REPLIES_MAX, HELD_REPLY_BYTES_MAX};
pub use outbox::Transmit;
pub use paths::{PathStatus, SLOW_INTERVAL};
pub use peer::HEARTBEAT_AGE_MAX;
pub use readiness::{LAG_MAX, NodeObstacle, Obstacle, Readiness};
pub use reload::{Reconfiguration, Reevaluation, Reloaded};
pub use replication_set::compact::{
    CompactNodeConfig, CompactStatus, InheritedStatus, PrecisionCounters, WhichPrecise,
};
pub use replication_set::{BACKUPS_MAX, BackupsConfig, BackupsShape, BackupsStatus, SERVICE_PATH_BYTES_PER_S_DEFAULT};
pub use split_brain::SplitBrain;
pub use stall::{SERVICE_GAP_COUNTS_FOR, SERVICE_GAP_MAX};
pub use status::{GroupStatus, NodeStatus, PeerStatus};
pub use store::ReplicaCounters;
pub use tracking::{
    LinkState, NEXT_HOPS_TRACKED_MAX, NextHopState, NextHopTrack, PortTrack, TRACKED_WEIGHT_MAX, Tracked,
    TrackingConfig,
};
pub use tunnel_endpoint::TunnelEndpointConfig;
pub use worker_link::{LeadView, USABLE_WITHIN, WORKER_MESSAGES_WAITING_MAX, WorkerMessage, WorkerReport};

use announcing::Announcing;
use departure::Departure;
use event::Events;
use held::HeldReplies;
use outbox::Outbox;
use passive::Passive;
use readiness::readiness;
use reevaluation::PendingReevaluation;
use replication_set::{PathBudget, ReplicationSet, Unanswered};
use stall::ServiceGap;
use tracking::Tracking;
use tunnel_endpoint::TunnelEndpoint;
use worker_link::WorkerLink;

/// One node of the cluster.
pub struct Node {
    id: NodeId,
    pipeline: Pipeline,
    /// The peers, and what is replicated to them.
    replication: ReplicationSet,
    forwarder: Forwarder,
    roles: Roles,
    /// First replies that wait for a backup's acknowledgement.
    held: HeldReplies,
    workers: WorkerLink,
    outbox: Outbox,
    events: Events,
    /// A take-over happened and none of its connections has sent a packet yet: how many were taken over before.
    awaiting_first_packet: Option<u64>,
    more_expiries: bool,
    reevaluation: PendingReevaluation,
    /// What the node reaches; the lead worker's.
    tracking: Tracking,
    departure: Departure,
    service_gap: ServiceGap,
    /// Why it must not take addresses after its start.
    passive: Passive,
    announcing: Announcing,
    /// Room for a datagram that was decrypted.
    decrypted: Vec<u8>,
    /// This end of the tunnel to another site.
    tunnel: Option<Box<TunnelEndpoint>>,
    /// The edges beside the cluster; the lead worker's.
    edges: EdgeSessions,
}

/// Construction.
impl Node {
    /// A node that begins to listen at `now`.
    ///
    /// # Errors
    /// The configuration of a part is unsound: which, and why.
    pub fn new(config: NodeConfig, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let (backups, compact) = (config.build_backups()?, config.build_compact()?);
        let peers = config.build_peers(now)?;
        let (peer_ids, incarnation) = (config.peer_ids(), (config.seed >> 24) as u32);
        let role = role::Config { node: config.node, peers: peer_ids, incarnation, ..config.role };
        let passive = Passive::new(role.startup_hold, config.seed.rotate_left(32), now);
        let mut roles = Roles::new(role, now);
        roles.set_informed(now, peers.have_sent_all());
        let tracker = Tracker::new(config.tracker);
        let mut pipeline = Pipeline::new(config.node, config.connections_max, config.hash_key, tracker, config.chain)
            .with_limits(config.limits);
        if let Some(sharing) = config.sharing {
            pipeline = pipeline.with_sharing(sharing);
        }
        Ok(Self {
            id: config.node,
            pipeline,
            replication: ReplicationSet {
                id: config.node,
                selection: config.selection,
                hold_first_reply: config.hold_first_reply,
                peers,
                next_session: 0,
                unanswered: Unanswered::new(config.connections_max),
                deferral: None,
                compact,
                backups,
                attributes: Vec::new(),
                path_budget: PathBudget::default(),
            },
            forwarder: Forwarder::new(config.forwarding)?,
            roles,
            held: HeldReplies::default(),
            workers: WorkerLink::default(),
            outbox: Outbox::default(),
            events: Events::default(),
            awaiting_first_packet: None,
            more_expiries: false,
            reevaluation: PendingReevaluation::default(),
            tracking: Tracking::default(),
            departure: Departure::default(),
            service_gap: ServiceGap::new(now),
            passive,
            announcing: Announcing::default(),
            decrypted: Vec::new(),
            tunnel: None,
            edges: EdgeSessions::none(),
        })
    }

    /// One of several workers of a node. All of them are made from the same configuration, but for hash key and seed.
    ///
    /// # Errors
    /// The configuration of a part is unsound: which, and why.
    pub fn new_worker(config: NodeConfig, place: Place, now: Instant) -> Result<Self, ConfigError> {
        let role = config.role.clone();
        let mut node = Self::new(config, now)?;
        node.pipeline.set_place(place);
        let channels = node.replication.peers.iter_mut().filter_map(|peer| peer.channel.as_mut());
        channels.for_each(|channel| channel.set_worker(place.worker));
        if place.is_alone() {
            return Ok(node);
        }
        if place.leads() {
            node.forwarder.set_sharing(Sharing::Lead);
            node.workers = WorkerLink::leading(usize::from(place.steering.workers()) - 1);
        } else {
            node.forwarder.set_sharing(Sharing::Follower);
            node.roles = Roles::following(role, now);
            node.passive.follow();
            node.replication.peers.iter_mut().for_each(|peer| peer.is_watched = false);
        }
        Ok(node)
    }

    /// The same node, which looks connections that it does not have up at its peers. `incarnation` differs from start to start.
    ///
    /// # Errors
    /// The node has more connections than an index may have.
    pub fn with_state_service(mut self, config: StateServiceConfig, incarnation: u32) -> Result<Self, ConfigError> {
        self.pipeline.set_state_service(config, incarnation)?;
        Ok(self)
    }

    /// The same node, which is the end of a tunnel to another site while it holds the tunnel's address. The seed is at random,
    /// and a secret.
    #[must_use]
    pub fn with_tunnel(mut self, mut config: TunnelEndpointConfig, seed: u64, key: HashKey) -> Self {
        if self.replication.peers.is_empty() {
            // No node is standby.
            config.tunnel.mirror = None;
        }
        self.tunnel = Some(Box::new(TunnelEndpoint::new(config, seed, key)));
        self
    }
}

/// What operators set.
impl Node {
    /// From now on connections are deferred as configured; `None`: they are all replicated as soon as they begin. Those that
    /// are deferred now are replicated if the configuration differs from the one before.
    ///
    /// # Errors
    /// It is not sound; nothing has changed.
    pub fn set_lazy(&mut self, now: Instant, config: Option<deferral::Config>) -> Result<(), deferral::ConfigError> {
        self.replication.set_deferral(now, &self.pipeline, config)
    }

    /// From now on connections are replicated from this packet on. A connection that peers need earlier is replicated at once: its first
    /// reply may come to another node or waits for a backup, or its client was answered by the SYN proxy.
    pub fn set_start(&mut self, now: Instant, start: Start) {
        self.replication.set_start(now, &self.pipeline, start);
    }

    /// How often the addresses that this node holds are announced again; zero: never. Randomly shortened or lengthened by up to
    /// a tenth.
    pub fn set_announce_refresh(&mut self, now: Instant, interval: Duration) {
        self.announcing.set_interval(now, interval, &mut self.forwarder);
    }

    /// The time since 1970, as the system has it at `now`: peers' certificates are compared with it.
    pub fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        self.replication.peers.set_unix_time(now, unix_time);
        self.tunnel.iter_mut().for_each(|tunnel| tunnel.set_unix_time(now, unix_time));
    }

    /// Updates that go over service paths take so many bytes per second from now on; 0: none go there. Each worker has a share.
    pub const fn set_service_path_rate(&mut self, bytes_per_s_max: u32) {
        self.replication.path_budget.set_rate(bytes_per_s_max);
    }

    /// What the port has sent and received of the frames between nodes, and between nodes and edges.
    #[must_use]
    pub fn path_traffic(&self, port: PortId) -> PathTraffic {
        self.forwarder.path_traffic(port)
    }

    /// The load of the processor that the node runs on, in percent, of late.
    pub fn note_load(&mut self, now: Instant, percent: u8) {
        self.tunnel.iter_mut().for_each(|tunnel| tunnel.note_load(now, percent));
    }

    /// The processor that serves this node was busy for this share of the time since the last call.
    pub fn note_utilisation(&mut self, per_mille: u16) {
        self.replication.deferral.iter_mut().for_each(|deferral| deferral.note_utilisation(per_mille));
    }

    /// How often utilisation is to be measured, if anything depends on it.
    #[must_use]
    pub fn utilisation_interval(&self) -> Option<Duration> {
        self.replication.deferral.as_ref()?.utilisation_interval()
    }
}

/// What operators, checkers and the owner of the node see.
impl Node {
    /// How the node stands.
    #[must_use]
    pub fn status(&self, now: Instant) -> NodeStatus {
        let (leads, roles, departure) = (self.place().leads(), &self.roles, &self.departure);
        let group_status = |group| GroupStatus::of(roles, group, departure.role_shown(roles.state(group)));
        let mut status = NodeStatus {
            role: departure.role_shown(roles.summary()),
            groups: roles.groups().map(group_status).collect(),
            configuration: roles.configuration(),
            readiness: Readiness::default(),
            leads,
            synchronised: self.has_all_copies(),
            served_late: self.service_gap.counting(now),
            connections: self.pipeline.table().len(),
            connections_max: self.pipeline.table().capacity(),
            tombstones: self.pipeline.tombstones(),
            replies_held: self.held.held,
            replies_overdue: self.held.overdue,
            unanswered: self.replication.unanswered(),
            lazy: self.replication.deferral.as_ref().map(|deferral| deferral.status()),
            passive: self.passive.status(now, roles),
            forwarding: self.forwarder.counters(),
            compact: self.compact_status(),
            state_service: self.pipeline.state_service_status(),
            backups: self.replication.backups.as_ref().map(|backups| backups.status()),
            peers: self.replication.peers.iter().map(|peer| peer.status(now, roles, leads)).collect(),
            ports: self.tracking.ports().to_vec(),
            next_hops: self.tracking.next_hops().to_vec(),
            tunnel: self.tunnel.as_ref().map(|tunnel| tunnel.status(now)),
            edges_up: self.edges.up(),
        };
        status.readiness = readiness(&status, self.id);
        status
    }

    /// How compact replication stands; `None`: there is none.
    #[must_use]
    pub fn compact_status(&self) -> Option<CompactStatus> {
        self.replication.compact.as_ref().map(|compact| compact.status(&self.pipeline))
    }

    /// Whether this node claims all connections of which no other live node is the owner. Where each connection has backups, no
    /// node has all connections, and the sets decide.
    fn claims_all(&self) -> bool {
        self.roles.claims_all() && self.replication.backups.is_none()
    }

    /// Whether this node has a replica of every connection that it is to back up.
    fn has_all_copies(&self) -> bool {
        self.replication.peers.have_been_copied() && self.workers.are_synchronised()
    }

    /// The next event, with its time.
    pub fn poll_event(&mut self) -> Option<(Instant, NodeEvent)> {
        self.events.pop()
    }

    /// This node's role in the choice of who holds the shared addresses: the most important of its roles, if there are several
    /// groups.
    #[must_use]
    pub fn role(&self) -> role::State {
        self.roles.summary()
    }

    /// Its roles in all groups.
    #[must_use]
    pub const fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Whether this node holds shared addresses of any group.
    #[must_use]
    pub fn holds_addresses(&self) -> bool {
        self.roles.holds_any()
    }

    /// Which of the node's workers this is.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.pipeline.place()
    }

    /// The pipeline, to be read by operators.
    #[must_use]
    pub const fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The pipeline, for what the daemon counts, logs and observes.
    pub const fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Whether the connection in the slot is not replicated for now.
    #[must_use]
    pub fn is_deferred(&self, slot: Slot) -> bool {
        self.replication.is_deferred(slot)
    }

    /// Whether the connection in the slot is not replicated because nobody has answered it.
    #[must_use]
    pub fn is_unanswered(&self, slot: Slot) -> bool {
        self.replication.unanswered.is_withheld(slot)
    }

    /// What peers replicated compactly of the connection that began with this tuple, whether this node recovers at present or not.
    #[must_use]
    pub fn recovery_lookup(&self, original: &Tuple) -> Option<FilterMatch> {
        self.replication.recovery_lookup(&self.pipeline, original)
    }

    /// Whether a peer whose session is open has not acknowledged yet all that this node has to send it: a node that ends before
    /// that loses connections that no other node knows.
    #[must_use]
    pub fn has_unacknowledged(&self) -> bool {
        self.replication.has_unacknowledged()
    }

    /// Messages to other workers that found no room.
    #[must_use]
    pub const fn worker_messages_lost(&self) -> u64 {
        self.workers.lost() + self.pipeline.announcements_lost()
    }
}

#[cfg(test)]
mod tests;
