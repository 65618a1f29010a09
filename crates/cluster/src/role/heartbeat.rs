//! The roles that nodes send each other, as attributes (see [`flow::wire::tlv`]).

use alloc::vec::Vec;

use flow::NodeId;
use flow::wire::tlv::{self, TlvError};

use super::State;

pub(super) mod attribute {
    //! Attribute types; a number is never used for anything else.
    pub(in super::super) const NODE: u16 = 1;
    pub(super) const STATE: u16 = 2;
    pub(super) const PRIORITY: u16 = 3;
    pub(super) const SYNCHRONISED: u16 = 4;
    pub(super) const TERM: u16 = 5;
    pub(super) const CONFIGURATION: u16 = 6;
    /// Of [`super::super::GroupHeartbeat`].
    pub(in super::super) const GROUP: u16 = 7;
    /// Of [`super::super::Division`].
    pub(in super::super) const DIVISION: u16 = 8;
    pub(super) const UNREACHED: u16 = 9;
    pub(super) const PASSIVE: u16 = 10;
    /// The same as [`UNREACHED`], for one of several groups.
    pub(in super::super) const GROUP_UNREACHED: u16 = 11;
    /// Of [`super::super::Order`].
    pub(in super::super) const ORDER: u16 = 12;
    /// The [`super::super::Order`] of the latest heartbeat that was received of the addressee.
    pub(in super::super) const ANSWERS: u16 = 13;
    /// Of [`super::super::Capabilities`].
    pub(in super::super) const STATE_SERVICE: u16 = 14;
    /// Of [`super::super::Capabilities`].
    pub(in super::super) const SLOW_PATHS: u16 = 20;
    /// Of [`super::super::Capabilities`].
    pub(in super::super) const SHARED_VALUES: u16 = 21;
}

/// Whether a datagram on the replication channel is a heartbeat: it begins with an attribute's type, whose first byte is
/// 0, where a replication message begins with its magic number.
#[must_use]
pub fn is_heartbeat(datagram: &[u8]) -> bool {
    datagram.first() == Some(&0)
}

/// The state of a node, sent to its peers every heartbeat interval and on every change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Its sender.
    pub node: NodeId,
    /// Its state.
    pub state: State,
    /// Its priority: the highest wins.
    pub priority: u8,
    /// It has a replica of every connection that it is to back up.
    pub synchronised: bool,
    /// The number of the latest take-over that it knows of.
    pub term: u64,
    /// A number that nodes have in common if they are configured alike, as far as they must be; `None` when it is not sent.
    pub configuration: Option<u64>,
    /// The weights of all tracked ports and next hops that the node cannot reach, added up; 0 when it reaches all of them, or
    /// tracks none.
    pub unreached: u16,
    /// The node takes no addresses over, though its state would allow it: they are defended by another host, or it receives
    /// packets of a peer that it cannot authenticate.
    pub passive: bool,
}

/// Why a heartbeat cannot be read. The sender's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeartbeatError {
    /// The bytes are no attributes.
    #[error("malformed heartbeat: {0}; check that both nodes run compatible versions")]
    Attribute(#[from] TlvError),
    /// An attribute that every heartbeat has is not there.
    #[error("heartbeat without attribute {0}; check that both nodes run compatible versions")]
    Missing(u16),
    /// A state that this version does not know.
    #[error("heartbeat with unknown role state {0}; the peer runs a newer version: upgrade this node")]
    UnknownState(u8),
}

impl Heartbeat {
    /// Appends the heartbeat to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // What may be left out goes first: a heartbeat that was cut short then never passes for a whole one.
        if let Some(configuration) = self.configuration {
            tlv::put(out, attribute::CONFIGURATION, &configuration.to_be_bytes());
        }
        if self.unreached > 0 {
            tlv::put(out, attribute::UNREACHED, &self.unreached.to_be_bytes());
        }
        if self.passive {
            tlv::put(out, attribute::PASSIVE, &[1]);
        }
        tlv::put(out, attribute::NODE, &[self.node.0]);
        tlv::put(out, attribute::STATE, &[self.state.number()]);
        tlv::put(out, attribute::PRIORITY, &[self.priority]);
        tlv::put(out, attribute::SYNCHRONISED, &[u8::from(self.synchronised)]);
        tlv::put(out, attribute::TERM, &self.term.to_be_bytes());
    }

    /// Reads what [`Heartbeat::encode`] wrote. Unknown attributes are skipped.
    ///
    /// # Errors
    /// What is wrong with the bytes. Never panics, whatever they are.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeartbeatError> {
        let (mut node, mut state, mut priority, mut synchronised, mut term) = (None, None, None, None, None);
        let mut configuration = None;
        let (mut unreached, mut passive) = (0, false);
        for attribute in tlv::read(bytes) {
            let (kind, value) = attribute?;
            match kind {
                attribute::NODE => node = Some(NodeId(octet(kind, value)?)),
                attribute::STATE => state = Some(octet(kind, value)?),
                attribute::PRIORITY => priority = Some(octet(kind, value)?),
                attribute::SYNCHRONISED => synchronised = Some(octet(kind, value)? != 0),
                attribute::TERM => term = Some(number(kind, value)?),
                attribute::CONFIGURATION => configuration = Some(number(kind, value)?),
                attribute::UNREACHED => {
                    unreached = value.try_into().map(u16::from_be_bytes).map_err(|_| TlvError::ValueSize(kind))?;
                }
                attribute::PASSIVE => passive = octet(kind, value)? != 0,
                _ => {}
            }
        }
        let state = state.ok_or(HeartbeatError::Missing(attribute::STATE))?;
        Ok(Self {
            node: node.ok_or(HeartbeatError::Missing(attribute::NODE))?,
            state: State::from_number(state).ok_or(HeartbeatError::UnknownState(state))?,
            priority: priority.ok_or(HeartbeatError::Missing(attribute::PRIORITY))?,
            synchronised: synchronised.ok_or(HeartbeatError::Missing(attribute::SYNCHRONISED))?,
            term: term.ok_or(HeartbeatError::Missing(attribute::TERM))?,
            configuration,
            unreached,
            passive,
        })
    }
}

fn number(kind: u16, value: &[u8]) -> Result<u64, TlvError> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| TlvError::ValueSize(kind))
}

fn octet(kind: u16, value: &[u8]) -> Result<u8, TlvError> {
    <[u8; 1]>::try_from(value).map(|[octet]| octet).map_err(|_| TlvError::ValueSize(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Heartbeat::decode(&bytes);
        }

        #[test]
        fn what_is_encoded_is_decoded_and_nothing_shorter_is(
            node in any::<u8>(), state in 0u8..6, priority in any::<u8>(), synchronised in any::<bool>(), term in any::<u64>(),
            configuration in any::<Option<u64>>(), unreached in any::<u16>(), passive in any::<bool>(),
        ) {
            let state = State::from_number(state).unwrap();
            let node = NodeId(node);
            let heartbeat = Heartbeat { node, state, priority, synchronised, term, configuration, unreached, passive };
            let mut bytes = Vec::new();
            heartbeat.encode(&mut bytes);
            prop_assert_eq!(Heartbeat::decode(&bytes), Ok(heartbeat));
            for length in 0..bytes.len() {
                prop_assert!(Heartbeat::decode(&bytes[..length]).is_err());
            }
            tlv::put(&mut bytes, 999, b"from a later version");
            prop_assert_eq!(Heartbeat::decode(&bytes), Ok(heartbeat));
        }
    }
}
