//! Compression libraries as the second stage of redundancy elimination.

use redundancy::second_stage::Compressor;
use zstd::bulk;

/// Little is left to compress, and it is not to take long.
const ZSTD_LEVEL: i32 = 1;

/// A compression library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// zstd, level 1.
    Zstd,
    /// LZ4's block format.
    Lz4,
}

impl Library {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Zstd, Self::Lz4];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    /// Its number in a bundle.
    #[must_use]
    pub const fn stage(self) -> u8 {
        match self {
            Self::Zstd => 1,
            Self::Lz4 => 2,
        }
    }
}

/// The library with this number in a bundle.
pub(crate) fn library(stage: u8) -> Option<Box<dyn Compressor + Send>> {
    match Library::ALL.into_iter().find(|library| library.stage() == stage)? {
        Library::Zstd => Zstd::new().ok().map(|zstd| Box::new(zstd) as Box<dyn Compressor + Send>),
        Library::Lz4 => Some(Box::new(Lz4)),
    }
}

/// zstd, each bundle by itself.
pub struct Zstd {
    compressor: bulk::Compressor<'static>,
    decompressor: bulk::Decompressor<'static>,
}

impl Zstd {
    /// Fails if the library has no memory.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { compressor: bulk::Compressor::new(ZSTD_LEVEL)?, decompressor: bulk::Decompressor::new()? })
    }
}

impl Compressor for Zstd {
    fn stage(&self) -> u8 {
        Library::Zstd.stage()
    }

    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        self.compressor.compress(input).map(|compressed| out.extend_from_slice(&compressed)).is_ok()
    }

    fn expand(&mut self, input: &[u8], expanded_bytes: usize, out: &mut Vec<u8>) -> bool {
        let expanded = self.decompressor.decompress(input, expanded_bytes);
        take_whole(expanded.ok(), expanded_bytes, out)
    }
}

/// LZ4, each bundle by itself.
pub struct Lz4;

impl Compressor for Lz4 {
    fn stage(&self) -> u8 {
        Library::Lz4.stage()
    }

    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&lz4_flex::block::compress(input));
        true
    }

    fn expand(&mut self, input: &[u8], expanded_bytes: usize, out: &mut Vec<u8>) -> bool {
        let expanded = lz4_flex::block::decompress(input, expanded_bytes);
        take_whole(expanded.ok(), expanded_bytes, out)
    }
}

/// What was cut off may expand to less than there was.
fn take_whole(expanded: Option<Vec<u8>>, expanded_bytes: usize, out: &mut Vec<u8>) -> bool {
    let whole = expanded.filter(|expanded| expanded.len() == expanded_bytes);
    whole.map(|whole| out.extend_from_slice(&whole)).is_some()
}

#[cfg(test)]
mod tests;
