//! A small seeded simulation: clients and servers with a toy TCP, two edges, and nodes that forward between them and die.
//!
//! ```text
//!  clients ──4 ms── inside edge ── node 0, 1, 2 ── outside edge ──6 ms── servers         the round trip is 20 ms
//! ```
//!
//! A node that fails drops everything. A survivor drops packets of connections that it did not have before, until it has taken them
//! over. The toy TCP has a fixed window, cumulative acknowledgements, one timer with exponential backoff, and fast retransmission.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use flow::random::SplitMix64;
use flow::wire::build::{self, Tcp};
use flow::{Disposition, Instant, NodeId, PortId, Tuple};

use crate::harness::*;

const ROUND_TRIP: Duration = Duration::from_millis(20);
const CLIENT_DELAY: Duration = Duration::from_millis(4);
const SERVER_DELAY: Duration = Duration::from_millis(6);
const SEGMENT_BYTES: u32 = 1000;
const WINDOW_SEGMENTS: u32 = 20;
const SYN_TIMEOUT: Duration = Duration::from_secs(1);
const DATA_TIMEOUT: Duration = Duration::from_millis(220);
/// The resends of all connections of a node at 20 000 a second.
const PACING: Duration = Duration::from_millis(3);

/// One end of a toy connection.
struct Host {
    /// The tuple of what it sends.
    tuple: Tuple,
    is_client: bool,
    /// It sends data without end; the other end acknowledges.
    has_data: bool,
    is_open: bool,
    unacknowledged: u32,
    next: u32,
    received: u32,
    /// Segments behind a gap.
    early: BTreeSet<u32>,
    duplicates: u32,
    timeout: Duration,
    timer: Option<Instant>,
    /// When data was acknowledged, or the handshake completed.
    progress: Vec<Instant>,
    retransmissions: u32,
}

impl Host {
    fn new(tuple: Tuple, is_client: bool, has_data: bool) -> Self {
        Self {
            tuple,
            is_client,
            has_data,
            is_open: false,
            unacknowledged: 0,
            next: 0,
            received: 0,
            early: BTreeSet::new(),
            duplicates: 0,
            timeout: if is_client { SYN_TIMEOUT } else { DATA_TIMEOUT },
            timer: None,
            progress: Vec::new(),
            retransmissions: 0,
        }
    }

    fn frame(&self, flags: u8, sequence: u32, payload_bytes: u32) -> Vec<u8> {
        let is_syn = flags & SYN != 0;
        let fields = Tcp {
            flags,
            sequence,
            acknowledgement: self.received,
            window_scale: is_syn.then_some(7),
            sack_permitted: is_syn,
            ..Tcp::default()
        };
        build::tcp(&self.tuple, fields, &vec![1; payload_bytes as usize])
    }

    fn segment(&self, sequence: u32) -> Vec<u8> {
        match (sequence, self.is_client) {
            (0, true) => self.frame(SYN, 0, 0),
            (0, false) => self.frame(SYN | ACK, 0, 0),
            _ => self.frame(ACK, sequence, SEGMENT_BYTES),
        }
    }

    fn open(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        self.next = 1;
        self.timer = Some(now + self.timeout);
        out.push(self.segment(0));
    }

    /// What the window allows.
    fn send(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        while self.has_data && self.is_open && self.next - self.unacknowledged < WINDOW_SEGMENTS * SEGMENT_BYTES {
            out.push(self.segment(self.next));
            self.next += SEGMENT_BYTES;
        }
        if self.next != self.unacknowledged && self.timer.is_none() {
            self.timer = Some(now + self.timeout);
        }
    }

    fn retransmit(&mut self, out: &mut Vec<Vec<u8>>) {
        self.retransmissions += 1;
        out.push(self.segment(self.unacknowledged));
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        if self.timer.is_some_and(|at| at <= now) {
            self.timeout *= 2;
            self.timer = Some(now + self.timeout);
            self.retransmit(out);
        }
    }

