//! The load balancer's state of a connection.

use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::function::{FlowState, state_attribute};

/// The service and the backend of a connection. The translation itself is in the connection's tuples.
///
/// Both are identified by what the configuration names them by, not by their positions: nodes and releases of the
/// configuration agree about them, whatever else they list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BalancerState {
    /// [`super::service_id`]; 0 for connections to no service.
    pub(super) service: u32,
    /// [`super::backend_id`]; 0 for connections to no service.
    pub(super) backend: u32,
}

mod attribute {
    //! Attributes of the state.
    /// The service and the backend, a u32 each.
    pub(super) const BACKEND: u16 = 1;
}

impl BalancerState {
    /// Whether the connection is to a service.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.service != 0
    }
}

impl FlowState for BalancerState {
    const ATTRIBUTE: u16 = state_attribute::LOAD_BALANCER;

    fn encode(&self, out: &mut Vec<u8>) {
        if self.is_balanced() {
            let mut value = [0; 8];
            value[..4].copy_from_slice(&self.service.to_be_bytes());
            value[4..].copy_from_slice(&self.backend.to_be_bytes());
            tlv::put(out, attribute::BACKEND, &value);
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            if kind == attribute::BACKEND {
                let value: [u8; 8] = value.try_into().map_err(|_| TlvError::ValueSize(kind))?;
                let [a, b, c, d, e, f, g, h] = value;
                state.service = u32::from_be_bytes([a, b, c, d]);
                state.backend = u32::from_be_bytes([e, f, g, h]);
            }
        }
        Ok(state)
    }
}
