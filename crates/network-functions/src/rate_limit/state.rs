//! The state of one connection.

use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{FlowState, state_attribute};

/// The rule of a connection. It is a bytewise value, so that the states of all functions fit a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RateLimitState {
    /// The generation of the rules that assigned `rule`; 0: none has.
    generation: u8,
    /// The number of the rule, from 1; 0: none matches.
    rule: [u8; 2],
}

impl RateLimitState {
    pub(super) const fn generation(&self) -> u8 {
        self.generation
    }

    pub(super) const fn rule(&self) -> u16 {
        u16::from_ne_bytes(self.rule)
    }

    pub(super) const fn assign(&mut self, generation: u8, rule: u16) {
        self.generation = generation;
        self.rule = rule.to_ne_bytes();
    }

    pub(super) const fn unassign(&mut self) {
        self.assign(0, 0);
    }
}

impl FlowState for RateLimitState {
    const ATTRIBUTE: u16 = state_attribute::RATE_LIMIT;

    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        tlv::read(attributes).try_for_each(|attribute| attribute.map(drop))?;
        Ok(Self::default())
    }
}
