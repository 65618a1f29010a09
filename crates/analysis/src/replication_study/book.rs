//! The exact account of connections: what each threshold has had replicated, and the cost of that in precise messages.

use std::collections::VecDeque;
use std::time::Duration;

use flow::conntrack::{Change, is_closing};
use flow::random::SplitMix64;
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, Tuple};
use replication::compact::CellState;
use replication::representation::{Selection, Start, is_worth_replicating};

use super::config::{StudyConfig, THRESHOLDS_MAX};
use super::hosts::Hosts;
use super::ops::{Active, Entry, Kind, Op, Probes};
use super::precise::{Packer, Scale, Sent};
use crate::trace::connections::{End, Event, EventKind, Outcome, Statistics};

/// Precise messages share a datagram if they are of packets that a node receives together: it replicates before those
/// leave.
const PRECISE_BATCH: Duration = Duration::from_millis(1);
/// The lowest port of random tuples.
const PRIVATE_PORTS_FROM: u16 = 1024;

/// A connection in progress.
#[derive(Clone, Copy, Debug)]
struct Record {
    tuple: Tuple,
    began: Instant,
    state: CellState,
    /// It is in this slot; else the slot is free.
    is_open: bool,
    /// It has come to the packet from which on it is replicated.
    is_reached: bool,
    /// Both hosts keep it and would close it: TCP that was answered.
    is_kept: bool,
    /// It is closing: a backup that lacked it by then never gets it.
    is_over: bool,
    /// Backups under the first so many thresholds have it.
    replicated: u8,
    /// Bytes of the message with its state, and of the one that it has ended.
    state_bytes: u16,
    ended_bytes: u16,
    /// Which connection of the slot's this is.
    generation: u32,
}

const FREE: Record = Record {
    tuple: Tuple::NONE,
    began: Instant::ZERO,
    state: CellState::from_number(0),
    is_open: false,
    is_reached: false,
    is_kept: false,
    is_over: false,
    replicated: 0,
    state_bytes: 0,
    ended_bytes: 0,
    generation: 0,
};

/// What became of a threshold.
#[derive(Clone, Debug)]
pub(super) struct OfThreshold {
    eager: Packer,
    selective: Packer,
    /// Connections that a backup has a copy of, now and at most.
    entries: u64,
    pub(super) entries_max: u64,
    /// Changes that a representation of states has to replicate, and one of established connections.
    pub(super) changes: u64,
    pub(super) changes_of_membership: u64,
}

impl OfThreshold {
    fn new(batch: Duration) -> Self {
        Self {
            eager: Packer::new(batch),
            selective: Packer::new(batch),
            entries: 0,
            entries_max: 0,
            changes: 0,
            changes_of_membership: 0,
        }
    }

    pub(super) const fn eager(&self) -> Sent {
        self.eager.sent()
    }

    pub(super) const fn selective(&self) -> Sent {
        self.selective.sent()
    }
}

/// The account.
#[derive(Debug)]
pub(super) struct Book {
    start: Start,
    thresholds: Vec<Duration>,
    records: Vec<Record>,
    /// Connections that wait for a threshold, oldest first: the first's queue is that of the second threshold.
    waiting: Vec<VecDeque<(Slot, u32)>>,
    /// When the first of any queue is due.
    due: Instant,
    now: Instant,
    scale: Scale,
    pub(super) of_threshold: Vec<OfThreshold>,
    pub(super) statistics: Statistics,
    pub(super) hosts: Hosts,
    pub(super) packets: u64,
    pub(super) payload_bytes: u64,
    /// Bytes that the transports of connections carried when backups under so many thresholds had them.
    bytes_by_replicated: [u64; THRESHOLDS_MAX + 1],
    /// The changes since they were last taken, for the filters.
    pub(super) entries: Vec<Entry>,
    random: SplitMix64,
}

impl Book {
    pub(super) fn new(config: &StudyConfig) -> Self {
        let thresholds = config.thresholds();
        let of = OfThreshold::new(PRECISE_BATCH);
        Self {
            of_threshold: vec![of; thresholds.len()],
            waiting: vec![VecDeque::new(); thresholds.len() - 1],
            start: config.start(),
            thresholds,
            records: Vec::new(),
            due: Instant::FAR_FUTURE,
            now: Instant::ZERO,
            scale: Scale::default(),
            statistics: Statistics::default(),
            hosts: Hosts::default(),
            packets: 0,
            payload_bytes: 0,
            bytes_by_replicated: [0; THRESHOLDS_MAX + 1],
            entries: Vec::new(),
            random: SplitMix64::new(config.seed),
        }
    }

