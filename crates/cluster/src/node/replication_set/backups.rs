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
//! | this node claims it, because its owner is lost, removed or drained | is computed; its former owner is added until it has acknowledged the connection, and all live nodes if packets do not land here |
//! | this node was alone, and peers are back | has all live nodes, until all of them have acknowledged it |
//! | another node takes it over | is empty: the new owner decides |
//! | nodes go down, come up, begin or cease to forward | all sets: nodes that are missing are added at once, and marked |
//! | the number of backups, or the edges' nodes, change | the same |
//! | a live node has no state service, and this one has | has all live nodes |
//! | [`SETTLES_WITHIN`](super::members::SETTLES_WITHIN) later | nodes that are too many leave once all others have acknowledged the connection |
//!
//! A node that leaves a set is sent an end, as if the connection's time were over: it refuses that if it forwards packets of the connection
//! ([`crate::pipeline::Replicas::refuse_end`]), and becomes its owner. Shared connections keep their backups.
//!
//! Connections of an owner that is dead, removed from the cluster or drained would keep one replica less than configured if they have no
//! packets. So the node where their packets would land claims them a second later; if that one has none, any node that has a replica of a
//! lost owner's connection claims it two seconds after that. Edges still have the former owner for such a connection, and send its packets
//! there once the node is back. So it is in the set until a packet arrives here. A node that leaves for good waits until others have claimed
//! what it owns.

use alloc::vec;
use alloc::vec::Vec;

use flow::table::Slot;
use flow::{Affinity, Connection, Ecmp, HashKey, Instant, NodeId, NodeSet};
use state_service::prediction::FAILURES_MAX;

use crate::pipeline::Pipeline;

/// The most backups of a connection.
pub const BACKUPS_MAX: usize = FAILURES_MAX;

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

/// What of [`BackupsConfig`] can change while the node works. Nodes that differ in it for a moment only predict other landings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupsShape {
    /// As [`BackupsConfig::count`].
    pub count: usize,
    /// As [`BackupsConfig::edge_nodes`].
    pub edge_nodes: NodeSet,
}

/// How the backups of connections stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupsStatus {
    /// Backups that a connection is to have.
    pub count: usize,
    /// The nodes that the edges distribute packets to.
    pub edge_nodes: NodeSet,
    /// Nodes came or went, and not all connections have an owner and backups that have acknowledged them yet.
    pub is_unsettled: bool,
    /// Live backups that have not acknowledged connections of this node for seconds.
    pub silent: NodeSet,
}

/// A sweep over all slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    pub(super) next: Slot,
    /// Nodes that are too many leave the sets, and connections of dead nodes are claimed.
    pub(super) is_final: bool,
    /// Some nodes could not leave yet.
    pub(super) is_incomplete: bool,
    /// The owner of some replicas decides them no more, and nobody has claimed them yet.
    pub(super) is_unclaimed: bool,
    /// Connections were claimed, which no backup has acknowledged yet.
    pub(super) has_claimed: bool,
    /// The backups that live, and have not acknowledged some connection yet.
    pub(super) silent: NodeSet,
}

impl Sweep {
    pub(super) const fn new(is_final: bool) -> Self {
        let (is_incomplete, is_unclaimed, has_claimed) = (false, false, false);
        Self { next: Slot(0), is_final, is_incomplete, is_unclaimed, has_claimed, silent: NodeSet::EMPTY }
    }
}

/// The backups of this node's connections.
#[derive(Debug)]
pub(in crate::node) struct Backups {
    pub(super) shape: BackupsShape,
    edge_hash_key: HashKey,
    edge_affinity: Affinity,
    /// This node and the peers that receive what it sends, whether the edges have them or not.
    pub(super) live: NodeSet,
    /// Nodes that were removed from the cluster, or are drained.
    pub(super) withdrawn: NodeSet,
    /// The edges' tables, with the nodes that forward.
    pub(super) forwarding: Ecmp,
    /// The edges' tables, with all nodes that are up.
    pub(super) up: Ecmp,
    /// All live nodes back up every connection: one of them cannot look connections up.
    pub(super) is_complete: bool,
    /// By slot; of slots without a connection of this node's: empty.
    sets: Vec<NodeSet>,
    /// By slot: the former owner of a connection that was claimed and has had no packet since. Edges send its packets there again once
    /// that node is back.
    pub(super) claimed_from: Vec<NodeSet>,
    pub(super) sweep: Option<Sweep>,
    /// When the final sweep begins.
    pub(super) settles_at: Option<Instant>,
    /// Nodes came or went, and since then no final sweep has found every connection with owner and backups.
    pub(super) is_unsettled: bool,
    /// All peers were lost at once, as when this node is cut off or removed: they may have claimed what it owns. When some are back, all of them
    /// receive all that it owns, until a final sweep finds that acknowledged.
    pub(super) has_been_alone: bool,
    /// Final sweeps in a row that have found connections without an acknowledgement.
    pub(super) unconfirmed_sweeps: u32,
    /// The backups that many of these sweeps have waited for.
    pub(super) silent: NodeSet,
}

