//! The cost of replicating the kernel's connections, without system calls: `cargo run --release -p conntrack-sync
//! --example sync_cost`.
//!
//! Short TCP connections of seven events each are replicated from one node to the other, whose requests to the kernel
//! are discarded. Then memory is measured with 200 000 connections, and a failover of them.
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::time::{Duration, Instant as Clock};

use conntrack_sync::*;
use flow::netfilter::{Discriminator, Entry, ProtocolInfo, Status, TcpFlags, TcpInfo, TcpSide, TcpState, Tuple};
use flow::{HashKey, Instant, NodeId};
use replication::SessionConfig;

const ROUNDS: u32 = 400;
const CONNECTIONS_PER_ROUND: u32 = 500;
const HELD: u32 = 200_000;

fn node(number: u8, role: SyncRole) -> SyncNode {
    let session = SessionConfig { batch_delay: Duration::ZERO, ..SessionConfig::default() };
    let config = SyncConfig {
        node: NodeId(number),
        connections_max: 1 << 20,
        hash_key: HashKey([1, 2]),
        seed: u64::from(number) + 1,
        injection: Injection::Direct,
        mode: Mode::PrimaryBackup,
        role,
        filter: SyncFilter::default(),
        expectations: true,
        deferral: None,
        timeout_floor: TIMEOUT_FLOOR_DEFAULT,
        heartbeat_interval: HEARTBEAT_INTERVAL_DEFAULT,
        peers: vec![SyncPeerConfig { id: NodeId(1 - number), profile: PeerProfile::Native(session) }],
        security: None,
    };
    SyncNode::new(config, Instant::from_millis(1000)).expect("the configuration is sound")
}

fn entry(number: u32, state: TcpState) -> Entry {
    let [a, b, c, d] = number.to_be_bytes();
    let original = Tuple {
        source: [10, a, b, c].into(),
        destination: [192, 0, 2, 1].into(),
        protocol: 6,
        discriminator: Discriminator::Ports { source: 1024 + u16::from(d), destination: 80 },
    };
    let side = TcpSide { window_scale: 7, flags: TcpFlags::WINDOW_SCALE.union(TcpFlags::SACK) };
    Entry {
        id: Some(number + 1),
        status: Some(Status::CONFIRMED.union(Status::SEEN_REPLY).union(Status::ASSURED)),
        timeout_s: Some(432_000),
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state, sides: Some([side; 2]) })),
        ..Entry::new(original, original.inverse())
    }
}

/// The durations of the stages.
#[derive(Default)]
struct Spent {
    events: Duration,
    sending: Duration,
    receiving: Duration,
    requests: Duration,
    requested: u64,
}

struct Pair {
    nodes: [SyncNode; 2],
    now_ms: u64,
    batch: Vec<KernelRequest>,
    datagram: Vec<u8>,
    spent: Spent,
}

impl Pair {
    fn exchange(&mut self) {
        self.now_ms += 1;
        let now = Instant::from_millis(self.now_ms);
        for from in [0, 1] {
            self.nodes[from].handle_timeout(now);
            loop {
                let began = Clock::now();
                let Some(to) = self.nodes[from].poll_transmit(now, &mut self.datagram) else { break };
                let sent = Clock::now();
                self.nodes[usize::from(to.0)]
                    .handle_datagram(now, NodeId(from as u8), &self.datagram)
                    .expect("nothing is lost");
                self.spent.sending += sent - began;
                self.spent.receiving += sent.elapsed();
            }
            let began = Clock::now();
            while self.nodes[from].poll_kernel_requests(now, &mut self.batch) {
                self.spent.requested += self.batch.len() as u64;
                self.nodes[from].handle_requests_done(now);
            }
            self.spent.requests += began.elapsed();
        }
    }

