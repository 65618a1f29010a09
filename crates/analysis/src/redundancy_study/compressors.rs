//! Compression libraries: gzip's algorithm, zstd and LZ4, each piece by itself.

use flate2::{Compress, Compression, FlushCompress};
use redundancy::second_stage::Compressor;
use serde::{Deserialize, Serialize};

/// Gzip's default.
const GZIP_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 1;

/// A compression library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// Deflate, level 6, without gzip's header of 18 bytes.
    Gzip,
    /// zstd, level 1.
    Zstd,
    /// LZ4's block format.
    Lz4,
}

impl Library {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Zstd, Self::Lz4];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }
}

/// A library with its state, which is used again and again.
pub(super) enum Squeezer {
    Gzip(Box<Compress>),
    /// None if zstd could not be had: nothing becomes smaller then.
    Zstd(Option<zstd::bulk::Compressor<'static>>),
    Lz4,
}

impl Squeezer {
    pub(super) fn new(library: Library) -> Self {
        match library {
            Library::Gzip => Self::Gzip(Box::new(Compress::new(Compression::new(GZIP_LEVEL), false))),
            Library::Zstd => Self::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()),
            Library::Lz4 => Self::Lz4,
        }
    }

    /// How many bytes are left of `input`; as many as there are if it does not become smaller. `out` is overwritten.
    pub(super) fn squeezed_bytes(&mut self, input: &[u8], out: &mut Vec<u8>) -> usize {
        out.clear();
        if self.compress(input, out) { out.len().min(input.len()) } else { input.len() }
    }
}

impl Compressor for Squeezer {
    fn stage(&self) -> u8 {
        match self {
            Self::Zstd(_) => 1,
            Self::Lz4 => 2,
            Self::Gzip(_) => 3,
        }
    }

    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Self::Gzip(state) => {
                state.reset();
                // Deflate grows by five bytes for each 16 KB at most.
                out.reserve(input.len() + input.len() / 1024 + 64);
                matches!(state.compress_vec(input, out, FlushCompress::Finish), Ok(flate2::Status::StreamEnd))
            }
            Self::Zstd(state) => {
                let compressed = state.as_mut().and_then(|state| state.compress(input).ok());
                compressed.map(|compressed| out.extend_from_slice(&compressed)).is_some()
            }
            Self::Lz4 => {
                out.extend_from_slice(&lz4_flex::block::compress(input));
                true
            }
        }
    }

    /// The study only compresses.
    fn expand(&mut self, _input: &[u8], _expanded_bytes: usize, _out: &mut Vec<u8>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_gzip_leaves_is_a_whole_stream_each_time() {
        let mut squeezer = Squeezer::new(Library::Gzip);
        for text in ["one and one and one and one", "another and another and another"] {
            let input = text.repeat(50).into_bytes();
            let mut out = Vec::new();
            assert!(squeezer.compress(&input, &mut out) && out.len() < input.len() / 5);
            let mut expanded = Vec::new();
            flate2::read::DeflateDecoder::new(&out[..]).read_to_end(&mut expanded).expect("it was made here");
            assert_eq!(expanded, input);
        }
    }

    #[test]
    fn what_does_not_become_smaller_counts_as_it_is() {
        let few = [7, 200, 13, 91];
        for library in Library::ALL {
            assert_eq!(Squeezer::new(library).squeezed_bytes(&few, &mut Vec::new()), few.len(), "{}", library.name());
            let zeros = Squeezer::new(library).squeezed_bytes(&[0; 1400], &mut Vec::new());
            assert!(zeros < 60, "{} leaves {zeros}", library.name());
        }
    }
}
