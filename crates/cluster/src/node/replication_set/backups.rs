//! The backups of each connection: the nodes that edges send its packets to after failures [TRIPOD, section V].
//!
//! Edges select a node by a hash of the packet and by the nodes that forward ([`flow::Ecmp`]). Only the failure of its own node moves a
//! connection. So the landings of a connection are a chain that begins with its owner, and its first `count` nodes cover every failure of
//! `count` nodes. Where addresses are translated, packets of the two directions have different hashes at the two edges. The set then has the
//! landings of both.
//!
//! A node that comes back is up before it forwards. Until it does, a set has the landings without it and with it.
//!
//! | | the set of a connection |
//! |---|---|
//! | the connection begins | is computed |
//! | this node takes it over, or pulls it | is computed; its former owner, and a node that contradicted, are added |
//! | another node takes it over | is empty: the new owner decides |
//! | nodes go down, come up, begin or cease to forward | all sets: nodes that are missing are added at once, and marked |
//! | a live node has no state service, and this one has | has all live nodes |
//! | [`SETTLES_WITHIN`] later | nodes that are too many leave once all others have acknowledged the connection |
//!
//! A node that leaves a set is sent an end, as if the connection's time were over: it refuses that if it forwards packets of the connection
//! ([`crate::pipeline::Replicas::refuse_end`]), and becomes its owner. Shared connections keep their backups.
//!
//! Connections of a dead owner that have no packets would keep one replica less than configured. So the node where their packets would land
//! claims them [`SETTLES_WITHIN`] after the failure.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::table::Slot;
use flow::{Affinity, Connection, Ecmp, HashKey, Instant, NodeId, NodeSet, conntrack};
use replication::Handle;
use replication::representation::precise::{self, EndCause, Ended};
use state_service::prediction::FAILURES_MAX;

use crate::node::peer::Peer;
use crate::node::peers::Peers;
use crate::pipeline::Pipeline;

/// The most backups of a connection.
pub const BACKUPS_MAX: usize = FAILURES_MAX;
/// Slots looked at in one call of [`Node::handle_timeout`](crate::node::Node::handle_timeout), at most: packets wait no longer than that.
const SLOTS_PER_TIMEOUT_MAX: usize = 1024;
/// Packets of connections that a failure has moved mostly arrive within this time, and new backups acknowledge what they were sent.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);

/// Which peers a connection is replicated to. Alike on all nodes.
#[derive(Clone, Debug)]
pub struct BackupsConfig {
    /// Backups of a connection, from 1 to [`BACKUPS_MAX`]: so many nodes may fail at once without a loss.
    pub count: usize,
    /// The nodes that the edges distribute packets to.
    pub edge_nodes: NodeSet,
    /// The secret under which the edges hash flows.
    pub edge_hash_key: HashKey,
    /// The affinity of the edge on the side where connections begin.
    pub edge_affinity: Affinity,
}

/// How the backups of connections stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupsStatus {
    /// Backups that a connection is to have.
    pub count: usize,
    /// The nodes that the edges distribute packets to.
    pub edge_nodes: NodeSet,
    /// Nodes came or went, and not all connections have their new backups yet.
    pub is_marking: bool,
}

/// A walk over all slots.
#[derive(Clone, Copy, Debug)]
struct Walk {
    next: Slot,
    /// Nodes that are too many leave the sets, and connections of dead nodes are claimed.
    is_final: bool,
    /// Some nodes could not leave yet.
    is_incomplete: bool,
}

/// The backups of this node's connections.
#[derive(Debug)]
pub(in crate::node) struct Backups {
    count: usize,
    edge_nodes: NodeSet,
    edge_hash_key: HashKey,
    edge_affinity: Affinity,
    /// The edges' tables, with the nodes that forward.
    forwarding: Ecmp,
    /// The edges' tables, with all nodes that are up.
    up: Ecmp,
    /// All live nodes back up every connection: one of them cannot look connections up.
    is_complete: bool,
    /// By slot; of slots without a connection of this node's: empty.
    sets: Vec<NodeSet>,
    walk: Option<Walk>,
    /// When the final walk begins.
    settles_at: Option<Instant>,
}

impl Backups {
    /// No peer is up yet.
    pub(in crate::node) fn new(config: &BackupsConfig, connections_max: u32) -> Self {
        let BackupsConfig { count, edge_nodes, edge_hash_key, edge_affinity } = *config;
        let mut tables = Ecmp::new(edge_nodes);
        set_alive(&mut tables, edge_nodes, NodeSet::EMPTY);
        Self {
            count: count.clamp(1, BACKUPS_MAX),
            edge_nodes,
            edge_hash_key,
            edge_affinity,
            forwarding: tables.clone(),
            up: tables,
            is_complete: false,
            sets: vec![NodeSet::EMPTY; connections_max as usize],
            walk: None,
            settles_at: None,
        }
    }

