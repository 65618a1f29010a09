//! The helper's state of a control connection: its read position in each direction, and the shift of the numbers.
//!
//! ```text
//!   numbers as sent        … ──────────┬── changed line ──┬──────────── …  next
//!                                  position        position + length
//!   added to them on the way out  offset − delta          offset
//! ```
//!
//! A changed line is stored until its receiver acknowledges it. Its retransmissions are changed alike, and no other
//! line is changed meanwhile. Afterwards one offset applies to all later numbers: older ones occur only in
//! retransmissions that the receiver discards.

use alloc::vec::Vec;

use flow::Direction;
use flow::serial::is_before;
use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{FlowState, state_attribute};

/// How often a line in several segments, or behind a gap, is refused before it passes unread; the sender should
/// retransmit it whole and in order. A sender retransmits at doubling intervals, from a few tenths of a second on.
pub(super) const REFUSALS_MAX: u8 = 3;

/// The state of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Side {
    /// The number behind all data that has been read.
    pub(super) next: u32,
    /// The number of the first byte of the unacknowledged changed line.
    pub(super) position: u32,
    /// The offset of numbers behind that line.
    pub(super) offset: i32,
    /// The port that the changed line announces.
    pub(super) port: u16,
    /// The growth of the line in bytes.
    pub(super) delta: i8,
    /// The original length of the line; 0 when there is none.
    pub(super) length_bytes: u8,
}

impl Side {
    pub(super) const fn has_pending_line(&self) -> bool {
        self.length_bytes != 0
    }

    /// The number behind the changed line.
    pub(super) const fn pending_end(&self) -> u32 {
        self.position.wrapping_add(self.length_bytes as u32)
    }

    /// Converts a number to the outgoing numbering.
    pub(super) const fn forwards(&self, number: u32) -> u32 {
        let is_before = self.has_pending_line() && is_before(number, self.pending_end());
        let offset = if is_before { self.offset.wrapping_sub(self.delta as i32) } else { self.offset };
        number.wrapping_add_signed(offset)
    }

    /// Converts an acknowledged number of this direction to its sender's numbering.
    pub(super) const fn backwards(&self, number: u32) -> u32 {
        if self.has_pending_line() && is_before(number, self.pending_end().wrapping_add_signed(self.offset)) {
            let sent = number.wrapping_sub(self.offset.wrapping_sub(self.delta as i32) as u32);
            // An acknowledgement within the changed line counts as one before it, so that the whole line is sent again.
            return if is_before(self.position, sent) { self.position } else { sent };
        }
        number.wrapping_sub(self.offset as u32)
    }

    /// The other side acknowledges everything before `number`, in its numbering.
    pub(super) const fn note_acknowledgement(&mut self, number: u32) {
        if self.has_pending_line() && !is_before(number, self.pending_end().wrapping_add_signed(self.offset)) {
            (self.position, self.port, self.delta, self.length_bytes) = (0, 0, 0, 0);
        }
    }

    /// Records that the line of `length_bytes` at `position` grew by `delta` bytes and now announces `port`.
    pub(super) const fn note_change(&mut self, position: u32, length_bytes: u8, delta: i8, port: u16) {
        (self.position, self.port, self.delta, self.length_bytes) = (position, port, delta, length_bytes);
        self.offset = self.offset.wrapping_add(delta as i32);
    }

    /// Whether nothing was ever changed.
    pub(super) const fn is_plain(&self) -> bool {
        self.offset == 0 && !self.has_pending_line()
    }

    fn to_bytes(self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        bytes[..4].copy_from_slice(&self.next.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.position.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.offset.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.port.to_be_bytes());
        bytes[14..].copy_from_slice(&[self.delta as u8, self.length_bytes]);
        bytes
    }

    fn from_bytes(bytes: [u8; size_of::<Self>()]) -> Self {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        Self {
            next: u32::from_be_bytes(word(0)),
            position: u32::from_be_bytes(word(4)),
            offset: i32::from_be_bytes(word(8)),
            port: u16::from_be_bytes([bytes[12], bytes[13]]),
            delta: bytes[14] as i8,
            length_bytes: bytes[15],
        }
    }
}

mod side_flags {
    //! Bits of [`super::FtpState::side_flags`].
    /// [`super::Side::next`] is valid.
    pub(super) const KNOWN: u8 = 1;
    /// `next` lies within an irrelevant line.
    pub(super) const WITHIN_LINE: u8 = 2;
    /// Data at `next` was refused: its sender will retransmit it.
    pub(super) const REFUSED: u8 = 4;
    /// The number of refusals since the last line that was read.
    pub(super) const REFUSALS_SHIFT: u8 = 3;
    pub(super) const REFUSALS: u8 = 3 << REFUSALS_SHIFT;
}

/// Bits of [`FtpState::flags`].
pub(super) mod flags {
    /// The connection is a control connection.
    pub(in super::super) const CONTROL: u8 = 1;
    /// The client asked the server to listen and has no reply yet.
    pub(in super::super) const LISTEN_ASKED: u8 = 2;
    /// Data is encrypted from here on (RFC 4217).
    pub(in super::super) const ENCRYPTED: u8 = 4;
}

