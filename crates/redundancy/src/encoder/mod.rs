//! The encoder: replaces known runs of blocks by pointers.

mod batch;
mod control;
mod decoder_view;
mod expansion;
mod flow_memory;
mod lane;
mod link;
mod repair;
mod requests;
mod resuming;
mod take_over;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use self::decoder_view::DecoderView;
pub use self::decoder_view::Trust;
use self::expansion::ExpansionCredit;
use self::flow_memory::FlowMemory;
pub use self::flow_memory::FlowPosition;
use self::lane::Lane;
pub use self::lane::Segment;
use self::link::Link;
use self::requests::Requests;
use crate::chunk_index::ChunkIndex;
use crate::fingerprint::{Fingerprinter, Period, SampleTable, Sampling};
use crate::fingerprint_index::FingerprintIndex;
use crate::limits::{BATCH_BLOCKS_MAX, FLOWS_DEFAULT, FLOWS_MAX};
use crate::matching::Match;
use crate::matching::chunk_match::ChunkMatch;
use crate::matching::max_match::MaxMatch;
use crate::packet_cache::{CacheSizeError, Placement, Ring, granules_of};
use crate::scan::Scan;
use crate::wire::control::Parent;

/// The matching algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matcher {
    /// Fingerprints are anchors around which bytes are compared. It finds more; the encoder keeps the payload, and an
    /// index of 4 bytes for each period of it (12 % of the cache for 32, 6 % for 64).
    MaxMatch,
    /// Chunks between markers are looked up by their hash. The encoder keeps no payload, but 24 bytes for each 64 of
    /// the cache (38 %), and cannot send missing data to the decoder.
    ChunkMatch,
}

/// The configuration of an encoder.
#[derive(Clone, Debug)]
pub struct EncoderConfig {
    /// Bytes of the cache, rounded down to a multiple of 64. The decoder's must be as large.
    pub cache_bytes: usize,
    /// The sampling of blocks. Its initial period determines the size of the index permanently.
    pub sampling: Sampling,
    /// The matching algorithm.
    pub matcher: Matcher,
    /// The data that blocks may point to.
    pub trust: Trust,
    /// The number of flows with a recorded position, by which retransmissions are recognised. Further flows evict
    /// others, whose blocks then count as retransmissions. At most [`FLOWS_MAX`].
    pub flows_max: usize,
    /// The epoch of this encoder's stream, unique for the decoder: chosen at random by its creator.
    pub epoch: u32,
    /// A random secret for fingerprints and chunk hashes: without it, no colliding chunks can be constructed.
    pub key: [u64; 2],
    /// Whether blocks without matches may be sent plain and cached all the same ([`Encoding::PlainCached`]). Only for a
    /// transport that keeps the order of blocks and marks such blocks.
    pub caches_plain: bool,
}

impl Default for EncoderConfig {
    /// The defaults of RE: SAMPLEBYTE and Max-Match, w = p = 32, 10 MB. The epoch and the key are zero.
    fn default() -> Self {
        Self {
            cache_bytes: 10 << 20,
            sampling: Sampling::default(),
            matcher: Matcher::MaxMatch,
            trust: Trust::Sent,
            flows_max: FLOWS_DEFAULT,
            epoch: 0,
            key: [0; 2],
            caches_plain: false,
        }
    }
}

/// The result of encoding a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// It is sent unchanged, without a shim: the decoder does not see it, and nothing is written.
    Plain,
    /// It is sent unchanged, without a shim, and nothing is written. The decoder must receive it by
    /// [`crate::Decoder::handle_plain`], as both ends cache it.
    PlainCached,
    /// It is verbatim behind a shim.
    Literal,
    /// Pointers replace parts of it.
    Encoded,
}

impl Encoding {
    /// Whether a wire form was written, which goes to the decoder.
    #[must_use]
    pub const fn has_shim(self) -> bool {
        matches!(self, Self::Literal | Self::Encoded)
    }

    /// Bytes on the wire: those written, or the block's own.
    #[must_use]
    pub const fn wire_bytes(self, block: &[u8], written: &[u8]) -> usize {
        if self.has_shim() { written.len() } else { block.len() }
    }
}

/// The encoder's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EncoderCounters {
    /// Blocks that were sent unchanged.
    pub blocks_plain: u64,
    /// Blocks that were sent verbatim behind a shim.
    pub blocks_literal: u64,
    /// Blocks with pointers.
    pub blocks_encoded: u64,
    /// Bytes of all blocks.
    pub bytes_in: u64,
    /// Bytes sent for them.
    pub bytes_out: u64,
    /// Pointers.
    pub pointers: u64,
    /// Bytes that pointers replaced.
    pub bytes_matched: u64,
    /// Blocks that may have been retransmissions.
    pub blocks_cautious: u64,
    /// Granules that the decoder lacked and received.
    pub granules_filled: u64,
    /// Granules that the decoder lacked and the encoder no longer had.
    pub granules_gone: u64,
    /// The number of handshakes with a decoder.
    pub hellos_sent: u64,
    /// Plain blocks that were cached.
    pub blocks_plain_cached: u64,
}

#[derive(Clone, Debug)]
enum Finder {
    Max { finder: MaxMatch, ring: Ring },
    Chunk(ChunkMatch),
}

