//! The nodes, their tables, and the network between them.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::{Instant, NodeId, NodeSet};
use placement::Placer;
use state_service::index::IndexSecret;
use state_service::lookup::{Held, Limits, Lookup, LookupCounters, Outcome, Receiver, StateService, Table};
use state_service::message::{Key, Loads};

use crate::random::Random;

/// The secret of the cluster. Nothing attacks a simulation.
const SECRET: [u64; 2] = [3, 4];

/// A connection's number, which stands for its packets.
pub(super) type Number = u32;

/// The connections that a node has. The value: whether it is the owner.
#[derive(Default)]
struct NodeTable(BTreeMap<Key, bool>);

impl Table for NodeTable {
    fn hand_over(&mut self, _to: NodeId, key: &Key, state: &mut Vec<u8>) -> bool {
        let Some(is_owner) = self.0.get_mut(key) else { return false };
        *is_owner = false;
        self.copy(key, state)
    }

    fn copy(&mut self, key: &Key, state: &mut Vec<u8>) -> bool {
        let is_held = self.0.contains_key(key);
        if is_held {
            state.extend_from_slice(&[0; 64]);
        }
        is_held
    }
}

/// One node.
struct Node {
    service: StateService<Number>,
    table: NodeTable,
    placer: Placer,
}

/// How the packet of a connection was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// By the owner.
    Owned,
    /// By a replica, which became the owner.
    Replica,
    /// After a pull.
    Pulled,
    /// It was dropped.
    Dropped,
}

/// All nodes that run.
pub(super) struct Cluster {
    nodes: BTreeMap<NodeId, Node>,
    now: Instant,
    random: Random,
    loss_per_mille: u32,
    connections_max: u64,
    backups: usize,
    incarnations: u32,
    pub(super) messages: u64,
    pub(super) message_bytes: u64,
    pub(super) messages_lost: u64,
}

impl Cluster {
    pub(super) fn new(connections_max: u64, backups: usize, loss_per_mille: u32, random: Random) -> Self {
        Self {
            nodes: BTreeMap::new(),
            now: Instant::from_millis(1),
            random,
            loss_per_mille,
            connections_max,
            backups,
            incarnations: 0,
            messages: 0,
            message_bytes: 0,
            messages_lost: 0,
        }
    }

    /// Starts a node, empty, and introduces it to the others.
    pub(super) fn start(&mut self, node: NodeId) {
        self.incarnations += 1;
        let secret = IndexSecret::new(SECRET);
        let mut service = StateService::new(secret, self.connections_max, self.incarnations, Limits::default())
            .expect("the limit of connections was checked");
        for (other, peer) in &mut self.nodes {
            peer.service.set_alive(self.now, node, true);
            service.set_alive(self.now, *other, true);
        }
        let placer = Placer::new(node, self.backups);
        self.nodes.insert(node, Node { service, table: NodeTable::default(), placer });
    }

    /// Ends a node with everything that it has.
    pub(super) fn kill(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        for peer in self.nodes.values_mut() {
            peer.service.set_alive(self.now, node, false);
            peer.placer.remove_peer(node);
        }
    }

    pub(super) fn alive(&self) -> NodeSet {
        self.nodes.keys().copied().collect()
    }

    pub(super) fn placer(&mut self, node: NodeId) -> &mut Placer {
        &mut self.nodes.get_mut(&node).expect("a live node").placer
    }

    /// Sends the loads of a node to all others.
    pub(super) fn exchange_loads(&mut self, node: NodeId) {
        let node = self.nodes.get_mut(&node).expect("a live node");
        let loads: Loads = node.placer.loads();
        node.service.send_loads(loads);
    }

    /// Replicates a connection: exactly these nodes have it from now on.
    pub(super) fn replicate(&mut self, key: &Key, owner: NodeId, backups: &[NodeId]) {
        for (id, node) in &mut self.nodes {
            if *id == owner || backups.contains(id) {
                node.enter(key, *id == owner);
            } else {
                node.leave(key);
            }
        }
    }

