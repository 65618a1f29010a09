//! Training SAMPLEBYTE's table on traffic (seed, section 4.3).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Method, SampleTable, Sampling};
use crate::encoder::{Encoder, EncoderConfig, Matcher};

/// Learns a table: MAXP finds what is redundant, the bytes are taken in the order of how often they are in it, and each is
/// kept as long as it makes the saving grow enough.
#[derive(Debug)]
pub struct Training {
    cache_bytes: usize,
    sampling: Sampling,
    blocks: Vec<Box<[u8]>>,
}

/// The most bytes of traffic that are kept to train on. More are left out.
pub const TRAINING_BYTES_MAX: usize = 1 << 24;
/// Bytes tried.
const CANDIDATES: usize = 64;
/// A byte must add this part of what is saved, as a divisor ...
const GAIN_DIVISOR: usize = 100;
/// ... and after so many in a row that do not, no more are tried.
const DISAPPOINTMENTS_MAX: usize = 8;

impl Training {
    /// For a cache of so many bytes; the window and the period are `sampling`'s.
    #[must_use]
    pub const fn new(cache_bytes: usize, sampling: Sampling) -> Self {
        Self { cache_bytes, sampling, blocks: Vec::new() }
    }

    /// Takes a block to train on. Returns whether there was room.
    pub fn add(&mut self, block: &[u8]) -> bool {
        let held: usize = self.blocks.iter().map(|block| block.len()).sum();
        let has_room = held + block.len() <= TRAINING_BYTES_MAX;
        if has_room {
            self.blocks.push(block.into());
        }
        has_room
    }

    fn encoder(&self, method: Method, table: SampleTable) -> Option<Encoder> {
        let sampling = Sampling { method, table, ..self.sampling.clone() };
        let config = EncoderConfig {
            cache_bytes: self.cache_bytes,
            sampling,
            matcher: Matcher::MaxMatch,
            ..EncoderConfig::default()
        };
        Encoder::open_at_once(config).ok()
    }

    /// Bytes that are left of the blocks.
    fn encoded_bytes(&self, table: SampleTable) -> usize {
        let Some(mut encoder) = self.encoder(Method::SampleByte, table) else { return 0 };
        let mut out = Vec::new();
        let encoded = self.blocks.iter().map(|block| encoder.encode_block(block, &mut out).wire_bytes(block, &out));
        encoded.sum()
    }

    /// How often each byte is in what MAXP finds redundant.
    fn redundant_bytes(&self) -> [usize; 256] {
        let mut counts = [0; 256];
        let Some(mut encoder) = self.encoder(Method::Maxp, self.sampling.table) else { return counts };
        let mut out = Vec::new();
        for block in &self.blocks {
            encoder.encode_block(block, &mut out);
            for range in encoder.last_matches() {
                block[range].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
            }
        }
        counts
    }

    /// The table. Takes as long as encoding the blocks some tens of times. Nothing redundant leaves the table as it is.
    #[must_use]
    pub fn finish(&self) -> SampleTable {
        let counts = self.redundant_bytes();
        let mut order: Vec<u8> = (0..=255).filter(|byte| counts[usize::from(*byte)] > 0).collect();
        order.sort_by_key(|byte| core::cmp::Reverse(counts[usize::from(*byte)]));
        let mut table = SampleTable::of(&[]);
        let total: usize = self.blocks.iter().map(|block| block.len()).sum();
        let (mut saved, mut disappointments) = (0, 0);
        for byte in order.into_iter().take(CANDIDATES) {
            let mut candidate = table;
            candidate.insert(byte);
            let now = total.saturating_sub(self.encoded_bytes(candidate));
            if now > saved + saved / GAIN_DIVISOR {
                (table, saved, disappointments) = (candidate, now, 0);
            } else {
                disappointments += 1;
            }
            if disappointments == DISAPPOINTMENTS_MAX {
                break;
            }
        }
        if saved == 0 { self.sampling.table } else { table }
    }
}
