//! What a structure looks like: all that must be the same for two of them to be exchanged, and its form in messages.
//!
//! A shape is 32 bytes, in network order:
//!
//! ```text
//! 0        1     2       3       4             5         6           7     8          10     16      24
//! version  kind  levels  cells   fingerprint   content   insertion   zero  ratio      zero   size    check of
//!                hashes  bucket  bits          bits      content           per mille                 the secret
//! ```
//!
//! The size is in bits (Bloom filter), counters (counting), or cells. What a kind does not have is zero.

/// Levels that a multi-level filter has at most.
pub const LEVELS_MAX: u64 = 8;
/// Cells that a bucket has at most.
pub const CELLS_PER_BUCKET_MAX: u64 = 8;
/// Hash functions that a Bloom filter has at most.
pub const HASHES_MAX: u64 = 16;
/// Words that a structure has at most: a gigabyte.
pub const WORDS_MAX: u64 = 1 << 28;
/// Bits of a state at most.
pub const STATE_BITS_MAX: u64 = 16;
/// Fewer bits of a fingerprint tell nothing apart.
pub const FINGERPRINT_BITS_MIN: u64 = 4;
/// Bits of a shape in messages.
pub const SHAPE_BYTES: usize = 32;
/// What this form of a shape says of itself.
const VERSION: u8 = 1;
/// Bits of a cell beside the one that says it is taken.
const CELL_BITS: u64 = 31;

/// A structure that cannot be: misuse, or a peer that sends what it must not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// A figure is out of its range.
    #[error("{what}: {value}, allowed are {least} to {most}")]
    OutOfRange {
        /// Which figure.
        what: &'static str,
        /// What it is.
        value: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// The bytes are not a shape's.
    #[error("these bytes do not tell a filter's shape: {0}")]
    Malformed(&'static str),
    /// The bytes are of a later version.
    #[error("the filter's shape is told in version {0}, this program knows version 1")]
    Version(u8),
    /// A structure of a kind that this one is not.
    #[error("the peer's filter is of another kind or shape than ours: both must be configured alike")]
    OtherShape,
    /// Keys are hashed under another secret.
    #[error("the peer's filter is under another secret than ours: both must be given the same")]
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

/// A counting Bloom filter with states in its cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatefulBloomShape {
    /// Its cells (m).
    pub cells: u64,
    /// Cells a key (k).
    pub hashes: u8,
    /// Bits of a state, whose highest value is taken by "several": 4 (four cells a word) or 12 (two).
    pub state_bits: u8,
}

impl StatefulBloomShape {
    fn words(self) -> Result<u64, ShapeError> {
        check("hashes", self.hashes.into(), 1, HASHES_MAX)?;
        let per_word = match self.state_bits {
            4 => 4,
            12 => 2,
            other => {
                return Err(ShapeError::OutOfRange {
                    what: "state bits, 4 or 12",
                    value: other.into(),
                    least: 4,
                    most: 12,
                });
            }
        };
        check("cells", self.cells, 1, WORDS_MAX * per_word)?;
        Ok(self.cells.div_ceil(per_word))
    }
}

/// Where a new item goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insertion {
    /// Into the first of its buckets with a free cell (FA).
    FirstAvailable,
    /// Into the bucket with the fewest items, of several the first (LL).
    LeastLoad,
}

/// A multi-level filter; with a ratio of 1000 and least-load insertion a d-left filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultiLevelShape {
    /// Cells of all levels (n). Levels are of whole buckets, so there may be a few less.
    pub cells: u64,
    /// Levels (D).
    pub levels: u8,
    /// Cells a bucket (H).
    pub cells_per_bucket: u8,
    /// A level's size over that of the level before it, in thousandths (R).
    pub ratio_per_mille: u16,
    /// Bits of a fingerprint (F).
    pub fingerprint_bits: u8,
    /// Bits of a counter or state (C). Fingerprint and content share 31 bits.
    pub content_bits: u8,
    /// Where new items go.
    pub insertion: Insertion,
}

