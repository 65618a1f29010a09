//! A packet's way through the connection table, the tracker and the chain of functions.
//!
//! ```text
//! batch ─► parse, have records fetched ─► for each: look up ┬ known ──► tracker ─► chain ──┬─► edge.forward
//!                                                           ├ unknown ► begin ──► chain ───┘
//!                                                           ├ ICMP error ► translate ──────┘
//!                                                           └ for the node itself ► edge
//! ```
//! Fragments go the way of their first one, which alone has the ports: see [`flow::fragments`].
//!
//! In files, a packet visits `batch`, `fragments` if it is one, and `packet`. From there it goes on to `recovery` if no
//! connection has it and filters of other nodes may name one, to `lookup` if other nodes may have it, to `peer_owned` and `waiting` where other nodes forward as well, and
//! to the tracker and the chain in `connections`. None of these calls one before it. Where a fast path forwards packets of
//! established connections, `fast_path` brings what it saw into the record before, and the other way afterwards.
//!
//! The pipeline knows connections; what lies around it (addresses, routes, neighbours) is the [`Edge`]'s.
//! What changes is left in [`Pipeline::take_changes`] for those who replicate it.

mod arrival;
mod batch;
mod change;
mod classes;
mod connections;
mod counters;
mod edge;
mod elsewhere;
mod expiry;
mod fast_path;
mod fragments;
mod functions;
mod handshakes;
mod limits;
mod lookup;
mod packet;
mod packet_path;
mod peer_owned;
mod plan;
mod planned;
mod pulls;
mod rebirth;
mod recovery;
mod reevaluation;
mod refusal;
mod relations;
mod replica;
mod resets;
mod shard;
mod sharing;
mod status;
#[cfg(test)]
mod tests;
mod tombstones;
mod waiting;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::Tracker;
use flow::fast_path::Hook;
use flow::fragments::FragmentTable;
use flow::table::Slot;
use flow::wire::tlv::TlvError;
use flow::{
    BATCH_FRAMES_MAX, Connection, Direction, DropReason, HashKey, Instant, NodeId, OwnedFrame, PortId, Tuple, WorkerId,
};
use network_functions::chain::Chain;
use network_functions::function::CloseReason;
use replication::representation::precise::{self, Ended, Relations};

use crate::forwarding::Forwarder;
use crate::group::GroupSet;
use batch::Pending;
use connections::{Connections, record_mut};
use fast_path::FastPath;
use handshakes::{Handshakes, post};
use limits::Sources;
use reevaluation::Reevaluation;
use shard::Shard;
use sharing::Sharing;
use waiting::Waiting;

pub(crate) use arrival::Origin;
pub use change::TableChange;
pub use classes::ClassTraffic;
pub use counters::PipelineCounters;
pub use edge::{Edge, FilterMatch};
pub use elsewhere::QUIET_MIN;
pub use expiry::ReplicaExpiry;
pub use fast_path::{
    FAST_PATH_NEXT_HOPS_MAX, FAST_PATH_PACKETS_MIN, FastPathProgram, FastPathStatus, InstallError, Left, PortTraffic,
};
pub use functions::ChainStates;
pub use limits::{Limits, SourceLimit};
pub use lookup::{LookupDrop, LookupLimits, StateServiceConfig, StateServiceStatus, state_service_connections_max};
pub use packet_path::{GatewayReason, PacketPath};
pub use recovery::{MISSES_PER_SOURCE_MAX_DEFAULT, RECOVERY_LASTS_DEFAULT, Recovery, RecoveryConfig, RecoveryCounters};
pub use relations::{ANNOUNCEMENTS_WAITING_MAX, Announcement};
pub use replica::{Applied, Replicas, StaleReplicas};
pub use resets::{RESET_CONNECTIONS_MAX, RESET_MEMORY, RESETS_QUEUED_MAX, ResetCounters};
pub use shard::{HandedFrame, Place, Redirect, ShardCounters};
pub use sharing::{SharingConfig, SharingCounters, WAIT_FOR_PEER_DEFAULT};
pub use tombstones::{TOMBSTONE_LIFETIME, TOMBSTONES_MAX, TombstoneCounters};
pub(crate) use waiting::Released;
pub use waiting::{WAITING_BYTES_MAX, WAITING_FRAMES_MAX, WAITING_FRAMES_PER_SOURCE_MAX};

