//! What the datagrams look like: a header, then messages.
//!
//! A message is a type–length–value of [`flow::wire::tlv`] (FT-FW, section 5.1): type u16, length u16 with this
//! header, a body, zeros up to four bytes. Types below [`UNNUMBERED`] take a number each, counted up from
//! [`Header::first`]; so a message of an unknown type is skipped without losing count.

mod ack;
pub(crate) mod anti_entropy;
mod header;

pub use ack::{ACK_RANGES_MAX, Ack, AckView, NumberRange};
pub use header::{HEADER_BYTES, Header, HeaderError, PROTOCOL_VERSION, flags};

use alloc::vec::Vec;

use flow::wire::tlv::TLV_HEADER_BYTES;

/// A message with the whole state of a connection that the peer does not have yet.
pub const NEW: u16 = 1;
/// A message with the whole state of a connection that the peer has.
pub const UPDATE: u16 = 2;
/// A message with the name of a connection that has ended.
pub const DELETE: u16 = 3;
/// A message: the full synchronisation of [`Header::round`] is complete. No body.
pub const RESYNC_END: u16 = 4;
/// Types from here on take no number.
pub const UNNUMBERED: u16 = 0x8000;
/// An [`Ack`].
pub const ACK: u16 = 0x8001;
/// Digests of what was sent, bucket by bucket.
pub const DIGESTS: u16 = 0x8002;
/// Names and checks of what was sent in some buckets.
pub const LISTING: u16 = 0x8003;
/// A question about what was sent.
pub const ASK: u16 = 0x8004;
// 0x8005 and 0x8006 stay reserved: earlier builds send them (decision 97).

/// Which of the two messages brought a connection's state. Both carry all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The sender does not know that this node has the connection.
    New,
    /// This node has said that it has the connection.
    Update,
}

impl Kind {
    /// The type of its messages.
    #[must_use]
    pub const fn message_type(self) -> u16 {
        match self {
            Self::New => NEW,
            Self::Update => UPDATE,
        }
    }
}

/// Opens a message at the end of `out`; its body is to be appended, then [`finish`] called with what this returned.
#[inline]
pub(crate) fn begin(out: &mut Vec<u8>, message_type: u16) -> usize {
    let at = out.len();
    let [high, low] = message_type.to_be_bytes();
    out.extend_from_slice(&[high, low, 0, 0]);
    at
}

/// Closes the message that was opened at `at`: sets its length and pads it. False, and the message taken back, if its
/// body is longer than a message can be.
#[inline]
pub(crate) fn finish(out: &mut Vec<u8>, at: usize) -> bool {
    let Ok(length) = u16::try_from(out.len() - at) else {
        out.truncate(at);
        return false;
    };
    out[at + 2..at + TLV_HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    if !out.len().is_multiple_of(4) {
        out.resize(out.len().next_multiple_of(4), 0);
    }
    true
}
