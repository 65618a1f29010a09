//! What the helper keeps of a control connection: how far it has read each side, and how far it has shifted the numbers.
//!
//! ```text
//!   numbers as sent        … ──────────┬── changed line ──┬──────────── …  next
//!                                  position        position + length
//!   added to them on the way out  offset − delta          offset
//! ```
//!
//! Until its receiver has acknowledged it, a changed line is remembered, so that it is changed into the same again when it is
//! repeated, and no other line is changed. Afterwards one offset is right for whatever may still come: of older numbers
//! only repetitions, that the receiver throws away.

use alloc::vec::Vec;

use flow::Direction;
use flow::serial::is_before;
use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{FlowState, state_attribute};

/// How often a line that comes in pieces, or behind a gap, is refused in the hope that it comes whole and in its turn,
/// before it passes unread. Repetitions of a sender come at intervals that double, from a few tenths of a second on.
pub(super) const REFUSALS_MAX: u8 = 3;

/// What one side says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Way {
    /// The number behind everything that was read.
    pub(super) next: u32,
    /// Where the changed line begins that is not acknowledged yet.
    pub(super) position: u32,
    /// What is added to numbers from behind that line on.
    pub(super) offset: i32,
    /// The port that the line announces since.
    pub(super) port: u16,
    /// How much longer the line has become.
    pub(super) delta: i8,
    /// How long it was; 0 when there is none.
    pub(super) length_bytes: u8,
}

impl Way {
    pub(super) const fn has_pending_line(&self) -> bool {
        self.length_bytes != 0
    }

    /// The number behind the changed line.
    pub(super) const fn pending_end(&self) -> u32 {
        self.position.wrapping_add(self.length_bytes as u32)
    }

    /// A number as its sender writes it, as it goes out.
    pub(super) const fn forwards(&self, number: u32) -> u32 {
        let is_before = self.has_pending_line() && is_before(number, self.pending_end());
        let offset = if is_before { self.offset.wrapping_sub(self.delta as i32) } else { self.offset };
        number.wrapping_add_signed(offset)
    }

    /// A number of this way as the other side acknowledges it, as its sender wrote it.
    pub(super) const fn backwards(&self, number: u32) -> u32 {
        if self.has_pending_line() && is_before(number, self.pending_end().wrapping_add_signed(self.offset)) {
            let sent = number.wrapping_sub(self.offset.wrapping_sub(self.delta as i32) as u32);
            // Nobody acknowledges half of the changed line; if somebody does, the whole is to be sent again.
            return if is_before(self.position, sent) { self.position } else { sent };
        }
        number.wrapping_sub(self.offset as u32)
    }

    /// The other side acknowledges everything before `number`, as it knows it.
    pub(super) const fn note_acknowledgement(&mut self, number: u32) {
        if self.has_pending_line() && !is_before(number, self.pending_end().wrapping_add_signed(self.offset)) {
            (self.position, self.port, self.delta, self.length_bytes) = (0, 0, 0, 0);
        }
    }

    /// The line of `length_bytes` at `position` became `delta` bytes longer and announces `port` now.
    pub(super) const fn note_change(&mut self, position: u32, length_bytes: u8, delta: i8, port: u16) {
        (self.position, self.port, self.delta, self.length_bytes) = (position, port, delta, length_bytes);
        self.offset = self.offset.wrapping_add(delta as i32);
    }

    /// Nothing was ever changed.
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

mod way_flags {
    //! Bits of [`super::FtpState::way_flags`].
    /// [`super::Way::next`] counts.
    pub(super) const KNOWN: u8 = 1;
    /// `next` lies within a line that is of no interest.
    pub(super) const WITHIN_LINE: u8 = 2;
    /// Something at `next` was refused: its sender has it and sends it again.
    pub(super) const REFUSED: u8 = 4;
    /// How often something was refused since the last line that was read.
    pub(super) const REFUSALS_SHIFT: u8 = 3;
    pub(super) const REFUSALS: u8 = 3 << REFUSALS_SHIFT;
}

/// Bits of [`FtpState::flags`].
pub(super) mod flags {
    /// The connection is a control connection.
    pub(in super::super) const CONTROL: u8 = 1;
    /// The client asked the server to listen and has no answer yet.
    pub(in super::super) const LISTEN_ASKED: u8 = 2;
    /// What is said is encrypted from here on (RFC 4217).
    pub(in super::super) const ENCRYPTED: u8 = 4;
}

/// What the helper keeps of a connection; nothing of one that is no control connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FtpState {
    pub(super) ways: [Way; 2],
    /// The code of the reply of several lines that the server is giving; 0 for none.
    pub(super) reply_code: u16,
    /// Bits of [`way_flags`], a byte a direction: five used, and the connection's own flags above them in the first.
    way_flags: [u8; 2],
}

