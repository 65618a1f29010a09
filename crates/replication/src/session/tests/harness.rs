//! Two nodes, a network between them, and the checks that hold at every step.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use flow::random::SplitMix64;
use flow::wire::tlv::{self, TlvError};
use flow::{Instant, NodeId};

use crate::message::{self, HEADER_BYTES, Kind};
use crate::session::{ApplyError, Handle, Holding, Item, Session, SessionConfig, SessionEvent, Store};

/// A connection of the tests: which connection with this tuple it is, counted over both, and its version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Connection {
    pub(super) tuple: u32,
    pub(super) incarnation: u32,
    pub(super) version: u32,
}

/// A node's own connections by slot, and its replicas of the peer's by tuple.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub(super) slots: Vec<Option<Connection>>,
    pub(super) copies: BTreeMap<u32, Connection>,
    /// The tuple of the replica in each slot behind those of the node's own connections.
    pub(super) copy_slots: Vec<Option<u32>>,
    /// Slots whose replica changed.
    pub(super) touched: Vec<Handle>,
    /// The most replicas that there is room for, if that is limited.
    pub(super) copies_max: Option<usize>,
    pub(super) unrefreshed: BTreeSet<u32>,
    pub(super) newest_seen: BTreeMap<u32, Connection>,
    /// What was applied after something newer: the newer, then the older.
    pub(super) backwards: Option<(Connection, Connection)>,
    /// Replicas removed by the end of an earlier connection with their tuple: right only if they have ended too.
    pub(super) removed_later: Vec<Connection>,
    pub(super) swept: usize,
    pub(super) applied: Vec<(Kind, Connection)>,
    pub(super) padding_bytes: usize,
}

impl Table {
    /// Enters a replica, or puts it in the place of the one with its tuple; `is_said` if the session is to learn of it.
    pub(super) fn put_copy(&mut self, copy: Connection, is_said: bool) {
        if self.copies.insert(copy.tuple, copy).is_none() {
            match self.copy_slots.iter_mut().find(|slot| slot.is_none()) {
                Some(slot) => *slot = Some(copy.tuple),
                None => self.copy_slots.push(Some(copy.tuple)),
            }
        }
        self.touch(copy.tuple, is_said);
    }

    /// Removes a replica.
    pub(super) fn take_copy(&mut self, tuple: u32, is_said: bool) -> Option<Connection> {
        let copy = self.copies.remove(&tuple)?;
        self.touch(tuple, is_said);
        let slot = self.copy_slots.iter_mut().find(|slot| **slot == Some(tuple));
        *slot.expect("each copy has a slot") = None;
        Some(copy)
    }

    fn touch(&mut self, tuple: u32, is_said: bool) {
        let slot = self.copy_slots.iter().position(|slot| *slot == Some(tuple)).expect("each copy has a slot");
        self.touched.extend(is_said.then_some(Handle((self.slots.len() + slot) as u32)));
    }

    fn copy_in(&self, handle: Handle) -> Option<&Connection> {
        let tuple = (*self.copy_slots.get((handle.0 as usize).checked_sub(self.slots.len())?)?)?;
        self.copies.get(&tuple)
    }

    /// A replica was tampered with: what comes next need not be newer.
    pub(super) fn forget_order(&mut self) {
        self.newest_seen.clear();
    }

