//! Encodes a few blocks at once: while one block's slots and candidates are being loaded from memory, the others are
//! processed. The output equals that of encoding one by one.

use alloc::vec::Vec;

use super::decoder_view::Trust;
use super::lane::{Lane, Segment};
use super::{Encoder, Encoding, Finder};
use crate::limits::{
    BATCH_BLOCKS_MAX, BATCH_BYTES_MAX, BLOCK_BYTES_MAX, GRANULE_BYTES, IMPLIED_BYTES_MAX, MARGIN_DIVISOR,
};
use crate::matching::max_match::MaxMatch;
use crate::matching::{Match, Reach};
use crate::packet_cache::{Place, granules_for};
use crate::reference_check::ReferenceCheck;
use crate::scan::Work;
use crate::wire::shim::{self, ENCODED_SHIM_BYTES, LITERAL_SHIM_BYTES, POINTER_BYTES, Pointer};

/// A group of blocks, at most as many as lanes.
struct Turn<'a, 'b> {
    encoder: &'a mut Encoder,
    segments: &'a [Segment<'b>],
    outs: &'a mut [Vec<u8>],
}

impl Work for Turn<'_, '_> {
    type Output = [Encoding; BATCH_BLOCKS_MAX];

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { encoder, segments, outs } = self;
        let mut encodings = [Encoding::Plain; BATCH_BLOCKS_MAX];
        let blocks = segments.len().min(outs.len()).min(BATCH_BLOCKS_MAX);
        // Each block's candidates are prefetched one block before they are compared.
        for lane in 0..=blocks {
            if lane < blocks {
                encoder.probe(lane);
            }
            if let Some(former) = lane.checked_sub(1) {
                encodings[former] = encoder.finish(former, segments[former].bytes, &mut outs[former]);
            }
        }
        encodings
    }
}