const _: () = assert!(size_of::<FtpState>() == 36, "small enough to leave room for other functions");

/// Where [`flags`] lie in the first byte of the ways' flags.
const FLAGS_SHIFT: u8 = 5;

impl FtpState {
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.way_flags[0] >> FLAGS_SHIFT & flag != 0
    }

    pub(super) const fn set(&mut self, flag: u8, is_set: bool) {
        let bit = flag << FLAGS_SHIFT;
        self.way_flags[0] = if is_set { self.way_flags[0] | bit } else { self.way_flags[0] & !bit };
    }

    /// What `direction` says begins at `next`, with a line.
    pub(super) const fn begin(&mut self, direction: Direction, next: u32) {
        let index = direction.index();
        self.ways[index] = Way { next, position: 0, offset: 0, port: 0, delta: 0, length_bytes: 0 };
        self.set_read(direction, next, false);
    }

    /// The number up to which `direction` was read; `None` when that is not known.
    pub(super) const fn next(&self, direction: Direction) -> Option<u32> {
        if self.way_flags[direction.index()] & way_flags::KNOWN != 0 {
            Some(self.ways[direction.index()].next)
        } else {
            None
        }
    }

    /// Whether what follows in `direction` goes on with a line that is of no interest.
    pub(super) const fn is_within_line(&self, direction: Direction) -> bool {
        self.way_flags[direction.index()] & way_flags::WITHIN_LINE != 0
    }

    /// Everything of `direction` before `next` was read.
    pub(super) const fn set_read(&mut self, direction: Direction, next: u32, is_within_line: bool) {
        let index = direction.index();
        self.ways[index].next = next;
        let changed = way_flags::WITHIN_LINE | way_flags::REFUSED | way_flags::REFUSALS;
        let own = self.way_flags[index] & !changed | way_flags::KNOWN;
        self.way_flags[index] = if is_within_line { own | way_flags::WITHIN_LINE } else { own };
    }

    /// How often something in `direction` was refused since the last line that was read.
    pub(super) const fn refusals(&self, direction: Direction) -> u8 {
        (self.way_flags[direction.index()] & way_flags::REFUSALS) >> way_flags::REFUSALS_SHIFT
    }

    /// Whether its sender sends again what comes next in `direction`, because it was refused.
    pub(super) const fn is_awaiting(&self, direction: Direction) -> bool {
        self.way_flags[direction.index()] & way_flags::REFUSED != 0
    }

    /// What comes next in `direction` was refused.
    pub(super) const fn note_awaited(&mut self, direction: Direction) {
        self.way_flags[direction.index()] |= way_flags::REFUSED;
    }

    /// Something in `direction` was refused; counted up to [`REFUSALS_MAX`].
    pub(super) const fn note_refusal(&mut self, direction: Direction) {
        if self.refusals(direction) < REFUSALS_MAX {
            self.way_flags[direction.index()] += 1 << way_flags::REFUSALS_SHIFT;
        }
    }
}

const _: () = assert!(REFUSALS_MAX <= way_flags::REFUSALS >> way_flags::REFUSALS_SHIFT);

mod attribute {
    //! Attributes of the state.
    /// Code of the reply that is being given u16, flags of the original and of the reply direction u8 each.
    pub(super) const CONVERSATION: u16 = 1;
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
        tlv::put(out, attribute::CONVERSATION, &[high, low, self.way_flags[0], self.way_flags[1]]);
        for (kind, way) in [attribute::ORIGINAL, attribute::REPLY].into_iter().zip(self.ways) {
            tlv::put(out, kind, &way.to_bytes());
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            let wrong_size = TlvError::ValueSize(kind);
            match kind {
                attribute::CONVERSATION => {
                    let &[high, low, original, reply] = value else { return Err(wrong_size) };
                    state.reply_code = u16::from_be_bytes([high, low]);
                    state.way_flags = [original, reply];
                }
                attribute::ORIGINAL => state.ways[0] = Way::from_bytes(value.try_into().map_err(|_| wrong_size)?),
                attribute::REPLY => state.ways[1] = Way::from_bytes(value.try_into().map_err(|_| wrong_size)?),
                _ => {}
            }
        }
        Ok(state)
    }
}
