//! The bounded table of connections at an edge: their node, and what is known of their TCP.
//!
//! A connection has one record. Four lists have all records in the order of their last packets, one list for each [`Stage`]. A
//! record expires at the head of its list. If the table is full, a new connection replaces the one whose last packet is
//! oldest, of the first stage that has one: closed, handshake, other protocols, open. So a flood of SYNs displaces its own kind.
//!
//! A record moves to the end of its list only with its first packet of a period. Each move would fetch three other records into
//! the cache. So the order is that of periods, and a record may expire one period late.
//!
//! The packets of a batch are looked up in steps, as in `flow::table`: index buckets are fetched, then records, then tuples are
//! compared.
//!
//! Packets that fall on held slots are elsewhere: a record has the number of its held segment and of its held
//! acknowledgement.

mod record;

use alloc::vec::Vec;
use core::time::Duration;

use flow::table::index::Index as HashIndex;
use flow::table::prefetch::{CACHE_LINE_BYTES, prefetch};
use flow::{HashKey, Instant, NodeId, Tuple};

use flow::list::{List, NONE};

pub(crate) use record::Record;
use record::{stage, tick};

/// The most connections that one call removes because they are idle.
const EXPIRIES_PER_CALL_MAX: usize = 256;
/// The most connections of a table.
pub const CONNECTIONS_MAX: u32 = 1 << 28;
/// Times of last packets are in ticks of 2^26 ns: connections expire up to 67 ms early.
const TICK_BITS: u32 = 26;
/// A period is at most this share of its stage's timeout, and at most 2^8 ticks, which are 17 s.
const PERIODS_PER_TIMEOUT: u64 = 16;
/// As above.
const PERIOD_BITS_MAX: u32 = 8;

/// The stage of a connection, in the order in which victims are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// TCP, closed by both ends or reset.
    Closed,
    /// TCP, the handshake is not complete.
    Handshake,
    /// Another protocol.
    Other,
    /// TCP with segments of both ends.
    Open,
}

const STAGES: [Stage; 4] = [Stage::Closed, Stage::Handshake, Stage::Other, Stage::Open];

/// How long a connection without packets is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimeouts {
    /// TCP whose handshake is complete.
    pub open: Duration,
    /// TCP whose handshake is not complete.
    pub handshake: Duration,
    /// TCP that was closed or reset.
    pub closed: Duration,
    /// Every other protocol.
    pub other: Duration,
}

impl Default for IdleTimeouts {
    /// Not shorter than those of the nodes (`flow::conntrack::Timeouts`), so that replies find the node of their connection.
    fn default() -> Self {
        Self {
            open: Duration::from_secs(5 * 24 * 60 * 60),
            handshake: Duration::from_secs(120),
            closed: Duration::from_secs(10),
            other: Duration::from_secs(600),
        }
    }
}

impl IdleTimeouts {
    /// The length of a stage's periods as a power of two of ticks.
    fn period_bits(&self, stage: Stage) -> u32 {
        let ticks = u64::try_from(self.of(stage).as_nanos()).unwrap_or(u64::MAX) >> TICK_BITS;
        (ticks / PERIODS_PER_TIMEOUT).checked_ilog2().unwrap_or(0).min(PERIOD_BITS_MAX)
    }

    const fn of(&self, stage: Stage) -> Duration {
        match stage {
            Stage::Closed => self.closed,
            Stage::Handshake => self.handshake,
            Stage::Other => self.other,
            Stage::Open => self.open,
        }
    }
}

/// A connection, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EdgeFlow {
    /// Its place in the table.
    pub place: u32,
    /// The tuple of its packets that enter the cluster here.
    pub entering: Tuple,
    /// The node that gets them.
    pub node: NodeId,
    /// The failed node that it was moved from, until it is recovered.
    pub moved_from: Option<NodeId>,
    /// Its stage: `handshake`, `open` or `closed`; empty for other protocols than TCP.
    pub stage: &'static str,
    /// When it expires without a further packet.
    pub expires_at: Instant,
}

/// The number of a connection in its table.
pub(crate) type Index = u32;

/// What the table did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounters {
    /// Connections entered.
    pub created: u64,
    /// Connections removed because they were idle.
    pub expired: u64,
    /// Connections replaced by new ones because the table was full.
    pub evicted: u64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Flows {
    key: HashKey,
    timeouts: IdleTimeouts,
    connections_max: u32,
    records: Vec<Record>,
    free: Vec<Index>,
    index: HashIndex,
    period_bits: [u32; STAGES.len()],
    lists: [List; STAGES.len()],
    counters: FlowCounters,
}