    /// Something became of a connection.
    pub(super) fn handle_event(&mut self, event: &Event<'_>) {
        self.turn_to(event.at);
        self.statistics.handle_event(event);
        match event.kind {
            EventKind::Began => self.begin(event),
            EventKind::Changed { before, change, .. } => {
                self.change(event.slot, event.connection, before.state, change);
            }
            EventKind::Ended(End::Trace) => {}
            EventKind::Ended(_) => self.end(event.slot),
        }
    }

    /// A packet of a connection came, after its events ([`Book::handle_event`]).
    pub(super) fn handle_packet(
        &mut self,
        at: Instant,
        outcome: &Outcome,
        connection: Option<&Connection>,
        bytes: u64,
    ) {
        self.turn_to(at);
        self.packets += 1;
        self.payload_bytes += bytes;
        let Outcome::Followed { slot, .. } = outcome else { return };
        let Some(record) = self.records.get(slot.0 as usize).filter(|record| record.is_open).copied() else { return };
        let age = self.now.saturating_since(record.began);
        let remaining = self.thresholds[usize::from(record.replicated)..].iter();
        let reached = record.replicated + remaining.take_while(|threshold| **threshold <= age).count() as u8;
        if record.is_reached && reached > record.replicated && !record.is_over && connection.is_some() {
            self.replicate(*slot, reached);
        }
        self.bytes_by_replicated[usize::from(self.records[slot.0 as usize].replicated)] += bytes;
    }

    /// Bytes that the transports of connections carried when a backup under the threshold of this index had them.
    pub(super) fn bytes_protected(&self, index: usize) -> u64 {
        self.bytes_by_replicated[index + 1..].iter().sum()
    }