/// The connections with everything that acts on packets.
pub struct Pipeline {
    connections: Connections,
    /// A place for each packet of a batch.
    pending: Vec<Pending>,
    fragments: FragmentTable,
    /// Packets that only an update of a peer can decide.
    waiting: Waiting,
    /// Connections that only filters of other nodes know.
    pub recovery: Recovery,
    reevaluation: Reevaluation,
    /// Handshakes that a SYN proxy has begun with servers.
    handshakes: Handshakes,
    key: HashKey,
    /// Connections may begin.
    begins: bool,
}

/// Construction and configuration.
impl Pipeline {
    /// A pipeline of `node` for at most `connections_max` connections.
    #[must_use]
    pub fn new(node: NodeId, connections_max: u32, key: HashKey, tracker: Tracker, chain: Chain) -> Self {
        Self {
            waiting: Waiting::new(key, &chain),
            connections: Connections::new(node, connections_max, key, tracker, chain),
            pending: vec![Pending::EMPTY; BATCH_FRAMES_MAX],
            fragments: FragmentTable::new(Limits::default().fragments, key),
            recovery: Recovery::new(key),
            reevaluation: Reevaluation::default(),
            handshakes: Handshakes::default(),
            key,
            begins: true,
        }
    }

    /// The same pipeline, which holds nothing yet, with these limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        debug_assert!(self.connections.table.is_empty(), "what is there already would not be counted");
        let connections_max = self.connections.table.capacity();
        self.fragments = FragmentTable::new(limits.fragments, self.key);
        let sources = limits.sources.map(|limit| Sources::new(limit, connections_max, self.key));
        self.connections.sources = sources.unwrap_or_default();
        self
    }

    /// The same pipeline, for a node beside which others forward.
    #[must_use]
    pub fn with_sharing(mut self, config: SharingConfig) -> Self {
        self.connections.sharing = Some(Sharing::new(self.connections.table.capacity(), config.is_symmetric).into());
        self.waiting.wait_max = config.wait_for_peer;
        self
    }

    /// The same pipeline, with something below it that forwards packets of established connections.
    pub(crate) fn set_fast_path(&mut self, now: Instant, program: Box<dyn FastPathProgram + Send>) {
        let connections_max = self.connections.table.capacity();
        let mut fast_path = Box::new(FastPath::new(program, connections_max));
        for (index, record) in fast_path.take_over() {
            fast_path.enter(index, self.enter_left(now, &record));
        }
        fast_path.follow_chain(self.chain());
        self.connections.fast_path = Some(fast_path);
    }

    /// Enters a connection of an earlier process of this node as a replica, with the whole time of its state from now on. `None`:
    /// the record is of another version or configuration, or the table has no room.
    fn enter_left(&mut self, now: Instant, record: &[u8]) -> Option<Slot> {
        let mut copy = precise::decode(now, record, &ChainStates(self.chain())).ok()?;
        copy.owner = self.connections.node;
        let timeout = self.connections.tracker.timeout(copy.original.protocol, &copy.protocol, copy.flags);
        copy.expires_at_nanos = (now + timeout).as_nanos();
        let is_taken = self.replicas().apply(now, copy.owner, copy) == Applied::Taken;
        self.lookup(&copy.original).filter(|_| is_taken).map(|(slot, _)| slot)
    }

    /// Gives the pipeline its place among a node's workers. Before the first packet.
    pub fn set_place(&mut self, place: Place) {
        let redirects_max = usize::try_from(self.connections.table.capacity()).unwrap_or(usize::MAX);
        self.connections.shard = Shard::new(place, redirects_max);
        self.connections.relations.set_place(place);
    }

    /// Takes a chain that [continues](Chain::continues) its own, and a tracker. Counters go on under their names;
    /// timeouts count from a connection's next packet.
    pub fn renew(&mut self, tracker: Tracker, chain: Chain) {
        self.waiting.renew(&chain);
        self.connections.plans.void_all();
        if let Some(fast_path) = &mut self.connections.fast_path {
            fast_path.follow_chain(&chain);
        }
        self.connections.functions.renew(chain);
        self.connections.tracker = tracker;
    }

    /// Whether packets of no connection may begin one from now on.
    pub(crate) const fn set_begins(&mut self, begins: bool) {
        self.begins = begins;
    }

    /// Packets that cannot be decided wait so long at most from now on.
    pub const fn set_wait_for_peer(&mut self, wait_for_peer: Duration) {
        self.waiting.wait_max = wait_for_peer;
    }

    /// The nodes that are alive and receive what this one replicates: their connections are theirs.
    pub fn set_live_owners(&mut self, owners: impl Iterator<Item = NodeId>) {
        if let Some(sharing) = &mut self.connections.sharing {
            sharing.live_owners.clear();
            sharing.live_owners.extend(owners);
        }
    }

    /// Whether a peer may be forwarding packets of this node's connections now.
    pub fn set_forwarded_elsewhere(&mut self, now: Instant, may_be: bool) {
        self.connections.forwarded_elsewhere.set(now, may_be);
    }

    /// From now on connections are re-evaluated by the chain as it is now: see [`Pipeline::reevaluate_some`].
    pub const fn begin_reevaluation(&mut self, by_rules: bool) {
        self.connections.plans.void_all();
        self.reevaluation.begin(by_rules);
    }

    /// Stops the re-evaluation, whatever is left.
    pub const fn stop_reevaluation(&mut self) {
        self.reevaluation.stop();
    }
}

