//! The shape of a structure: all parameters that must be equal for replication, and their encoding.
//!
//! A shape is 32 bytes, in network order:
//!
//! ```text
//! 0        1     2       3       4             5         6           7     8          10     16      24
//! version  kind  levels  cells   fingerprint   content   insertion   zero  ratio      zero   size    check of
//!                hashes  bucket  bits          bits      content           per mille                 the secret
//! ```
//!
//! The size is in bits (Bloom filter), counters (counting), buckets (cuckoo), or cells. Fields that a kind lacks are zero.

/// The maximum number of levels of a multi-level filter.
pub const LEVELS_MAX: u64 = 8;
/// The maximum number of cells of a bucket.
pub const CELLS_PER_BUCKET_MAX: u64 = 8;
/// The maximum number of hash functions of a Bloom filter.
pub const HASHES_MAX: u64 = 16;
/// The maximum number of words of a structure: a gigabyte.
pub const WORDS_MAX: u64 = 1 << 28;
/// The maximum number of bits of a state.
pub const STATE_BITS_MAX: u64 = 16;
/// The least number of fingerprint bits that distinguishes items usefully.
pub const FINGERPRINT_BITS_MIN: u64 = 4;
/// The size of an encoded shape.
pub const SHAPE_BYTES: usize = 32;
/// The version of this encoding.
const VERSION: u8 = 1;
/// Bits of a cell beside the "taken" bit.
const CELL_BITS: u64 = 31;

/// An invalid shape: misuse, or an invalid message of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// A parameter is out of its range.
    #[error("{what}: {value}, allowed are {least} to {most}")]
    OutOfRange {
        /// The name of the parameter.
        what: &'static str,
        /// The rejected value.
        value: u64,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// The bytes are no encoded shape.
    #[error("these bytes are no encoded filter shape: {0}")]
    Malformed(&'static str),
    /// The bytes are of a later version.
    #[error("the filter's shape is encoded in version {0}, this program supports version 1")]
    Version(u8),
    /// The structure is of another kind.
    #[error("the peer's filter has another kind or shape than this node's: configure both alike")]
    OtherShape,
    /// Keys are hashed under another secret.
    #[error("the peer's filter uses another secret than this node's: configure the same on both")]
    OtherSecret,
}

fn check(what: &'static str, value: u64, least: u64, most: u64) -> Result<u64, ShapeError> {
    if (least..=most).contains(&value) { Ok(value) } else { Err(ShapeError::OutOfRange { what, value, least, most }) }
}

/// A Bloom filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BloomShape {
    /// Its bits (m).
    pub bits: u64,
    /// Bits a key (k).
    pub hashes: u8,
}

impl BloomShape {
    fn words(self) -> Result<u64, ShapeError> {
        check("bits", self.bits, 1, WORDS_MAX * 32)?;
        check("hashes", self.hashes.into(), 1, HASHES_MAX)?;
        Ok(self.bits.div_ceil(32))
    }
}

/// A counting Bloom filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountingBloomShape {
    /// Its counters (m), of four bits.
    pub counters: u64,
    /// Counters a key (k).
    pub hashes: u8,
}

impl CountingBloomShape {
    fn words(self) -> Result<u64, ShapeError> {
        check("counters", self.counters, 1, WORDS_MAX * 8)?;
        check("hashes", self.hashes.into(), 1, HASHES_MAX)?;
        Ok(self.counters.div_ceil(8))
    }
}

/// A cuckoo filter: buckets of four cells of 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CuckooShape {
    /// Its buckets (m).
    pub buckets: u64,
}

impl CuckooShape {
    /// A shape with room for `items` items at a load of 90 %, where insertions practically never fail.
    #[must_use]
    pub const fn for_items(items: u64) -> Self {
        // Small filters are less even, so they have some buckets more.
        Self { buckets: items * 100 / (90 * 4) + 8 }
    }

    fn words(self) -> Result<u64, ShapeError> {
        check("buckets", self.buckets, 1, WORDS_MAX / 2)?;
        // Four cells of half a word.
        Ok(self.buckets * 2)
    }
}

/// The bucket for a new item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insertion {
    /// The first of its buckets with a free cell (FA).
    FirstAvailable,
    /// The bucket with the fewest items, the first of several (LL).
    LeastLoad,
}