    /// A packet of a connection arrives at a node. `None`: it waits, see [`Cluster::settle`].
    pub(super) fn packet(&mut self, node: NodeId, key: &Key, number: Number) -> Option<Served> {
        let now = self.now;
        let node = self.nodes.get_mut(&node).expect("packets are distributed to live nodes");
        let held = match node.table.0.get(key) {
            Some(true) => Held::Owned,
            Some(false) => Held::Replica,
            None => Held::Nothing,
        };
        match node.service.lookup(now, *key, number, held, false) {
            Lookup::Process(_) => Some(Served::Owned),
            Lookup::TakeOver(_) | Lookup::Begin(_) => {
                node.enter(key, true);
                Some(Served::Replica)
            }
            Lookup::Dropped(..) => Some(Served::Dropped),
            Lookup::Waits => None,
        }
    }

    /// Lets time pass until no packet waits, and returns how those that waited were served.
    pub(super) fn settle(&mut self) -> Vec<(Number, Served)> {
        let mut served = Vec::new();
        self.pass(1, &mut served);
        while self.nodes.values().any(|node| node.service.waiting() > 0) {
            self.pass(1, &mut served);
        }
        served
    }

    /// The time of the simulation.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// Lets milliseconds pass.
    pub(super) fn pass(&mut self, millis: u64, served: &mut Vec<(Number, Served)>) {
        for _ in 0..millis {
            self.now = self.now + Duration::from_millis(1);
            for node in self.nodes.values_mut() {
                if node.service.poll_timeout().is_some_and(|at| at <= self.now) {
                    node.service.handle_timeout(self.now);
                }
            }
            self.deliver();
            self.nodes.values_mut().for_each(|node| node.take_outcomes(served));
        }
    }

    /// Delivers messages until there are none.
    fn deliver(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let mut bytes = Vec::new();
        let mut has_sent = true;
        while has_sent {
            has_sent = false;
            for from in &ids {
                while let Some(to) =
                    self.nodes.get_mut(from).and_then(|node| node.service.poll_transmit(self.now, &mut bytes))
                {
                    has_sent = true;
                    for receiver in ids.iter().filter(|node| *node != from) {
                        if to == Receiver::All || to == Receiver::Node(*receiver) {
                            self.deliver_one(*from, *receiver, &bytes);
                        }
                    }
                    bytes.clear();
                }
            }
        }
    }

    fn deliver_one(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        self.messages += 1;
        self.message_bytes += bytes.len() as u64;
        if self.random.chance(self.loss_per_mille) {
            self.messages_lost += 1;
            return;
        }
        let Some(Node { service, table, .. }) = self.nodes.get_mut(&to) else { return };
        service.handle_peer(self.now, from, bytes, table).expect("nodes send what nodes understand");
    }

    /// What a node's service has done.
    pub(super) fn counters(&self, node: NodeId) -> LookupCounters {
        self.nodes.get(&node).map(|node| node.service.counters()).unwrap_or_default()
    }

    /// Queries of all nodes.
    pub(super) fn queries(&self) -> u64 {
        self.nodes.values().map(|node| node.service.counters().queries).sum()
    }
}

impl Node {
    fn enter(&mut self, key: &Key, is_owner: bool) {
        if self.table.0.insert(*key, is_owner).is_none() {
            // A full index only makes a connection harder to find.
            let _ = self.service.note_entered(key);
        }
    }

    fn leave(&mut self, key: &Key) {
        if self.table.0.remove(key).is_some() {
            self.service.note_left(key);
        }
    }

    fn take_outcomes(&mut self, served: &mut Vec<(Number, Served)>) {
        while let Some(outcome) = self.service.poll_outcome() {
            match outcome {
                Outcome::Pulled { key, packets, .. } => {
                    self.enter(&key, true);
                    served.extend(packets.into_iter().map(|number| (number, Served::Pulled)));
                }
                // No packet of the simulation begins a connection.
                Outcome::Dropped { packets, .. } | Outcome::Begin { packets, .. } => {
                    served.extend(packets.into_iter().map(|number| (number, Served::Dropped)));
                }
                Outcome::Loads { from, loads } => self.placer.handle_loads(from, &loads),
                // No packet here asks for a copy.
                Outcome::Forged { .. } | Outcome::Answer { .. } | Outcome::Copied { .. } => {}
            }
        }
    }
}