/// What happens between batches: time passes, and peers and other workers send messages.
impl Pipeline {
    /// What changed since the last call, oldest first. The caller gives the vector back empty with
    /// [`Pipeline::return_changes`], so that none is allocated on the packet path.
    #[must_use]
    pub fn take_changes(&mut self) -> Vec<TableChange> {
        core::mem::take(&mut self.connections.changes)
    }

    /// Takes back what [`Pipeline::take_changes`] gave, to be filled again.
    pub fn return_changes(&mut self, mut changes: Vec<TableChange>) {
        changes.clear();
        self.connections.changes = changes;
    }

    /// Ends connections whose time has come by `now`, at most `connections_max` a call, and gives up packets whose fragments
    /// did not all come. `copies` returns the expiry of an owner's replicas. True when more may be waiting.
    pub fn expire(&mut self, now: Instant, connections_max: usize, copies: impl Fn(NodeId) -> ReplicaExpiry) -> bool {
        self.connections.observation.set_now(now);
        self.expire_fragments(now);
        self.connections.tombstones.forget_old(now);
        expiry::expire(&mut self.connections, now, connections_max, copies)
    }

    /// Goes on with handshakes whose servers have not answered; see [`Handshakes::serve`].
    pub(crate) fn serve_handshakes(&mut self, now: Instant, forwarder: &mut Forwarder) {
        self.handshakes.serve(&mut self.connections, now, forwarder);
    }

    /// Sends the end points of connections whose server has failed their resets.
    pub(crate) fn send_resets(&mut self, now: Instant, forwarder: &mut Forwarder) {
        for (to, reset) in self.connections.resets.take_due(now) {
            post(&to, reset, |packet| forwarder.post(now, packet));
        }
    }