    pub(in crate::node) fn status(&self) -> BackupsStatus {
        BackupsStatus { count: self.count, edge_nodes: self.edge_nodes, is_marking: self.is_marking() }
    }

    /// Nodes came or went, and not all connections have their new backups yet.
    pub(super) fn is_marking(&self) -> bool {
        self.walk.is_some_and(|walk| !walk.is_final)
    }

    /// The backups of the connection in the slot.
    pub(super) fn of(&self, slot: Slot) -> NodeSet {
        self.sets.get(slot.0 as usize).copied().unwrap_or_default()
    }

    /// The slot has no connection of this node's any more.
    pub(super) fn clear(&mut self, slot: Slot) {
        self.take(slot);
    }

    /// As [`Backups::clear`]. Returns the backups that it had.
    pub(super) fn take(&mut self, slot: Slot) -> NodeSet {
        self.sets.get_mut(slot.0 as usize).map(core::mem::take).unwrap_or_default()
    }

    /// A node receives the connection in the slot beside its backups, until the next final walk.
    pub(in crate::node) fn add(&mut self, slot: Slot, node: NodeId) {
        if let Some(set) = self.sets.get_mut(slot.0 as usize) {
            set.insert(node);
        }
    }

    /// A connection of `node`, which is this node, begins.
    pub(super) fn begin(&mut self, node: NodeId, pipeline: &Pipeline, slot: Slot) {
        let Some(connection) = pipeline.connection(slot) else { return };
        let set = self.predict(node, connection);
        if let Some(at) = self.sets.get_mut(slot.0 as usize) {
            *at = set;
        }
    }

    /// This node has become the owner of a connection. To be called while the sessions still hold it as a replica.
    pub(super) fn take_over(&mut self, node: NodeId, pipeline: &Pipeline, peers: &[Peer], slot: Slot) {
        let holds_copy = |peer: &&Peer| {
            peer.is_up() && peer.session.as_ref().is_some_and(|session| session.holds_copy(Handle(slot.0)))
        };
        let former: NodeSet = peers.iter().filter(holds_copy).map(|peer| peer.id).collect();
        let beside = former.union(self.of(slot));
        self.begin(node, pipeline, slot);
        beside.iter().for_each(|node| self.add(slot, node));
    }

    /// Whether the peer must have the connection of `node`, which is this node. A peer whose session is open may not count as up yet.
    pub(in crate::node) fn is_meant(&self, node: NodeId, peer: NodeId, slot: Slot, connection: &Connection) -> bool {
        let is_current = self.walk.is_none_or(|walk| walk.is_final) && self.up.alive().contains(peer);
        self.of(slot).contains(peer) || (!is_current && self.predict_with(node, connection, peer).contains(peer))
    }

    /// The nodes that are to back up a connection of `owner`.
    fn predict(&self, owner: NodeId, connection: &Connection) -> NodeSet {
        if self.is_complete {
            return self.up.alive().without([owner].into_iter().collect());
        }
        let of_up = self.landings(&self.up, owner, connection);
        if self.forwarding.alive() == self.up.alive() {
            return of_up;
        }
        of_up.union(self.landings(&self.forwarding, owner, connection))
    }

    /// As [`Backups::predict`], once this peer is up.
    fn predict_with(&self, owner: NodeId, connection: &Connection, peer: NodeId) -> NodeSet {
        let mut up = self.up.clone();
        up.set_alive(peer, true);
        self.landings(&up, owner, connection).union(self.predict(owner, connection))
    }

    /// The first `count` landings of each direction if the owner fails, then the node behind it, and so on.
    fn landings(&self, tables: &Ecmp, owner: NodeId, connection: &Connection) -> NodeSet {
        let mut landings = NodeSet::EMPTY;
        let (original, reply) = self.hashes(connection);
        for hash in [original].into_iter().chain(reply) {
            let mut failed: NodeSet = [owner].into_iter().collect();
            for _ in 0..self.count {
                let Some(next) = tables.predict(hash, failed) else { break };
                failed.insert(next);
                landings.insert(next);
            }
        }
        landings
    }

