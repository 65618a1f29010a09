//! What happens to the cluster, one event after the other.

use std::time::Duration;

use flow::random::mix;
use flow::{HashKey, NodeId, NodeSet, Tuple, ip_protocol};
use placement::{BATCH_MAX, Item};
use state_service::message::{Key, Side};
use state_service::prediction::{Backups, FAILURES_MAX, FailureModel};

use super::cluster::{Cluster, Number, Served};
use super::distribution::Distribution;
use super::{FloodReport, ManyNodesConfig, ManyNodesError, OfPlacements, PhaseReport, comparators};
use crate::random::Random;

/// A host sends a packet that was dropped so many times.
const ATTEMPTS_MAX: usize = 6;
/// Between two attempts, and between two events.
const PAUSE_MS: u64 = 60;
/// Packets of the flood in each millisecond, and its milliseconds.
const FLOOD: (u32, u64) = (100, 200);
/// The bytes of a connection's state: least and greatest.
const SIZE_BYTES: (u64, u64) = (160, 420);

/// A connection.
struct Connection {
    key: Key,
    hash: u64,
    size_bytes: u32,
    /// The node that its packets have reached last.
    owner: NodeId,
    placed: Option<(Item, Backups)>,
    is_broken: bool,
}

/// The cluster, what distributes packets to it, and its connections.
pub(super) struct World<'a> {
    config: &'a ManyNodesConfig,
    clock: &'a mut dyn FnMut() -> Duration,
    random: Random,
    failures: FailureModel,
    distribution: Distribution,
    cluster: Cluster,
    connections: Vec<Connection>,
    failed: NodeSet,
    placement_times: Vec<Duration>,
    phases: Vec<PhaseReport>,
    flood: FloodReport,
}

impl<'a> World<'a> {
    pub(super) fn new(
        config: &'a ManyNodesConfig,
        clock: &'a mut dyn FnMut() -> Duration,
    ) -> Result<Self, ManyNodesError> {
        let mut random = Random::new(config.seed);
        let prepared_for = usize::from(config.failures).min(FAILURES_MAX);
        let failures = FailureModel::uniform(config.failure_probability, prepared_for)?;
        let nodes: NodeSet = (0..config.nodes - 1).map(NodeId).collect();
        let distribution = Distribution::new(config.distribution, nodes);
        // Twice the mean, so that nodes with more of them and survivors have room.
        let replicas = u64::from(config.connections) * (config.backups as u64 + 1);
        let survivors = u64::from(config.nodes - 1 - config.failures);
        let connections_max = 2 * replicas / survivors + 1000;
        let mut cluster = Cluster::new(connections_max, config.backups, config.loss_per_mille, random.fork());
        nodes.iter().for_each(|node| cluster.start(node));
        let key = HashKey([random.next(), random.next()]);
        let connections =
            (0..config.connections).map(|number| connection(number, &key, &distribution, &mut random)).collect();
        Ok(Self {
            config,
            clock,
            random,
            failures,
            distribution,
            cluster,
            connections,
            failed: NodeSet::EMPTY,
            placement_times: Vec::new(),
            phases: Vec::new(),
            flood: FloodReport::default(),
        })
    }

    /// Every node places its connections, a batch at a time, and the states are replicated.
    pub(super) fn place(&mut self) {
        let alive = self.cluster.alive();
        for node in alive.iter() {
            let is_owned = |connection: &Connection| connection.owner == node && !connection.is_broken;
            let numbers = 0..self.connections.len();
            let owned: Vec<usize> = numbers.filter(|number| is_owned(&self.connections[*number])).collect();
            for batch in owned.chunks(BATCH_MAX) {
                self.place_batch(node, batch, alive);
            }
            // Another node's load decides the next node's placement.
            self.cluster.exchange_loads(node);
            self.cluster.pass(1, &mut Vec::new());
        }
        self.cluster.pass(PAUSE_MS, &mut Vec::new());
    }

