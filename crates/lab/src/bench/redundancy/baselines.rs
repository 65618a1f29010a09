//! What one would use instead, on the same bytes: all at once, which is the best that can happen to them. memcpy moves them out
//! of memory and into memory: there are more of them than caches hold, as there are for the encoder and the decoder. So that it
//! can be seen what memory alone costs a decoder, which keeps what it gives out, blocks are also copied twice each: into a
//! buffer, and from there into a ring as large as the cache.

use fastcdc::v2020::FastCDC;
use zstd::zstd_safe::{CCtx, CParameter, compress_bound};

use super::speed::{BLOCK_BYTES, BySubject, speed, timed};
use crate::bench::BenchError;
use crate::bench::rounds::Rounds;

/// zstd finds matches this far back, as a power of two: farther than there is traffic.
const ZSTD_WINDOW_LOG: u32 = 27;
/// FastCDC's chunks: least, average and most bytes.
const CHUNK_BYTES: [u32; 3] = [1024, 4096, 16_384];

/// Gigabytes a second, and what was saved.
#[derive(Default)]
pub(super) struct Baselines {
    pub(super) memcpy: Rounds,
    /// Copied and kept, by block.
    pub(super) memcpy_kept: BySubject,
    pub(super) zstd_long: Rounds,
    pub(super) lz4: Rounds,
    pub(super) fastcdc: Rounds,
    pub(super) zstd_long_saved: f64,
    pub(super) lz4_saved: f64,
}

/// The libraries with their memory.
pub(super) struct Libraries {
    zstd: CCtx<'static>,
    out: Vec<u8>,
    ring: Vec<u8>,
    buffer: Vec<u8>,
}

impl Libraries {
    pub(super) fn new(traffic: &[u8], cache_bytes: usize) -> Result<Self, BenchError> {
        let mut zstd = CCtx::create();
        let parameters = [
            CParameter::CompressionLevel(1),
            CParameter::EnableLongDistanceMatching(true),
            CParameter::WindowLog(ZSTD_WINDOW_LOG),
        ];
        for parameter in parameters {
            zstd.set_parameter(parameter).map_err(|_| BenchError::NotRestored("zstd"))?;
        }
        let room = compress_bound(traffic.len()).max(lz4_flex::block::get_maximum_output_size(traffic.len()));
        let mut libraries =
            Self { zstd, out: vec![1; room], ring: vec![1; cache_bytes], buffer: vec![1; BLOCK_BYTES[1]] };
        // Once in vain, so that their memory is there.
        libraries.measure(traffic, &mut Baselines::default())?;
        Ok(libraries)
    }

    pub(super) fn measure(&mut self, traffic: &[u8], figures: &mut Baselines) -> Result<(), BenchError> {
        let out = &mut self.out;
        let ((), spent) = timed(|| out[..traffic.len()].copy_from_slice(core::hint::black_box(traffic)));
        core::hint::black_box(&*out);
        figures.memcpy.push(speed(traffic.len(), spent));
        for block_bytes in BLOCK_BYTES {
            let (ring, buffer) = (&mut self.ring, &mut self.buffer);
            let ((), spent) = timed(|| copy_and_keep(traffic, block_bytes, buffer, ring));
            figures.memcpy_kept.entry(("memcpy", block_bytes)).or_default().push(speed(traffic.len(), spent));
        }
        let zstd = &mut self.zstd;
        let (bytes, spent) = timed(|| zstd.compress2(&mut out[..], traffic));
        let bytes = bytes.map_err(|_| BenchError::NotRestored("zstd"))?;
        figures.zstd_long.push(speed(traffic.len(), spent));
        let saved = |bytes: usize| 1.0 - bytes as f64 / traffic.len() as f64;
        figures.zstd_long_saved = saved(bytes);
        let (bytes, spent) = timed(|| lz4_flex::block::compress_into(traffic, out));
        let bytes = bytes.map_err(|_| BenchError::NotRestored("LZ4"))?;
        figures.lz4.push(speed(traffic.len(), spent));
        figures.lz4_saved = saved(bytes);
        let [least, average, most] = CHUNK_BYTES;
        let (chunks, spent) = timed(|| FastCDC::new(traffic, least, average, most).count());
        core::hint::black_box(chunks);
        figures.fastcdc.push(speed(traffic.len(), spent));
        Ok(())
    }
}

/// What a decoder would do at least with bytes that come whole.
fn copy_and_keep(traffic: &[u8], block_bytes: usize, buffer: &mut [u8], ring: &mut [u8]) {
    let mut at = 0;
    for block in traffic.chunks(block_bytes) {
        let out = &mut buffer[..block.len()];
        out.copy_from_slice(block);
        let out = core::hint::black_box(out);
        if at + out.len() > ring.len() {
            at = 0;
        }
        ring[at..at + out.len()].copy_from_slice(out);
        at += out.len();
    }
    core::hint::black_box(ring);
}