/// The helper's state of a connection; default for other than control connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FtpState {
    pub(super) sides: [Side; 2],
    /// The code of the server's current multi-line reply; 0 for none.
    pub(super) reply_code: u16,
    /// Bits of [`side_flags`], a byte a direction: five used, and the connection's own flags above them in the first.
    side_flags: [u8; 2],
}

const _: () = assert!(size_of::<FtpState>() == 36, "small enough to leave room for other functions");

/// The position of [`flags`] in the first byte of the sides' flags.
const FLAGS_SHIFT: u8 = 5;

impl FtpState {
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.side_flags[0] >> FLAGS_SHIFT & flag != 0
    }

    pub(super) const fn set(&mut self, flag: u8, is_set: bool) {
        let bit = flag << FLAGS_SHIFT;
        self.side_flags[0] = if is_set { self.side_flags[0] | bit } else { self.side_flags[0] & !bit };
    }

    /// The data of `direction` begins at `next`, with a line.
    pub(super) const fn begin(&mut self, direction: Direction, next: u32) {
        let index = direction.index();
        self.sides[index] = Side { next, position: 0, offset: 0, port: 0, delta: 0, length_bytes: 0 };
        self.set_read(direction, next, false);
    }

    /// The number up to which `direction` was read; `None` when unknown.
    pub(super) const fn next(&self, direction: Direction) -> Option<u32> {
        if self.side_flags[direction.index()] & side_flags::KNOWN != 0 {
            Some(self.sides[direction.index()].next)
        } else {
            None
        }
    }

    /// Whether the next data in `direction` continues an irrelevant line.
    pub(super) const fn is_within_line(&self, direction: Direction) -> bool {
        self.side_flags[direction.index()] & side_flags::WITHIN_LINE != 0
    }

    /// Records that everything of `direction` before `next` was read.
    pub(super) const fn set_read(&mut self, direction: Direction, next: u32, is_within_line: bool) {
        let index = direction.index();
        self.sides[index].next = next;
        let changed = side_flags::WITHIN_LINE | side_flags::REFUSED | side_flags::REFUSALS;
        let own = self.side_flags[index] & !changed | side_flags::KNOWN;
        self.side_flags[index] = if is_within_line { own | side_flags::WITHIN_LINE } else { own };
    }

    /// The number of refusals in `direction` since the last line that was read.
    pub(super) const fn refusals(&self, direction: Direction) -> u8 {
        (self.side_flags[direction.index()] & side_flags::REFUSALS) >> side_flags::REFUSALS_SHIFT
    }

    /// Whether the sender is expected to retransmit the next data in `direction`, which was refused.
    pub(super) const fn is_awaiting(&self, direction: Direction) -> bool {
        self.side_flags[direction.index()] & side_flags::REFUSED != 0
    }

    /// The next data in `direction` was refused.
    pub(super) const fn note_awaited(&mut self, direction: Direction) {
        self.side_flags[direction.index()] |= side_flags::REFUSED;
    }

    /// Counts a refusal in `direction`, up to [`REFUSALS_MAX`].
    pub(super) const fn note_refusal(&mut self, direction: Direction) {
        if self.refusals(direction) < REFUSALS_MAX {
            self.side_flags[direction.index()] += 1 << side_flags::REFUSALS_SHIFT;
        }
    }
}

const _: () = assert!(REFUSALS_MAX <= side_flags::REFUSALS >> side_flags::REFUSALS_SHIFT);

mod attribute {
    //! Attributes of the state.
    /// Code of the current reply u16, flags of the original and of the reply direction u8 each.
    pub(super) const CONTROL: u16 = 1;
    /// The original direction: next u32, position u32, offset i32, port u16, delta i8, length u8.
    pub(super) const ORIGINAL: u16 = 2;
    /// The reply direction, likewise.
    pub(super) const REPLY: u16 = 3;
}

impl FlowState for FtpState {
    const ATTRIBUTE: u16 = state_attribute::FTP;

    fn encode(&self, out: &mut Vec<u8>) {
        if !self.has(flags::CONTROL) {
            return;
        }
        let [high, low] = self.reply_code.to_be_bytes();
        tlv::put(out, attribute::CONTROL, &[high, low, self.side_flags[0], self.side_flags[1]]);
        for (kind, side) in [attribute::ORIGINAL, attribute::REPLY].into_iter().zip(self.sides) {
            tlv::put(out, kind, &side.to_bytes());
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            let wrong_size = TlvError::ValueSize(kind);
            match kind {
                attribute::CONTROL => {
                    let &[high, low, original, reply] = value else { return Err(wrong_size) };
                    state.reply_code = u16::from_be_bytes([high, low]);
                    state.side_flags = [original, reply];
                }
                attribute::ORIGINAL => state.sides[0] = Side::from_bytes(value.try_into().map_err(|_| wrong_size)?),
                attribute::REPLY => state.sides[1] = Side::from_bytes(value.try_into().map_err(|_| wrong_size)?),
                _ => {}
            }
        }
        Ok(state)
    }
}
