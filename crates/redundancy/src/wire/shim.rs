//! A block on the wire.
//!
//! ```text
//!  0                   1                   2                   3
//! +---+-+---------+-----------------------------------------------+
//! |Ver|E|  Epoch  |        number: the granule it begins at       |   every block: 4 bytes
//! +---+-+---------+-----------------------------------------------+
//! |              check of the bytes pointed to                    |   encoded blocks (E = 1)
//! +-------------------------------+-------------------------------+
//! |      count of pointers        |
//! +-------------------------------+-------------------------------+
//! |    bytes verbatim before      |   bytes that it stands for    |   each pointer: 8 bytes
//! +-------------------------------+-------------------------------+
//! | 0 |        source: the lowest 30 bits of a position           |
//! +---------------------------------------------------------------+
//! |  bytes verbatim, of all runs together …
//! ```
//!
//! `Ver` is 2. `Epoch` is the lowest five bits of the encoder's epoch. A position counts bytes as numbers count
//! granules: a block of number n begins at position 64 n.
//!
//! The source lies before the block, at a distance of at most a cache, or in the block itself, before the referenced
//! bytes. The latter are copied from the front and may overlap: a source one byte before repeats that byte.

use alloc::vec::Vec;

use crate::limits::{
    BLOCK_BYTES_MAX, CACHE_BYTES_MAX, EXPANSION_PER_MILLE, GRANULE_BYTES, IMPLIED_BYTES_MAX, MATCHES_MAX,
};

/// The version of this format.
pub const SHIM_VERSION: u8 = 2;
/// Bytes before a block that goes verbatim.
pub const LITERAL_SHIM_BYTES: usize = 4;
/// Bytes before the pointers of an encoded block.
pub const ENCODED_SHIM_BYTES: usize = 10;
/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 8;

const ENCODED: u8 = 0b0010_0000;
const TAG: u8 = 0b0001_1111;
const NUMBER_BITS: u32 = 24;
const POSITION_BITS: u32 = NUMBER_BITS + GRANULE_BYTES.trailing_zeros();

const _: () = assert!(CACHE_BYTES_MAX + BLOCK_BYTES_MAX < 1 << POSITION_BITS);
// A run of plain blocks can pay for the number that ends it.
const _: () = assert!(IMPLIED_BYTES_MAX * EXPANSION_PER_MILLE >= 1000 * LITERAL_SHIM_BYTES);

/// Why a shim cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShimError {
    /// It is too short.
    #[error("the block is cut off: it is shorter than its shim states")]
    Truncated,
    /// The version is unknown.
    #[error("the shim has version {0}, and only 2 is supported: the encoder is of another release")]
    Version(u8),
    /// The pointers are invalid.
    #[error("a pointer is empty, or there are too many")]
    Pointers,
    /// The restored block would be too long.
    #[error("restored, the block would have more than 65535 bytes")]
    TooLong,
}

/// The part of an epoch in a block.
#[must_use]
pub const fn tag_of(epoch: u32) -> u8 {
    epoch as u8 & TAG
}

/// A run of bytes that the decoder holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// Verbatim bytes between the previous pointer and this one.
    pub skip: usize,
    /// Bytes that it replaces.
    pub length: usize,
    /// The lowest 30 bits of the position.
    pub source: u32,
}

impl Pointer {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let [skip, length] = [self.skip, self.length].map(|of| (of as u16).to_be_bytes());
        let [a, b, c, d] = (self.source & ((1 << POSITION_BITS) - 1)).to_be_bytes();
        out.extend_from_slice(&[skip[0], skip[1], length[0], length[1], a, b, c, d]);
    }

    const fn read([s0, s1, l0, l1, a, b, c, d]: [u8; POINTER_BYTES]) -> Self {
        let [skip, length] = [u16::from_be_bytes([s0, s1]) as usize, u16::from_be_bytes([l0, l1]) as usize];
        Self { skip, length, source: u32::from_be_bytes([a, b, c, d]) }
    }

    /// The position, relative to a block at position `base`: the last one before it with these bits.
    pub(crate) const fn position(&self, base: u64) -> Option<u64> {
        let distance = base.wrapping_sub(self.source as u64) & ((1 << POSITION_BITS) - 1);
        if distance == 0 { None } else { base.checked_sub(distance) }
    }

    /// The source's offset in the block at position `base` itself. None: it lies before the block. No cache is so large
    /// that the two could be confused.
    pub(crate) const fn own_offset(&self, base: u64) -> Option<usize> {
        let offset = (self.source as u64).wrapping_sub(base) & ((1 << POSITION_BITS) - 1);
        if offset <= BLOCK_BYTES_MAX as u64 { Some(offset as usize) } else { None }
    }
}

