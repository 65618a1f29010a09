//! A message's header, and the control messages.

use alloc::vec::Vec;

/// The version of the protocol.
pub const VERSION: u8 = 1;
/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 8;
/// Bytes of a control message with a range of numbers.
pub const RANGE_BYTES: usize = 16;
/// The port that conntrackd's documentation suggests.
pub const PORT_DEFAULT: u16 = 3780;

/// The flags of a header.
pub mod flags {
    /// The sender asks for a full synchronisation. A control message.
    pub const RESYNC: u8 = 0x02;
    /// A range of numbers did not arrive. A control message.
    pub const NACK: u8 = 0x04;
    /// A range of numbers arrived. A control message.
    pub const ACK: u8 = 0x08;
    /// A keep-alive. A control message.
    pub const ALIVE: u8 = 0x10;
    /// The sender was just started and has received no answer yet. Any message.
    pub const HELLO: u8 = 0x20;
    /// The answer to it. Any message.
    pub const HELLO_BACK: u8 = 0x40;
}

/// What a message is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A connection began; the whole of it.
    New = 0,
    /// A connection changed; the whole of it.
    Update = 1,
    /// A connection ended; the whole of it.
    Delete = 2,
    /// An expectation began.
    ExpectationNew = 3,
    /// An expectation changed.
    ExpectationUpdate = 4,
    /// An expectation ended.
    ExpectationDelete = 5,
    /// Flags and numbers only.
    Control = 10,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::New,
        Self::Update,
        Self::Delete,
        Self::ExpectationNew,
        Self::ExpectationUpdate,
        Self::ExpectationDelete,
        Self::Control,
    ];

    /// The kind with the number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Numbers `from`, `from + 1`, … `to`, counted round the end of the numbers: both are in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first.
    pub from: u32,
    /// The last.
    pub to: u32,
}

impl Range {
    /// Whether `number` is one of them.
    #[must_use]
    pub const fn contains(&self, number: u32) -> bool {
        number.wrapping_sub(self.from) <= self.to.wrapping_sub(self.from)
    }
}

/// A message as it lies in a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The number of its type, which may be none of [`Kind`]'s.
    pub kind: u8,
    /// See [`flags`].
    pub flags: u8,
    /// Its number: one more than that of the message before it, whatever its kind.
    pub number: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Whether the header has any of the flags.
    #[must_use]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// The range of an [`flags::ACK`] or [`flags::NACK`]; `None` if it has none.
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        let (from, to) = (self.body.first_chunk::<4>()?, self.body.get(4..)?.first_chunk::<4>()?);
        (self.body.len() == RANGE_BYTES - HEADER_BYTES)
            .then(|| Range { from: u32::from_be_bytes(*from), to: u32::from_be_bytes(*to) })
    }
}

/// Why a datagram cannot be read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// No header, or a length that does not fit the bytes that are there.
    Length,
    /// Another version of the protocol.
    Version(u8),
}

/// The messages in a datagram, one after another. After an error the iterator ends.
#[must_use]
pub const fn read(datagram: &[u8]) -> Messages<'_> {
    Messages { rest: datagram }
}

/// See [`read`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = split(self.rest);
        self.rest = split.map_or(&[], |(_, rest)| rest);
        Some(split.map(|(message, _)| message))
    }
}

fn split(bytes: &[u8]) -> Result<(Message<'_>, &[u8]), MessageError> {
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(MessageError::Length)?;
    let [first, flags, length_high, length_low, number @ ..] = *header;
    if first >> 4 != VERSION {
        return Err(MessageError::Version(first >> 4));
    }
    let length = usize::from(u16::from_be_bytes([length_high, length_low]));
    let body = bytes.get(HEADER_BYTES..length).ok_or(MessageError::Length)?;
    let message = Message { kind: first & 0x0f, flags, number: u32::from_be_bytes(number), body };
    Ok((message, &bytes[length..]))
}

/// Opens a message at the end of `out`; its body is to be appended, then [`finish`] called with what this returned.
pub fn begin(out: &mut Vec<u8>, kind: Kind, flags: u8, number: u32) -> usize {
    let at = out.len();
    out.extend_from_slice(&[VERSION << 4 | kind as u8, flags, 0, 0]);
    out.extend_from_slice(&number.to_be_bytes());
    at
}

/// Closes the message that was opened at `at`. Its body must be shorter than 64 KiB, as any that [`super::object`] writes is.
pub fn finish(out: &mut [u8], at: usize) {
    let length = u16::try_from(out.len() - at).expect("objects are small");
    out[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a keep-alive.
pub fn put_alive(out: &mut Vec<u8>, flags: u8, number: u32) {
    let at = begin(out, Kind::Control, flags | flags::ALIVE, number);
    finish(out, at);
}

/// Appends a control message with a range: an acknowledgement; for [`flags::RESYNC`] the range is zeros.
pub fn put_range(out: &mut Vec<u8>, flags: u8, number: u32, range: Range) {
    let at = begin(out, Kind::Control, flags, number);
    out.extend_from_slice(&range.from.to_be_bytes());
    out.extend_from_slice(&range.to.to_be_bytes());
    finish(out, at);
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn messages_lie_back_to_back() {
        let mut datagram = Vec::new();
        put_alive(&mut datagram, flags::HELLO, 7);
        put_range(&mut datagram, flags::ACK, 8, Range { from: 1, to: 300 });
        let at = begin(&mut datagram, Kind::Delete, 0, 9);
        datagram.extend([1, 2, 3, 4]);
        finish(&mut datagram, at);
        assert_eq!(datagram[..8], [0x1a, 0x30, 0, 8, 0, 0, 0, 7]);
        let messages: Vec<_> = read(&datagram).map(Result::unwrap).collect();
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0], Message { kind: 10, flags: 0x30, number: 7, body: &[] });
        assert_eq!(messages[1].range(), Some(Range { from: 1, to: 300 }));
        assert_eq!((messages[2].kind, messages[2].range()), (2, None));
    }

    #[test]
    fn what_does_not_fit_ends_the_reading() {
        for bytes in [&[0x10, 0, 0, 9, 0, 0, 0, 1][..], &[0x10, 0, 0, 7, 0, 0, 0, 1], &[0x10, 0, 0]] {
            assert_eq!(read(bytes).collect::<Vec<_>>(), vec![Err(MessageError::Length)], "{bytes:?}");
        }
        assert_eq!(read(&[0x20, 0, 0, 8, 0, 0, 0, 1]).next(), Some(Err(MessageError::Version(2))));
    }

    #[test]
    fn a_range_holds_across_the_end_of_the_numbers() {
        let range = Range { from: u32::MAX, to: 1 };
        assert!([u32::MAX, 0, 1].into_iter().all(|number| range.contains(number)));
        assert!(!range.contains(2) && !range.contains(u32::MAX - 1));
    }
}