    /// Drops the replicas, and with them what later messages are checked against.
    pub(super) fn forget_copies(&mut self) {
        *self = Self { slots: core::mem::take(&mut self.slots), ..Self::default() };
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, ApplyError> {
    let bytes = bytes.get(at..at + 4).ok_or(ApplyError::Malformed(TlvError::Length))?;
    Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

impl Store for Table {
    fn encode(&mut self, _: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some(connection) = self.slots[handle.0 as usize] else { return false };
        for word in [connection.tuple, connection.incarnation, connection.version] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.resize(out.len() + self.padding_bytes, 0);
        true
    }

    fn apply(&mut self, _: Instant, _: NodeId, kind: Kind, bytes: &[u8]) -> Result<(), ApplyError> {
        let connection = Connection { tuple: word(bytes, 0)?, incarnation: word(bytes, 4)?, version: word(bytes, 8)? };
        let newest = self.newest_seen.entry(connection.tuple).or_insert(connection);
        if *newest > connection {
            self.backwards.get_or_insert((*newest, connection));
        }
        *newest = connection;
        let is_known = self.copies.contains_key(&connection.tuple);
        if !is_known && self.copies_max.is_some_and(|copies_max| self.copies.len() >= copies_max) {
            return Err(ApplyError::Full);
        }
        self.put_copy(connection, true);
        self.unrefreshed.remove(&connection.tuple);
        self.applied.push((kind, connection));
        Ok(())
    }

    fn delete(&mut self, _: Instant, _: NodeId, bytes: &[u8]) -> Result<(), ApplyError> {
        let (tuple, incarnation) = (word(bytes, 0)?, word(bytes, 4)?);
        if let Some(copy) = self.take_copy(tuple, true)
            && copy.incarnation > incarnation
        {
            self.removed_later.push(copy);
        }
        Ok(())
    }

    fn find(&self, bytes: &[u8]) -> Option<Handle> {
        let tuple = word(bytes, 0).ok()?;
        let slot = self.slots.iter().position(|slot| slot.is_some_and(|connection| connection.tuple == tuple))?;
        Some(Handle(slot as u32))
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        (from.0 as usize..self.slots.len()).find(|slot| self.slots[*slot].is_some()).map(|slot| Handle(slot as u32))
    }

    fn resync_started(&mut self, _: Instant, _: NodeId) {
        self.unrefreshed = self.copies.keys().copied().collect();
    }

    fn resync_completed(&mut self, _: Instant, _: NodeId) {
        for tuple in core::mem::take(&mut self.unrefreshed) {
            self.take_copy(tuple, true);
            self.swept += 1;
        }
    }

    fn item(&self, key: u64, handle: Handle) -> Item {
        let own = self.slots.get(handle.0 as usize).and_then(Option::as_ref);
        let Some(connection) = own.or_else(|| self.copy_in(handle)) else { return Item::NONE };
        let name = SplitMix64::new(key ^ u64::from(connection.tuple)).next();
        let rest = u64::from(connection.incarnation) << 32 | u64::from(connection.version);
        Item::new(name as u32, SplitMix64::new(name ^ rest).next() as u32)
    }

    fn holding(&self, key: u64, _: NodeId, handle: Handle) -> Holding {
        if self.copy_in(handle).is_some() {
            Holding::Peers(self.item(key, handle))
        } else if self.slots.get(handle.0 as usize).is_some_and(Option::is_some) {
            Holding::Own
        } else {
            Holding::Nothing
        }
    }

    fn slots_used(&self) -> u32 {
        (self.slots.len() + self.copy_slots.len()) as u32
    }

    fn room(&self) -> u32 {
        self.copies_max.map_or(u32::MAX, |copies_max| copies_max.saturating_sub(self.copies.len()) as u32)
    }

    fn name_copy(&self, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some(copy) = self.copy_in(handle) else { return false };
        out.extend_from_slice(&copy.tuple.to_be_bytes());
        out.extend_from_slice(&copy.incarnation.to_be_bytes());
        true
    }
}

pub(super) struct Node {
    pub(super) session: Session,
    pub(super) table: Table,
    pub(super) events: Vec<SessionEvent>,
    pub(super) errors: usize,
    /// A node that is down neither sends nor receives.
    pub(super) down: bool,
}

impl Node {
    fn collect_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            self.events.push(event);
        }
    }
}

/// What the network does to datagrams: chances in percent, and delays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) loss_percent: u8,
    pub(super) duplication_percent: u8,
    pub(super) delay: Duration,
    /// Up to so much more, at random: datagrams overtake each other.
    pub(super) jitter: Duration,
    pub(super) partition: bool,
}

pub(super) const FINE: Weather = Weather {
    loss_percent: 0,
    duplication_percent: 0,
    delay: Duration::from_micros(200),
    jitter: Duration::ZERO,
    partition: false,
};

