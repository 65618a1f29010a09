//! Reads integers and length-prefixed fields from bytes.

/// Bytes that are read from the front. Every method returns `None`, and reads nothing, when there are not enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that were not read.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A field behind its length in one byte.
    pub(super) fn field_u8(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let length_bytes = ahead.u8()?;
        let field = ahead.take(usize::from(length_bytes))?;
        *self = ahead;
        Some(field)
    }

    /// A field behind its length in two bytes.
    pub(super) fn field_u16(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let length_bytes = ahead.u16()?;
        let field = ahead.take(usize::from(length_bytes))?;
        *self = ahead;
        Some(field)
    }

    /// A variable-length integer of QUIC (RFC 9000 section 16).
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = *self.rest.first()?;
        let bytes = self.take(1 << (first >> 6))?;
        let value = bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let prefix_bits = 2;
        Some(value & (u64::MAX >> (u64::BITS as usize - (bytes.len() * 8 - prefix_bits))))
    }
}
