//! A method on blocks of one length.

use flow::Instant;
use redundancy::limits::BATCH_BLOCKS_MAX;
use redundancy::{
    Decoder, DecoderConfig, Encoder, EncoderConfig, Fingerprinter, Handled, Marks, Method, Sampling, Segment, Ticket,
};

use super::speed::{speed, timed};
use crate::bench::BenchError;

/// A defect if it happens.
const WHAT: &str = "the encoder and decoder of redundant bytes";

/// Encoded blocks, one after another.
#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

pub(super) struct Subject {
    pub(super) method: Method,
    pub(super) block_bytes: usize,
    fingerprinter: Fingerprinter,
    encoder: Encoder,
    decoder: Decoder,
}

impl Subject {
    /// Its caches are full of the traffic.
    pub(super) fn new(
        method: Method,
        block_bytes: usize,
        cache_bytes: usize,
        traffic: &[u8],
    ) -> Result<Self, BenchError> {
        let sampling = Sampling { method, ..Sampling::default() };
        let config = EncoderConfig { cache_bytes, sampling: sampling.clone(), key: [3, 5], ..EncoderConfig::default() };
        let decoder = Decoder::open_at_once(DecoderConfig { cache_bytes, id: 0 }, config.epoch);
        let encoder = Encoder::open_at_once(config);
        let (Ok(encoder), Ok(decoder)) = (encoder, decoder) else { return Err(BenchError::NotRestored(WHAT)) };
        let fingerprinter = Fingerprinter::new(sampling, 3);
        let mut subject = Self { method, block_bytes, fingerprinter, encoder, decoder };
        subject.decode(traffic)?;
        Ok(subject)
    }

    /// Gigabytes a second of finding markers and fingerprints.
    pub(super) fn mark(&self, traffic: &[u8]) -> f64 {
        let mut marks = Marks::default();
        let (found, spent) = timed(|| {
            let mut found = 0;
            for block in traffic.chunks(self.block_bytes) {
                self.fingerprinter.mark(block, &mut marks);
                found += marks.offsets().len();
            }
            found
        });
        core::hint::black_box(found);
        speed(traffic.len(), spent)
    }

    /// Gigabytes a second of encoding, a few blocks at a time, into buffers that are used again, as packets' are.
    pub(super) fn encode(&mut self, traffic: &[u8]) -> f64 {
        // What is encoded here is not sent: the pair that is decoded with goes on where it was.
        let mut encoder = self.encoder.clone();
        let mut outs: [_; BATCH_BLOCKS_MAX] = core::array::from_fn(|_| Vec::with_capacity(2 * self.block_bytes));
        let mut encodings = Vec::with_capacity(BATCH_BLOCKS_MAX);
        let mut blocks = traffic.chunks(self.block_bytes).map(|bytes| Segment { bytes, at: None });
        let ((), spent) = timed(|| {
            let mut batch = Vec::with_capacity(BATCH_BLOCKS_MAX);
            loop {
                batch.clear();
                batch.extend(blocks.by_ref().take(BATCH_BLOCKS_MAX));
                if batch.is_empty() {
                    break;
                }
                encoder.encode_batch(&batch, &mut outs, &mut encodings);
                core::hint::black_box(&outs);
            }
        });
        speed(traffic.len(), spent)
    }

    /// Gigabytes a second of decoding, and the share that was saved. What comes out is compared.
    pub(super) fn decode(&mut self, traffic: &[u8]) -> Result<(f64, f64), BenchError> {
        let mut wire = Wire::default();
        let mut out = Vec::with_capacity(2 * self.block_bytes);
        let mut wire_bytes = 0;
        for block in traffic.chunks(self.block_bytes) {
            let encoding = self.encoder.encode_block(block, &mut out);
            wire_bytes += encoding.wire_bytes(block, &out);
            wire.bytes.extend_from_slice(&out);
            wire.ends.push(wire.bytes.len());
        }
        // Twice the same blocks for a decoder that is as it was: once for the time, once to compare.
        let mut timed_decoder = self.decoder.clone();
        let (restored_bytes, spent) = timed(|| {
            let mut restored_bytes = 0;
            each_block(&wire, |block| {
                let handled = timed_decoder.handle_block(Instant::ZERO, Ticket(0), block, &mut out);
                restored_bytes += if handled == Ok(Handled::Decoded) { out.len() } else { 0 };
            });
            restored_bytes
        });
        let mut expected = traffic.chunks(self.block_bytes);
        let mut is_same = true;
        let mut starts = wire.ends.iter().scan(0, |start, end| Some(core::mem::replace(start, *end)));
        for end in &wire.ends {
            let (Some(block), Some(start)) = (expected.next(), starts.next()) else { break };
            if start < *end {
                let handled = self.decoder.handle_block(Instant::ZERO, Ticket(0), &wire.bytes[start..*end], &mut out);
                is_same &= handled == Ok(Handled::Decoded) && out == block;
            }
        }
        if !is_same {
            return Err(BenchError::NotRestored(WHAT));
        }
        let saved = 1.0 - wire_bytes as f64 / traffic.len() as f64;
        Ok((speed(restored_bytes, spent), saved))
    }
}

fn each_block(wire: &Wire, mut visit: impl FnMut(&[u8])) {
    let mut start = 0;
    for end in &wire.ends {
        if start < *end {
            visit(&wire.bytes[start..*end]);
        }
        start = *end;
    }
}
