//! The encoder: blocks go in, blocks with pointers come out.

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

/// How matches are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matcher {
    /// Fingerprints are hooks around which bytes are compared. Finds more; the encoder keeps the payload, and an index of 4
    /// bytes for each period of it (12 % of the cache for 32, 6 % for 64).
    MaxMatch,
    /// Chunks between markers are looked up by their hash. The encoder keeps no payload, but 24 bytes for each 64 of the cache
    /// (38 %), and cannot give the decoder what it lacks.
    ChunkMatch,
}

/// What an encoder is made of.
#[derive(Clone, Debug)]
pub struct EncoderConfig {
    /// Bytes of the cache, a multiple of 64 or rounded down to one. The decoder's must have as many.
    pub cache_bytes: usize,
    /// How blocks are sampled. The period decides how large the index is, for good.
    pub sampling: Sampling,
    /// How matches are found.
    pub matcher: Matcher,
    /// What blocks may point to.
    pub trust: Trust,
    /// Flows whose place is remembered, so that retransmissions are known. More displace each other, and are taken for
    /// retransmissions when in doubt. At most [`FLOWS_MAX`].
    pub flows_max: usize,
    /// The name of this encoder's stream, never used before with the same decoder: at random, from whoever starts it.
    pub epoch: u32,
    /// A secret for fingerprints and chunk hashes, at random: without it nobody can make two chunks look alike.
    pub key: [u64; 2],
    /// Blocks in which nothing is found may go plain and be remembered all the same ([`Encoding::Remembered`]): only where who
    /// carries blocks keeps their order and tells such blocks from others.
    pub remembers_plain: bool,
}

impl Default for EncoderConfig {
    /// The seed's: SAMPLEBYTE and Max-Match, w = p = 32, 10 MB. The epoch and the key are zero.
    fn default() -> Self {
        Self {
            cache_bytes: 10 << 20,
            sampling: Sampling::default(),
            matcher: Matcher::MaxMatch,
            trust: Trust::Sent,
            flows_max: FLOWS_DEFAULT,
            epoch: 0,
            key: [0; 2],
            remembers_plain: false,
        }
    }
}

/// What became of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// It is to be sent as it is, without a shim: the decoder does not see it, and nothing is written.
    Plain,
    /// It is to be sent as it is, without a shim, and nothing is written: but the decoder is to be handed it, by
    /// [`crate::Decoder::handle_plain`], as it is remembered here too.
    Remembered,
    /// It is whole behind a shim.
    Literal,
    /// Pointers stand for parts of it.
    Encoded,
}

impl Encoding {
    /// Whether something was written, which goes to the decoder.
    #[must_use]
    pub const fn has_shim(self) -> bool {
        matches!(self, Self::Literal | Self::Encoded)
    }

    /// Bytes that go on the wire: those written, or the block's own.
    #[must_use]
    pub const fn wire_bytes(self, block: &[u8], written: &[u8]) -> usize {
        if self.has_shim() { written.len() } else { block.len() }
    }
}

/// What an encoder did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EncoderCounters {
    /// Blocks that went as they are.
    pub blocks_plain: u64,
    /// Blocks that went whole behind a shim.
    pub blocks_literal: u64,
    /// Blocks with pointers.
    pub blocks_encoded: u64,
    /// Bytes of all blocks.
    pub bytes_in: u64,
    /// Bytes sent for them.
    pub bytes_out: u64,
    /// Pointers.
    pub pointers: u64,
    /// Bytes that they stand for.
    pub bytes_matched: u64,
    /// Blocks that may have been retransmissions.
    pub blocks_cautious: u64,
    /// Granules that the decoder lacked and was given.
    pub granules_filled: u64,
    /// Granules that the decoder lacked and could not be given.
    pub granules_gone: u64,
    /// Times that the encoder and a decoder came together.
    pub openings: u64,
    /// Blocks that went as they are and are remembered.
    pub blocks_remembered: u64,
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
    /// Bytes of blocks remembered since the last that brought its number. None: all bring theirs.
    unnumbered_bytes: Option<usize>,
    /// Blocks were remembered since the decoder last received a number or an Open.
    is_unconfirmed: bool,
    link: Link,
    requests: Requests,
    parent: Option<Parent>,
    /// An Open is to be said before all else.
    is_to_open: bool,
    /// Parts of the ring, in bytes, that were taken over and are not in the index yet: the oldest first.
    unindexed: VecDeque<Range<usize>>,
    lanes: [Lane; BATCH_BLOCKS_MAX],
    matches: Vec<Match>,
    counters: EncoderCounters,
}

