//! A few blocks at once. While one block's slots and candidates are on their way from memory, the others are worked on; what
//! comes out is what came out one by one.

use alloc::vec::Vec;

use super::{Encoder, Encoding, Finder, FlowPosition};
use crate::encoder::Trust;
use crate::fingerprint::Marks;
use crate::limits::{BATCH_BLOCKS_MAX, BLOCK_BYTES_MAX, GRANULE_BYTES, IMPLIED_BYTES_MAX, MARGIN_DIVISOR};
use crate::matching::Reach;
use crate::matching::max_match::{MaxMatch, Probe};
use crate::packet_cache::{Place, granules_for};
use crate::wire::shim::{self, ENCODED_SHIM_BYTES, LITERAL_SHIM_BYTES, POINTER_BYTES};

/// What is to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// Where it stands in its flow; None when it is no flow's, or new for sure.
    pub at: Option<FlowPosition>,
}

/// One of the blocks that are encoded at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// None for a block that goes plain and leaves no trace.
    pub(super) place: Option<Place>,
    is_cautious: bool,
    marks: Marks,
    probe: Probe,
}

impl Encoder {
    /// Encodes blocks, one after another as they are, and faster than one by one. `outs` has at least as many buffers as
    /// there are blocks; each gets what goes on the wire for its block. `told` gets what became of each, in order.
    pub fn encode_batch(&mut self, segments: &[Segment<'_>], outs: &mut [Vec<u8>], told: &mut Vec<Encoding>) {
        told.clear();
        for (segments, outs) in segments.chunks(BATCH_BLOCKS_MAX).zip(outs.chunks_mut(BATCH_BLOCKS_MAX)) {
            for (lane, segment) in segments.iter().enumerate() {
                self.begin(lane, segment);
            }
            self.probe(0);
            for (lane, (segment, out)) in segments.iter().zip(outs).enumerate() {
                if lane + 1 < segments.len() {
                    self.probe(lane + 1);
                }
                told.push(self.finish(lane, segment.bytes, out));
            }
        }
    }

    pub(super) fn encode_alone(&mut self, segment: &Segment<'_>, out: &mut Vec<u8>) -> Encoding {
        self.begin(0, segment);
        self.probe(0);
        self.finish(0, segment.bytes, out)
    }

    /// Gives a block its place, and finds its markers.
    fn begin(&mut self, lane: usize, segment: &Segment<'_>) {
        let block = segment.bytes;
        let is_cautious = segment.at.is_some_and(|at| !self.flows.is_new(at, block.len()));
        self.counters.blocks_cautious += u64::from(is_cautious);
        let is_fit = block.len() >= self.fingerprinter.sampling().window.bytes()
            && block.len() <= BLOCK_BYTES_MAX
            // What would fill half of the smallest cache is not worth what it displaces.
            && granules_for(block.len()) * 2 <= self.granules;
        let place = (self.link.is_open() && is_fit).then(|| self.placement.peek(block.len()));
        let Lane { place: lane_place, is_cautious: lane_is_cautious, marks, probe } = &mut self.lanes[lane];
        (*lane_place, *lane_is_cautious) = (place, is_cautious);
        let Some(place) = place else { return };
        self.placement.take(place, block.len());
        self.fingerprinter.mark(block, marks);
        if let Finder::Max { finder, .. } = &self.finder {
            finder.ask_slots(marks, probe);
        }
    }

    fn probe(&mut self, lane: usize) {
        let Lane { place, marks, probe, .. } = &mut self.lanes[lane];
        if let (Finder::Max { finder, ring }, Some(place)) = (&mut self.finder, place) {
            finder.ask_candidates(ring.bytes(), place.offset, marks, probe);
        }
    }

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
            Encoding::Remembered => counters.blocks_remembered += 1,
            Encoding::Literal => counters.blocks_literal += 1,
            Encoding::Encoded => counters.blocks_encoded += 1,
        }
        counters.bytes_in += block.len() as u64;
        counters.bytes_out += encoding.wire_bytes(block, out) as u64;
        encoding
    }

    fn finish_at(&mut self, lane: usize, place: Place, block: &[u8], out: &mut Vec<u8>) -> Encoding {
        self.find(lane, place, block);
        let matched: usize = self.matches.iter().map(|found| found.length).sum();
        let shim_bytes = ENCODED_SHIM_BYTES + POINTER_BYTES * self.matches.len();
        let encoding = if matched > shim_bytes {
            self.credit.earn(block.len(), matched - shim_bytes);
            self.write_encoded(place.number, block, out);
            self.unnumbered_bytes = self.unnumbered_bytes.map(|_| 0);
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

    /// A block in which nothing was found.
    fn write_whole(&mut self, number: u64, block: &[u8], out: &mut Vec<u8>) -> Encoding {
        let unnumbered_bytes = self.unnumbered_bytes.map(|bytes| bytes + block.len());
        if let Some(bytes) = unnumbered_bytes.filter(|bytes| *bytes <= IMPLIED_BYTES_MAX) {
            self.unnumbered_bytes = Some(bytes);
            self.credit.spend(block.len(), 0);
            return Encoding::Remembered;
        }
        if self.credit.spend(block.len(), LITERAL_SHIM_BYTES) {
            self.unnumbered_bytes = self.unnumbered_bytes.map(|_| 0);
            shim::put_literal(out, self.epoch, number);
            out.extend_from_slice(block);
            return Encoding::Literal;
        }
        // Its place is passed over: the index has it already, and must not find another block there.
        Encoding::Plain
    }

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
}