impl Encoder {
    /// Encodes blocks in order, faster than one by one. `outs` has at least as many buffers as there are blocks; each
    /// receives the wire form of its block. `encodings` receives the results, in order.
    pub fn encode_batch(&mut self, segments: &[Segment<'_>], outs: &mut [Vec<u8>], encodings: &mut Vec<Encoding>) {
        encodings.clear();
        let (mut segments, mut outs) = (segments, outs);
        while !segments.is_empty() && !outs.is_empty() {
            let blocks = blocks_of_turn(segments).min(outs.len());
            let (turn, later) = segments.split_at(blocks);
            let (turn_outs, later_outs) = outs.split_at_mut(blocks);
            encodings.extend_from_slice(&self.encode_turn(turn, turn_outs)[..blocks]);
            (segments, outs) = (later, later_outs);
        }
    }

    pub(super) fn encode_alone(&mut self, segment: Segment<'_>, out: &mut Vec<u8>) -> Encoding {
        self.encode_turn(&[segment], core::slice::from_mut(out))[0]
    }

    fn encode_turn(&mut self, segments: &[Segment<'_>], outs: &mut [Vec<u8>]) -> [Encoding; BATCH_BLOCKS_MAX] {
        for (lane, segment) in segments.iter().enumerate() {
            self.assign_place(lane, segment);
            self.mark(lane, segment.bytes);
        }
        self.scan.run(Turn { encoder: self, segments, outs })
    }

    fn assign_place(&mut self, lane: usize, segment: &Segment<'_>) {
        let block = segment.bytes;
        let is_cautious = segment.at.is_some_and(|at| !self.flows.is_new(at, block.len()));
        self.counters.blocks_cautious += u64::from(is_cautious);
        let is_fit = block.len() >= self.fingerprinter.sampling().window.bytes()
            && block.len() <= BLOCK_BYTES_MAX
            // A block that fills half of the smallest cache would displace more valuable data.
            && granules_for(block.len()) * 2 <= self.granules;
        let place = (self.link.is_open() && is_fit).then(|| self.placement.peek(block.len()));
        if let Some(place) = place {
            self.placement.take(place, block.len());
        }
        (self.lanes[lane].place, self.lanes[lane].is_cautious) = (place, is_cautious);
    }

    /// Finds the markers of a cached block, and prefetches their slots.
    fn mark(&mut self, lane: usize, block: &[u8]) {
        let Lane { place: Some(_), marks, .. } = &mut self.lanes[lane] else { return };
        self.fingerprinter.mark(block, marks);
        if let Finder::Max { finder, .. } = &self.finder {
            finder.prefetch_slots(marks);
        }
    }

    #[inline(always)]
    fn probe(&mut self, lane: usize) {
        let Lane { place, marks, probe, .. } = &mut self.lanes[lane];
        if let (Finder::Max { finder, ring }, Some(place)) = (&mut self.finder, place) {
            finder.ask_candidates(ring.bytes(), place.offset, marks, probe);
        }
    }

    #[inline(always)]
    fn finish(&mut self, lane: usize, block: &[u8], out: &mut Vec<u8>) -> Encoding {
        out.clear();
        self.matches.clear();
        let encoding = match self.lanes[lane].place {
            Some(place) => self.finish_at(lane, place, block, out),
            None => {
                self.credit.spend(block.len(), 0);
                Encoding::Plain
            }
        };
        let counters = &mut self.counters;
        match encoding {
            Encoding::Plain => counters.blocks_plain += 1,
            Encoding::PlainCached => counters.blocks_plain_cached += 1,
            Encoding::Literal => counters.blocks_literal += 1,
            Encoding::Encoded => counters.blocks_encoded += 1,
        }
        counters.bytes_in += block.len() as u64;
        counters.bytes_out += encoding.wire_bytes(block, out) as u64;
        encoding
    }

    #[inline(always)]
    fn finish_at(&mut self, lane: usize, place: Place, block: &[u8], out: &mut Vec<u8>) -> Encoding {
        self.find(lane, place, block);
        let matched: usize = self.matches.iter().map(|found| found.length).sum();
        let shim_bytes = ENCODED_SHIM_BYTES + POINTER_BYTES * self.matches.len();
        let encoding = if matched > shim_bytes {
            self.credit.earn(block.len(), matched - shim_bytes);
            self.write_encoded(place.number, block, out);
            self.unnumbered_bytes = self.unnumbered_bytes.map(|_| 0);
            self.is_unconfirmed = false;
            Encoding::Encoded
        } else {
            self.matches.clear();
            self.write_whole(place.number, block, out)
        };
        if let Finder::Max { ring, .. } = &mut self.finder {
            ring.write(place.offset, block);
        }
        let first = place.offset / GRANULE_BYTES;
        let is_usable = encoding != Encoding::Plain && self.trust == Trust::Sent;
        self.view.put(first..first + granules_for(block.len()) as usize, is_usable);
        encoding
    }

    /// Encodes a block without matches.
    fn write_whole(&mut self, number: u64, block: &[u8], out: &mut Vec<u8>) -> Encoding {
        let unnumbered_bytes = self.unnumbered_bytes.map(|bytes| bytes + block.len());
        if let Some(bytes) = unnumbered_bytes.filter(|bytes| *bytes <= IMPLIED_BYTES_MAX) {
            self.unnumbered_bytes = Some(bytes);
            self.is_unconfirmed = true;
            self.credit.spend(block.len(), 0);
            return Encoding::PlainCached;
        }
        if self.credit.spend(block.len(), LITERAL_SHIM_BYTES) {
            self.unnumbered_bytes = self.unnumbered_bytes.map(|_| 0);
            self.is_unconfirmed = false;
            shim::put_literal(out, self.epoch, number);
            out.extend_from_slice(block);
            return Encoding::Literal;
        }
        // The position is skipped: the index contains it already, and must not find another block there.
        Encoding::Plain
    }

    #[inline(always)]
    fn find(&mut self, lane: usize, place: Place, block: &[u8]) {
        let Lane { is_cautious, marks, probe, .. } = &self.lanes[lane];
        let ring_bytes = self.granules as usize * GRANULE_BYTES;
        let usable = if *is_cautious { &self.view.held } else { &self.view.usable };
        let reach = Reach::new(place, block.len(), [ring_bytes, ring_bytes / MARGIN_DIVISOR], usable);
        let window_bytes = self.fingerprinter.sampling().window.bytes();
        match &mut self.finder {
            Finder::Max { ring, .. } => {
                MaxMatch::find(ring.bytes(), &reach, (block, probe), window_bytes, &mut self.matches);
            }
            Finder::Chunk(finder) => finder.find(&reach, (block, marks), &mut self.matches),
        }
    }

    #[inline(always)]
    fn write_encoded(&mut self, number: u64, block: &[u8], out: &mut Vec<u8>) {
        out.reserve(block.len());
        shim::put_encoded(out, self.epoch, number, check_of(block, &self.matches), self.matches.len());
        let mut end = 0;
        for Match { start, length, source } in &self.matches {
            Pointer { skip: start - end, length: *length, source: *source as u32 }.put(out);
            end = start + length;
            self.counters.bytes_matched += *length as u64;
        }
        self.counters.pointers += self.matches.len() as u64;
        end = 0;
        for Match { start, length, .. } in &self.matches {
            out.extend_from_slice(&block[end..*start]);
            end = start + length;
        }
        out.extend_from_slice(&block[end..]);
    }
}

/// The number of blocks encoded at once: at least one.
fn blocks_of_turn(segments: &[Segment<'_>]) -> usize {
    let mut bytes = 0;
    let fit = segments.iter().take(BATCH_BLOCKS_MAX).take_while(|segment| {
        bytes += segment.bytes.len();
        bytes <= BATCH_BYTES_MAX
    });
    fit.count().max(1)
}

/// The check of the referenced bytes. Not inlined, so that it is compiled portably: with vector instructions the
/// compiler generates a slower sequence of multiplications.
#[inline(never)]
fn check_of(block: &[u8], matches: &[Match]) -> u32 {
    let mut check = ReferenceCheck::default();
    matches.iter().for_each(|found| check.add(&block[found.start..found.start + found.length]));
    check.finish()
}
