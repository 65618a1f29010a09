//! The placement of one node's connections, batch by batch [TRIPOD, algorithm 2].

use std::collections::BTreeMap;

use flow::random::mix;
use flow::{NODES_MAX, NodeId, NodeSet};
use state_service::message::Loads;
use state_service::prediction::{Backups, FAILURES_MAX};

use crate::item::Item;
use crate::loads::NodeLoads;
use crate::program;

/// The most connections that are placed together: a larger batch is divided. Beyond this, one solution takes several
/// milliseconds.
pub const BATCH_MAX: usize = 64;
/// Shares nearer to 0 or 1 than this are whole.
const WHOLE: f64 = 1e-6;
/// Loads are exchanged in millionths of a byte.
const LOAD_UNITS_PER_BYTE: f64 = 1e6;

/// Places the connections of one node.
#[derive(Clone, Debug)]
pub struct Placer {
    node: NodeId,
    backups: usize,
    /// Loads by connections that this node has placed: its S.
    own: NodeLoads,
    /// The same of each peer, as last received.
    peers: BTreeMap<NodeId, NodeLoads>,
    unsolved: u64,
}

impl Placer {
    /// A placer of a node that has placed nothing, with this number of backups for each connection, at most [`FAILURES_MAX`].
    #[must_use]
    pub fn new(node: NodeId, backups: usize) -> Self {
        Self {
            node,
            backups: backups.min(FAILURES_MAX),
            own: NodeLoads::default(),
            peers: BTreeMap::new(),
            unsolved: 0,
        }
    }

    /// Places connections. Each gets as many backups as the placer has, or all other nodes of `alive`, if there are fewer.
    /// The order of a connection's backups is that of its landings, then of others.
    pub fn place(&mut self, items: &[Item], alive: NodeSet) -> Vec<Backups> {
        items.chunks(BATCH_MAX).flat_map(|batch| self.place_batch(batch, alive)).collect()
    }

    fn place_batch(&mut self, items: &[Item], alive: NodeSet) -> Vec<Backups> {
        let reachable: Vec<Item> = items.iter().map(|item| reachable(item, alive)).collect();
        let mut loads = self.all_loads();
        let is_free = |item: &Item| item.landings.len() > self.backups;
        let shares = if reachable.iter().any(is_free) {
            program::solve(&reachable, self.backups, &loads).unwrap_or_else(|_| {
                self.unsolved += 1;
                // No share is whole, so that all are decided by the loads.
                reachable.iter().map(|item| vec![0.5; item.landings.len()]).collect()
            })
        } else {
            reachable.iter().map(|item| vec![1.0; item.landings.len()]).collect()
        };
        // First those that the program has decided, so that the others are decided by nearly all loads.
        let is_whole = |shares: &[f64]| shares.iter().all(|share| !(WHOLE..=1.0 - WHOLE).contains(share));
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|index| !is_whole(&shares[*index]));
        let mut placed = vec![Backups::new(); items.len()];
        for index in order {
            let item = &reachable[index];
            let mut backups = rounded(item, &shares[index], self.backups, &loads);
            loads.add_uncovered(item, &backups, 1.0);
            self.own.add_uncovered(item, &backups, 1.0);
            fill(item, alive, self.backups, &mut backups);
            placed[index] = backups;
        }
        placed
    }

    /// A connection has ended, or is placed anew: its load is no longer expected.
    pub fn release(&mut self, item: &Item, backups: &Backups) {
        self.own.add_uncovered(item, backups, -1.0);
    }

    /// The loads that this node has placed, for its peers.
    #[must_use]
    pub fn loads(&self) -> Loads {
        let placed = self.own.0.iter().enumerate().filter(|(_, load)| **load > 0.0);
        placed.map(|(node, load)| (NodeId(node as u8), (load * LOAD_UNITS_PER_BYTE) as u64)).collect()
    }

    /// Records the loads that a peer has placed.
    pub fn handle_loads(&mut self, from: NodeId, loads: &Loads) {
        if from == self.node || usize::from(from.0) >= NODES_MAX {
            return;
        }
        let mut received = NodeLoads::default();
        loads.iter().for_each(|(node, load)| received.add(*node, *load as f64 / LOAD_UNITS_PER_BYTE));
        self.peers.insert(from, received);
    }

    /// A peer is gone: others place its connections.
    pub fn remove_peer(&mut self, node: NodeId) {
        self.peers.remove(&node);
    }

    /// Batches that the solver failed on, which were placed by their loads alone.
    #[must_use]
    pub const fn unsolved(&self) -> u64 {
        self.unsolved
    }

    fn all_loads(&self) -> NodeLoads {
        let mut all = self.own.clone();
        for peer in self.peers.values() {
            all.0.iter_mut().zip(peer.0).for_each(|(sum, load)| *sum += load);
        }
        all
    }
}

/// The connection without landings on dead nodes, or on its owner.
fn reachable(item: &Item, alive: NodeSet) -> Item {
    let mut item = item.clone();
    let owner = item.owner;
    item.landings.retain(|(node, _)| alive.contains(*node) && *node != owner);
    item
}

/// Chooses the nodes with a whole share, then those whose load would be greatest without a replica.
fn rounded(item: &Item, shares: &[f64], backups: usize, loads: &NodeLoads) -> Backups {
    let landings = item.landings.len();
    let mut chosen: Vec<usize> = (0..landings).filter(|landing| shares[*landing] > 1.0 - WHOLE).collect();
    let mut open: Vec<usize> =
        (0..landings).filter(|landing| (WHOLE..=1.0 - WHOLE).contains(&shares[*landing])).collect();
    let load = |landing: &usize| loads.of(item.landings[*landing].0.0.into()) + item.churn(*landing);
    open.sort_by(|one, other| load(other).total_cmp(&load(one)));
    chosen.extend(open);
    chosen.truncate(backups);
    chosen.sort_unstable();
    chosen.into_iter().map(|landing| item.landings[landing].0).collect()
}

/// Adds nodes where the connection lands after no predicted failure, so that it has as many replicas as any other. The hash spreads
/// connections over these nodes.
fn fill(item: &Item, alive: NodeSet, backups: usize, chosen: &mut Backups) {
    if chosen.len() >= backups {
        return;
    }
    let is_open = |node: &NodeId| *node != item.owner && !chosen.contains(node);
    let mut others: Vec<NodeId> = alive.iter().filter(is_open).collect();
    others.sort_by_key(|node| mix(mix(item.hash) ^ u64::from(node.0)));
    let missing = backups - chosen.len();
    chosen.extend(others.into_iter().take(missing));
}

#[cfg(test)]
mod tests;