impl Flows {
    /// A table of at most `connections_max` connections. The index is as large as it can become, 8 bytes for each, and address space is
    /// reserved for the records: no insertion moves what is there, which would stall the edge for as long as a node takes to be dead.
    pub(crate) fn new(connections_max: u32, timeouts: IdleTimeouts, key: HashKey) -> Self {
        let connections_max = connections_max.clamp(1, CONNECTIONS_MAX);
        let mut records = Vec::new();
        // Where the system reserves no address space, the records grow in place or are moved by the system.
        let _ = records.try_reserve_exact(connections_max as usize);
        Self {
            key,
            timeouts,
            connections_max,
            records,
            free: Vec::new(),
            index: HashIndex::new(connections_max as usize),
            period_bits: STAGES.map(|stage| timeouts.period_bits(stage)),
            lists: [List::EMPTY; STAGES.len()],
            counters: FlowCounters::default(),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        (self.records.len() - self.free.len()) as u32
    }

    pub(crate) const fn counters(&self) -> FlowCounters {
        self.counters
    }

    /// The first connection in a place from this one on.
    pub(crate) fn next_flow(&self, from: u32) -> Option<EdgeFlow> {
        let records = (from..).zip(self.records.get(from as usize..)?);
        let (place, record) = { records }.find(|(_, record)| record.entering != Tuple::NONE)?;
        let stage = match record.stage {
            Stage::Handshake => "handshake",
            Stage::Open => "open",
            Stage::Closed => "closed",
            Stage::Other => "",
        };
        let last_packet_at = Instant::from_nanos(u64::from(record.last_packet_tick) << TICK_BITS);
        let expires_at = last_packet_at + self.timeouts.of(record.stage);
        let Record { entering, node, .. } = *record;
        Some(EdgeFlow { place, entering, node, moved_from: record.moved_from(), stage, expires_at })
    }

    /// The hash of a tuple, the same for its inverse.
    pub(crate) fn hash(&self, tuple: &Tuple) -> u64 {
        self.key.hash(tuple)
    }

    /// The first of three steps of a batched lookup: fetches the index bucket of a hash.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// The second step: fetches the record that the index most likely refers to.
    #[inline]
    pub(crate) fn prefetch_record(&self, hash: u64) -> Option<Index> {
        let likely = self.index.glance(hash)?;
        for line in 0..size_of::<Record>().div_ceil(CACHE_LINE_BYTES) {
            prefetch(&self.records, likely as usize, line * CACHE_LINE_BYTES);
        }
        Some(likely)
    }

    /// The third step: finds a connection by its tuple. The result is right even if the table changed in between.
    #[inline]
    pub(crate) fn find_likely(&self, likely: Option<Index>, hash: u64, entering: &Tuple) -> Option<Index> {
        let is_its = |index: &Index| self.records[*index as usize].entering == *entering;
        likely.filter(is_its).or_else(|| self.index.find(hash, |index| is_its(&index).then_some(index)))
    }

    pub(crate) fn find(&self, entering: &Tuple) -> Option<Index> {
        self.find_likely(None, self.hash(entering), entering)
    }

    pub(crate) fn get(&self, index: Index) -> &Record {
        &self.records[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: Index) -> &mut Record {
        &mut self.records[index as usize]
    }

    /// Enters a connection that is not in the table. If the table is full, the victim is removed first by `release`, which
    /// frees what is held for it.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        entering: &Tuple,
        node: NodeId,
        release: &mut dyn FnMut(Index, &mut Record),
    ) -> Index {
        if self.len() >= self.connections_max
            && let Some(victim) = self.victim()
        {
            self.counters.evicted += 1;
            self.remove(victim, release);
        }
        self.counters.created += 1;
        let record = Record::new(entering, node, now);
        let index = self.free.pop().unwrap_or(self.records.len() as Index);
        if index as usize == self.records.len() {
            self.records.push(record);
        } else {
            self.records[index as usize] = record;
        }
        self.lists[record.stage as usize].push(&mut self.records, index);
        self.index.insert(self.key.hash(entering), index);
        index
    }

    fn victim(&self) -> Option<Index> {
        self.lists.iter().map(|list| list.first).find(|first| *first != NONE)
    }

    fn remove(&mut self, index: Index, release: &mut dyn FnMut(Index, &mut Record)) {
        release(index, &mut self.records[index as usize]);
        let record = &mut self.records[index as usize];
        // A lookup that has begun must not find the freed record.
        let (entering, stage) = (core::mem::replace(&mut record.entering, Tuple::NONE), record.stage);
        self.lists[stage as usize].remove(&mut self.records, index);
        self.index.remove(self.key.hash(&entering), index);
        self.free.push(index);
    }

    /// A packet of the connection passed. With the first one of a period the connection moves to the end of its stage's list.
    pub(crate) fn touch(&mut self, now: Instant, index: Index) {
        let record = &mut self.records[index as usize];
        let (before, after) = (record.stage, stage(&record.entering, &record.tcp));
        let bits = self.period_bits[after as usize];
        // What the fast path saw is reported later than what has passed meanwhile.
        let last = record.last_packet_tick;
        let tick = tick(now).max(last);
        (record.last_packet_tick, record.stage) = (tick, after);
        if before != after || last >> bits != tick >> bits {
            self.lists[before as usize].remove(&mut self.records, index);
            self.lists[after as usize].push(&mut self.records, index);
        }
    }

    /// Removes connections that are idle, a bounded number of them.
    pub(crate) fn expire(&mut self, now: Instant, release: &mut dyn FnMut(Index, &mut Record)) {
        for _ in 0..EXPIRIES_PER_CALL_MAX {
            let Some((_, first)) = self.next_expiries().find(|(expires_at, _)| *expires_at <= now) else { return };
            self.counters.expired += 1;
            self.remove(first, release);
        }
    }

    /// When the first connection expires.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.next_expiries().map(|(expires_at, _)| expires_at).min()
    }

