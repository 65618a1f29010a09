//! What is saved, method by method, beside what could be and with what a second stage adds.

use std::collections::BTreeMap;
use std::time::Duration;

use analysis::redundancy_study::optimal::{OPTIMAL_CACHE_BYTES_MAX, Optimal};
use flow::Instant;
use redundancy::second_stage::{self, BUNDLE_BYTES_MAX, Bundler, Compressor, GATHER_DEFAULT};
use redundancy::{Encoder, EncoderConfig, Matcher, Method, Period, Sampling, Window};
use serde::Serialize;

use super::speed::BLOCK_BYTES;
use super::traffic;
use crate::bench::BenchError;
use crate::bench::rounds::rounded;
use config::compression::{Lz4, Zstd};

/// The estimate of the optimum takes long: so much traffic is enough.
const TRAFFIC_BYTES_MAX: usize = 12 << 20;
/// Packets come so fast: 100 Mbit/s.
const BYTES_PER_MS: usize = 12_500;

/// Shares of the traffic, by what saved them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Shares {
    /// At most, by the seed's estimate.
    pub(super) optimal: f64,
    /// Max-Match with w = p = 32, by method.
    pub(super) max_match: BTreeMap<&'static str, f64>,
    /// Chunk-Match with SAMPLEBYTE and p = 64.
    pub(super) chunk_match: f64,
    /// By second stages alone and after SAMPLEBYTE with Max-Match.
    pub(super) second_stage: BTreeMap<&'static str, f64>,
}

/// Both kinds of traffic.
#[derive(Debug, Default, Serialize)]
pub(super) struct Savings {
    /// Runs of random bytes, half of which were there before.
    pub(super) half_redundant: Shares,
    /// Pages of sentences.
    pub(super) pages: Shares,
}

impl Savings {
    pub(super) fn measure(half_redundant: &[u8], cache_bytes: usize) -> Result<Self, BenchError> {
        let half_redundant = &half_redundant[..half_redundant.len().min(TRAFFIC_BYTES_MAX)];
        let pages = traffic::pages(half_redundant.len());
        Ok(Self {
            half_redundant: Shares::measure(half_redundant, cache_bytes)?,
            pages: Shares::measure(&pages, cache_bytes)?,
        })
    }
}

impl Shares {
    fn measure(traffic: &[u8], cache_bytes: usize) -> Result<Self, BenchError> {
        let share = |bytes: usize| rounded(1.0 - bytes as f64 / traffic.len() as f64, 4);
        let mut optimal = Optimal::new(cache_bytes.min(OPTIMAL_CACHE_BYTES_MAX), Window::DEFAULT);
        let most: isize = packets(traffic).map(|packet| optimal.handle_block(packet)).sum();
        let mut shares = Self { optimal: rounded(most as f64 / traffic.len() as f64, 4), ..Self::default() };
        for method in Method::ALL {
            let sampling = Sampling { method, ..Sampling::default() };
            let encoded = encode(traffic, EncoderConfig { cache_bytes, sampling, ..EncoderConfig::default() })?;
            shares.max_match.insert(method.name(), share(encoded.iter().map(Vec::len).sum()));
            if method == Method::SampleByte {
                let plain: Vec<Vec<u8>> = packets(traffic).map(<[u8]>::to_vec).collect();
                shares.add_second_stages(&plain, &encoded, share)?;
            }
        }
        let sampling = Sampling { period: Period::DEFAULT.longer(), ..Sampling::default() };
        let config = EncoderConfig { cache_bytes, sampling, matcher: Matcher::ChunkMatch, ..EncoderConfig::default() };
        shares.chunk_match = share(encode(traffic, config)?.iter().map(Vec::len).sum());
        Ok(shares)
    }

    fn add_second_stages(
        &mut self,
        plain: &[Vec<u8>],
        encoded: &[Vec<u8>],
        share: impl Fn(usize) -> f64,
    ) -> Result<(), BenchError> {
        let mut zstd = Zstd::new().map_err(|_| BenchError::NotRestored("zstd"))?;
        let stages = &mut self.second_stage;
        stages.insert("zstd_alone", share(bundled(plain, Duration::ZERO, &mut zstd)?));
        stages.insert("zstd_alone_10ms", share(bundled(plain, GATHER_DEFAULT, &mut zstd)?));
        stages.insert("then_zstd", share(bundled(encoded, Duration::ZERO, &mut zstd)?));
        stages.insert("then_zstd_10ms", share(bundled(encoded, GATHER_DEFAULT, &mut zstd)?));
        stages.insert("then_lz4_10ms", share(bundled(encoded, GATHER_DEFAULT, &mut Lz4)?));
        Ok(())
    }
}

fn packets(traffic: &[u8]) -> impl Iterator<Item = &[u8]> {
    traffic.chunks(BLOCK_BYTES[0])
}

/// What goes on the wire for each packet.
fn encode(traffic: &[u8], config: EncoderConfig) -> Result<Vec<Vec<u8>>, BenchError> {
    let mut encoder = Encoder::open_at_once(config).map_err(|_| BenchError::NotRestored("the packet cache"))?;
    let mut out = Vec::new();
    let encoded = packets(traffic).map(|packet| {
        let encoding = encoder.encode_block(packet, &mut out);
        if encoding.has_shim() { out.clone() } else { packet.to_vec() }
    });
    Ok(encoded.collect())
}

/// Bytes on the wire when packets pass a second stage. Each bundle is opened again.
fn bundled(packets: &[Vec<u8>], gather: Duration, compressor: &mut impl Compressor) -> Result<usize, BenchError> {
    let mut bundler = Bundler::new(gather, BUNDLE_BYTES_MAX);
    let (mut out, mut opened) = (Vec::new(), Vec::new());
    let (mut passed_bytes, mut wire_bytes, mut came_out) = (0, 0, 0);
    let mut take = |out: &[u8], compressor: &mut _, came_out: &mut usize| {
        wire_bytes += out.len();
        second_stage::open(out, compressor, &mut opened).map_err(|_| BenchError::NotRestored("the second stage"))?;
        *came_out += second_stage::read(&opened).count();
        Ok::<_, BenchError>(())
    };
    for packet in packets {
        let now = Instant::from_millis((passed_bytes / BYTES_PER_MS) as u64);
        if bundler.poll_transmit(now, compressor, &mut out) {
            take(&out, compressor, &mut came_out)?;
        }
        if !bundler.has_room(packet.len()) && bundler.flush(compressor, &mut out) {
            take(&out, compressor, &mut came_out)?;
        }
        bundler.handle_packet(now, packet).map_err(|_| BenchError::NotRestored("the bundler"))?;
        passed_bytes += packet.len();
        if gather.is_zero() && bundler.flush(compressor, &mut out) {
            take(&out, compressor, &mut came_out)?;
        }
    }
    if bundler.flush(compressor, &mut out) {
        take(&out, compressor, &mut came_out)?;
    }
    if came_out == packets.len() { Ok(wire_bytes) } else { Err(BenchError::NotRestored("the second stage")) }
}
