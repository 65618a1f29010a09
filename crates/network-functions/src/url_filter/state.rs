//! The URL filter's state of a connection.

use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{FlowState, state_attribute};

/// How far the filter is with a connection.
///
/// ```text
///   SYN ─► Reading ─┬─► Confirming ──► Allowed     the server has what was read: no packet is needed any more
///                   ├─► Watched ──► BlockedByPage, BlockedByReset     a later request of the connection
///                   └─► BlockedByPage, BlockedByReset                 until the connection times out
///   UDP ─► Reading ─┬─► Initials ◄─┐               each further connection of QUIC with the tuple is decided by itself
///                   └─► BlockedByReset
///   no rule matches ─► Unfiltered          UDP to the port of DNS ─► Dns
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Phase {
    /// No rule concerns it, or it is older than the function in the chain.
    #[default]
    Unfiltered = 0,
    /// The client's first bytes, or datagrams, are awaited.
    Reading = 1,
    /// It is allowed.
    Allowed = 2,
    /// It is allowed, and each further request is looked at.
    Watched = 3,
    /// It is refused: a request is answered by a page.
    BlockedByPage = 4,
    /// It is refused: segments are answered by resets.
    BlockedByReset = 5,
    /// Its datagrams are questions for names. Over TCP, such connections are read for as long as they last.
    Dns = 6,
    /// It is allowed, and the server has not acknowledged all that was read.
    Confirming = 7,
    /// A connection of QUIC is allowed, and each Initial packet is looked at.
    Initials = 8,
}

impl Phase {
    const ALL: [Self; 9] = [
        Self::Unfiltered,
        Self::Reading,
        Self::Allowed,
        Self::Watched,
        Self::BlockedByPage,
        Self::BlockedByReset,
        Self::Dns,
        Self::Confirming,
        Self::Initials,
    ];

    /// Whether the connection is refused.
    #[must_use]
    pub const fn is_blocked(self) -> bool {
        matches!(self, Self::BlockedByPage | Self::BlockedByReset)
    }
}

/// The verdict on a connection: its phase, and the category that decided, or, while its client's first bytes are awaited, where they begin.
/// Six bytes, so that the states of all functions fit a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UrlState {
    phase: u8,
    /// While reading, the lower 24 bits of the sequence number of the client's first byte, or the number of datagrams that were read: windows are smaller (RFC 7323 section 2.3 allows 30
    /// bits, but what is read ends after 8 KiB). Afterwards the category's identifier, in the first two bytes, and of QUIC a mark of the connection that was
    /// decided last.
    value: [u8; 3],
    /// While reading, the time to live of the client's SYN, which has reached the server.
    ttl: u8,
    /// While reading, 1 if the server has answered the SYN.
    is_answered: u8,
}

const _: () = assert!(size_of::<UrlState>() == 6 && align_of::<UrlState>() == 1, "leaves room for other functions");

const START_MASK: u32 = 0xff_ffff;

mod attribute {
    //! Attributes of the state.
    /// The phase, then three bytes: category (u16) and 0, or the beginning of the client's stream (24 bits).
    pub(super) const VERDICT: u16 = 1;
    /// While the phase is reading: the time to live of the client's SYN, and 1 if it was answered; two bytes.
    pub(super) const HANDSHAKE: u16 = 2;
}

impl UrlState {
    /// The client's first byte has this sequence number, and its SYN had this time to live.
    pub(super) const fn reading(start: u32, ttl: u8) -> Self {
        let [_, value @ ..] = (start & START_MASK).to_be_bytes();
        Self { phase: Phase::Reading as u8, value, ttl, is_answered: 0 }
    }

    /// The server has answered: the client's first byte has this sequence number.
    pub(super) const fn answered(self, start: u32) -> Self {
        Self { is_answered: 1, ..Self::reading(start, self.ttl) }
    }

    /// All before this sequence number has been read; the rest is read on.
    pub(super) const fn reading_on(self, start: u32) -> Self {
        Self { is_answered: self.is_answered, ..Self::reading(start, self.ttl) }
    }

    /// Of a QUIC connection, so many of the client's datagrams have been read.
    pub(super) const fn reading_datagrams(read: u8) -> Self {
        Self { phase: Phase::Reading as u8, value: [0, 0, read], ttl: 0, is_answered: 0 }
    }

    /// The time to live of the client's SYN. Only while reading.
    pub(super) const fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Whether the server has answered the SYN. Only while reading.
    pub(super) const fn is_answered(&self) -> bool {
        self.is_answered != 0
    }

    /// The client's datagrams that have been read. Only while reading.
    pub(super) const fn datagrams_read(&self) -> u8 {
        self.value[2]
    }

