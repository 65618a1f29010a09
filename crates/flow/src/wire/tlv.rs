//! Type–length–value attributes as the replication messages carry them (FT-FW, section 5.1): type u16, length u16
//! (this header included, padding not), value, padded with zeros to four bytes; big-endian.

use alloc::vec::Vec;

/// Bytes of an attribute's header.
pub const TLV_HEADER_BYTES: usize = 4;

/// Appends an attribute.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(TLV_HEADER_BYTES + value.len()).expect("attributes are built by this program and small");
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends an attribute of `PADDED_BYTES` with its header and padding, whose value has `value_bytes`, in one piece: encoding is on
/// the packet path. `fill` gets all of the attribute's bytes, zero behind the header, and writes the value behind
/// [`TLV_HEADER_BYTES`].
#[inline(always)]
pub fn put_fixed<const PADDED_BYTES: usize>(
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

/// Why a run of attributes cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TlvError {
    /// An attribute states more bytes than available, or fewer than its header.
    #[error("an attribute's length exceeds the available bytes")]
    Length,
    /// A known attribute has a value of wrong size.
    #[error("attribute {0} has a value of wrong size")]
    ValueSize(u16),
    /// A known attribute has an invalid value.
    #[error("attribute {0} has an invalid value")]
    Value(u16),
}

/// The attributes in `bytes`, one after another. After an error the iterator ends.
#[must_use]
pub const fn read(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

/// Iterator over (type, value); see [`read`].
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), TlvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let attribute = split_attribute(self.rest);
        self.rest = attribute.map_or(&[], |(_, _, rest)| rest);
        Some(attribute.map(|(kind, value, _)| (kind, value)).ok_or(TlvError::Length))
    }
}

fn split_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (header, _) = bytes.split_first_chunk::<TLV_HEADER_BYTES>()?;
    let kind = u16::from_be_bytes([header[0], header[1]]);
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let value = bytes.get(TLV_HEADER_BYTES..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..)?;
    Some((kind, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn attributes_are_read_in_order_without_padding() {
        let mut bytes = Vec::new();
        put(&mut bytes, 7, &[1, 2, 3, 4, 5]);
        put(&mut bytes, 9, &[]);
        assert_eq!(bytes.len(), 12 + 4);
        let read: Vec<_> = read(&bytes).collect();
        assert_eq!(read, vec![Ok((7, &[1u8, 2, 3, 4, 5][..])), Ok((9, &[][..]))]);
    }

    #[test]
    fn an_excessive_length_ends_reading_with_an_error() {
        for bytes in [&[0u8, 1, 0, 9, 1, 2, 3, 4][..], &[0, 1, 0, 3], &[0, 1, 0], &[0, 1, 0, 5, 9]] {
            let mut attributes = read(bytes);
            assert_eq!(attributes.next(), Some(Err(TlvError::Length)), "{bytes:?}");
            assert_eq!(attributes.next(), None);
        }
    }
}