    /// The hashes of its packets, at the edge where they began and, if that differs, at the other.
    fn hashes(&self, connection: &Connection) -> (u64, Option<u64>) {
        let of = |tuple| self.edge_affinity.hash(&self.edge_hash_key, tuple);
        let original = of(&connection.original);
        let reply = match self.edge_affinity {
            Affinity::Learned | Affinity::Tuple => Some(of(&connection.reply)),
            // The other edge hashes the same host.
            Affinity::Address(_) => None,
        };
        (original, reply.filter(|reply| *reply != original))
    }
}

/// Members that come and go.
impl Backups {
    /// Follows which nodes are up and forward. `forwards`: this node, `node`, does.
    pub(super) fn follow(&mut self, now: Instant, node: NodeId, peers: &[Peer], forwards: bool) {
        let live = || peers.iter().filter(|peer| peer.can_back_up());
        let up = live().map(|peer| peer.id).chain([node]).collect();
        let forwarding = live().filter(|peer| peer.is_forwarding).map(|peer| peer.id);
        let forwarding = forwarding.chain(forwards.then_some(node)).collect();
        let has_changed = set_alive(&mut self.up, self.edge_nodes, up);
        if set_alive(&mut self.forwarding, self.edge_nodes, forwarding) || has_changed {
            self.begin_recomputation(now);
        }
    }

    /// Whether all live nodes back up every connection from now on, because one of them cannot look connections up.
    pub(super) fn set_complete(&mut self, now: Instant, is_complete: bool) {
        if self.is_complete != is_complete {
            self.is_complete = is_complete;
            self.begin_recomputation(now);
        }
    }

    fn begin_recomputation(&mut self, now: Instant) {
        self.walk = Some(Walk { next: Slot(0), is_final: false, is_incomplete: false });
        self.settles_at = Some(now + SETTLES_WITHIN);
    }

    /// Goes on with the sets' recomputation. Connections that are claimed are among the changes of the pipeline.
    pub(super) fn handle_timeout(&mut self, now: Instant, node: NodeId, pipeline: &mut Pipeline, peers: &mut Peers) {
        if self.walk.is_none() && self.settles_at.is_some_and(|at| at <= now) {
            self.settles_at = None;
            self.walk = Some(Walk { next: Slot(0), is_final: true, is_incomplete: false });
        }
        let Some(mut walk) = self.walk else { return };
        for _ in 0..SLOTS_PER_TIMEOUT_MAX {
            let Some(slot) = pipeline.table().next_occupied(walk.next) else {
                self.walk = None;
                let again_at = walk.is_incomplete.then_some(now + SETTLES_WITHIN);
                self.settles_at = self.settles_at.or(again_at);
                return;
            };
            walk.next = Slot(slot.0 + 1);
            let Some(connection) = pipeline.connection(slot) else { continue };
            if connection.owner == node {
                walk.is_incomplete |= !self.update(node, connection, slot, walk.is_final, peers);
            } else if walk.is_final && self.may_claim(now, node, connection, peers) {
                pipeline.replicas().claim(now, slot);
            }
        }
        self.walk = Some(walk);
    }

    /// When there is something to do next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.walk.is_some() { Some(Instant::ZERO) } else { self.settles_at }
    }

    /// Computes the set of a connection of this node's anew. False if nodes have yet to leave it.
    fn update(&mut self, node: NodeId, connection: &Connection, slot: Slot, is_final: bool, peers: &mut Peers) -> bool {
        let handle = Handle(slot.0);
        let wanted = self.predict(node, connection);
        let gone = self.edge_nodes.without(self.up.alive());
        let surplus = self.of(slot).without(gone).without(wanted);
        let is_shared = connection.flags & flags::SHARED != 0;
        let may_leave = is_final && !is_shared && (surplus.is_empty() || have_acknowledged(peers, wanted, handle));
        let set = if may_leave { wanted } else { wanted.union(surplus) };
        if let Some(at) = self.sets.get_mut(slot.0 as usize) {
            *at = set;
        }
        let mut name = Vec::new();
        for peer in peers {
            let Some(session) = peer.session.as_mut().filter(|session| session.is_open()) else { continue };
            if set.contains(peer.id) {
                if !session.is_replicated(handle) {
                    session.mark_changed(handle);
                }
            } else {
                if name.is_empty() {
                    precise::encode_ended(&Ended { cause: EndCause::TimedOut, ..Ended::from(connection) }, &mut name);
                }
                session.mark_deleted(handle, &name);
            }
        }
        may_leave || surplus.is_empty() || is_shared || !is_final
    }

    /// Whether the owner of a replica is dead, and packets of the connection would land here.
    fn may_claim(&self, now: Instant, node: NodeId, connection: &Connection, peers: &Peers) -> bool {
        let is_dead = |peer: &Peer| peer.orphaned_at.is_some_and(|at| at + SETTLES_WITHIN <= now);
        let original = self.edge_affinity.hash(&self.edge_hash_key, &connection.original);
        peers.get(connection.owner).is_some_and(is_dead)
            && self.forwarding.select(original) == Some(node)
            && !conntrack::is_closing(connection.original.protocol, &connection.protocol)
    }
}