    /// When [`Pipeline::expire`], the sweep of the fast path, the handshakes of the SYN proxy or resets have something to do next, at the earliest.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        let sweep = self.connections.fast_path.as_ref().and_then(|fast_path| fast_path.poll_timeout());
        let handshakes = self.handshakes.poll_timeout();
        let resets = self.connections.resets.poll_timeout();
        [self.connections.table.next_expiry(), self.fragments.poll_timeout(), sweep, handshakes, resets]
            .into_iter()
            .flatten()
            .min()
    }

    /// Re-evaluates up to `connections_max` more connections, those of other owners only if `is_of_all`, and ends those that
    /// the chain does not allow any more.
    pub fn reevaluate_some(&mut self, now: Instant, connections_max: usize, is_of_all: bool) {
        self.reevaluation.step(&mut self.connections, now, connections_max, is_of_all);
    }

    /// Fragments whose first one has passed since they were held. They are to be handled once more as they came.
    #[must_use]
    pub fn take_released_fragments(&mut self) -> Option<Vec<OwnedFrame>> {
        self.fragments.take_released()
    }

    /// An answer has come that functions wait for: [`Pipeline::take_released`] returns the packets that wait for one.
    pub(crate) const fn note_answered(&mut self) {
        self.waiting.note_answered();
    }

    /// The packets whose connections peers have replicated, and those that have waited long enough, oldest first. Each is to be
    /// handled once more, alone, with its origin.
    pub(crate) fn take_released(&mut self, now: Instant) -> Vec<Released> {
        let released = self.waiting.take_released(now);
        self.connections.counters.drops[DropReason::UnknownConnection as usize] += self.waiting.take_overdue();
        released
    }

    /// The next frame for another worker. To be polled after every batch, until there is none.
    pub fn poll_handed_over(&mut self) -> Option<HandedFrame> {
        self.connections.shard.handed.pop_front()
    }

    /// The next redirect for another worker.
    pub fn poll_redirect(&mut self) -> Option<(WorkerId, Redirect)> {
        self.connections.shard.notes.pop_front()
    }

    /// A redirect from another worker.
    pub fn handle_redirect(&mut self, from: WorkerId, redirect: Redirect) {
        let Connections { shard, table, .. } = &mut self.connections;
        match redirect {
            Redirect::Begins(tuple) => {
                if shard.begin_redirect(from, tuple, table) {
                    self.waiting.note_known(table.hash(&tuple));
                }
            }
            Redirect::Ends(tuple) => shard.end_redirect(from, &tuple),
            Redirect::Refused(tuple) => {
                // Its replies would be taken for another connection's: better none than half a connection.
                if let Some((slot, Direction::Reply)) = self.connections.lookup(&tuple) {
                    self.connections.end(slot, CloseReason::Terminated);
                }
            }
        }
    }

    /// The next announcement to another worker.
    pub fn poll_announcement(&mut self) -> Option<(WorkerId, Announcement)> {
        self.connections.relations.announcements.pop_front()
    }

    /// An announcement of another worker.
    pub fn handle_announcement(&mut self, now: Instant, announcement: &Announcement) {
        let relations = &mut self.connections.relations;
        match announcement {
            Announcement::Expects { master, expected } => relations.expectations.replace(now, master, expected),
            Announcement::HasCome { master, tuple } => {
                if relations.is_used_up_by(now, master, tuple) {
                    self.connections.note_used_up(master, tuple);
                }
            }
        }
    }

    /// The replicas of other nodes' connections, to be changed as those nodes replicate them.
    pub const fn replicas(&mut self) -> Replicas<'_> {
        Replicas { connections: &mut self.connections, waiting: &mut self.waiting }
    }

    /// Another node has the connection that this one owned: it is removed here, and peers are not informed.
    pub fn let_go(&mut self, slot: Slot) {
        let _ = self.connections.remove(slot);
    }

    /// A connection that this node owns may go on elsewhere: should its packets come here again, its windows are learnt
    /// afresh, as a replica's.
    pub fn keep_as_copy(&mut self, slot: Slot) {
        self.connections.leave_fast_path(slot);
        if let Some(connection) = self.connections.table.get_mut(slot) {
            connection.flags |= flags::REPLICA;
        }
    }

    /// This node becomes the owner of a connection that it holds a replica of, without having seen a packet of it.
    pub fn claim(&mut self, now: Instant, slot: Slot) {
        self.connections.claim(now, slot);
    }

    /// Remembers that a connection has ended of which a peer may know and has not learnt so.
    pub fn remember_ended(&mut self, now: Instant, ended: &Ended) {
        let name = self.connections.directed_hash(&ended.original);
        self.connections.tombstones.add(now, name, ended.version);
    }

    /// Appends what a backup must know of the connection's relations to others.
    pub fn encode_relations(&self, now: Instant, connection: &Connection, out: &mut Vec<u8>) {
        self.connections.relations.encode(now, connection, out);
    }

    /// Enters the relations of a replica that was just taken. They replace what was known.
    ///
    /// # Errors
    /// The attributes are malformed; nothing is changed then.
    pub fn apply_relations(
        &mut self,
        now: Instant,
        original: &Tuple,
        relations: &Relations<'_>,
    ) -> Result<(), TlvError> {
        let set = self.connections.relations.apply(now, original, relations)?;
        if let Some((slot, _)) = self.lookup(original).filter(|_| *relations != Relations::default()) {
            let connection = record_mut(&mut self.connections.table, slot);
            connection.flags = connection.flags & !(flags::EXPECTS | flags::RELATED) | set;
        }
        Ok(())
    }
}

/// The fast path, if there is one.
impl Pipeline {
    /// Has it forward if the node forwards packets of a group, or not. A node that `is_alone` and does not may begin to.
    pub(crate) fn set_fast_path_groups(&mut self, forwarded: GroupSet, is_alone: bool) {
        let is_role_open = is_alone && forwarded.is_empty();
        self.connections.fast_path.iter_mut().for_each(|fast_path| fast_path.follow_groups(forwarded, is_role_open));
    }

