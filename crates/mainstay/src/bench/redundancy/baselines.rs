//! What one would use instead, on the same bytes: all at once, which is the best that can happen to them.

use fastcdc::v2020::FastCDC;
use zstd::zstd_safe::{CCtx, CParameter, compress_bound};

use super::{speed, timed};
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
}

impl Libraries {
    pub(super) fn new(traffic: &[u8]) -> Result<Self, BenchError> {
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
        let mut libraries = Self { zstd, out: vec![1; room] };
        // Once in vain, so that their memory is there.
        libraries.measure(traffic, &mut Baselines::default())?;
        Ok(libraries)
    }

    pub(super) fn measure(&mut self, traffic: &[u8], figures: &mut Baselines) -> Result<(), BenchError> {
        let out = &mut self.out;
        let ((), spent) = timed(|| out[..traffic.len()].copy_from_slice(core::hint::black_box(traffic)));
        core::hint::black_box(&*out);
        figures.memcpy.push(speed(traffic.len(), spent));
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
