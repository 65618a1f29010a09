//! Training SAMPLEBYTE's table on traffic (seed, section 4.3).

use redundancy::{Encoder, EncoderConfig, Matcher, Method, SampleTable, Sampling};

/// Learns a table: MAXP finds what is redundant, the bytes are taken in the order of how often they are in it, and each is
/// kept as long as it makes the saving grow enough.
#[derive(Debug)]
pub(super) struct Training {
    cache_bytes: usize,
    sampling: Sampling,
    blocks: Vec<Box<[u8]>>,
}

/// The most bytes of traffic that are kept to train on. More are left out.
const TRAINING_BYTES_MAX: usize = 1 << 24;
/// Bytes tried.
const CANDIDATES: usize = 64;
/// A byte must add this part of what is saved, as a divisor ...
const GAIN_DIVISOR: usize = 100;
/// ... and after so many in a row that do not, no more are tried.
const DISAPPOINTMENTS_MAX: usize = 8;

impl Training {
    /// For a cache of so many bytes; the window and the period are `sampling`'s.
    pub(super) const fn new(cache_bytes: usize, sampling: Sampling) -> Self {
        Self { cache_bytes, sampling, blocks: Vec::new() }
    }

    /// Takes a block to train on. Returns whether there was room.
    pub(super) fn add(&mut self, block: &[u8]) -> bool {
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
    pub(super) fn finish(&self) -> SampleTable {
        let counts = self.redundant_bytes();
        let mut order: Vec<u8> = (0..=255).filter(|byte| counts[usize::from(*byte)] > 0).collect();
        order.sort_by_key(|byte| std::cmp::Reverse(counts[usize::from(*byte)]));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_finds_bytes_of_what_is_redundant() {
        // What repeats has but these bytes; what does not has none of them.
        let mut state = 5_u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let phrases: Vec<Vec<u8>> =
            (0..8).map(|_| (0..200).map(|_| b"klmnop"[next() as usize % 6]).collect()).collect();
        let sampling = Sampling { table: SampleTable::of(&[1, 2]), ..Sampling::default() };
        let mut training = Training::new(1 << 20, sampling);
        for _ in 0..60 {
            let mut block: Vec<u8> = (0..400).map(|_| 128 + (next() % 100) as u8).collect();
            block.extend_from_slice(&phrases[next() as usize % 8]);
            assert!(training.add(&block));
        }
        let table = training.finish();
        assert!(table.bytes().count() > 0);
        assert!(table.bytes().all(|byte| b"klmnop".contains(&byte)), "{:?}", table.bytes().collect::<Vec<_>>());
    }
}