    /// The first connection of each stage, and when it expires.
    fn next_expiries(&self) -> impl Iterator<Item = (Instant, Index)> {
        STAGES.into_iter().zip(&self.lists).filter(|(_, list)| list.first != NONE).map(|(stage, list)| {
            let ticks = u64::from(self.records[list.first as usize].last_packet_tick);
            (Instant::from_nanos(ticks << TICK_BITS) + self.timeouts.of(stage), list.first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use flow::held::{HeldPackets, SEGMENT_FRAME_BYTES_MAX};
    use flow::wire::{TcpSegment, tcp_flags};

    use crate::tcp::End;

    fn tuple(protocol: u8, port: u16) -> Tuple {
        Tuple::v4(protocol, (Ipv4Addr::new(10, 0, 0, 2), port), (Ipv4Addr::new(192, 0, 2, 1), 443))
    }

    fn table(connections_max: u32) -> Flows {
        Flows::new(connections_max, IdleTimeouts::default(), HashKey([1, 2]))
    }

    fn enter(flows: &mut Flows, at_ms: u64, tuple: &Tuple) -> Vec<Tuple> {
        let mut removed = Vec::new();
        flows.insert(Instant::from_millis(at_ms), tuple, NodeId(0), &mut |_, record| removed.push(record.entering));
        removed
    }

    /// Makes the connection open: segments of both ends pass.
    fn open(flows: &mut Flows, at_ms: u64, tuple: &Tuple) {
        let index = flows.find(tuple).expect("it is in the table");
        for (from, sequence, acknowledgement) in [(End::Near, 9, 5), (End::Far, 5, 9)] {
            let segment = TcpSegment { flags: tcp_flags::ACK, sequence, acknowledgement, ..Default::default() };
            flows.get_mut(index).tcp.observe(0, from, &segment, None);
        }
        flows.touch(Instant::from_millis(at_ms), index);
    }

    #[test]
    fn a_connection_with_a_full_segment_takes_at_most_1700_bytes() {
        // An index entry: an eighth of a bucket of 64 bytes.
        let index_bytes = 64 / 8;
        let bytes = size_of::<Record>() + index_bytes + HeldPackets::<SEGMENT_FRAME_BYTES_MAX>::SLOT_BYTES;
        assert!(size_of::<Record>() <= 136, "a record has {} bytes", size_of::<Record>());
        assert!(bytes <= 1700, "a connection with a held segment takes {bytes} bytes");
        const { assert!(SEGMENT_FRAME_BYTES_MAX >= 1514 + 4, "a full segment with a tag fits") };
    }

    #[test]
    fn a_full_table_replaces_the_oldest_connection_that_is_not_open() {
        let mut flows = table(3);
        let (first, second, third) = (tuple(6, 1), tuple(6, 2), tuple(17, 3));
        assert!(enter(&mut flows, 0, &first).is_empty() && enter(&mut flows, 1, &second).is_empty());
        open(&mut flows, 2, &first);
        assert!(enter(&mut flows, 3, &third).is_empty());
        assert_eq!(enter(&mut flows, 4, &tuple(6, 4)), [second], "a handshake that is not complete goes first");
        assert_eq!(enter(&mut flows, 5, &tuple(17, 5)), [tuple(6, 4)]);
        assert_eq!(enter(&mut flows, 6, &tuple(17, 6)), [third], "then the oldest of the other protocols");
        assert!(flows.find(&first).is_some() && flows.len() == 3 && flows.counters().evicted == 3);
    }

    #[test]
    fn no_insertion_moves_a_connection_and_every_one_is_found() {
        let mut flows = table(5000);
        let places = |flows: &Flows| (flows.records.as_ptr(), flows.index.memory_bytes());
        let first = places(&flows);
        for port in 0..6000 {
            enter(&mut flows, port.into(), &tuple(17, port));
            // Neither the records nor the index are those of another size: an insertion has moved none of them.
            assert_eq!(places(&flows), first, "connection {port}");
        }
        assert_eq!((flows.len(), flows.counters().evicted), (5000, 1000));
        for port in 0..6000 {
            let index = flows.find(&tuple(17, port));
            assert_eq!(index.is_some(), port >= 1000, "{port}");
            assert!(index.is_none_or(|index| flows.get(index).entering == tuple(17, port)));
        }
    }

    #[test]
    fn a_lookup_that_has_begun_does_not_find_a_removed_connection() {
        let mut flows = table(1);
        let (first, second) = (tuple(17, 1), tuple(17, 2));
        enter(&mut flows, 0, &first);
        let likely = flows.prefetch_record(flows.hash(&first));
        assert_eq!(flows.find_likely(likely, flows.hash(&first), &first), likely);
        enter(&mut flows, 1, &second);
        assert_eq!(flows.find_likely(likely, flows.hash(&first), &first), None);
        flows.expire(Instant::FAR_FUTURE, &mut |_, _| {});
        assert_eq!(flows.find_likely(likely, flows.hash(&second), &second), None);
    }

    #[test]
    fn a_full_table_keeps_connections_with_packets_in_later_periods() {
        let mut flows = table(3);
        (1..=3).for_each(|port| drop(enter(&mut flows, 0, &tuple(17, port))));
        for (port, at_s) in [(1, 20), (3, 40), (1, 41)] {
            flows.touch(Instant::from_millis(at_s * 1000), flows.find(&tuple(17, port)).expect("it is there"));
        }
        assert_eq!(enter(&mut flows, 60_000, &tuple(17, 4)), [tuple(17, 2)]);
        assert_eq!(
            enter(&mut flows, 60_001, &tuple(17, 5)),
            [tuple(17, 3)],
            "connection 1 has a packet in a later period"
        );
    }

    #[test]
    fn idle_connections_expire_by_their_stage() {
        let mut flows = table(8);
        for (port, protocol) in [(1, 6), (2, 6), (3, 17)] {
            enter(&mut flows, 0, &tuple(protocol, port));
        }
        open(&mut flows, 0, &tuple(6, 1));
        let expired = |flows: &mut Flows, at_s: u64| {
            let mut ports = Vec::new();
            flows.expire(Instant::from_millis(at_s * 1000), &mut |_, record| ports.push(record.entering.source_port));
            ports
        };
        assert_eq!(flows.next_expiry(), Some(Instant::from_millis(120_000)));
        assert_eq!(expired(&mut flows, 119), []);
        assert_eq!(expired(&mut flows, 120), [2]);
        flows.touch(Instant::from_millis(500_000), flows.find(&tuple(17, 3)).expect("it is there"));
        assert_eq!(expired(&mut flows, 1099), []);
        assert_eq!(expired(&mut flows, 1100), [3]);
        assert_eq!(expired(&mut flows, 5 * 24 * 60 * 60), [1]);
        assert_eq!((flows.len(), flows.next_expiry()), (0, None));
    }
}
