//! The state of one connection.

use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{FlowState, state_attribute};

const USED_BYTES: usize = 6;

/// The rule of a connection, and what is known of its quota. Bytes without alignment, so that the states of all functions fit a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RateLimitState {
    /// The generation of the rules that assigned `rule`; 0: the state is another node's, or must be assigned again.
    generation: u8,
    /// The last byte of the number of the period in which `used` was counted.
    period: u8,
    /// The identifier of the rule; 0: none matches.
    rule: [u8; 2],
    /// The amount used of the rule's quota in the period: by the connection, or by all that share the quota when its last step was used up.
    used: [u8; USED_BYTES],
}

const _: () = assert!(size_of::<RateLimitState>() == 10, "leaves room for the other functions' states");

mod attribute {
    //! Attributes of the state.
    /// The identifier of the rule u16, the last byte of the period's number u8, 0 u8, the amount used u64. Absent while it is 0.
    pub(super) const QUOTA: u16 = 1;
}

impl RateLimitState {
    pub(super) const fn generation(&self) -> u8 {
        self.generation
    }

    pub(super) const fn rule(&self) -> u16 {
        u16::from_be_bytes(self.rule)
    }

    /// The connection has this rule. What it has used of another rule's quota is forgotten.
    pub(super) fn assign(&mut self, generation: u8, rule: u16) {
        if self.rule() != rule {
            *self = Self { rule: rule.to_be_bytes(), ..Self::default() };
        }
        self.generation = generation;
    }

    /// The rule is to be found again.
    pub(super) const fn unassign(&mut self) {
        self.generation = 0;
    }

    pub(super) const fn period(&self) -> u8 {
        self.period
    }

    pub(super) fn used(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[8 - USED_BYTES..].copy_from_slice(&self.used);
        u64::from_be_bytes(bytes)
    }

    pub(super) fn set_used(&mut self, period: u8, used: u64) {
        self.period = period;
        self.used.copy_from_slice(&used.to_be_bytes()[8 - USED_BYTES..]);
    }
}

impl FlowState for RateLimitState {
    const ATTRIBUTE: u16 = state_attribute::RATE_LIMIT;

    fn encode(&self, out: &mut Vec<u8>) {
        let used = self.used();
        if used != 0 {
            tlv::put_fixed::<16>(out, attribute::QUOTA, 12, |bytes| {
                bytes[4..6].copy_from_slice(&self.rule);
                bytes[6] = self.period;
                bytes[8..].copy_from_slice(&used.to_be_bytes());
            });
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (attribute::QUOTA, value) = attribute? else { continue };
            let value: &[u8; 12] = value.try_into().map_err(|_| TlvError::ValueSize(attribute::QUOTA))?;
            let &[high, low, period, _, used @ ..] = value;
            state.rule = [high, low];
            // A later version may count further; here that is as good as all.
            state.set_used(period, u64::from_be_bytes(used).min((1 << (8 * USED_BYTES)) - 1));
        }
        Ok(state)
    }
}