impl Encoder {
    /// An encoder that knows no decoder yet: blocks go plain until one has answered.
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
            unnumbered_bytes: config.remembers_plain.then_some(0),
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

    /// An encoder whose decoder begins at the same moment, by [`crate::Decoder::open_at_once`] with the same epoch: there is
    /// nothing to agree on.
    ///
    /// # Errors
    /// The cache's size is out of bounds.
    pub fn open_at_once(config: EncoderConfig) -> Result<Self, CacheSizeError> {
        let mut encoder = Self::new(config)?;
        encoder.link = Link::Open { decoder: 0 };
        Ok(encoder)
    }

    /// The same, reading bytes as told instead of in the fastest way that the processor knows. What it writes is the same.
    #[must_use]
    pub fn with_scan(self, scan: Scan) -> Self {
        Self { fingerprinter: self.fingerprinter.with_scan(scan), scan, ..self }
    }

    /// Encodes a block that is new for sure, or of which nothing is known: `out` is what goes on the wire, in place of what
    /// was in it.
    pub fn encode_block(&mut self, block: &[u8], out: &mut Vec<u8>) -> Encoding {
        self.encode_alone(Segment { bytes: block, at: None }, out)
    }

    /// Encodes a segment of a flow. One that may be a retransmission points only to what the decoder is known to hold: were it
    /// to point to its own first copy, that was lost, it would be lost again (seed, section 3.4).
    pub fn encode_segment(&mut self, at: FlowPosition, segment: &[u8], out: &mut Vec<u8>) -> Encoding {
        self.encode_alone(Segment { bytes: segment, at: Some(at) }, out)
    }

    /// The parts of the last block for which there are pointers.
    pub fn last_matches(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.matches.iter().map(|found| found.start..found.start + found.length)
    }

    /// The same parts, and the positions of what they point to. A position counts bytes as numbers count granules: a block of
    /// number n begins at 64 n; what lies from there on is in the block itself. For those who study where redundancy comes from.
    pub fn last_pointers(&self) -> impl Iterator<Item = (Range<usize>, u64)> + '_ {
        self.matches.iter().map(|found| (found.start..found.start + found.length, found.source))
    }

    /// The number of the block that was encoded last by [`Encoder::encode_block`] or [`Encoder::encode_segment`]; none if it was
    /// too short, too long or came before a decoder had answered.
    #[must_use]
    pub fn last_number(&self) -> Option<u64> {
        self.lanes[0].place.map(|place| place.number)
    }

    /// From the next block on with another period. The index keeps its size: with a shorter period than it was made for,
    /// older markers are displaced sooner.
    pub const fn set_period(&mut self, period: Period) {
        self.fingerprinter.set_period(period);
    }

    /// From the next block on with another table for SAMPLEBYTE.
    pub const fn set_table(&mut self, table: SampleTable) {
        self.fingerprinter.set_table(table);
    }

    /// How blocks are sampled now.
    #[must_use]
    pub const fn sampling(&self) -> &Sampling {
        self.fingerprinter.sampling()
    }

    /// Whether blocks are encoded; before a decoder has answered they are not.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// The name of its stream.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number that the next block gets, or less.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.placement.next()
    }

    /// What it did so far.
    #[must_use]
    pub const fn counters(&self) -> EncoderCounters {
        self.counters
    }

    /// Bytes of memory: of the payload kept, of the index, and of all else whose size depends on the configuration.
    #[must_use]
    pub const fn memory_bytes(&self) -> [usize; 3] {
        let rest = self.view.memory_bytes() + self.flows.memory_bytes();
        match &self.finder {
            Finder::Max { finder, ring } => [ring.bytes().len(), finder.memory_bytes(), rest],
            Finder::Chunk(finder) => [0, finder.memory_bytes(), rest],
        }
    }
}
