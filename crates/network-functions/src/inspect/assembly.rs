//! Bytes of streams that parsers are waiting for the rest of, within limits.
//!
//! Most clients' first bytes lie in one segment. A ClientHello with a post-quantum key share takes two. What is held
//! is not replicated: a connection whose beginning was held when its node failed keeps what was known of it before.
//!
//! **Copies.** The receiver of a stream may keep the first copy of a byte, or the last. So bytes that are there are never replaced, and an insertion with
//! other bytes is refused as a whole ([`Unheld::Differs`]): a caller that forwards nothing but what is held knows what the receiver reads.
//!
//! **Cost.** An insertion costs what it is long, and one search of the connection. [`Progress`] stays with the bytes, so that parsers go on where they were.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use flow::Tuple;

use super::Progress;

/// Connections of which a worker holds bytes. When there are more, those of the connection that has been waiting longest are dropped.
pub const ASSEMBLIES_MAX: usize = 4096;
/// Bytes that are held of a connection.
pub const ASSEMBLY_BYTES_MAX: usize = 8192;
/// Insertions of a connection, repetitions included: a ClientHello of 8 KiB takes 94 segments of the least size, 88 bytes.
pub const INSERTIONS_MAX: u16 = 256;
/// Ranges behind the first gap that are held of a connection. Clients of QUIC scatter a ClientHello over several.
const RANGES_MAX: usize = 16;

/// Why bytes are not held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unheld {
    /// There are other bytes in their place.
    Differs,
    /// They lie behind a gap and beyond [`ASSEMBLY_BYTES_MAX`], or would leave too many gaps.
    Ahead,
    /// There were [`INSERTIONS_MAX`] before.
    TooMany,
}

/// What is held of a stream.
#[derive(Debug)]
pub struct Held<'a> {
    /// The bytes from the beginning to the first gap.
    pub prefix: &'a [u8],
    /// How far the caller's parsers have come with them.
    pub progress: &'a mut Progress,
}

/// The held beginning of a stream.
#[derive(Clone, Debug, Default)]
struct Assembly {
    /// The sequence number of the first byte, by which a reuse of the tuple is recognised.
    start: u32,
    /// When it was begun, as a number that grows.
    age: u64,
    insertions: u16,
    bytes: Vec<u8>,
    /// The bytes up to here are there.
    prefix_bytes: usize,
    /// Ranges behind them that came too early, (first, behind the last), in order and apart from each other.
    ahead: ArrayVec<(usize, usize), RANGES_MAX>,
    progress: Progress,
}

impl Assembly {
    /// Adds bytes at an offset from the stream's beginning. Behind a whole prefix, what is beyond the limit is left out.
    fn insert(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Unheld> {
        if self.insertions >= INSERTIONS_MAX {
            return Err(Unheld::TooMany);
        }
        self.insertions += 1;
        let end = offset.saturating_add(bytes.len());
        let is_ahead = offset > self.prefix_bytes;
        if is_ahead && end > ASSEMBLY_BYTES_MAX {
            return Err(Unheld::Ahead);
        }
        let end = end.min(ASSEMBLY_BYTES_MAX);
        let Some(bytes) = end.checked_sub(offset).map(|length_bytes| &bytes[..length_bytes]) else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        if self.differs(offset, bytes) {
            return Err(Unheld::Differs);
        }
        let touches = |(first, last): &(usize, usize)| offset <= *last && *first <= end;
        if is_ahead && self.ahead.is_full() && !self.ahead.iter().any(touches) {
            return Err(Unheld::Ahead);
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
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
        Ok(())
    }

    /// Whether other bytes are there than these.
    fn differs(&self, offset: usize, bytes: &[u8]) -> bool {
        let end = offset + bytes.len();
        let differs_within = |(first, last): (usize, usize)| {
            let (first, last) = (first.max(offset), last.min(end));
            first < last && self.bytes[first..last] != bytes[first - offset..last - offset]
        };
        differs_within((0, self.prefix_bytes)) || self.ahead.iter().any(|range| differs_within(*range))
    }
}

/// The assemblies of a worker. Each function that reads streams holds bytes of its own, as one may know enough before another does; `reader`
/// is its [`FlowState::ATTRIBUTE`](crate::function::FlowState::ATTRIBUTE).
#[derive(Debug, Default)]
pub struct Assemblies {
    held: BTreeMap<StreamKey, Box<Assembly>>,
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
    ///
    /// # Errors
    /// The bytes are not held; what is held stays as it was.
    pub fn insert(
        &mut self,
        reader: u16,
        tuple: &Tuple,
        start: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Held<'_>, Unheld> {
        let key = key(reader, tuple);
        if self.held.get(&key).is_none_or(|held| held.start != start) {
            self.held.remove(&key);
            self.make_room();
            self.begun += 1;
            self.held.insert(key, Box::new(Assembly { start, age: self.begun, ..Assembly::default() }));
            self.order.push_back((self.begun, key));
        }
        let assembly = self.held.get_mut(&key).ok_or(Unheld::Ahead)?;
        assembly.insert(offset, bytes)?;
        Ok(Held { prefix: &assembly.bytes[..assembly.prefix_bytes], progress: &mut assembly.progress })
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