    fn place_batch(&mut self, node: NodeId, batch: &[usize], alive: NodeSet) {
        let items: Vec<Item> = batch
            .iter()
            .map(|number| {
                let Connection { hash, size_bytes, owner, .. } = self.connections[*number];
                Item { hash, owner, size_bytes, landings: self.distribution.landings(hash, &self.failures) }
            })
            .collect();
        for number in batch {
            let Some((item, backups)) = self.connections[*number].placed.take() else { continue };
            if item.owner == node {
                self.cluster.placer(node).release(&item, &backups);
            }
        }
        let began = (self.clock)();
        let placed = self.cluster.placer(node).place(&items, alive);
        self.placement_times.push((self.clock)().saturating_sub(began));
        for ((number, item), backups) in batch.iter().zip(items).zip(placed) {
            self.cluster.replicate(&self.connections[*number].key, node, &backups);
            self.connections[*number].placed = Some((item, backups));
        }
    }

    /// Nodes fail at once. Returns the churn and the replicas of all placements.
    pub(super) fn fail(&mut self) -> (OfPlacements, OfPlacements) {
        while self.failed.len() < self.config.failures.into() {
            self.failed.insert(NodeId(self.random.between(0, u64::from(self.config.nodes) - 2) as u8));
        }
        for node in self.failed.iter() {
            self.cluster.kill(node);
            self.distribution.set_alive(node, false);
        }
        let compared = self.compare();
        self.send_packets("fail");
        compared
    }

    /// Of the connections that move now, the share whose new node has no replica, by placement.
    fn compare(&mut self) -> (OfPlacements, OfPlacements) {
        let nodes: NodeSet = self.cluster.alive().iter().chain(self.failed.iter()).collect();
        let (mut moved, mut uncovered, mut replicas) = (0_u32, [0_u32; 3], [0; 3]);
        for connection in &self.connections {
            let Some((item, backups)) = &connection.placed else { continue };
            let placements = [
                backups.to_vec(),
                comparators::random(item, self.config.backups, nodes, &mut self.random),
                comparators::perfect(item),
            ];
            let lands = self.distribution.node(connection.hash);
            let has_moved = lands != connection.owner;
            moved += u32::from(has_moved);
            for (index, placement) in placements.iter().enumerate() {
                uncovered[index] += u32::from(has_moved && !placement.contains(&lands));
                replicas[index] += placement.len();
            }
        }
        let of = |figures: [f64; 3]| OfPlacements { min_churn: figures[0], random: figures[1], perfect: figures[2] };
        let share = |count: u32| f64::from(count) / f64::from(moved.max(1));
        let mean = |count: usize| count as f64 / self.connections.len() as f64;
        (of(uncovered.map(share)), of(replicas.map(mean)))
    }

    /// The failed nodes return, empty.
    pub(super) fn rejoin(&mut self) {
        for node in self.failed.iter() {
            self.cluster.start(node);
            self.distribution.set_alive(node, true);
        }
        self.cluster.pass(PAUSE_MS, &mut Vec::new());
        self.send_packets("rejoin");
    }

    /// A further node joins.
    pub(super) fn add(&mut self) {
        let node = NodeId(self.config.nodes - 1);
        self.cluster.start(node);
        self.distribution.add(node);
        self.cluster.pass(PAUSE_MS, &mut Vec::new());
        self.send_packets("add");
    }

