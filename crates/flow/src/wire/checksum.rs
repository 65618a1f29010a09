//! The internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! A [`Sum`] is a ones-complement sum in progress, kept as 64 bits of little-endian words. Byte order matters only when
//! it is folded (RFC 1071 section 2, B). As 2^64 - 1 is a multiple of 2^16 - 1, four words can be added at once with an
//! end-around carry.
//!
//! The IPv4-mapped form in which tuples hold IPv4 addresses adds `0xffff` for its prefix, which is zero in this
//! arithmetic: sums over tuples are right for both families.

use super::sctp;
use crate::Tuple;

/// A ones-complement sum in progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// The sum of `bytes`, which begin at an even offset of the summed data.
    #[must_use]
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<32>();
        let mut sum = if blocks.is_empty() { 0 } else { sum_blocks(blocks) };
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            sum = add(sum, u64::from_le_bytes(*word));
        }
        if !tail.is_empty() {
            sum = add(sum, sum_tail(tail));
        }
        Self(sum)
    }

    /// The sum of two words, in network order.
    #[must_use]
    #[inline]
    pub const fn of_u32(words: [u8; 4]) -> Self {
        Self(u32::from_le_bytes(words) as u64)
    }

    /// Adds another sum.
    #[must_use]
    #[inline]
    pub const fn plus(self, other: Self) -> Self {
        Self(add(self.0, other.0))
    }

    /// Subtracts another sum.
    #[must_use]
    #[inline]
    pub const fn minus(self, other: Self) -> Self {
        Self(add(self.0, !other.0))
    }

    /// Adds one word, given in host order.
    #[must_use]
    #[inline]
    pub const fn plus_u16(self, word: u16) -> Self {
        Self(add(self.0, word.swap_bytes() as u64))
    }

    /// Adds two words, given as one number in host order.
    #[must_use]
    #[inline]
    pub const fn plus_u32(self, words: u32) -> Self {
        Self(add(self.0, words.swap_bytes() as u64))
    }

    /// The sum of the same bytes at an odd offset.
    #[must_use]
    #[inline]
    pub const fn at_odd_offset(self) -> Self {
        Self(self.0.rotate_left(8))
    }

    /// The sum in 16 bits, host order. Zero only if everything summed was zero.
    #[must_use]
    #[inline]
    pub const fn fold(self) -> u16 {
        let (sum, carry) = ((self.0 >> 32) as u32).overflowing_add(self.0 as u32);
        let sum = sum + carry as u32;
        let (sum, carry) = ((sum >> 16) as u16).overflowing_add(sum as u16);
        (sum + carry as u16).swap_bytes()
    }

    /// The value of the checksum field for this sum over all covered bytes, in host order.
    #[must_use]
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether this is the sum of bytes with a valid checksum.
    #[must_use]
    #[inline]
    pub const fn is_whole(self) -> bool {
        self.fold() == 0xffff
    }
}

#[inline]
const fn add(left: u64, right: u64) -> u64 {
    let (sum, carry) = left.overflowing_add(right);
    sum + carry as u64
}

/// Four parallel sums, so that no addition waits for the previous carry.
#[inline(never)]
fn sum_blocks(blocks: &[[u8; 32]]) -> u64 {
    let mut lanes = [0u64; 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = add(*lane, u64::from_le_bytes(*word));
        }
    }
    lanes.into_iter().fold(0, add)
}

/// The last one to seven bytes, as if zeros followed.
#[inline(always)]
fn sum_tail(tail: &[u8]) -> u64 {
    let mut word = 0;
    let (quads, rest) = tail.as_chunks::<4>();
    if let [quad] = quads {
        word = u64::from(u32::from_le_bytes(*quad));
    }
    let (pairs, rest) = rest.as_chunks::<2>();
    if let [pair] = pairs {
        word += u64::from(u16::from_le_bytes(*pair));
    }
    if let [byte] = rest {
        word += u64::from(*byte);
    }
    word
}

/// The sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1) of a packet with these addresses and
/// protocol, whose transport header and payload have `transport_bytes` bytes.
#[must_use]
#[inline]
pub fn pseudo_header(tuple: &Tuple, transport_bytes: u32) -> Sum {
    addresses(&tuple.source, &tuple.destination).plus_u16(u16::from(tuple.protocol)).plus_u32(transport_bytes)
}

