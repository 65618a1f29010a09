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
use flow::serial::is_before;

use super::Progress;
use super::acceptance::Acceptance;

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

/// How a segment compares with what is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Nothing is held of the stream.
    NotHeld,
    /// Where it lies in what is held, the bytes are the same.
    Same,
    /// It has other bytes.
    Differs,
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
    acceptance: Acceptance,
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

/// The assemblies of a worker.
#[derive(Debug, Default)]
pub struct Assemblies {
    held: BTreeMap<StreamKey, Box<Assembly>>,
    /// Ages and keys in the order of their beginning. Entries of assemblies that are gone are skipped.
    order: VecDeque<(u64, StreamKey)>,
    begun: u64,
    evicted: u64,
}

/// A stream, and the function that reads it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamKey {
    reader: u16,
    source: [u8; 16],
    destination: [u8; 16],
    ports: (u16, u16),
    protocol: u8,
    /// Of several streams with the same tuple, the connections of QUIC, which one.
    connection: u64,
}

impl StreamKey {
    /// The stream of a connection. `reader` is the function's [`FlowState::ATTRIBUTE`](crate::function::FlowState::ATTRIBUTE): each function holds bytes
    /// of its own, as one may know enough before another does.
    #[must_use]
    pub const fn new(reader: u16, tuple: &Tuple) -> Self {
        Self {
            reader,
            source: tuple.source,
            destination: tuple.destination,
            ports: (tuple.source_port, tuple.destination_port),
            protocol: tuple.protocol,
            connection: 0,
        }
    }

    /// The stream of one of the connections with the tuple.
    #[must_use]
    pub const fn of_connection(self, connection: u64) -> Self {
        Self { connection, ..self }
    }
}

/// The part of a segment from the first byte of its stream on, and its offset.
#[must_use]
pub fn within(start: u32, sequence: u32, bytes: &[u8]) -> (usize, &[u8]) {
    let offset = sequence.wrapping_sub(start);
    if is_before(sequence, start) {
        (0, bytes.get(start.wrapping_sub(sequence) as usize..).unwrap_or_default())
    } else {
        (offset as usize, bytes)
    }
}

impl Assemblies {
    /// Adds bytes of the stream that begins at `start`, and returns what is there from its beginning.
    ///
    /// # Errors
    /// The bytes are not held; what is held stays as it was.
    pub fn insert(&mut self, stream: &StreamKey, start: u32, offset: usize, bytes: &[u8]) -> Result<Held<'_>, Unheld> {
        let assembly = self.begun(stream, start);
        assembly.insert(offset, bytes)?;
        Ok(Held { prefix: &assembly.bytes[..assembly.prefix_bytes], progress: &mut assembly.progress })
    }

    /// Which segments the stream's receiver takes. The stream is held from now on.
    pub fn acceptance(&mut self, stream: &StreamKey, start: u32) -> &mut Acceptance {
        &mut self.begun(stream, start).acceptance
    }

    /// What is there from the beginning of a stream.
    #[must_use]
    pub fn prefix(&self, stream: &StreamKey) -> &[u8] {
        self.held.get(stream).map_or(&[], |held| &held.bytes[..held.prefix_bytes])
    }

    /// How far the parsers have come with a stream.
    #[must_use]
    pub fn progress(&self, stream: &StreamKey) -> Option<&Progress> {
        self.held.get(stream).map(|held| &held.progress)
    }

    /// Whether a stream's receiver has acknowledged bytes that are not there, so that another observer has forwarded them.
    #[must_use]
    pub fn lacks(&self, stream: &StreamKey, acknowledgement: u32) -> bool {
        // The end of the stream has a number, too.
        let is_beyond = |held: &Assembly| {
            let end = held.start.wrapping_add(held.prefix_bytes as u32 + 1);
            is_before(end, acknowledgement)
        };
        self.held.get(stream).is_some_and(|held| is_beyond(held))
    }

    /// Drops so many bytes of the prefix. Returns the sequence number of the new beginning.
    pub fn advance(&mut self, stream: &StreamKey, bytes: usize) -> u32 {
        let Some(held) = self.held.get_mut(stream) else { return 0 };
        let bytes = bytes.min(held.prefix_bytes);
        held.start = held.start.wrapping_add(bytes as u32);
        held.bytes.drain(..bytes);
        held.prefix_bytes -= bytes;
        for (first, last) in &mut held.ahead {
            (*first, *last) = (*first - bytes, *last - bytes);
        }
        (held.insertions, held.progress) = (0, Progress::default());
        held.start
    }

    /// The sequence number of the first byte of a stream that is held.
    #[must_use]
    pub fn start(&self, stream: &StreamKey) -> Option<u32> {
        self.held.get(stream).map(|held| held.start)
    }

    /// Compares a segment with what is held.
    #[must_use]
    pub fn compare(&self, stream: &StreamKey, sequence: u32, bytes: &[u8]) -> Comparison {
        let Some(held) = self.held.get(stream) else { return Comparison::NotHeld };
        let (offset, bytes) = within(held.start, sequence, bytes);
        if held.differs(offset, bytes) { Comparison::Differs } else { Comparison::Same }
    }

    /// Drops what is held of a stream once its receiver has acknowledged all of it. Whether it is not held now.
    pub fn confirm(&mut self, stream: &StreamKey, acknowledgement: u32) -> bool {
        let Some(held) = self.held.get(stream) else { return true };
        let is_confirmed = !is_before(acknowledgement, held.start.wrapping_add(held.bytes.len() as u32));
        if is_confirmed {
            self.held.remove(stream);
        }
        is_confirmed
    }

    /// The assembly of a stream.
    fn begun(&mut self, stream: &StreamKey, start: u32) -> &mut Assembly {
        if self.held.get(stream).is_none_or(|held| held.start != start) {
            self.held.remove(stream);
            self.make_room();
            self.begun += 1;
            self.order.push_back((self.begun, *stream));
        }
        let age = self.begun;
        self.held.entry(*stream).or_insert_with(|| Box::new(Assembly { start, age, ..Assembly::default() }))
    }

    /// Whether this stream is held.
    #[must_use]
    pub fn holds(&self, stream: &StreamKey, start: u32) -> bool {
        !self.held.is_empty() && self.start(stream) == Some(start)
    }

    /// Drops what is held of a stream.
    pub fn remove(&mut self, stream: &StreamKey) {
        if !self.held.is_empty() {
            self.held.remove(stream);
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
