//! The SYN proxy's state of a connection: how the numbers of client and server differ.

use alloc::vec::Vec;

use flow::wire::tcp::WINDOW_SCALE_MAX;
use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{FlowState, state_attribute};
use crate::syn_cookie::ClientOptions;

/// How far a connection is.
///
/// ```text
///   None      not proxied
///   Watched ──client's ACK──► None                             counted as half-open meanwhile
///   Begun ──SYN to the server──► Awaiting ──its SYN/ACK──► Open
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The proxy has nothing to do with it.
    None,
    /// The proxy does not answer in place of the server. It counts the connection as half-open.
    Watched,
    /// The client's cookie was accepted, and the SYN has not been sent to the server.
    Begun,
    /// The SYN was sent, and the server has not answered.
    Awaiting,
    /// Both handshakes are over: numbers are translated.
    Open,
}

/// The SYN proxy's state of one connection.
///
/// Numbers of the client are the same on both sides. Those of the server differ by an offset, because the client got the cookie for
/// the server's first number. So do timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SynProxyState {
    /// Until the server has answered, the cookie; afterwards what is added to the server's numbers towards the client.
    pub(super) sequence: u32,
    /// Until the server has answered, the timestamp value that the client was sent; afterwards what is added to the server's
    /// timestamp values towards the client.
    pub(super) timestamp: u32,
    /// The client's timestamp value with its first acknowledgement.
    pub(super) client_timestamp: u32,
    /// See [`bits`].
    bits: u32,
}

const _: () = assert!(size_of::<SynProxyState>() == 16, "leaves room for the other functions' states");

mod bits {
    //! The bits of [`super::SynProxyState::bits`].
    pub(super) const PHASE: u32 = 7;
    pub(super) const TIMESTAMPS: u32 = 1 << 3;
    pub(super) const SACK: u32 = 1 << 4;
    /// The maximum segment size: three bits.
    pub(super) const SEGMENT_SIZE_SHIFT: u32 = 5;
    /// Window scales, four bits each, [`NO_SCALE`] for none.
    pub(super) const CLIENT_SCALE_SHIFT: u32 = 8;
    pub(super) const OFFERED_SCALE_SHIFT: u32 = 12;
    pub(super) const SERVER_SCALE_SHIFT: u32 = 16;
    /// The rule: twelve bits.
    pub(super) const RULE_SHIFT: u32 = 20;
    pub(super) const NO_SCALE: u32 = 15;
}

/// The shifts of windows on a connection; `None` where no window is scaled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scales {
    /// Of the windows that the client advertises.
    pub(super) client: Option<u8>,
    /// That the proxy has announced to the client for the server.
    pub(super) offered: Option<u8>,
    /// Of the windows that the server advertises.
    pub(super) server: Option<u8>,
}

impl SynProxyState {
    /// A connection that is counted as half-open for a rule.
    pub(super) fn watched(rule: u16) -> Self {
        Self { bits: u32::from(rule) << bits::RULE_SHIFT, ..Self::default() }.with_phase(Phase::Watched)
    }

    /// A connection whose client has acknowledged a cookie.
    pub(super) fn begun(rule: u16, options: &ClientOptions, offered_scale: Option<u8>) -> Self {
        let mut bits = u32::from(rule) << bits::RULE_SHIFT
            | u32::from(options.segment_size_index & 7) << bits::SEGMENT_SIZE_SHIFT
            | scale_bits(options.window_scale) << bits::CLIENT_SCALE_SHIFT
            | scale_bits(offered_scale.filter(|_| options.window_scale.is_some())) << bits::OFFERED_SCALE_SHIFT
            | bits::NO_SCALE << bits::SERVER_SCALE_SHIFT;
        bits |= if options.timestamps { bits::TIMESTAMPS } else { 0 };
        bits |= if options.sack_permitted { bits::SACK } else { 0 };
        Self { bits, ..Self::default() }.with_phase(Phase::Begun)
    }