/// Sets which of the nodes of `tables` are alive. Whether that changed.
fn set_alive(tables: &mut Ecmp, nodes: NodeSet, alive: NodeSet) -> bool {
    nodes.iter().fold(false, |has_changed, node| tables.set_alive(node, alive.contains(node)) || has_changed)
}

/// Whether all these nodes receive what this one sends, and have acknowledged the connection.
fn have_acknowledged(peers: &Peers, nodes: NodeSet, handle: Handle) -> bool {
    nodes.iter().all(|node| {
        let session = peers.get(node).and_then(|peer| peer.session.as_ref());
        session.is_some_and(|session| session.is_open() && session.is_acknowledged(handle))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use flow::conntrack::ProtocolState;
    use flow::{AddressOf, Tuple};

    const OWNER: NodeId = NodeId(0);

    fn nodes(numbers: &[u8]) -> NodeSet {
        numbers.iter().copied().map(NodeId).collect()
    }

    /// Five nodes, all of which forward.
    fn backups(count: usize, edge_affinity: Affinity) -> Backups {
        let edge_nodes = nodes(&[0, 1, 2, 3, 4]);
        let config = BackupsConfig { count, edge_nodes, edge_hash_key: HashKey([3, 4]), edge_affinity };
        let mut backups = Backups::new(&config, 4);
        for tables in [&mut backups.up, &mut backups.forwarding] {
            set_alive(tables, edge_nodes, edge_nodes);
        }
        backups
    }

    fn connections() -> impl Iterator<Item = Connection> {
        let original = |port| Tuple::v4(6, (Ipv4Addr::new(10, 0, 0, 2), port), (Ipv4Addr::new(192, 0, 2, 1), 443));
        (1..200).map(move |port| Connection::new(original(port), OWNER, ProtocolState::default(), Instant::ZERO))
    }

    #[test]
    fn a_set_has_the_landings_of_both_directions_if_their_hashes_differ() {
        let backups = backups(1, Affinity::Learned);
        let mut sizes = [0; 3];
        for plain in connections() {
            let outside = Tuple { source_port: plain.original.source_port + 1000, ..plain.original };
            let mut translated = plain;
            translated.reply = outside.inverse();
            let landing = |tuple: &Tuple| backups.up.predict(HashKey([3, 4]).hash(tuple), nodes(&[0]));
            let both = [landing(&plain.original), landing(&outside)].into_iter().flatten().collect();
            assert_eq!(backups.predict(OWNER, &plain).len(), 1);
            assert_eq!(backups.predict(OWNER, &translated), both);
            sizes[both.len() as usize] += 1;
        }
        assert!(sizes[1] > 0 && sizes[2] > 0, "both cases were there: {sizes:?}");
    }

    #[test]
    fn address_affinity_has_one_hash_though_the_tuples_differ() {
        let backups = backups(1, Affinity::Address(AddressOf::NearHost));
        let sets: Vec<_> = connections().map(|connection| backups.predict(OWNER, &connection)).collect();
        assert!(sets.iter().all(|set| *set == sets[0] && set.len() == 1), "all are of one host: {sets:?}");
    }

    #[test]
    fn until_a_node_forwards_a_set_has_the_landings_without_it_and_with_it() {
        let mut backups = backups(2, Affinity::Tuple);
        let with: Vec<_> = connections().map(|connection| backups.predict(OWNER, &connection)).collect();
        backups.forwarding.set_alive(NodeId(3), false);
        let between: Vec<_> = connections().map(|connection| backups.predict(OWNER, &connection)).collect();
        backups.up.set_alive(NodeId(3), false);
        let without: Vec<_> = connections().map(|connection| backups.predict(OWNER, &connection)).collect();
        for ((with, between), without) in with.iter().zip(&between).zip(&without) {
            assert_eq!(*between, with.union(*without));
            assert!(!without.contains(NodeId(3)) && without.len() == 2);
        }
        assert_ne!(with, between, "node 3 is a backup of some");
        for (connection, with) in connections().zip(&with) {
            let node = NodeId(3);
            let is_meant = backups.predict_with(OWNER, &connection, node).contains(node);
            assert_eq!(is_meant, with.contains(node), "a full synchronisation counts its peer as up");
        }
    }
}