/// The sum of two addresses in the form of [`Tuple`].
#[must_use]
#[inline]
pub fn addresses(source: &[u8; 16], destination: &[u8; 16]) -> Sum {
    Sum::of(source).plus(Sum::of(destination))
}

/// A checksum field after the covered data has changed by `delta` (new minus old): RFC 1624, equation 3.
#[must_use]
#[inline]
pub const fn updated(field: u16, delta: Sum) -> u16 {
    Sum::ZERO.plus_u16(!field).plus(delta).checksum()
}

/// A field that holds an uncomplemented partial sum ([`Checksum::Partial`](crate::Checksum::Partial)) after the
/// pseudo-header has changed by `delta`.
#[must_use]
#[inline]
pub const fn updated_partial(field: u16, delta: Sum) -> u16 {
    Sum::ZERO.plus_u16(field).plus(delta).fold()
}

/// Completes an offloaded checksum ([`Checksum::Partial`](crate::Checksum::Partial)): sums the packet from `start` to
/// its end, including the partial sum in the field, and stores the checksum at `start + offset`. Zero is stored as
/// `0xffff`, the same number, as zero means "none" in UDP.
///
/// `packet` must not contain link padding other than zeros. A field at SCTP's offset gets the CRC32c. Returns false,
/// without changes, when the field is not within the packet.
#[must_use]
pub fn complete_partial(packet: &mut [u8], start: u16, offset: u16) -> bool {
    let Some(covered) = packet.get_mut(usize::from(start)..) else { return false };
    if usize::from(offset) == sctp::SCTP_CHECKSUM_OFFSET {
        return sctp::fill_checksum(covered);
    }
    let checksum = Sum::of(covered).checksum();
    let Some(field) = covered.get_mut(usize::from(offset)..).and_then(|rest| rest.first_chunk_mut::<2>()) else {
        return false;
    };
    *field = non_zero(checksum).to_be_bytes();
    true
}

/// The checksum for UDP, where zero means "none" (RFC 768).
#[must_use]
#[inline]
pub const fn non_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// RFC 1071 section 4.1, word by word.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071_section_3_is_reproduced() {
        assert_eq!(Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).fold(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_section_4_is_reproduced() {
        let delta = Sum::ZERO.plus_u16(0x3285).minus(Sum::ZERO.plus_u16(0x5555));
        assert_eq!(updated(0xdd2f, delta), 0x0000);
    }

    proptest! {
        #[test]
        fn the_fast_sum_equals_the_plain_sum(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(Sum::of(&bytes).fold(), reference(&bytes));
        }

        #[test]
        fn many_ones_do_not_overflow(length in 0usize..70_000) {
            let bytes: Vec<u8> = core::iter::repeat_n(0xff, length).collect();
            prop_assert_eq!(Sum::of(&bytes).fold(), reference(&bytes));
        }

        #[test]
        fn sums_of_parts_can_be_combined(bytes in prop::collection::vec(any::<u8>(), 0..100), at in 0usize..100) {
            let (left, right) = bytes.split_at(at.min(bytes.len()));
            let right_sum = if left.len() % 2 == 0 { Sum::of(right) } else { Sum::of(right).at_odd_offset() };
            prop_assert_eq!(Sum::of(left).plus(right_sum).fold(), reference(&bytes));
        }

        #[test]
        fn an_incremental_update_equals_a_full_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 2..60), at in any::<usize>(), value in any::<[u8; 2]>(),
        ) {
            bytes.truncate(bytes.len() & !1);
            prop_assume!(bytes.iter().any(|byte| *byte != 0));
            let field = Sum::of(&bytes).checksum();
            let at = (at % (bytes.len() / 2)) * 2;
            let old = Sum::of(&bytes[at..at + 2]);
            bytes[at..at + 2].copy_from_slice(&value);
            prop_assume!(bytes.iter().any(|byte| *byte != 0));
            prop_assert_eq!(updated(field, Sum::of(&value).minus(old)), Sum::of(&bytes).checksum());
        }
    }
}