    /// How far the connection is.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.bits & bits::PHASE {
            1 => Phase::Watched,
            2 => Phase::Begun,
            3 => Phase::Awaiting,
            4 => Phase::Open,
            _ => Phase::None,
        }
    }

    pub(super) const fn with_phase(mut self, phase: Phase) -> Self {
        self.bits = self.bits & !bits::PHASE | phase as u32;
        self
    }

    /// The identifier of its rule.
    pub(super) const fn rule(&self) -> u16 {
        (self.bits >> bits::RULE_SHIFT) as u16
    }

    pub(super) const fn scales(&self) -> Scales {
        Scales {
            client: self.scale(bits::CLIENT_SCALE_SHIFT),
            offered: self.scale(bits::OFFERED_SCALE_SHIFT),
            server: self.scale(bits::SERVER_SCALE_SHIFT),
        }
    }

    pub(super) fn set_server_scale(&mut self, scale: Option<u8>) {
        self.bits &= !(bits::NO_SCALE << bits::SERVER_SCALE_SHIFT);
        self.bits |= scale_bits(scale) << bits::SERVER_SCALE_SHIFT;
    }

    /// What the client and the proxy have agreed on.
    pub(super) const fn options(&self) -> ClientOptions {
        ClientOptions {
            segment_size_index: (self.bits >> bits::SEGMENT_SIZE_SHIFT & 7) as u8,
            window_scale: self.scale(bits::CLIENT_SCALE_SHIFT),
            sack_permitted: self.bits & bits::SACK != 0,
            timestamps: self.has_timestamps(),
        }
    }

    pub(super) const fn has_timestamps(&self) -> bool {
        self.bits & bits::TIMESTAMPS != 0
    }

    /// The server does not use them.
    pub(super) const fn clear_timestamps(&mut self) {
        self.bits &= !bits::TIMESTAMPS;
    }

    const fn scale(&self, shift: u32) -> Option<u8> {
        let scale = self.bits >> shift & bits::NO_SCALE;
        if scale <= WINDOW_SCALE_MAX as u32 { Some(scale as u8) } else { None }
    }
}

fn scale_bits(scale: Option<u8>) -> u32 {
    scale.map_or(bits::NO_SCALE, |scale| u32::from(scale.min(WINDOW_SCALE_MAX)))
}

mod attribute {
    //! Attributes of the state.
    /// The four words, u32 each.
    pub(super) const WORDS: u16 = 1;
}

impl FlowState for SynProxyState {
    const ATTRIBUTE: u16 = state_attribute::SYN_PROXY;

    fn encode(&self, out: &mut Vec<u8>) {
        if self.phase() == Phase::None {
            return;
        }
        let mut value = [0; 16];
        let words = [self.sequence, self.timestamp, self.client_timestamp, self.bits];
        for (place, word) in value.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        tlv::put(out, attribute::WORDS, &value);
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            if kind == attribute::WORDS {
                let value: [u8; 16] = value.try_into().map_err(|_| TlvError::ValueSize(kind))?;
                let word = |at: usize| u32::from_be_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
                state = Self { sequence: word(0), timestamp: word(4), client_timestamp: word(8), bits: word(12) };
            }
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_is_read(
            rule in 0u16..4096, segment_size_index in 0u8..8, client in proptest::option::of(0u8..=14),
            offered in proptest::option::of(0u8..=14), server in proptest::option::of(0u8..=14), flags: (bool, bool),
        ) {
            let options = ClientOptions {
                segment_size_index, window_scale: client, sack_permitted: flags.0, timestamps: flags.1,
            };
            let mut state = SynProxyState::begun(rule, &options, offered);
            state.set_server_scale(server);
            prop_assert_eq!((state.phase(), state.rule(), state.options()), (Phase::Begun, rule, options));
            let expected = Scales { client, offered: offered.filter(|_| client.is_some()), server };
            prop_assert_eq!(state.scales(), expected);
            let opened = state.with_phase(Phase::Open);
            prop_assert_eq!((opened.phase(), opened.rule(), opened.scales()), (Phase::Open, rule, expected));
        }

        #[test]
        fn a_replicated_state_is_the_same(words: [u32; 4]) {
            let state = SynProxyState { sequence: words[0], timestamp: words[1], client_timestamp: words[2], bits: words[3] };
            let mut attributes = Vec::new();
            state.encode(&mut attributes);
            let decoded = SynProxyState::decode(&attributes).unwrap();
            let expected = if state.phase() == Phase::None { SynProxyState::default() } else { state };
            prop_assert_eq!(decoded, expected);
        }
    }
}