/// A multi-level filter; with a ratio of 1000 and least-load insertion a d-left filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultiLevelShape {
    /// Cells of all levels (n). Levels consist of whole buckets, so there may be slightly fewer.
    pub cells: u64,
    /// Levels (D).
    pub levels: u8,
    /// Cells a bucket (H).
    pub cells_per_bucket: u8,
    /// The ratio of a level's size to the one before it, in thousandths (R).
    pub ratio_per_mille: u16,
    /// Bits of a fingerprint (F).
    pub fingerprint_bits: u8,
    /// Bits of a counter or state (C). Fingerprint and content share 31 bits.
    pub content_bits: u8,
    /// Where new items go.
    pub insertion: Insertion,
}

impl MultiLevelShape {
    /// The default of MLCBF, FA(4,8) with R = 0.5, for `items` items at a load of 85 %, where insertions practically
    /// never fail. The fingerprint has the bits of a 32-bit cell beyond the content.
    #[must_use]
    pub const fn for_items(items: u64, content_bits: u8) -> Self {
        Self {
            // Nine tenths of the maximum load; small filters overflow earlier, as their buckets are less even.
            cells: items * 100 / 85 + 128,
            levels: 4,
            cells_per_bucket: 8,
            ratio_per_mille: 500,
            fingerprint_bits: (CELL_BITS as u8).saturating_sub(content_bits),
            content_bits,
            insertion: Insertion::FirstAvailable,
        }
    }

    /// The stride between buckets, in words: buckets do not cross cache lines.
    pub(crate) const fn stride(self) -> usize {
        (self.cells_per_bucket as usize).next_power_of_two()
    }

    /// The bits of 64 that represent cells, with as many a level as the stride.
    pub(crate) fn cells_mask(self) -> u64 {
        let of_bucket = (1 << self.cells_per_bucket) - 1_u64;
        (0..usize::from(self.levels)).fold(0, |mask, level| mask | of_bucket << (level * self.stride()))
    }

    /// Buckets of each level (BN): the first has n / (H · R0), rounded down, with R0 = 1 + R + R² + …; each further
    /// level has R times as many as the one before it, rounded down.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn buckets(self) -> Result<[u64; LEVELS_MAX as usize], ShapeError> {
        check("levels", self.levels.into(), 2, LEVELS_MAX)?;
        check("cells a bucket", self.cells_per_bucket.into(), 1, CELLS_PER_BUCKET_MAX)?;
        check("thousandths of a level's size over the last", self.ratio_per_mille.into(), 1, 1000)?;
        check("content bits", self.content_bits.into(), 1, STATE_BITS_MAX)?;
        let left = CELL_BITS - u64::from(self.content_bits);
        check("fingerprint bits", self.fingerprint_bits.into(), FINGERPRINT_BITS_MIN, left)?;
        check("cells", self.cells, 1, WORDS_MAX)?;
        let (ratio, levels) = (u128::from(self.ratio_per_mille), u32::from(self.levels));
        // All in thousandths to the power of the last level, so that only the result is rounded.
        let sum: u128 = (0..levels).map(|level| ratio.pow(level) * 1000_u128.pow(levels - 1 - level)).sum();
        let whole = u128::from(self.cells) * 1000_u128.pow(levels - 1);
        let mut size = (whole / (u128::from(self.cells_per_bucket) * sum)) as u64;
        let mut buckets = [0; LEVELS_MAX as usize];
        for bucket in &mut buckets[..usize::from(self.levels)] {
            *bucket = check("buckets of a level", size, 1, WORDS_MAX)?;
            size = size * u64::from(self.ratio_per_mille) / 1000;
        }
        check("words", buckets.iter().sum::<u64>() * self.stride() as u64, 1, WORDS_MAX)?;
        Ok(buckets)
    }

    fn words(self) -> Result<u64, ShapeError> {
        Ok(self.buckets()?.iter().sum::<u64>() * self.stride() as u64)
    }
}

/// The content of a multi-level filter's cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// The number of insertions of an item.
    Counters,
    /// An item's state.
    States,
}