    /// Replicates the connections whose age reaches a threshold by then, as a node with deferral does. A connection
    /// without an end of its own that is idle is not replicated; nor is one that is closing.
    pub(super) fn turn_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        if self.due > self.now {
            return;
        }
        for index in 0..self.waiting.len() {
            let threshold = self.thresholds[index + 1];
            while let Some((slot, generation)) = self.waiting[index].front().copied() {
                let record = self.records[slot.0 as usize];
                let is_same = record.is_open && record.generation == generation;
                if is_same && record.began + threshold > self.now {
                    break;
                }
                self.waiting[index].pop_front();
                if !is_same {
                    continue;
                }
                if let Some(next) = self.waiting.get_mut(index + 1) {
                    next.push_back((slot, generation));
                }
                if record.is_kept && !record.is_over && usize::from(record.replicated) <= index + 1 {
                    self.replicate_at(record.began + threshold, slot, index as u8 + 2);
                }
            }
        }
        self.due = self.next_due();
    }

    fn next_due(&self) -> Instant {
        let of = |(index, queue): (usize, &VecDeque<(Slot, u32)>)| {
            queue.front().map(|(slot, _)| self.records[slot.0 as usize].began + self.thresholds[index + 1])
        };
        self.waiting.iter().enumerate().filter_map(of).min().unwrap_or(Instant::FAR_FUTURE)
    }

    fn begin(&mut self, event: &Event<'_>) {
        let index = event.slot.0 as usize;
        if index >= self.records.len() {
            self.records.resize(index + 1, FREE);
        }
        let generation = self.records[index].generation.wrapping_add(1);
        self.records[index] = Record {
            tuple: event.connection.original,
            began: self.now,
            state: CellState::of(event.connection),
            is_open: true,
            is_reached: self.start.is_reached(event.connection),
            is_kept: false,
            is_over: false,
            replicated: 0,
            state_bytes: self.scale.state_bytes(self.now, event.connection),
            ended_bytes: self.scale.ended_bytes(event.connection),
            generation,
        };
        if let Some(queue) = self.waiting.first_mut() {
            queue.push_back((event.slot, generation));
            self.due = self.due.min(self.now + self.thresholds[1]);
        }
        self.note_established(event.slot, false, self.is_member(event.slot));
        if self.records[index].is_reached {
            self.replicate(event.slot, 1);
        }
    }

    fn is_member(&self, slot: Slot) -> bool {
        let record = &self.records[slot.0 as usize];
        record.state.is_established(record.tuple.protocol)
    }

    fn replicate(&mut self, slot: Slot, replicated: u8) {
        self.replicate_at(self.now, slot, replicated);
    }

    /// Replicates a connection to the backups under the first `replicated` thresholds that lack it.
    fn replicate_at(&mut self, at: Instant, slot: Slot, replicated: u8) {
        let is_member = self.is_member(slot);
        let record = &mut self.records[slot.0 as usize];
        let first = std::mem::replace(&mut record.replicated, replicated);
        for of in &mut self.of_threshold[usize::from(first)..usize::from(replicated)] {
            of.eager.add(at, record.state_bytes.into());
            of.selective.add(at, record.state_bytes.into());
            of.entries += 1;
            of.entries_max = of.entries_max.max(of.entries);
            of.changes += 1;
            of.changes_of_membership += u64::from(is_member);
        }
        let op = Op { at, tuple: record.tuple, kind: Kind::Insert(record.state), first, end: replicated };
        self.entries.push(Entry::Op(op));
    }

    fn change(&mut self, slot: Slot, connection: &Connection, state_before: u8, change: Change) {
        let was_member = self.is_member(slot);
        let state_bytes = self.scale.state_bytes(self.now, connection);
        let record = &mut self.records[slot.0 as usize];
        let before = std::mem::replace(&mut record.state, CellState::of(connection));
        record.state_bytes = state_bytes;
        let protocol = connection.original.protocol;
        record.is_kept = protocol == ip_protocol::TCP && connection.flags & flow::connection::flags::REPLIED != 0;
        record.is_reached |= self.start.is_reached(connection);
        record.is_over = is_closing(protocol, &connection.protocol);
        let record = *record;
        let is_member = self.is_member(slot);
        let is_sent =
            |selection| is_worth_replicating(selection, protocol, state_before, connection.protocol.state, change);
        let (in_eager, in_selective) = (is_sent(Selection::Eager), is_sent(Selection::default()));
        for of in &mut self.of_threshold[..usize::from(record.replicated)] {
            if in_eager {
                of.eager.add(self.now, state_bytes.into());
            }
            if in_selective {
                of.selective.add(self.now, state_bytes.into());
            }
            of.changes += u64::from(before != record.state);
            of.changes_of_membership += u64::from(was_member != is_member);
        }
        if before != record.state && record.replicated > 0 {
            let kind = Kind::Modify(before, record.state);
            self.entries.push(Entry::Op(Op {
                at: self.now,
                tuple: record.tuple,
                kind,
                first: 0,
                end: record.replicated,
            }));
        }
        self.note_established(slot, was_member, is_member);
    }

    fn end(&mut self, slot: Slot) {
        let is_member = self.is_member(slot);
        let record = &mut self.records[slot.0 as usize];
        record.is_open = false;
        let record = *record;
        for of in &mut self.of_threshold[..usize::from(record.replicated)] {
            of.eager.add(self.now, record.ended_bytes.into());
            of.selective.add(self.now, record.ended_bytes.into());
            of.entries -= 1;
            of.changes += 1;
            of.changes_of_membership += u64::from(is_member);
        }
        if record.replicated > 0 {
            let kind = Kind::Remove(record.state);
            self.entries.push(Entry::Op(Op {
                at: self.now,
                tuple: record.tuple,
                kind,
                first: 0,
                end: record.replicated,
            }));
        }
        self.note_established(slot, is_member, false);
    }

    fn note_established(&mut self, slot: Slot, was: bool, is: bool) {
        let tuple = self.records[slot.0 as usize].tuple;
        match (was, is) {
            (false, true) => self.hosts.begin(self.now, &tuple),
            (true, false) => self.hosts.end(self.now, &tuple),
            _ => {}
        }
    }

    /// What backups are to be asked if the primary fails now: at most `limit` connections, evenly from all in progress, and as
    /// many tuples of none.
    pub(super) fn probes(&mut self, at: Instant, limit: usize) -> Probes {
        let open = self.records.iter().filter(|record| record.is_open).count();
        let every = open.div_ceil(limit).max(1);
        let sampled = self.records.iter().filter(|record| record.is_open).step_by(every);
        let active: Vec<Active> = sampled
            .map(|record| Active { tuple: record.tuple, state: record.state, replicated: record.replicated })
            .collect();
        let absent = (0..limit).map(|_| self.random_tuple()).collect();
        let mut same_hosts = Vec::new();
        for tuple in active.iter().map(|active| active.tuple).filter(has_ports) {
            // The discard port answers no more: hardly a connection comes from it.
            let other = Tuple { source_port: 9, ..tuple };
            if other != tuple {
                same_hosts.push(other);
            }
        }
        Probes { at, active, absent, same_hosts }
    }

    /// A tuple of TCP over IPv4 from anywhere to anywhere.
    fn random_tuple(&mut self) -> Tuple {
        let (addresses, ports) = (self.random.next(), self.random.next());
        let [a, b, c, d, e, f, g, h] = addresses.to_be_bytes();
        let port = (ports as u16) | PRIVATE_PORTS_FROM;
        Tuple::v4(ip_protocol::TCP, ([a, b, c, d].into(), port), ([e, f, g, h].into(), (ports >> 16) as u16))
    }

    /// The latest time that was seen.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }
}

const fn has_ports(tuple: &Tuple) -> bool {
    matches!(tuple.protocol, ip_protocol::TCP | ip_protocol::UDP)
}