    fn handle(&mut self, now: Instant, bytes: &[u8], out: &mut Vec<Vec<u8>>) {
        let (_, segment) = read(bytes);
        if segment.has(SYN) {
            self.received = 1;
            if !self.is_client {
                self.open(now, out);
                return;
            }
        }
        if segment.has(ACK) && segment.acknowledgement > self.unacknowledged && segment.acknowledgement <= self.next {
            self.unacknowledged = segment.acknowledgement;
            (self.is_open, self.duplicates, self.timeout, self.timer) = (true, 0, DATA_TIMEOUT, None);
            self.progress.push(now);
        } else if segment.has(ACK) && segment.payload_bytes == 0 && self.next > self.unacknowledged {
            self.duplicates += 1;
            if self.duplicates == 3 {
                self.retransmit(out);
            }
        }
        self.receive(segment.sequence, segment.payload_bytes, segment.has(SYN), out);
        self.send(now, out);
    }

    fn receive(&mut self, sequence: u32, payload_bytes: u32, is_syn: bool, out: &mut Vec<Vec<u8>>) {
        if payload_bytes == 0 && !is_syn {
            return;
        }
        if !is_syn && sequence >= self.received {
            self.early.insert(sequence);
            while self.early.remove(&self.received) {
                self.received += SEGMENT_BYTES;
            }
        }
        out.push(self.frame(ACK, self.next, 0));
    }
}

/// A frame that travels, or a moment at which timers are looked at.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    ToHost { connection: usize, is_client: bool, bytes: Vec<u8> },
    ToEdge { is_inside: bool, ingress: PortId, bytes: Vec<u8> },
    Tick,
}

struct Simulation {
    now: Instant,
    moments: BinaryHeap<Reverse<(Instant, u64, Moment)>>,
    count: u64,
    /// Client and server of each connection.
    hosts: Vec<[Host; 2]>,
    edges: [World; 2],
    failed: Option<NodeId>,
    /// The connections that each node has, by the client's port.
    owners: BTreeMap<u16, NodeId>,
    has_taken_over: bool,
    /// Of the hosts' links, in thousandths.
    loss_per_mille: u64,
    random: SplitMix64,
}

impl Simulation {
    fn new(seed: u64, has_recovery: bool, loss_per_mille: u64) -> Self {
        let edge = || {
            World::new(|config| {
                if !has_recovery {
                    config.recovery = None;
                }
            })
        };
        Self {
            now: ms(1000),
            moments: BinaryHeap::new(),
            count: 0,
            hosts: Vec::new(),
            edges: [edge(), edge()],
            failed: None,
            owners: BTreeMap::new(),
            has_taken_over: true,
            loss_per_mille,
            random: SplitMix64::new(seed),
        }
    }

    fn schedule(&mut self, delay: Duration, moment: Moment) {
        self.count += 1;
        self.moments.push(Reverse((self.now + delay, self.count, moment)));
    }

    /// A new connection; the client or the server sends.
    fn connect(&mut self, client_sends: bool) {
        let tuple = tcp_tuple(self.hosts.len() as u16);
        self.hosts.push([Host::new(tuple, true, client_sends), Host::new(tuple.inverse(), false, !client_sends)]);
        let (connection, mut out) = (self.hosts.len() - 1, Vec::new());
        self.hosts[connection][0].open(self.now, &mut out);
        self.send_from(true, out);
    }

    /// Frames of a host go to its edge.
    fn send_from(&mut self, is_client: bool, frames: Vec<Vec<u8>>) {
        for bytes in frames {
            if self.random.between(0, 999) >= self.loss_per_mille {
                let delay = if is_client { CLIENT_DELAY } else { SERVER_DELAY };
                self.schedule(delay, Moment::ToEdge { is_inside: is_client, ingress: NETWORK, bytes });
            }
        }
    }

    fn run(&mut self, until: Instant) {
        self.schedule(Duration::ZERO, Moment::Tick);
        while let Some(Reverse((at, _, moment))) = self.moments.pop() {
            if at > until {
                self.now = until;
                return;
            }
            self.now = at;
            self.handle(moment);
        }
    }