/// The encoding side.
#[derive(Clone, Debug)]
pub struct Encoder {
    epoch: u32,
    trust: Trust,
    granules: u64,
    fingerprinter: Fingerprinter,
    scan: Scan,
    finder: Finder,
    placement: Placement,
    view: DecoderView,
    flows: FlowMemory,
    credit: ExpansionCredit,
    /// Bytes of blocks cached since the last one with a number. None: all carry numbers.
    unnumbered_bytes: Option<usize>,
    /// Whether blocks were cached since the decoder last received a number or an Open.
    is_unconfirmed: bool,
    link: Link,
    requests: Requests,
    parent: Option<Parent>,
    /// Whether an Open must be sent first.
    is_to_open: bool,
    /// Parts of the ring, in bytes, that were taken over and are not indexed yet: the oldest first.
    unindexed: VecDeque<Range<usize>>,
    lanes: [Lane; BATCH_BLOCKS_MAX],
    matches: Vec<Match>,
    counters: EncoderCounters,
}

impl Encoder {
    /// An encoder without a decoder: blocks are sent plain until the handshake is complete.
    ///
    /// # Errors
    /// The cache's size is out of bounds.
    pub fn new(config: EncoderConfig) -> Result<Self, CacheSizeError> {
        let granules = granules_of(config.cache_bytes)?;
        let finder = match config.matcher {
            Matcher::MaxMatch => Finder::Max {
                finder: MaxMatch::new(FingerprintIndex::new(granules, config.sampling.period.bytes())),
                ring: Ring::new(granules),
            },
            Matcher::ChunkMatch => Finder::Chunk(ChunkMatch::new(ChunkIndex::new(granules, config.key))),
        };
        Ok(Self {
            epoch: config.epoch,
            trust: config.trust,
            granules,
            fingerprinter: Fingerprinter::new(config.sampling, config.key[0]),
            scan: Scan::detect(),
            finder,
            placement: Placement::new(granules, 0),
            view: DecoderView::new(granules, None),
            flows: FlowMemory::new(config.flows_max.clamp(1, FLOWS_MAX)),
            credit: ExpansionCredit::default(),
            unnumbered_bytes: config.caches_plain.then_some(0),
            is_unconfirmed: false,
            link: Link::default(),
            requests: Requests::default(),
            parent: None,
            is_to_open: false,
            unindexed: VecDeque::new(),
            lanes: Default::default(),
            matches: Vec::new(),
            counters: EncoderCounters::default(),
        })
    }

    /// An encoder whose decoder begins at the same moment, by [`crate::Decoder::open_at_once`] with the same epoch: no
    /// handshake is needed.
    ///
    /// # Errors
    /// The cache's size is out of bounds.
    pub fn open_at_once(config: EncoderConfig) -> Result<Self, CacheSizeError> {
        let mut encoder = Self::new(config)?;
        encoder.link = Link::Open { decoder: 0 };
        Ok(encoder)
    }

    /// The same, with the given instructions instead of the processor's fastest. The output is the same.
    #[must_use]
    pub fn with_scan(self, scan: Scan) -> Self {
        Self { fingerprinter: self.fingerprinter.with_scan(scan), scan, ..self }
    }

    /// Encodes a block that is new, or of an unknown flow: `out` receives the wire form, replacing earlier content.
    pub fn encode_block(&mut self, block: &[u8], out: &mut Vec<u8>) -> Encoding {
        self.encode_alone(Segment { bytes: block, at: None }, out)
    }

    /// Encodes a segment of a flow. A possible retransmission points only to data that the decoder is known to hold. If
    /// it pointed to its own first copy, which was lost, it would be lost, too (RE, section 3.4).
    pub fn encode_segment(&mut self, at: FlowPosition, segment: &[u8], out: &mut Vec<u8>) -> Encoding {
        self.encode_alone(Segment { bytes: segment, at: Some(at) }, out)
    }

    /// The parts of the last block that pointers replaced.
    pub fn last_matches(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.matches.iter().map(|found| found.start..found.start + found.length)
    }

    /// The same parts, and their source positions. A position counts bytes as numbers count granules: a block of number
    /// n begins at 64 n; later positions are in the block itself. For studies of where redundancy comes from.
    /// number n begins at 64 n; what lies from there on is in the block itself. For those who study where redundancy comes from.
    pub fn last_pointers(&self) -> impl Iterator<Item = (Range<usize>, u64)> + '_ {
        self.matches.iter().map(|found| (found.start..found.start + found.length, found.source))
    }

    /// The number of the block encoded last by [`Encoder::encode_block`] or [`Encoder::encode_segment`]; none if it was
    /// too short, too long or sent before the handshake was complete.
    #[must_use]
    pub fn last_number(&self) -> Option<u64> {
        self.lanes[0].place.map(|place| place.number)
    }

    /// Changes the period from the next block on. The index keeps its size: with a period shorter than the initial one,
    /// older markers are evicted sooner.
    pub const fn set_period(&mut self, period: Period) {
        self.fingerprinter.set_period(period);
    }

    /// Changes SAMPLEBYTE's table from the next block on.
    pub const fn set_table(&mut self, table: SampleTable) {
        self.fingerprinter.set_table(table);
    }

    /// The current sampling.
    #[must_use]
    pub const fn sampling(&self) -> &Sampling {
        self.fingerprinter.sampling()
    }

    /// Whether blocks are encoded; before the handshake is complete they are not.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// The epoch of its stream.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number of the next block, or a lower one.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.placement.next()
    }

    /// The counters since the last reset.
    #[must_use]
    pub const fn counters(&self) -> EncoderCounters {
        self.counters
    }

    /// Bytes of memory: of the payload, of the index, and of all other parts whose size depends on the configuration.
    #[must_use]
    pub const fn memory_bytes(&self) -> [usize; 3] {
        let rest = self.view.memory_bytes() + self.flows.memory_bytes();
        match &self.finder {
            Finder::Max { finder, ring } => [ring.bytes().len(), finder.memory_bytes(), rest],
            Finder::Chunk(finder) => [0, finder.memory_bytes(), rest],
        }
    }
}
