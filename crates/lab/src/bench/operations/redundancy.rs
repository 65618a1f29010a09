//! Redundancy elimination of packets of 1460 bytes, half of whose bytes are redundant.

use ::redundancy::limits::BATCH_BLOCKS_MAX;
use ::redundancy::{Decoder, DecoderConfig, Encoder, EncoderConfig, Encoding, Handled, Scan, Segment, Ticket};
use flow::Instant;

use super::operation::{Made, Operation};
use crate::bench::BenchError;
use crate::bench::redundancy::traffic;

const BLOCK_BYTES: usize = 1460;
const TRAFFIC_BYTES: usize = 300 * BLOCK_BYTES;
const CACHE_BYTES: usize = 1 << 20;
/// A defect if it happens.
const WHAT: &str = "the encoder and decoder of redundant bytes";

fn encoder() -> Result<Encoder, BenchError> {
    let config = EncoderConfig { cache_bytes: CACHE_BYTES, key: [3, 5], ..EncoderConfig::default() };
    Encoder::open_at_once(config).map_err(|_| BenchError::NotRestored(WHAT))
}

/// Encodes the traffic that its cache is full of.
struct Encode {
    warm: Encoder,
    encoder: Encoder,
    traffic: Vec<u8>,
    outs: [Vec<u8>; BATCH_BLOCKS_MAX],
    encodings: Vec<Encoding>,
}

impl Encode {
    fn operation(scan: Scan) -> Made {
        let traffic = traffic::half_redundant(TRAFFIC_BYTES);
        let mut encoder = encoder()?.with_scan(scan);
        let mut out = Vec::new();
        for block in traffic.chunks(BLOCK_BYTES) {
            encoder.encode_block(block, &mut out);
        }
        let outs = core::array::from_fn(|_| Vec::with_capacity(2 * BLOCK_BYTES));
        Ok(Some(Box::new(Self { warm: encoder.clone(), encoder, traffic, outs, encodings: Vec::new() })))
    }
}

impl Operation for Encode {
    fn times(&self) -> u64 {
        (self.traffic.len() / BLOCK_BYTES) as u64
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.encoder = self.warm.clone();
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        let mut blocks = self.traffic.chunks(BLOCK_BYTES).map(|bytes| Segment { bytes, at: None });
        let mut batch = Vec::with_capacity(BATCH_BLOCKS_MAX);
        loop {
            batch.clear();
            batch.extend(blocks.by_ref().take(BATCH_BLOCKS_MAX));
            if batch.is_empty() {
                return Ok(());
            }
            self.encoder.encode_batch(&batch, &mut self.outs, &mut self.encodings);
            core::hint::black_box(&self.outs);
        }
    }
}

/// Restores what an encoder wrote.
struct Decode {
    warm: Decoder,
    decoder: Decoder,
    blocks: Vec<Vec<u8>>,
    out: Vec<u8>,
}

impl Operation for Decode {
    fn times(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.decoder = self.warm.clone();
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        for block in &self.blocks {
            let handled = self.decoder.handle_block(Instant::ZERO, Ticket(0), block, &mut self.out);
            if handled != Ok(Handled::Decoded) {
                return Err(BenchError::NotRestored(WHAT));
            }
        }
        Ok(())
    }
}

pub(super) fn encode_portable() -> Made {
    Encode::operation(Scan::PORTABLE)
}

pub(super) fn encode_avx2() -> Made {
    match Scan::all().find(|scan| scan.name() == "AVX2") {
        Some(scan) => Encode::operation(scan),
        None => Ok(None),
    }
}

pub(super) fn decode() -> Made {
    let traffic = traffic::half_redundant(TRAFFIC_BYTES);
    let (mut encoder, mut out) = (encoder()?, Vec::with_capacity(2 * BLOCK_BYTES));
    let decoder = Decoder::open_at_once(DecoderConfig { cache_bytes: CACHE_BYTES, id: 0 }, encoder.epoch());
    let mut decoder = decoder.map_err(|_| BenchError::NotRestored(WHAT))?;
    let mut encode = || -> Vec<Vec<u8>> {
        let encoded = traffic.chunks(BLOCK_BYTES).map(|block| {
            let encoding = encoder.encode_block(block, &mut out);
            encoding.has_shim().then(|| out.clone())
        });
        encoded.flatten().collect()
    };
    let mut restored = Vec::with_capacity(2 * BLOCK_BYTES);
    for block in encode() {
        let _ = decoder.handle_block(Instant::ZERO, Ticket(0), &block, &mut restored);
    }
    let blocks = encode();
    Ok(Some(Box::new(Decode { warm: decoder.clone(), decoder, blocks, out: restored })))
}
