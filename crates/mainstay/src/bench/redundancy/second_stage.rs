//! Compression libraries as the second stage.

use redundancy::second_stage::Compressor;
use zstd::bulk;

use crate::bench::BenchError;

/// Level 1 of zstd, each bundle by itself.
pub(super) struct Zstd {
    compressor: bulk::Compressor<'static>,
    decompressor: bulk::Decompressor<'static>,
}

impl Zstd {
    pub(super) fn new() -> Result<Self, BenchError> {
        let failed = |_| BenchError::NotRestored("zstd");
        let compressor = bulk::Compressor::new(1).map_err(failed)?;
        Ok(Self { compressor, decompressor: bulk::Decompressor::new().map_err(failed)? })
    }
}

impl Compressor for Zstd {
    fn stage(&self) -> u8 {
        1
    }

    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        self.compressor.compress(input).map(|compressed| out.extend_from_slice(&compressed)).is_ok()
    }

    fn expand(&mut self, input: &[u8], expanded_bytes: usize, out: &mut Vec<u8>) -> bool {
        let expanded = self.decompressor.decompress(input, expanded_bytes);
        expanded.map(|expanded| out.extend_from_slice(&expanded)).is_ok()
    }
}

/// LZ4, each bundle by itself.
pub(super) struct Lz4;

impl Compressor for Lz4 {
    fn stage(&self) -> u8 {
        2
    }

    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&lz4_flex::block::compress(input));
        true
    }

    fn expand(&mut self, input: &[u8], expanded_bytes: usize, out: &mut Vec<u8>) -> bool {
        let expanded = lz4_flex::block::decompress(input, expanded_bytes);
        expanded.map(|expanded| out.extend_from_slice(&expanded)).is_ok()
    }
}
