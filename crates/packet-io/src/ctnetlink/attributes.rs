//! Attributes: a length, a type and a value each, padded to four bytes (`struct nlattr`).

use super::numbers::{ATTRIBUTE_FLAGS, HEADERS_BYTES, NESTED, NETLINK_HEADER_BYTES, PORT_OFFSET, TYPE_OFFSET};

/// An attribute's header, in bytes.
const HEADER_BYTES: usize = 4;
/// The alignment of all attributes, in bytes.
const ALIGNMENT_BYTES: usize = 4;

/// Calls `handle` with each attribute of `bytes`: its type without flags, and its value. `None` where the bytes are no
/// attributes, or `handle` found an invalid value.
pub(super) fn for_each_attribute<'a>(
    mut bytes: &'a [u8],
    mut handle: impl FnMut(u16, &'a [u8]) -> Option<()>,
) -> Option<()> {
    while !bytes.is_empty() {
        let length_bytes = usize::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
        let kind = u16::from_ne_bytes([*bytes.get(2)?, *bytes.get(3)?]) & !ATTRIBUTE_FLAGS;
        handle(kind, bytes.get(HEADER_BYTES..length_bytes)?)?;
        // The padding of the last one may be missing.
        bytes = bytes.get(length_bytes.next_multiple_of(ALIGNMENT_BYTES)..).unwrap_or_default();
    }
    Some(())
}

/// A value of one byte.
pub(super) fn u8_of(value: &[u8]) -> Option<u8> {
    value.first().copied()
}

/// A value of two bytes, the higher first.
pub(super) fn u16_of(value: &[u8]) -> Option<u16> {
    value.first_chunk().copied().map(u16::from_be_bytes)
}

/// A value of four bytes, the highest first.
pub(super) fn u32_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_be_bytes)
}

/// A message's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// [`super::numbers::CONNECTIONS`] or [`super::numbers::EXPECTATIONS`]; 0 for messages of netlink itself.
    pub(super) subsystem: u8,
    /// The message kind.
    pub(super) kind: u8,
    /// `NLM_F_*`.
    pub(super) flags: u16,
    /// The sender's number of the message.
    pub(super) sequence: u32,
    /// The netlink port of the program that it answers, or whose request caused the event.
    pub(super) port: u32,
}

impl Header {
    /// The type, in netlink's numbering.
    pub(super) const fn message_type(self) -> u16 {
        (self.subsystem as u16) << 8 | self.kind as u16
    }
}

/// Calls `handle` with each message of a datagram: its header, and the bytes behind the netlink header. `None` where
/// the bytes are no messages.
pub(super) fn messages<'a>(mut datagram: &'a [u8], mut handle: impl FnMut(Header, &'a [u8])) -> Option<()> {
    while !datagram.is_empty() {
        let header = datagram.first_chunk::<NETLINK_HEADER_BYTES>()?;
        let word = |offset: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| header[offset + byte]));
        let half = |offset: usize| u16::from_ne_bytes([0, 1].map(|byte| header[offset + byte]));
        let length_bytes = usize::try_from(word(0)).ok()?;
        let [subsystem, kind] = half(TYPE_OFFSET).to_be_bytes();
        let parsed = Header { subsystem, kind, flags: half(6), sequence: word(8), port: word(PORT_OFFSET) };
        handle(parsed, datagram.get(NETLINK_HEADER_BYTES..length_bytes)?);
        datagram = datagram.get(length_bytes.next_multiple_of(ALIGNMENT_BYTES)..).unwrap_or_default();
    }
    Some(())
}

/// Writes one message to the end of a buffer.
pub(super) struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Begins a message of netfilter.
    pub(super) fn begin(buffer: &'a mut Vec<u8>, header: Header, family: libc::c_int) -> Self {
        let start = buffer.len();
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(&header.message_type().to_ne_bytes());
        buffer.extend_from_slice(&header.flags.to_ne_bytes());
        buffer.extend_from_slice(&header.sequence.to_ne_bytes());
        buffer.extend_from_slice(&header.port.to_ne_bytes());
        // Version 0 (NFNETLINK_V0), no resource.
        buffer.extend_from_slice(&[family as u8, 0, 0, 0]);
        debug_assert_eq!(buffer.len() - start, HEADERS_BYTES);
        Self { buffer, start }
    }

    /// Adds an attribute.
    pub(super) fn put(&mut self, kind: u16, value: &[u8]) {
        let length_bytes = (HEADER_BYTES + value.len()) as u16;
        self.buffer.extend_from_slice(&length_bytes.to_ne_bytes());
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.buffer.extend_from_slice(value);
        let padded = self.buffer.len().next_multiple_of(ALIGNMENT_BYTES);
        // Messages begin at multiples of four, so the buffer's length determines the padding.
        self.buffer.resize(padded, 0);
    }

    /// Adds an attribute of four bytes, the highest first.
    pub(super) fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Adds an attribute of two bytes, the higher first.
    pub(super) fn put_u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Adds a name, with the zero at its end.
    pub(super) fn put_name(&mut self, kind: u16, name: &str) {
        let mut bytes = [0; flow::netfilter::HELPER_NAME_BYTES_MAX + 1];
        let length_bytes = name.len().min(bytes.len() - 1);
        bytes[..length_bytes].copy_from_slice(&name.as_bytes()[..length_bytes]);
        self.put(kind, &bytes[..=length_bytes]);
    }

    /// Appends an attribute whose value is the attributes that `fill` appends.
    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 2]);
        self.buffer.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        fill(self);
        let length_bytes = (self.buffer.len() - start) as u16;
        self.buffer[start..start + 2].copy_from_slice(&length_bytes.to_ne_bytes());
    }

    /// Ends the message.
    pub(super) fn end(self) {
        let length_bytes = (self.buffer.len() - self.start) as u32;
        self.buffer[self.start..self.start + 4].copy_from_slice(&length_bytes.to_ne_bytes());
    }
}