    /// It is decided, by the category with this identifier.
    pub(super) const fn decided(phase: Phase, category: u16) -> Self {
        let [high, low] = category.to_be_bytes();
        Self { phase: phase as u8, value: [high, low, 0], ttl: 0, is_answered: 0 }
    }

    /// The same, by the connection of QUIC with this number.
    pub(super) const fn decided_of(phase: Phase, category: u16, connection: u64) -> Self {
        let [high, low] = category.to_be_bytes();
        Self { value: [high, low, connection as u8], ..Self::decided(phase, category) }
    }

    /// Whether the connection of QUIC with this number was probably the last that was decided: one of 256 others has the same mark.
    pub(super) const fn is_decided_of(&self, connection: u64) -> bool {
        !matches!(self.phase(), Phase::Reading) && self.value[2] == connection as u8
    }

    /// The server has acknowledged what was read.
    pub(super) const fn confirmed(self) -> Self {
        Self { phase: Phase::Allowed as u8, ..self }
    }

    /// What other nodes must know: for them, what the server has not acknowledged is settled.
    pub(super) const fn replicated(&self) -> (Phase, [u8; 3], u8) {
        match self.phase() {
            Phase::Confirming => (Phase::Allowed, self.value, 0),
            Phase::Reading => (Phase::Reading, self.value, self.ttl),
            phase => (phase, self.value, 0),
        }
    }

    /// How far the filter is.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        if (self.phase as usize) < Phase::ALL.len() { Phase::ALL[self.phase as usize] } else { Phase::Unfiltered }
    }

    /// The identifier of the category that decided; `None` before.
    #[must_use]
    pub const fn category(&self) -> Option<u16> {
        match self.phase() {
            Phase::Unfiltered | Phase::Reading | Phase::Dns => None,
            _ => Some(u16::from_be_bytes([self.value[0], self.value[1]])),
        }
    }

    /// The offset of a sequence number from the client's first byte, modulo 2^24. Only while reading.
    pub(super) const fn offset(&self, sequence: u32) -> usize {
        let [a, b, c] = self.value;
        (sequence.wrapping_sub(u32::from_be_bytes([0, a, b, c])) & START_MASK) as usize
    }
}

impl FlowState for UrlState {
    const ATTRIBUTE: u16 = state_attribute::URL_FILTER;

    fn encode(&self, out: &mut Vec<u8>) {
        let (phase, value, ttl) = self.replicated();
        if phase != Phase::Unfiltered {
            tlv::put_fixed::<8>(out, attribute::VERDICT, 4, |bytes| {
                bytes[4] = phase as u8;
                bytes[5..].copy_from_slice(&value);
            });
        }
        if phase == Phase::Reading && (ttl, self.is_answered) != (0, 0) {
            tlv::put_fixed::<8>(out, attribute::HANDSHAKE, 2, |bytes| {
                bytes[4..6].copy_from_slice(&[ttl, self.is_answered])
            });
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            match kind {
                attribute::VERDICT => {
                    let &[phase, a, b, c] = value else { return Err(TlvError::ValueSize(kind)) };
                    state = Self { phase, value: [a, b, c], ..state };
                }
                attribute::HANDSHAKE => {
                    let &[ttl, is_answered] = value else { return Err(TlvError::ValueSize(kind)) };
                    state = Self { ttl, is_answered, ..state };
                }
                _ => {}
            }
        }
        // A phase of a later version means nothing here, and one that is not replicated is what a peer would have sent for it.
        let (phase, value, ttl) = state.replicated();
        Ok(match phase {
            Phase::Unfiltered => Self::default(),
            Phase::Reading => Self { phase: phase as u8, value, ttl, ..state },
            _ => Self { phase: phase as u8, value, ..Self::default() },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_replicated_state_is_the_same(phase in 0u8..12, value: [u8; 3], ttl: u8, is_answered in 0u8..2) {
            let mut state = UrlState { phase, value, ttl: 0, is_answered: 0 };
            if state.phase() == Phase::Reading {
                state = UrlState { ttl, is_answered, ..state };
            }
            let mut attributes = Vec::new();
            state.encode(&mut attributes);
            let expected = match state.phase() {
                Phase::Unfiltered => UrlState::default(),
                Phase::Confirming => UrlState { phase: Phase::Allowed as u8, ..state },
                _ => state,
            };
            prop_assert_eq!(UrlState::decode(&attributes), Ok(expected));
        }

        #[test]
        fn offsets_count_from_the_first_byte(start: u32, offset in 0u32..1 << 24) {
            prop_assert_eq!(UrlState::reading(start, 64).offset(start.wrapping_add(offset)), offset as usize);
        }
    }
}
