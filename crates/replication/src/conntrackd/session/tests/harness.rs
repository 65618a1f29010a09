//! Two ends of a link that loses, doubles and delays datagrams, in simulated time.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use flow::netfilter::{Discriminator, Entry, ProtocolInfo, Status, TcpInfo, TcpState, Tuple};
use flow::random::SplitMix64;
use flow::{Instant, NodeId};

use crate::conntrackd::testing::MemoryTable;
use crate::conntrackd::{FtfwConfig, FtfwEvent, FtfwSession};

/// What the sessions of the tests count from.
pub(super) const TIME_OF_DAY_S: u32 = 1_800_000_000;
/// No time without anything to do lasts longer.
const STEP: Duration = Duration::from_millis(50);

/// A connection of the tests; `version` is its mark.
pub(super) fn connection(number: u16, version: u32) -> Entry {
    let discriminator = Discriminator::Ports { source: number, destination: 80 };
    let original =
        Tuple { source: [10, 1, 0, 10].into(), destination: [198, 51, 100, 10].into(), protocol: 6, discriminator };
    Entry {
        status: Some(Status(0xe)),
        timeout_s: Some(432_000),
        mark: Some(version),
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::Established, sides: None })),
        ..Entry::new(original, original.inverse())
    }
}

/// One end of the link.
pub(super) trait End {
    fn handle(&mut self, now: Instant, datagram: &[u8]);
    fn tick(&mut self, now: Instant);
    fn poll(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool;
    fn timeout(&self) -> Option<Instant>;
}

/// A session and its table.
pub(super) struct Node {
    pub(super) session: FtfwSession,
    pub(super) table: MemoryTable,
    pub(super) events: Vec<FtfwEvent>,
}

impl Node {
    pub(super) fn new(config: FtfwConfig, time_of_day_s: u32) -> Self {
        let session = FtfwSession::new(config, NodeId(1), time_of_day_s).unwrap();
        Self { session, table: MemoryTable::default(), events: Vec::new() }
    }

    pub(super) fn put(&mut self, entry: Entry) {
        let handle = self.table.put(entry);
        self.session.mark_changed(handle);
    }

    pub(super) fn end(&mut self, number: u16) {
        if let Some((handle, entry)) = self.table.take(&connection(number, 0).original, 0) {
            self.session.mark_deleted(handle, &entry);
        }
    }

    /// Its own connections, by tuple, with their versions.
    pub(super) fn own(&self) -> BTreeMap<Tuple, Option<u32>> {
        self.table.connections.iter().flatten().map(|entry| (entry.original, entry.mark)).collect()
    }

    /// Its replicas likewise.
    pub(super) fn copies(&self) -> BTreeMap<Tuple, Option<u32>> {
        self.table.copies.values().map(|entry| (entry.original, entry.mark)).collect()
    }
}

impl End for Node {
    fn handle(&mut self, now: Instant, datagram: &[u8]) {
        self.session.handle_datagram(now, datagram, &mut self.table).unwrap_or_default();
    }

    fn tick(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        self.events.extend(core::iter::from_fn(|| self.session.poll_event()));
    }

    fn poll(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        self.session.poll_transmit(now, &mut self.table, buffer)
    }

    fn timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }
}

/// What the link does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// In percent.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    /// So much later than usual, at most, in milliseconds: what overtakes what.
    pub(super) delay_max_ms: u64,
}

/// Two ends and the link between them.
pub(super) struct World<L, R> {
    pub(super) left: L,
    pub(super) right: R,
    pub(super) now: Instant,
    pub(super) weather: Weather,
    random: SplitMix64,
    /// When what arrives where.
    in_flight: VecDeque<(Instant, bool, Vec<u8>)>,
    pub(super) datagrams: usize,
}

impl<L: End, R: End> World<L, R> {
    pub(super) fn new(left: L, right: R, seed: u64) -> Self {
        Self {
            left,
            right,
            now: Instant::from_millis(1),
            weather: Weather::default(),
            random: SplitMix64::new(seed),
            in_flight: VecDeque::new(),
            datagrams: 0,
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.next() % 100 < percent
    }

    fn send(&mut self, is_to_right: bool, datagram: &[u8]) {
        self.datagrams += 1;
        let copies = u64::from(!self.chance(self.weather.lost)) + u64::from(self.chance(self.weather.doubled));
        for _ in 0..copies {
            let extra_ms = self.random.next() % (self.weather.delay_max_ms + 1);
            let at = self.now + Duration::from_micros(100) + Duration::from_millis(extra_ms);
            let place = self.in_flight.partition_point(|(other, ..)| *other <= at);
            self.in_flight.insert(place, (at, is_to_right, datagram.to_vec()));
        }
    }

    /// Whatever is on the link is lost.
    pub(super) fn lose_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// Lets both ends send what they have to send now.
    pub(super) fn flush(&mut self) {
        let mut buffer = Vec::new();
        for _ in 0..10_000 {
            let is_left = self.left.poll(self.now, &mut buffer);
            if is_left {
                self.send(true, &buffer);
            }
            let is_right = self.right.poll(self.now, &mut buffer);
            if is_right {
                self.send(false, &buffer);
            }
            if !is_left && !is_right {
                return;
            }
        }
        panic!("an end never stops talking");
    }

    /// Goes on to whatever happens next.
    pub(super) fn step(&mut self) {
        self.flush();
        let timeouts = [self.left.timeout(), self.right.timeout(), self.in_flight.front().map(|(at, ..)| *at)];
        let next = timeouts.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE);
        self.now = next.max(self.now + Duration::from_micros(10)).min(self.now + STEP);
        while self.in_flight.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((_, is_to_right, datagram)) = self.in_flight.pop_front() else { break };
            if is_to_right {
                self.right.handle(self.now, &datagram);
            } else {
                self.left.handle(self.now, &datagram);
            }
        }
        self.left.tick(self.now);
        self.right.tick(self.now);
    }

    pub(super) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
        }
    }

    /// Runs until the condition holds. Returns how long that took.
    #[track_caller]
    pub(super) fn until(&mut self, within: Duration, what: &str, mut holds: impl FnMut(&mut Self) -> bool) -> Duration {
        let began = self.now;
        while !holds(self) {
            assert!(self.now.saturating_since(began) < within, "not within {within:?}: {what}");
            self.step();
        }
        self.now.saturating_since(began)
    }
}

/// Two nodes that have not received anything from each other yet.
pub(super) fn pair(config: FtfwConfig, seed: u64) -> World<Node, Node> {
    World::new(Node::new(config, TIME_OF_DAY_S), Node::new(config, TIME_OF_DAY_S + 5), seed)
}

/// Whether each has the other's connections, and knows it.
pub(super) fn agree(world: &World<Node, Node>) -> bool {
    let (left, right) = (&world.left, &world.right);
    left.copies() == right.own()
        && right.copies() == left.own()
        && left.session.status().is_synchronised()
        && right.session.status().is_synchronised()
}
