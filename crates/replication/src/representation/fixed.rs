//! Attributes whose size is known at compile time, written in one piece: encoding is on the packet path.

use alloc::vec::Vec;

use flow::wire::tlv::TLV_HEADER_BYTES;

/// Appends an attribute of `PADDED_BYTES` with its header and padding, whose value has `value_bytes`. `fill` gets all of the
/// attribute's bytes, zero behind the header, and writes the value behind [`TLV_HEADER_BYTES`].
#[inline(always)]
pub(super) fn put<const PADDED_BYTES: usize>(
    out: &mut Vec<u8>,
    kind: u16,
    value_bytes: u16,
    fill: impl FnOnce(&mut [u8; PADDED_BYTES]),
) {
    let length = TLV_HEADER_BYTES as u16 + value_bytes;
    debug_assert_eq!(usize::from(length).next_multiple_of(4), PADDED_BYTES);
    let mut bytes = [0; PADDED_BYTES];
    bytes[..2].copy_from_slice(&kind.to_be_bytes());
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    fill(&mut bytes);
    out.extend_from_slice(&bytes);
}