    fn events(&mut self, each: impl Iterator<Item = Entry>, event: fn(&Entry) -> KernelEvent<'_>) {
        let entries: Vec<Entry> = each.collect();
        let now = Instant::from_millis(self.now_ms);
        let began = Clock::now();
        for entry in &entries {
            self.nodes[0].handle_kernel_event(now, Origin::Packets, event(entry));
        }
        self.spent.events += began.elapsed();
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() {
    let mut pair = Pair {
        nodes: [node(0, SyncRole::Primary), node(1, SyncRole::Backup)],
        now_ms: 1000,
        batch: Vec::new(),
        datagram: Vec::new(),
        spent: Spent::default(),
    };
    for node in &mut pair.nodes {
        assert!(node.poll_dump(Instant::from_millis(1000)));
        node.handle_dump_ended(Instant::from_millis(1000), DumpResult::Complete);
    }
    while !pair.nodes.iter().all(|node| node.readiness(Instant::from_millis(pair.now_ms)).is_safe()) {
        pair.exchange();
    }
    pair.spent = Spent::default();
    let states = [TcpState::SynRecv, TcpState::Established, TcpState::FinWait, TcpState::LastAck, TcpState::TimeWait];
    let before = pair.nodes[0].status(Instant::ZERO).peers[0].session.expect("it is native").messages_sent;
    for round in 0..ROUNDS {
        let numbers = || (0..CONNECTIONS_PER_ROUND).map(move |number| round * CONNECTIONS_PER_ROUND + number);
        pair.events(numbers().map(|number| entry(number, TcpState::SynSent)), |entry| KernelEvent::Began(entry));
        for state in states {
            pair.events(numbers().map(|number| entry(number, state)), |entry| KernelEvent::Changed(entry));
            pair.exchange();
        }
        pair.events(numbers().map(|number| entry(number, TcpState::TimeWait)), |entry| KernelEvent::Ended(entry));
        pair.exchange();
    }
    let connections = u64::from(ROUNDS * CONNECTIONS_PER_ROUND);
    let messages = pair.nodes[0].status(Instant::ZERO).peers[0].session.expect("it is native").messages_sent - before;
    let each = |time: Duration, count: u64| time.as_nanos() as f64 / count.max(1) as f64;
    println!("an event                {:7.0} ns", each(pair.spent.events, connections * 7));
    println!("a message, to be sent   {:7.0} ns", each(pair.spent.sending, messages));
    println!("a message, received     {:7.0} ns", each(pair.spent.receiving, messages));
    println!("a request to the kernel {:7.0} ns", each(pair.spent.requests, pair.spent.requested));
    println!("messages a connection   {:9.1}", messages as f64 / connections as f64);
    let all = pair.spent.events + pair.spent.sending + pair.spent.receiving + pair.spent.requests;
    println!("a connection, both ends {:7.0} ns", each(all, connections));

    let empty = resident_bytes();
    for part in (0..HELD).step_by(1000) {
        pair.events((part..part + 1000).map(|number| entry(number, TcpState::Established)), |entry| {
            KernelEvent::Began(entry)
        });
        pair.exchange();
    }
    (0..20).for_each(|_| pair.exchange());
    let now = Instant::from_millis(pair.now_ms);
    assert_eq!(pair.nodes[1].status(now).replicas, HELD);
    println!("memory a connection     {:7.0} bytes a node", (resident_bytes() - empty) as f64 / f64::from(HELD) / 2.0);
    let began = Clock::now();
    pair.nodes[1].set_role(now, SyncRole::Primary);
    let claimed = began.elapsed();
    pair.nodes[0].set_role(now, SyncRole::Backup);
    let mut datagram = Vec::new();
    while pair.nodes[0].poll_transmit(now, &mut datagram).is_some() {
        let _ = pair.nodes[1].handle_datagram(now, NodeId(0), &datagram);
    }
    let began = Clock::now();
    let own_before = pair.nodes[1].status(now).own;
    while pair.nodes[1].poll_kernel_requests(now, &mut pair.batch) {
        pair.nodes[1].handle_requests_done(now);
    }
    println!(
        "taking over {HELD}      {:7.2} ms, of the kernel asked for {:.2} ms",
        claimed.as_secs_f64() * 1e3,
        began.elapsed().as_secs_f64() * 1e3
    );
    assert_eq!(own_before, HELD);
}