pub(super) type Datagram = (usize, Vec<u8>);

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) nodes: [Node; 2],
    pub(super) weather: Weather,
    pub(super) config: SessionConfig,
    /// Datagrams for which this is true are lost; (receiver, bytes).
    pub(super) lose: fn(&Datagram) -> bool,
    /// The second node is of a release that does not compare: it skips such messages and sends none.
    pub(super) is_second_older: bool,
    /// The last datagrams that were sent.
    pub(super) sent: Vec<Datagram>,
    random: SplitMix64,
    wire: BTreeMap<(Instant, u64), Datagram>,
    sequence: u64,
    incarnations: u32,
}

pub(super) const SLOTS: u32 = 64;
/// Slots for replicas, behind those of own connections.
const COPIES_MAX: u32 = 8192;

pub(super) fn small_config() -> SessionConfig {
    SessionConfig { connections_max: SLOTS, ..SessionConfig::default() }
}

impl Pair {
    pub(super) fn new(seed: u64) -> Self {
        Self::with_config(seed, small_config())
    }

    pub(super) fn with_config(seed: u64, config: SessionConfig) -> Self {
        let mut random = SplitMix64::new(seed);
        let nodes = [0, 1].map(|index| Self::node(config, index, random.next()));
        Self {
            now: Instant::from_millis(1),
            nodes,
            weather: FINE,
            config,
            lose: |_| false,
            is_second_older: false,
            sent: Vec::new(),
            random,
            wire: BTreeMap::new(),
            sequence: 0,
            incarnations: 0,
        }
    }

    fn node(config: SessionConfig, index: usize, seed: u64) -> Node {
        let config_with_copies = SessionConfig { connections_max: config.connections_max + COPIES_MAX, ..config };
        let session = Session::new(config_with_copies, NodeId(index as u8), NodeId(1 - index as u8), seed).unwrap();
        let table = Table { slots: std::vec![None; config.connections_max as usize], ..Table::default() };
        Node { session, table, events: Vec::new(), errors: 0, down: false }
    }

    /// A pair that has found each other.
    pub(super) fn synchronised(seed: u64) -> Self {
        let mut pair = Self::new(seed);
        pair.run_until_synchronised();
        pair
    }

    /// The node's process ends and another begins, with nothing.
    pub(super) fn restart(&mut self, index: usize) {
        let seed = self.random.next();
        self.nodes[index] = Self::node(self.config, index, seed);
    }

    pub(super) fn open(&mut self, index: usize, slot: u32, tuple: u32) {
        self.close(index, slot);
        let node = &mut self.nodes[index];
        if node.table.slots.iter().flatten().any(|connection| connection.tuple == tuple) {
            return;
        }
        self.incarnations += 1;
        node.table.slots[slot as usize] = Some(Connection { tuple, incarnation: self.incarnations, version: 1 });
        node.session.mark_changed(Handle(slot));
    }

    pub(super) fn change(&mut self, index: usize, slot: u32) {
        let node = &mut self.nodes[index];
        if let Some(connection) = &mut node.table.slots[slot as usize] {
            connection.version += 1;
            node.session.mark_changed(Handle(slot));
        }
    }

    pub(super) fn close(&mut self, index: usize, slot: u32) {
        let node = &mut self.nodes[index];
        if let Some(connection) = node.table.slots[slot as usize].take() {
            let mut attributes = connection.tuple.to_be_bytes().to_vec();
            attributes.extend_from_slice(&connection.incarnation.to_be_bytes());
            node.session.mark_deleted(Handle(slot), &attributes);
        }
    }

    /// Runs until `until`, from one point at which something happens to the next.
    pub(super) fn run_to(&mut self, until: Instant) {
        while self.step(until) {}
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        self.run_to(self.now + time);
    }