impl Backups {
    /// No peer is up yet.
    pub(in crate::node) fn new(config: &BackupsConfig, connections_max: u32) -> Self {
        let BackupsConfig { count, edge_nodes, edge_hash_key, edge_affinity } = *config;
        let tables = tables(edge_nodes, NodeSet::EMPTY);
        Self {
            shape: BackupsShape { count: count.clamp(1, BACKUPS_MAX), edge_nodes },
            edge_hash_key,
            edge_affinity,
            live: NodeSet::EMPTY,
            withdrawn: NodeSet::EMPTY,
            forwarding: tables.clone(),
            up: tables,
            is_complete: false,
            sets: vec![NodeSet::EMPTY; connections_max as usize],
            claimed_from: vec![NodeSet::EMPTY; connections_max as usize],
            sweep: None,
            settles_at: None,
            is_unsettled: false,
            has_been_alone: false,
            unconfirmed_sweeps: 0,
            silent: NodeSet::EMPTY,
        }
    }

    pub(in crate::node) fn status(&self) -> BackupsStatus {
        let BackupsShape { count, edge_nodes } = self.shape;
        BackupsStatus { count, edge_nodes, is_unsettled: self.is_unsettled, silent: self.silent }
    }

    /// Nodes came or went, and not all connections have their new backups yet.
    pub(super) fn is_marking(&self) -> bool {
        self.sweep.is_some_and(|sweep| !sweep.is_final)
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
        if let Some(at) = self.claimed_from.get_mut(slot.0 as usize) {
            *at = NodeSet::EMPTY;
        }
        self.sets.get_mut(slot.0 as usize).map(core::mem::take).unwrap_or_default()
    }

    /// A node receives the connection in the slot beside its backups, until the next final sweep.
    pub(in crate::node) fn add(&mut self, slot: Slot, node: NodeId) {
        if let Some(set) = self.sets.get_mut(slot.0 as usize) {
            set.insert(node);
        }
    }

    /// A connection of `node`, which is this node, begins.
    pub(super) fn begin(&mut self, node: NodeId, pipeline: &Pipeline, slot: Slot) {
        let Some(connection) = pipeline.connection(slot) else { return };
        self.set(slot, self.predict(node, connection));
    }

    pub(super) fn set(&mut self, slot: Slot, nodes: NodeSet) {
        if let Some(at) = self.sets.get_mut(slot.0 as usize) {
            *at = nodes;
        }
    }

    /// Whether the peer must have the connection of `node`, which is this node. A peer whose session is open may not count as up yet.
    pub(in crate::node) fn is_meant(&self, node: NodeId, peer: NodeId, slot: Slot, connection: &Connection) -> bool {
        let is_current = self.sweep.is_none_or(|sweep| sweep.is_final) && self.up.alive().contains(peer);
        self.of(slot).contains(peer) || (!is_current && self.predict_with(node, connection, peer).contains(peer))
    }

    /// The nodes that are to back up a connection of `owner`.
    pub(super) fn predict(&self, owner: NodeId, connection: &Connection) -> NodeSet {
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
            for _ in 0..self.shape.count {
                let Some(next) = tables.predict(hash, failed) else { break };
                failed.insert(next);
                landings.insert(next);
            }
        }
        landings
    }

    /// The node where packets of the connection's original direction land now.
    pub(super) fn landing(&self, connection: &Connection) -> Option<NodeId> {
        self.forwarding.select(self.hashes(connection).0)
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

/// Tables of these nodes, of which some are alive.
pub(super) fn tables(nodes: NodeSet, alive: NodeSet) -> Ecmp {
    let mut tables = Ecmp::new(nodes);
    set_alive(&mut tables, nodes, alive);
    tables
}

/// Sets which of the nodes of `tables` are alive. Whether that changed.
pub(super) fn set_alive(tables: &mut Ecmp, nodes: NodeSet, alive: NodeSet) -> bool {
    let mut has_changed = false;
    for node in nodes.iter() {
        has_changed |= tables.set_alive(node, alive.contains(node));
    }
    has_changed
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