impl MultiLevelShape {
    /// The seed's default, FA(4,8) with R = 0.5, for so many items at 85 % of its cells, where an insertion that finds no room
    /// is all but impossible. The fingerprint has the bits that the content leaves of a cell of 32.
    #[must_use]
    pub const fn for_items(items: u64, content_bits: u8) -> Self {
        Self {
            // Nine tenths of the maximum load; small filters overflow earlier, as they are less even.
            cells: items * 100 / 85 + 128,
            levels: 4,
            cells_per_bucket: 8,
            ratio_per_mille: 500,
            fingerprint_bits: (CELL_BITS as u8).saturating_sub(content_bits),
            content_bits,
            insertion: Insertion::FirstAvailable,
        }
    }

    /// Words from a bucket to the next: buckets do not cross cache lines.
    pub(crate) const fn stride(self) -> usize {
        (self.cells_per_bucket as usize).next_power_of_two()
    }

    /// Which bits of 64 are cells, with as many a level as there are words from a bucket to the next.
    pub(crate) fn cells_mask(self) -> u64 {
        let of_bucket = (1 << self.cells_per_bucket) - 1_u64;
        (0..usize::from(self.levels)).fold(0, |mask, level| mask | of_bucket << (level * self.stride()))
    }

    /// Buckets of each level (BN): those of the first are n / (H · R0), rounded down, R0 = 1 + R + R² + …; those of each
    /// further one R times as many as of the one before it, rounded down.
    ///
    /// # Errors
    /// There is no such filter.
    pub fn buckets(self) -> Result<[u64; LEVELS_MAX as usize], ShapeError> {
        check("levels", self.levels.into(), 2, LEVELS_MAX)?;
        check("cells a bucket", self.cells_per_bucket.into(), 1, CELLS_PER_BUCKET_MAX)?;
        check("thousandths of a level's size over the last", self.ratio_per_mille.into(), 1, 1000)?;
        check("content bits", self.content_bits.into(), 1, STATE_BITS_MAX)?;
        let left = CELL_BITS - u64::from(self.content_bits);
        check("fingerprint bits", self.fingerprint_bits.into(), FINGERPRINT_BITS_MIN, left)?;
        check("cells", self.cells, 1, WORDS_MAX)?;
        let (ratio, levels) = (u128::from(self.ratio_per_mille), u32::from(self.levels));
        // All in thousandths to the power of the last level, so that nothing is rounded before the end.
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

/// What is in the cells of a multi-level filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// How often an item was inserted.
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
    /// [`crate::StatefulBloom`].
    StatefulBloom(StatefulBloomShape),
    /// [`crate::MultiLevel`].
    MultiLevel(MultiLevelShape, Content),
}

impl Shape {
    /// How many words a structure of this shape has.
    ///
    /// # Errors
    /// There is no such structure.
    pub fn words(self) -> Result<usize, ShapeError> {
        let words = match self {
            Self::Bloom(shape) => shape.words(),
            Self::CountingBloom(shape) => shape.words(),
            Self::StatefulBloom(shape) => shape.words(),
            Self::MultiLevel(shape, _) => shape.words(),
        };
        words.map(|words| words as usize)
    }

    /// The shape as messages tell it, with the [check](crate::Secret::check) of the secret that keys are hashed under.
    #[must_use]
    pub fn encode(self, secret_check: u64) -> [u8; SHAPE_BYTES] {
        let (kind, bytes, ratio, size) = match self {
            Self::Bloom(shape) => (1, [shape.hashes, 0, 0, 0, 0], 0, shape.bits),
            Self::CountingBloom(shape) => (2, [shape.hashes, 0, 0, 0, 0], 0, shape.counters),
            Self::StatefulBloom(shape) => (3, [shape.hashes, 0, 0, shape.state_bits, 0], 0, shape.cells),
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

    /// Reads a shape from a message. It is one that can be built; whether it is small enough to be is the reader's to say.
    ///
    /// # Errors
    /// The bytes are not a shape's, or not of a structure that can be, or its keys are hashed under another secret.
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
            3 => Self::StatefulBloom(StatefulBloomShape { cells: size, hashes, state_bits: content_bits }),
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
            _ => return Err(ShapeError::Malformed("a kind that is not known")),
        };
        shape.words()?;
        if word(24) != secret_check {
            return Err(ShapeError::OtherSecret);
        }
        // What a kind does not have is zero: so there is one form of each shape.
        if shape.encode(secret_check) == *bytes {
            Ok(shape)
        } else {
            Err(ShapeError::Malformed("bits beyond its kind"))
        }
    }
}

#[cfg(test)]
mod tests;
