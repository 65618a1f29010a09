//! Headers in a few bytes: what the headers of a packet have otherwise than those of an earlier packet of the same flow.
//!
//! ```text
//!   first packets of a flow      as they are; one of them to be remembered, under a place and a version
//!   that one was acknowledged    those that follow say the place, the version, and what they have otherwise;
//!                                one in each round trip is to be remembered in turn
//! ```
//! In the manner of RFC 1144 and RFC 6846, with one difference: what is pointed to was acknowledged, so no packet depends on
//! another that may be lost, and a loss costs no packet but those that it hit. What follows from the rest (lengths, the IPv4 header's
//! checksum) is not carried, and headers in which it does not follow travel as they are; the checksum over the payload is
//! carried, for it vouches for what the codec restores.
//!
//! ```text
//! small header:  place, version and whether it is to be remembered: number (place · 16 + version · 2 + is remembered)
//!                if it is to be remembered: under which version u8
//!                which fields differ: number, a bit each
//!                how far each is from what it was: number each, the sign in its lowest bit
//!                checksum over the payload u16, where the headers have one
//! ```
//! Numbers have seven bits in a byte, the lowest first; all bytes but the last have the highest bit.

mod compressor;
mod decompressor;
mod layout;
#[cfg(test)]
mod tests;

pub(super) use self::compressor::{Compressor, HeaderForm, Remembered};
pub(super) use self::decompressor::{Decompressor, HeaderError, complete};

use alloc::vec::Vec;

use flow::Segmentation;

/// Flows that are remembered, in each direction and for each length of headers. Of four, the one that was unused for
/// longest is evicted.
pub(super) const PLACES: usize = 1024;
/// Versions of a place, before the first comes again. Two are alive at most.
const VERSIONS: u8 = 8;
/// The longest number: 35 bits.
const NUMBER_BYTES_MAX: usize = 5;

/// How a packet is cut, as five bytes.
pub(super) fn segmentation_bytes(segmentation: &Segmentation) -> [u8; layout::SEGMENTATION_BYTES] {
    layout::segmentation_bytes(segmentation)
}

/// The reverse. `None`: nothing is cut so.
pub(super) fn segmentation_of(bytes: [u8; layout::SEGMENTATION_BYTES]) -> Option<Segmentation> {
    layout::segmentation_of(bytes)
}

/// Appends a number.
pub(super) fn put_number(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the beginning. `None`: there is none, or none so large.
pub(super) fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u64;
    for (place, byte) in rest.iter().take(NUMBER_BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *rest = &rest[place + 1..];
            return u32::try_from(value).ok();
        }
    }
    None
}

const _: () = assert!(PLACES.is_multiple_of(4) && PLACES * 16 < 1 << 21, "a place takes three bytes at most");