    /// Every connection sends a packet, and again those whose packet was dropped.
    fn send_packets(&mut self, phase: &'static str) {
        let queries = self.cluster.queries();
        let mut report = PhaseReport { phase, ..PhaseReport::default() };
        let mut left: Vec<Number> = (0..self.config.connections).collect();
        left.retain(|number| !self.connections[*number as usize].is_broken);
        report.moved = left.iter().filter(|number| self.has_moved(**number)).count() as u64;
        for _ in 0..ATTEMPTS_MAX {
            let mut served = Vec::new();
            for chunk in left.chunks(1000) {
                for number in chunk {
                    let connection = &self.connections[*number as usize];
                    let node = self.distribution.node(connection.hash);
                    let at_once = self.cluster.packet(node, &connection.key, *number);
                    served.extend(at_once.map(|how| (*number, how)));
                }
                self.cluster.pass(1, &mut served);
            }
            served.extend(self.cluster.settle());
            report.pulled += served.iter().filter(|(_, how)| *how == Served::Pulled).count() as u64;
            left = served.iter().filter(|(_, how)| *how == Served::Dropped).map(|(number, _)| *number).collect();
            if left.is_empty() {
                break;
            }
            self.cluster.pass(PAUSE_MS, &mut Vec::new());
        }
        for number in left {
            self.connections[number as usize].is_broken = true;
            report.broken += 1;
        }
        for connection in &mut self.connections {
            connection.owner = self.distribution.node(connection.hash);
        }
        report.queries = self.cluster.queries().saturating_sub(queries);
        self.phases.push(report);
    }

    fn has_moved(&self, number: Number) -> bool {
        let connection = &self.connections[number as usize];
        self.distribution.node(connection.hash) != connection.owner
    }

    /// Packets of no connection arrive at one node.
    pub(super) fn flood(&mut self) {
        let node = self.distribution.alive().iter().next().expect("a node is alive");
        let (before, began) = (self.cluster.counters(node), self.cluster.now());
        let (per_ms, millis) = FLOOD;
        let mut served = Vec::new();
        for number in 0..per_ms * millis as u32 {
            let key = Key { side: Side::Incoming, tuple: tuple(mix(u64::from(number) << 32 | self.config.seed)) };
            served.extend(self.cluster.packet(node, &key, number).map(|how| (number, how)));
            if number.is_multiple_of(per_ms) {
                self.cluster.pass(1, &mut served);
            }
        }
        served.extend(self.cluster.settle());
        let after = self.cluster.counters(node);
        self.flood = FloodReport {
            packets: u64::from(per_ms) * millis,
            millis: self.cluster.now().saturating_since(began).as_millis() as u64,
            dropped: served.iter().filter(|(_, how)| *how == Served::Dropped).count() as u64,
            queries: after.queries - before.queries,
            pulls: after.pulls - before.pulls,
        };
    }

    pub(super) fn phases(&self) -> &[PhaseReport] {
        &self.phases
    }

    pub(super) const fn flood_report(&self) -> FloodReport {
        self.flood
    }

    /// The median and the greatest.
    pub(super) fn placement_ms(&self) -> [f64; 2] {
        let mut times = self.placement_times.clone();
        times.sort_unstable();
        let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        [millis(times.get(times.len() / 2)), millis(times.last())]
    }

    /// Messages, their bytes, and lost ones.
    pub(super) const fn messages(&self) -> (u64, u64, u64) {
        (self.cluster.messages, self.cluster.message_bytes, self.cluster.messages_lost)
    }
}

fn connection(number: u32, key: &HashKey, distribution: &Distribution, random: &mut Random) -> Connection {
    let original = tuple(mix(u64::from(number)) | 1);
    let hash = key.hash(&original);
    // Half of them send from inside.
    let (side, tuple) =
        if number.is_multiple_of(2) { (Side::Incoming, original) } else { (Side::Outgoing, original.inverse()) };
    let size_bytes = random.between(SIZE_BYTES.0, SIZE_BYTES.1) as u32;
    let owner = distribution.node(hash);
    Connection { key: Key { side, tuple }, hash, size_bytes, owner, placed: None, is_broken: false }
}

fn tuple(bits: u64) -> Tuple {
    let source = ((bits >> 32) as u32).into();
    let server = (0x0a00_0000 | (bits >> 16 & 0xff) as u32).into();
    Tuple::v4(ip_protocol::TCP, (source, bits as u16), (server, 443))
}