/// The content behind the first four bytes.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// The block itself.
    Literal(&'a [u8]),
    /// Pointers and literal bytes.
    Encoded(Encoded<'a>),
}

/// A block with pointers.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    /// The check of the referenced bytes.
    pub check: u32,
    pointers: &'a [[u8; POINTER_BYTES]],
    /// The verbatim bytes of all runs.
    pub literals: &'a [u8],
    /// Bytes of the restored block.
    pub restored_bytes: usize,
}

impl<'a> Encoded<'a> {
    /// The pointers, in order.
    pub fn pointers(&self) -> impl Iterator<Item = Pointer> + Clone + 'a {
        self.pointers.iter().map(|bytes| Pointer::read(*bytes))
    }
}

/// A validated block: its lengths are consistent.
#[derive(Clone, Copy, Debug)]
pub struct Shim<'a> {
    /// The lowest five bits of the epoch.
    pub tag: u8,
    number_low: u32,
    /// The content.
    pub content: Content<'a>,
}

impl<'a> Shim<'a> {
    /// Checks and parses a block.
    ///
    /// # Errors
    /// It is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ShimError> {
        let ([first, number @ ..], rest) =
            bytes.split_first_chunk::<LITERAL_SHIM_BYTES>().ok_or(ShimError::Truncated)?;
        if first >> 6 != SHIM_VERSION {
            return Err(ShimError::Version(first >> 6));
        }
        let number_low = u32::from_be_bytes([0, number[0], number[1], number[2]]);
        let content = if first & ENCODED != 0 { Content::Encoded(parse_encoded(rest)?) } else { literal(rest)? };
        Ok(Self { tag: first & TAG, number_low, content })
    }

    /// The full number, closest to `expected`.
    pub(crate) const fn number(&self, expected: u64) -> Option<u64> {
        let ahead = (self.number_low.wrapping_sub(expected as u32) << (32 - NUMBER_BITS)) as i32 >> (32 - NUMBER_BITS);
        expected.checked_add_signed(ahead as i64)
    }

    /// Bytes of the restored block.
    #[must_use]
    pub const fn restored_bytes(&self) -> usize {
        match &self.content {
            Content::Literal(block) => block.len(),
            Content::Encoded(encoded) => encoded.restored_bytes,
        }
    }
}

const fn literal(block: &[u8]) -> Result<Content<'_>, ShimError> {
    if block.is_empty() {
        return Err(ShimError::Truncated);
    }
    if block.len() > BLOCK_BYTES_MAX { Err(ShimError::TooLong) } else { Ok(Content::Literal(block)) }
}

fn parse_encoded(bytes: &[u8]) -> Result<Encoded<'_>, ShimError> {
    let ([a, b, c, d, count @ ..], rest) =
        bytes.split_first_chunk::<{ ENCODED_SHIM_BYTES - LITERAL_SHIM_BYTES }>().ok_or(ShimError::Truncated)?;
    let count = usize::from(u16::from_be_bytes(*count));
    if count == 0 || count > MATCHES_MAX {
        return Err(ShimError::Pointers);
    }
    let (pointers, literals) = rest.split_at_checked(count * POINTER_BYTES).ok_or(ShimError::Truncated)?;
    let (pointers, _) = pointers.as_chunks::<POINTER_BYTES>();
    let mut skipped = 0;
    let mut restored_bytes = literals.len();
    for pointer in pointers.iter().map(|bytes| Pointer::read(*bytes)) {
        if pointer.length == 0 {
            return Err(ShimError::Pointers);
        }
        skipped += pointer.skip;
        restored_bytes += pointer.length;
    }
    if skipped > literals.len() {
        return Err(ShimError::Truncated);
    }
    if restored_bytes > BLOCK_BYTES_MAX {
        return Err(ShimError::TooLong);
    }
    Ok(Encoded { check: u32::from_be_bytes([*a, *b, *c, *d]), pointers, literals, restored_bytes })
}