/// A structure of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// [`crate::Bloom`].
    Bloom(BloomShape),
    /// [`crate::CountingBloom`].
    CountingBloom(CountingBloomShape),
    /// [`crate::MultiLevel`].
    MultiLevel(MultiLevelShape, Content),
    /// [`crate::Cuckoo`].
    Cuckoo(CuckooShape),
}

impl Shape {
    /// The number of words of a structure of this shape.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn words(self) -> Result<usize, ShapeError> {
        let words = match self {
            Self::Bloom(shape) => shape.words(),
            Self::CountingBloom(shape) => shape.words(),
            Self::MultiLevel(shape, _) => shape.words(),
            Self::Cuckoo(shape) => shape.words(),
        };
        words.map(|words| words as usize)
    }

    /// The encoded shape, with the [check](crate::Secret::check) of the secret that keys are hashed under.
    #[must_use]
    pub fn encode(self, secret_check: u64) -> [u8; SHAPE_BYTES] {
        let (kind, bytes, ratio, size) = match self {
            Self::Bloom(shape) => (1, [shape.hashes, 0, 0, 0, 0], 0, shape.bits),
            Self::CountingBloom(shape) => (2, [shape.hashes, 0, 0, 0, 0], 0, shape.counters),
            Self::Cuckoo(shape) => (5, [0; 5], 0, shape.buckets),
            Self::MultiLevel(shape, content) => {
                let insertion = u8::from(shape.insertion == Insertion::LeastLoad);
                let policy = insertion | u8::from(content == Content::Counters) << 1;
                let bits = [shape.fingerprint_bits, shape.content_bits];
                let bytes = [shape.levels, shape.cells_per_bucket, bits[0], bits[1], policy];
                (4, bytes, shape.ratio_per_mille, shape.cells)
            }
        };
        let mut encoded = [0; SHAPE_BYTES];
        encoded[..2].copy_from_slice(&[VERSION, kind]);
        encoded[2..7].copy_from_slice(&bytes);
        encoded[8..10].copy_from_slice(&ratio.to_be_bytes());
        encoded[16..24].copy_from_slice(&size.to_be_bytes());
        encoded[24..].copy_from_slice(&secret_check.to_be_bytes());
        encoded
    }

    /// Decodes a shape from a message. The result can be built; the caller must limit its size.
    ///
    /// # Errors
    /// The bytes are no valid shape, or its keys are hashed under another secret.
    pub fn decode(bytes: &[u8], secret_check: u64) -> Result<Self, ShapeError> {
        let bytes: &[u8; SHAPE_BYTES] = bytes.try_into().map_err(|_| ShapeError::Malformed("not 32 bytes"))?;
        let [version, kind, hashes, cells_per_bucket, fingerprint_bits, content_bits, policy, ..] = *bytes;
        if version != VERSION {
            return Err(ShapeError::Version(version));
        }
        let word = |from: usize| u64::from_be_bytes(bytes[from..from + 8].try_into().expect("eight of 32 bytes"));
        let ratio_per_mille = u16::from_be_bytes([bytes[8], bytes[9]]);
        let size = word(16);
        let shape = match kind {
            1 => Self::Bloom(BloomShape { bits: size, hashes }),
            2 => Self::CountingBloom(CountingBloomShape { counters: size, hashes }),
            4 => {
                let insertion = if policy & 1 == 0 { Insertion::FirstAvailable } else { Insertion::LeastLoad };
                let content = if policy & 2 == 0 { Content::States } else { Content::Counters };
                let cells = size;
                let shape = MultiLevelShape {
                    cells,
                    levels: hashes,
                    cells_per_bucket,
                    ratio_per_mille,
                    fingerprint_bits,
                    content_bits,
                    insertion,
                };
                Self::MultiLevel(shape, content)
            }
            5 => Self::Cuckoo(CuckooShape { buckets: size }),
            _ => return Err(ShapeError::Malformed("a kind that is not known")),
        };
        shape.words()?;
        if word(24) != secret_check {
            return Err(ShapeError::OtherSecret);
        }
        // Unused fields must be zero, so each shape has one encoding.
        if shape.encode(secret_check) == *bytes {
            Ok(shape)
        } else {
            Err(ShapeError::Malformed("bits beyond its kind"))
        }
    }
}

#[cfg(test)]
mod tests;