    fn handle(&mut self, moment: Moment) {
        match moment {
            Moment::Tick => self.tick(),
            Moment::ToEdge { is_inside, ingress, bytes } => self.pass_edge(is_inside, ingress, bytes),
            Moment::ToHost { connection, is_client, bytes } => {
                let mut out = Vec::new();
                self.hosts[connection][usize::from(!is_client)].handle(self.now, &bytes, &mut out);
                self.send_from(is_client, out);
            }
        }
    }

    /// Timers of hosts and edges, every 200 µs.
    fn tick(&mut self) {
        for connection in 0..self.hosts.len() {
            for host in 0..2 {
                let mut out = Vec::new();
                self.hosts[connection][host].handle_timeout(self.now, &mut out);
                self.send_from(host == 0, out);
            }
        }
        for edge in 0..2 {
            let mut buffer = Vec::new();
            while let Some(transmit) = self.edges[edge].edge.poll_transmit(self.now, &mut buffer) {
                self.send_by(edge == 0, transmit.port, buffer.clone());
            }
        }
        self.schedule(Duration::from_micros(200), Moment::Tick);
    }

    fn pass_edge(&mut self, is_inside: bool, ingress: PortId, mut bytes: Vec<u8>) {
        let world = &mut self.edges[usize::from(!is_inside)];
        world.now = self.now;
        if let Disposition::Transmit(port) = world.arrive(ingress, &mut bytes) {
            self.send_by(is_inside, port, bytes);
        }
    }

    /// An edge sends a frame: to its hosts, or to a node, which forwards it to the other edge.
    fn send_by(&mut self, is_inside: bool, port: PortId, bytes: Vec<u8>) {
        let tuple = read(&bytes).0.tuple;
        let connection = if is_inside == (port == NETWORK) { tuple.destination_port } else { tuple.source_port };
        if port == NETWORK {
            let delay = if is_inside { CLIENT_DELAY } else { SERVER_DELAY };
            self.schedule(delay, Moment::ToHost { connection: connection.into(), is_client: is_inside, bytes });
            return;
        }
        let node = NodeId(port.0 - 1);
        let owner = *self.owners.entry(connection).or_insert(node);
        let is_passed = self.failed != Some(node) && (owner == node || self.has_taken_over);
        if is_passed {
            self.owners.insert(connection, node);
            self.schedule(Duration::ZERO, Moment::ToEdge { is_inside: !is_inside, ingress: port, bytes });
        }
    }

    /// A node dies. The edges detect it, and the survivors take over after the outage; returns that time.
    fn fail_over(&mut self, node: NodeId, outage: Duration) -> Instant {
        (self.failed, self.has_taken_over) = (Some(node), false);
        let detected_at = self.now + outage / 2;
        self.run(detected_at);
        self.for_edges(|world| world.edge.set_node_alive(world.now, node, false));
        self.run(detected_at + outage / 2);
        self.has_taken_over = true;
        self.for_edges(|world| {
            world.edge.switched_over(world.now, node);
            world.confirm_all();
        });
        self.now
    }

    fn for_edges(&mut self, change: impl Fn(&mut World)) {
        for world in &mut self.edges {
            world.now = self.now;
            change(world);
        }
    }
}

/// The first time at which the host progressed after `from`.
fn stall(host: &Host, from: Instant) -> Duration {
    host.progress.iter().find(|at| **at > from).map_or(Duration::MAX, |at| at.saturating_since(from))
}

