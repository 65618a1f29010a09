//! The same work with the connections in a `hashbrown` map: each packet is looked up as it comes.
//!
//! Parsing, hash function, record, tracker and chain are the node's own; only the table differs: one entry for each of a
//! connection's two tuples, to an index into an array of records. It spares itself the node's timers and change list.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use flow::conntrack::Tracker;
use flow::wire::{Packet, Parsed, parse};
use flow::{Connection, Direction, Disposition, DropReason, Frame, HashKey, Instant, PortId, Tuple};
use hashbrown::HashMap;
use network_functions::chain::{Chain, ChainCounters, Runtime};
use network_functions::expectation::Expectations;
use network_functions::function::{HandshakeExchange, Verdict};
use network_functions::inspect::assembly::Assemblies;
use network_functions::log::Log;
use packet_io::usage::thread_cpu_time;
use zerocopy::FromBytes;

use super::setting::{FIREWALL_RULES, HASH_KEY, NODES, chain, tracker};
use super::traffic::{Ring, Traffic, not_sent};
use crate::bench::BenchError;

/// The node's keyed hash, for the map.
#[derive(Clone, Copy)]
struct TupleHashing(HashKey);

struct TupleHasher {
    key: HashKey,
    hash: u64,
}

impl BuildHasher for TupleHashing {
    type Hasher = TupleHasher;

    fn build_hasher(&self) -> TupleHasher {
        TupleHasher { key: self.0, hash: 0 }
    }
}

impl Hasher for TupleHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let tuple = Tuple::read_from_bytes(bytes).expect("only tuples are hashed");
        self.hash = self.key.hash(&tuple);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}

pub(super) struct OneAtATime {
    map: HashMap<Tuple, u32, TupleHashing>,
    records: Vec<Connection>,
    tracker: Tracker,
    chain: Chain,
    counters: ChainCounters,
    log: Log,
    expectations: Expectations,
    assemblies: Assemblies,
    now: Instant,
}

impl OneAtATime {
    /// With these connections, which must all differ in both tuples.
    pub(super) fn new(records: Vec<Connection>, now: Instant) -> Self {
        let mut map = HashMap::with_capacity_and_hasher(2 * records.len(), TupleHashing(HASH_KEY));
        for (index, record) in (0..).zip(&records) {
            map.insert(record.original, index);
            map.insert(record.reply, index);
        }
        let chain = chain(FIREWALL_RULES);
        let counters = chain.new_counters();
        Self {
            map,
            records,
            tracker: tracker(),
            chain,
            counters,
            log: Log::default(),
            expectations: Expectations::default(),
            assemblies: Assemblies::default(),
            now,
        }
    }

    /// Passes `packets` packets of established connections. Returns the time that it took.
    pub(super) fn pass(
        &mut self,
        traffic: &mut Traffic,
        ring: &mut Ring,
        packets: u64,
    ) -> Result<Duration, BenchError> {
        let (mut spent, mut lost) = (Duration::ZERO, 0);
        let mut left = packets;
        while left > 0 {
            left -= traffic.fill(ring, left).len() as u64;
            let mut batches = ring.batches();
            let began = thread_cpu_time();
            for frame in batches.iter_mut().flatten() {
                frame.disposition = self.handle(frame).unwrap_or_else(Disposition::Drop);
            }
            spent += thread_cpu_time().saturating_sub(began);
            lost += batches.iter().map(not_sent).sum::<u64>();
        }
        if lost > 0 { Err(BenchError::Lost { what: "the hashbrown map", lost, packets }) } else { Ok(spent) }
    }

    fn handle(&mut self, frame: &mut Frame<'_>) -> Result<Disposition, DropReason> {
        let Parsed::Ip(mut headers) = parse(frame)? else { return Ok(Disposition::Consumed) };
        let index = *self.map.get(&headers.tuple).ok_or(DropReason::NoConnection)?;
        let connection = &mut self.records[index as usize];
        let is_original = connection.original == headers.tuple;
        let direction = if is_original { Direction::Original } else { Direction::Reply };
        let advance =
            self.tracker.advance(self.now, &mut connection.protocol, &mut connection.flags, direction, &headers);
        advance.verdict?;
        connection.packets[direction.index()] += 1;
        connection.bytes[direction.index()] += u64::from(headers.l3_bytes);
        if let Some(timeout) = advance.timeout {
            connection.expires_at_nanos = (self.now + timeout).as_nanos();
        }
        let mut runtime = Runtime {
            now: self.now,
            node: NODES[0],
            counters: &mut self.counters,
            log: &mut self.log,
            assemblies: &mut self.assemblies,
            expectations: &mut self.expectations,
            handshake: HandshakeExchange::NONE,
        };
        let mut packet = Packet { frame, headers: &mut headers };
        match self.chain.process(&mut runtime, connection, &mut packet, direction).verdict {
            Verdict::Forward => Ok(Disposition::Transmit(PortId(1 - packet.frame.ingress.0))),
            Verdict::Drop(reason) => Err(reason),
            Verdict::SendBack | Verdict::Queued => Ok(Disposition::Consumed),
        }
    }
}