fn put_first(out: &mut Vec<u8>, epoch: u32, number: u64, flags: u8) {
    let [.., a, b, c] = number.to_be_bytes();
    out.extend_from_slice(&[SHIM_VERSION << 6 | flags | tag_of(epoch), a, b, c]);
}

/// Appends the shim of a verbatim block.
pub(crate) fn put_literal(out: &mut Vec<u8>, epoch: u32, number: u64) {
    put_first(out, epoch, number, 0);
}

/// Appends the shim of an encoded block, without its pointers.
pub(crate) fn put_encoded(out: &mut Vec<u8>, epoch: u32, number: u64, check: u32, count: usize) {
    put_first(out, epoch, number, ENCODED);
    out.extend_from_slice(&check.to_be_bytes());
    out.extend_from_slice(&(count as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn the_number_closest_to_the_expected_one_is_chosen() {
        for (number, expected) in [(0, 5), (5, 0), (1 << 24, (1 << 24) - 3), ((7 << 24) - 1, 7 << 24), (77, 77)] {
            let mut out = Vec::new();
            put_literal(&mut out, 0xabcd, number);
            out.push(1);
            let shim = Shim::parse(&out).expect("it was written here");
            assert_eq!((shim.number(expected), shim.tag), (Some(number), 0xd));
        }
    }

    #[test]
    fn a_pointer_decodes_to_a_source_before_the_block() {
        let base = (3 << 30) + 640;
        for distance in [1, 64, 700, 1 << 28] {
            let position = base - distance;
            let mut out = vec![];
            Pointer { skip: 3, length: 1460, source: position as u32 }.put(&mut out);
            let read = Pointer::read(out.try_into().expect("eight bytes"));
            assert_eq!((read.skip, read.length, read.position(base)), (3, 1460, Some(position)));
        }
        assert_eq!(Pointer { skip: 0, length: 1, source: 5 }.position(3), None, "before all time");
    }

    #[test]
    fn a_source_in_the_block_itself_is_distinct_from_every_earlier_one() {
        let base = (5 << 30) - 64;
        let pointer = |position: u64| Pointer { skip: 0, length: 40, source: position as u32 };
        for offset in [0, 1, 63, 64, 1459, 65_534] {
            assert_eq!(pointer(base + offset).own_offset(base), Some(offset as usize));
        }
        for distance in [1, 64, 65_536, CACHE_BYTES_MAX as u64] {
            assert_eq!(pointer(base - distance).own_offset(base), None);
            assert_eq!(pointer(base - distance).position(base), Some(base - distance));
        }
    }

    #[test]
    fn inconsistent_shims_are_refused() {
        let encoded = |count: usize, pointers: &[Pointer], literals: &[u8]| {
            let mut out = Vec::new();
            put_encoded(&mut out, 1, 2, 3, count);
            pointers.iter().for_each(|pointer| pointer.put(&mut out));
            out.extend_from_slice(literals);
            Shim::parse(&out).map(|shim| shim.restored_bytes())
        };
        let pointer = |skip, length| Pointer { skip, length, source: 0 };
        assert_eq!(encoded(1, &[pointer(2, 40)], &[0; 3]), Ok(43));
        assert_eq!(encoded(0, &[], &[0; 3]), Err(ShimError::Pointers));
        assert_eq!(encoded(2, &[pointer(0, 40)], &[0; 3]), Err(ShimError::Truncated));
        assert_eq!(encoded(1, &[pointer(4, 40)], &[0; 3]), Err(ShimError::Truncated));
        assert_eq!(encoded(1, &[pointer(0, 0)], &[0; 3]), Err(ShimError::Pointers));
        assert_eq!(encoded(2, &[pointer(0, 40_000), pointer(0, 40_000)], &[]), Err(ShimError::TooLong));
        assert_eq!(Shim::parse(&[0x40, 0, 0, 0, 1]).err(), Some(ShimError::Version(1)));
        assert_eq!(Shim::parse(&[0x80, 0, 0]).err(), Some(ShimError::Truncated));
    }
}