    /// Runs until `done`; fails when that takes more than `limit`.
    pub(super) fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        self.transmit();
        while !done(self) {
            assert!(self.step(start + limit), "not done after {limit:?}: {:?}", self.nodes[0].session.status());
        }
        self.now.saturating_since(start)
    }

    pub(super) fn run_until_synchronised(&mut self) -> Duration {
        self.run_until(Duration::from_secs(60), |pair| {
            pair.nodes.iter().all(|node| node.session.status().is_synchronised())
        })
    }

    pub(super) fn run_until_equal(&mut self) -> Duration {
        self.run_until(Duration::from_secs(60), Self::is_equal)
    }

    /// Whether each node's replicas are the other's connections, and nothing is left to be sent.
    pub(super) fn is_equal(&self) -> bool {
        (0..2).all(|index| {
            let own: BTreeMap<_, _> =
                self.nodes[index].table.slots.iter().flatten().map(|own| (own.tuple, *own)).collect();
            let status = self.nodes[index].session.status();
            own == self.nodes[1 - index].table.copies && status.queued == 0 && status.in_flight == 0
        })
    }

    /// To the next point at which something happens, no later than `until`; false when that is reached.
    fn step(&mut self, until: Instant) -> bool {
        self.transmit();
        let timeouts = self.nodes.iter().filter(|node| !node.down).filter_map(|node| node.session.poll_timeout());
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let next = timeouts.chain(arrival).min().unwrap_or(until).max(self.now);
        if next >= until {
            self.now = until;
            return false;
        }
        self.now = next;
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= next) {
            let (to, datagram) = entry.remove();
            self.deliver(to, &datagram);
        }
        for node in self.nodes.iter_mut().filter(|node| !node.down) {
            node.session.handle_timeout(next);
        }
        true
    }

    fn deliver(&mut self, to: usize, datagram: &[u8]) {
        let node = &mut self.nodes[to];
        if node.down || self.weather.partition {
            return;
        }
        if node.session.handle_datagram(self.now, datagram, &mut node.table).is_err() {
            node.errors += 1;
        }
        for handle in core::mem::take(&mut node.table.touched) {
            let peer = NodeId(1 - to as u8);
            node.session.note_copy(handle, |key| node.table.holding(key, peer, handle));
        }
        node.collect_events();
        if let Some((newer, older)) = node.table.backwards {
            panic!("{older:?} was applied after {newer:?}");
        }
        for removed in core::mem::take(&mut node.table.removed_later) {
            let lives = |own: &Connection| own.tuple == removed.tuple && own.incarnation == removed.incarnation;
            let mut own = self.nodes[1 - to].table.slots.iter().flatten();
            assert!(!own.any(lives), "the end of an earlier connection removed {removed:?}");
        }
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            let mut datagrams = Vec::new();
            loop {
                let node = &mut self.nodes[from];
                let mut buf = Vec::new();
                if node.down || !node.session.poll_transmit(self.now, &mut node.table, &mut buf) {
                    break;
                }
                assert!(buf.len() <= self.config.datagram_bytes_max);
                assert!(node.session.status().in_flight <= self.config.in_flight_messages_max);
                node.collect_events();
                datagrams.push(buf);
                assert!(datagrams.len() < 100_000, "the session never stops sending");
            }
            for datagram in datagrams {
                self.put_on_wire((1 - from, datagram));
            }
        }
    }

    pub(super) fn chance(&mut self, percent: u8) -> bool {
        self.random.next() % 100 < u64::from(percent)
    }

    fn put_on_wire(&mut self, mut datagram: Datagram) {
        if self.is_second_older {
            datagram.1 = without_comparison(&datagram.1);
        }
        if self.sent.len() == 64 {
            self.sent.remove(0);
        }
        self.sent.push(datagram.clone());
        if (self.lose)(&datagram) {
            return;
        }
        let copies = 1 + u32::from(self.chance(self.weather.duplication_percent));
        for _ in 0..copies {
            if self.chance(self.weather.loss_percent) {
                continue;
            }
            let jitter = self.random.next() % (self.weather.jitter.as_nanos() as u64 + 1);
            let at = self.now + self.weather.delay + Duration::from_nanos(jitter);
            self.sequence += 1;
            self.wire.insert((at, self.sequence), datagram.clone());
        }
    }
}

/// The datagram without the messages of the comparison: as if the node that takes it did not know them.
fn without_comparison(datagram: &[u8]) -> Vec<u8> {
    let (header, body) = datagram.split_at(HEADER_BYTES);
    let mut rest = header.to_vec();
    for message in tlv::read(body) {
        let (kind, body) = message.expect("nobody sends damaged messages here");
        if ![message::DIGESTS, message::LISTING, message::ASK].contains(&kind) {
            tlv::put(&mut rest, kind, body);
        }
    }
    rest
}
