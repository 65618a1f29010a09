//! Bytes of streams that parsers are waiting for the rest of, within limits.
//!
//! Most clients' first bytes lie in one segment and are never held. A ClientHello with a post-quantum key share takes two. What is held
//! is not replicated: a connection whose beginning was held when its node failed keeps what was known of it before.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use flow::Tuple;

/// Connections of which a worker holds bytes. When there are more, those of the connection that has been waiting longest are dropped.
pub const ASSEMBLIES_MAX: usize = 1024;
/// Bytes that are held of a connection.
pub const ASSEMBLY_BYTES_MAX: usize = 8192;
/// Ranges behind the first gap that are held of a connection. Clients of QUIC scatter a ClientHello over several.
const RANGES_MAX: usize = 16;

/// The held beginning of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assembly {
    /// The sequence number of the first byte, by which a reuse of the tuple is recognised.
    start: u32,
    /// When it was begun, as a number that grows.
    age: u64,
    bytes: Vec<u8>,
    /// The bytes up to here are there.
    prefix_bytes: usize,
    /// Ranges behind them that came too early, (first, behind the last), in order and apart from each other.
    ahead: ArrayVec<(usize, usize), RANGES_MAX>,
}

impl Assembly {
    /// Adds bytes at an offset from the stream's beginning. What is beyond the limit, or would leave too many gaps, is not kept.
    fn insert(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len()).min(ASSEMBLY_BYTES_MAX);
        let Some(bytes) = end.checked_sub(offset).map(|length_bytes| &bytes[..length_bytes]) else { return };
        if bytes.is_empty() {
            return;
        }
        let touches = |(first, last): &(usize, usize)| offset <= *last && *first <= end;
        let is_ahead = offset > self.prefix_bytes;
        if is_ahead && self.ahead.is_full() && !self.ahead.iter().any(touches) {
            return;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.write(offset, bytes);
        let mut joined = (offset, end);
        self.ahead.retain(|range| {
            let is_joined = touches(range);
            if is_joined {
                joined = (joined.0.min(range.0), joined.1.max(range.1));
            }
            !is_joined
        });
        if is_ahead {
            let at = self.ahead.partition_point(|(first, _)| *first < joined.0);
            self.ahead.insert(at, joined);
        } else {
            self.prefix_bytes = self.prefix_bytes.max(joined.1);
        }
        while let Some((_, last)) = self.ahead.first().copied().filter(|(first, _)| *first <= self.prefix_bytes) {
            self.prefix_bytes = self.prefix_bytes.max(last);
            self.ahead.remove(0);
        }
    }

    /// Bytes that were there first stay: a retransmission with other bytes does not change what was decided by.
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let is_there =
            |at: usize| at < self.prefix_bytes || self.ahead.iter().any(|(first, last)| (*first..*last).contains(&at));
        for (at, byte) in (offset..).zip(bytes) {
            if !is_there(at) {
                self.bytes[at] = *byte;
            }
        }
    }

    /// The bytes from the beginning to the first gap.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.bytes[..self.prefix_bytes]
    }
}

/// The assemblies of a worker. Each function that reads streams holds bytes of its own, as one may know enough before another does; `reader`
/// is its [`FlowState::ATTRIBUTE`](crate::function::FlowState::ATTRIBUTE).
#[derive(Debug, Default)]
pub struct Assemblies {
    held: BTreeMap<StreamKey, Assembly>,
    /// Ages and keys in the order of their beginning. Entries of assemblies that are gone are skipped.
    order: VecDeque<(u64, StreamKey)>,
    begun: u64,
    evicted: u64,
}

/// The function that reads a stream, and the stream's tuple, as an ordered key.
type StreamKey = (u16, [u8; 16], [u8; 16], u16, u16, u8);

fn key(reader: u16, tuple: &Tuple) -> StreamKey {
    (reader, tuple.source, tuple.destination, tuple.source_port, tuple.destination_port, tuple.protocol)
}

impl Assemblies {
    /// Adds bytes of the stream that begins at `start`, and returns what is there from its beginning.
    pub fn insert(&mut self, reader: u16, tuple: &Tuple, start: u32, offset: usize, bytes: &[u8]) -> &[u8] {
        let key = key(reader, tuple);
        if self.held.get(&key).is_none_or(|held| held.start != start) {
            self.make_room();
            self.begun += 1;
            self.held.insert(key, Assembly { start, age: self.begun, ..Assembly::default() });
            self.order.push_back((self.begun, key));
        }
        let Some(assembly) = self.held.get_mut(&key) else { return &[] };
        assembly.insert(offset, bytes);
        assembly.prefix()
    }

    /// Whether bytes of this stream are held.
    #[must_use]
    pub fn holds(&self, reader: u16, tuple: &Tuple, start: u32) -> bool {
        !self.held.is_empty() && self.held.get(&key(reader, tuple)).is_some_and(|held| held.start == start)
    }

    /// Drops what is held of a connection.
    pub fn remove(&mut self, reader: u16, tuple: &Tuple) {
        if !self.held.is_empty() {
            self.held.remove(&key(reader, tuple));
        }
    }

    /// Connections of which bytes are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Connections of which bytes were dropped to make room.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    fn make_room(&mut self) {
        while self.held.len() >= ASSEMBLIES_MAX || self.order.len() >= 2 * ASSEMBLIES_MAX {
            let Some((age, key)) = self.order.pop_front() else { return };
            if self.held.get(&key).is_some_and(|held| held.age == age) {
                self.held.remove(&key);
                self.evicted += 1;
            }
        }
    }
}