/// Bulk transfers in both directions, one of whose nodes fails. Returns the stalls of the connections on it, and the retransmissions of
/// the other connections.
fn bulk(seed: u64, has_recovery: bool, outage: Duration) -> (Vec<Duration>, u32) {
    let mut simulation = Simulation::new(seed, has_recovery, 0);
    for connection in 0..CONNECTIONS {
        simulation.connect(connection % 2 == 0);
        let now = simulation.now;
        simulation.run(now + Duration::from_micros(700));
    }
    simulation.run(ms(2000));
    let victim = NodeId((seed % u64::from(NODES)) as u8);
    let is_on_victim = |simulation: &Simulation, connection: usize| simulation.owners[&(connection as u16)] == victim;
    let on_victim: Vec<bool> = (0..CONNECTIONS).map(|connection| is_on_victim(&simulation, connection)).collect();
    let from = simulation.fail_over(victim, outage);
    simulation.run(from + Duration::from_secs(3));
    let sender = |connection: usize| &simulation.hosts[connection][connection % 2];
    let stalls =
        (0..CONNECTIONS).filter(|connection| on_victim[*connection]).map(|connection| stall(sender(connection), from));
    let others = (0..CONNECTIONS)
        .filter(|connection| !on_victim[*connection])
        .map(|connection| sender(connection).retransmissions);
    (stalls.collect(), others.sum())
}

const CONNECTIONS: usize = 24;
const OUTAGES_MS: [u64; 4] = [60, 300, 1000, 2500];

#[test]
fn bulk_transfers_go_on_within_one_and_a_half_round_trips_of_the_switch_over() {
    for (seed, outage_ms) in OUTAGES_MS.into_iter().enumerate() {
        let outage = Duration::from_millis(outage_ms);
        let (stalls, retransmissions_of_others) = bulk(seed as u64, true, outage);
        assert!(stalls.len() >= 4 && retransmissions_of_others == 0, "{stalls:?} {retransmissions_of_others}");
        let longest = stalls.iter().max().expect("there are some");
        assert!(*longest <= ROUND_TRIP * 3 / 2 + PACING, "outage {outage_ms} ms: {longest:?}");
        let (without, _) = bulk(seed as u64, false, outage);
        let longest_without = without.iter().max().expect("there are some");
        assert!(
            *longest_without >= Duration::from_millis(100) && *longest_without > *longest * 3,
            "{longest_without:?}"
        );
        println!("outage {outage_ms} ms: stall {longest:?} with local recovery, {longest_without:?} without");
    }
}

/// Connections that begin during an outage. Returns the stalls of those whose SYN was lost.
fn handshakes(has_recovery: bool) -> Vec<Duration> {
    let mut simulation = Simulation::new(1, has_recovery, 0);
    (simulation.failed, simulation.has_taken_over) = (Some(NodeId(0)), false);
    for _ in 0..30 {
        simulation.connect(true);
        let now = simulation.now;
        simulation.run(now + Duration::from_millis(1));
    }
    let from = simulation.fail_over(NodeId(0), Duration::from_millis(100));
    let is_open = |hosts: &[Host; 2]| hosts[0].progress.iter().any(|at| *at <= from);
    let lost: Vec<usize> = (0..30).filter(|connection| !is_open(&simulation.hosts[*connection])).collect();
    simulation.run(from + Duration::from_secs(4));
    lost.iter().map(|connection| stall(&simulation.hosts[*connection][0], from)).collect()
}

#[test]
fn a_lost_syn_is_answered_within_a_round_trip_of_the_switch_over() {
    let (with, without) = (handshakes(true), handshakes(false));
    assert!(with.len() > 5 && with.len() == without.len());
    assert!(with.iter().all(|stall| *stall <= ROUND_TRIP + PACING), "{with:?}");
    assert!(without.iter().all(|stall| *stall >= Duration::from_millis(500)), "{without:?}");
}

#[test]
fn transfers_over_links_with_loss_survive_failovers() {
    for seed in 0..6 {
        let mut simulation = Simulation::new(seed, true, 10);
        (0..20).for_each(|connection| simulation.connect(connection % 2 == 0));
        simulation.run(ms(4000));
        let from = simulation.fail_over(NodeId(0), Duration::from_millis(200));
        simulation.run(from + Duration::from_secs(10));
        for hosts in &simulation.hosts {
            let sender = &hosts[usize::from(!hosts[0].has_data)];
            let receiver = &hosts[usize::from(hosts[0].has_data)];
            assert!(stall(sender, from) < Duration::from_secs(8), "seed {seed}: {:?}", stall(sender, from));
            assert!(receiver.received <= sender.next, "nothing arrives that was not sent");
        }
    }
}