    /// Rules, routes or links have changed: each connection goes through the pipeline once more before it is on the fast path.
    pub(crate) fn invalidate_fast_path(&mut self) {
        self.connections.fast_path.iter_mut().for_each(|fast_path| fast_path.invalidate());
    }

    /// The node is alive; if it `is_alone`, no peer is. After the begin of a watch of packets, each connection goes through the pipeline
    /// once more, and those that are watched remain there.
    pub(crate) fn beat_fast_path(&mut self, now: Instant, is_alone: bool) {
        let Connections { fast_path, observation, .. } = &mut self.connections;
        let Some(fast_path) = fast_path else { return };
        if observation.take_begun() {
            fast_path.invalidate();
        }
        fast_path.beat(now, is_alone);
    }

    /// Whether established connections are forwarded for a while if the node ends while no peer is alive.
    #[must_use]
    pub(crate) fn fast_path_outlasts_node(&self) -> bool {
        let fast_path = self.connections.fast_path.as_ref();
        fast_path.is_some_and(|fast_path| fast_path.keeps_records() && fast_path.is_enabled())
    }

    /// Installs the connections of the last batch that need no more than the fast path does, and that `is_backed_up`.
    pub(crate) fn install_in_fast_path(
        &mut self,
        now: Instant,
        forwarder: &mut Forwarder,
        is_backed_up: impl Fn(Slot) -> bool,
    ) {
        let connections = &mut self.connections;
        let Some(fast_path) = &mut connections.fast_path else { return };
        fast_path.refresh_next_hops(forwarder);
        let candidates = fast_path.take_candidates();
        let mut record = Vec::new();
        for slot in &candidates {
            let is_owned = |connection: &&Connection| connection.owner == connections.node;
            let Some(connection) = connections.table.get(*slot).filter(is_owned) else { continue };
            let is_free = connections.check_for_fast_path(now, connection, || is_backed_up(*slot)).is_ok();
            if let Some(fast_path) = connections.fast_path.as_mut().filter(|_| is_free) {
                if fast_path.keeps_records() {
                    record.clear();
                    precise::encode(now, connection, &ChainStates(&connections.functions.chain), &mut record);
                }
                fast_path.install(now, (*slot, connection), &record, forwarder);
            }
        }
        if let Some(fast_path) = &mut connections.fast_path {
            fast_path.return_candidates(candidates);
        }
    }

    /// The path of a connection's packets; `None`: there is no fast path, or no such connection.
    pub(crate) fn packet_path(
        &self,
        now: Instant,
        original: &Tuple,
        forwarder: &Forwarder,
        is_backed_up: impl Fn(Slot) -> bool,
    ) -> Option<PacketPath> {
        let connections = &self.connections;
        let fast_path = connections.fast_path.as_ref()?;
        let (slot, _) = connections.lookup(original)?;
        let connection = connections.table.get(slot)?;
        let forwards = if connection.owner != connections.node {
            Err(GatewayReason::NotOwner)
        } else if connections.functions.chain.tunnel(connection) != Ok(None) {
            Err(GatewayReason::Tunnel)
        } else {
            let others = || connections.check_for_fast_path(now, connection, || is_backed_up(slot));
            fast_path.forwards(slot, connection, forwarder, others)
        };
        Some(forwards.map_or_else(PacketPath::Gateway, |()| PacketPath::Kernel))
    }

    /// Enters what the fast path saw into the records of some of its connections, and keeps its next hops up to date.
    pub(crate) fn sweep_fast_path(&mut self, now: Instant, forwarder: &mut Forwarder) {
        let Connections { table, tracker, fast_path, .. } = &mut self.connections;
        fast_path.iter_mut().for_each(|fast_path| fast_path.sweep(now, table, tracker, forwarder));
    }

    /// What the fast path has forwarded from and to a port, as far as it has been entered into records.
    #[must_use]
    pub fn fast_path_traffic(&self, port: PortId) -> PortTraffic {
        self.connections.fast_path.as_ref().map_or_else(PortTraffic::default, |fast_path| fast_path.traffic(port))
    }

    /// Where the fast path sees packets; `None`: there is none.
    #[must_use]
    pub fn fast_path_hook(&self) -> Option<Hook> {
        self.connections.fast_path.as_ref().map(|fast_path| fast_path.hook())
    }

    /// How the fast path stands; `None`: there is none.
    #[must_use]
    pub fn fast_path_status(&self) -> Option<FastPathStatus> {
        self.connections.fast_path.as_ref().map(|fast_path| fast_path.status())
    }
}
