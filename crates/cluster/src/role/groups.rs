//! The roles in heartbeats, where there are several groups of shared addresses.
//!
//! One datagram carries all groups. A heartbeat without groups is about the first, so that a node that has but one, or a
//! release that knows no groups, understands it; beside that it has an attribute for each group. Groups are known by a number
//! that follows from their name, lest nodes whose files list them in different orders mean different ones.

use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};

use super::heartbeat::attribute;
use super::{Heartbeat, HeartbeatError, Order, State};
use crate::group::GROUPS_MAX;

/// Bytes of a group's attribute: identity, state, priority, term.
const GROUP_BYTES: usize = 4 + 1 + 1 + 8;
/// Bytes of the attribute with what a node cannot reach for a group: identity, weight.
const UNREACHED_BYTES: usize = 4 + 2;

/// How a node takes part in the choice of who holds a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// By what the nodes know the group: the same number on all of them, and another for each group.
    pub identity: u32,
    /// This node's priority for the group: the highest wins.
    pub priority: u8,
    /// Whether to take the group from a working node of lower priority, once synchronised.
    pub preempt: bool,
}

/// How a node stands to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHeartbeat {
    /// The group's [`GroupConfig::identity`].
    pub identity: u32,
    /// The node's state.
    pub state: State,
    /// Its priority.
    pub priority: u8,
    /// The number of the group's latest take-over that it knows of.
    pub term: u64,
    /// As [`Heartbeat::unreached`], of what is tracked for the group.
    pub unreached: u16,
}

/// How a node stands to all groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeats {
    /// To the first or only one, and what is true of the node whatever the group.
    pub first: Heartbeat,
    /// To each of several, the first included; empty where there is one.
    pub groups: Vec<GroupHeartbeat>,
    /// Its place among the heartbeats of its sender; `None`: an older release sent it.
    pub order: Option<Order>,
    /// The latest heartbeat that the sender has received of the addressee; `None`: there is none, or an older release sent it.
    pub answers: Option<Order>,
}

impl Heartbeats {
    /// Appends them to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // What may be left out goes first: a heartbeat that was cut short then never passes for a whole one.
        if let Some(order) = self.order {
            order.encode(attribute::ORDER, out);
        }
        if let Some(answers) = self.answers {
            answers.encode(attribute::ANSWERS, out);
        }
        for group in &self.groups {
            let mut value = [0; GROUP_BYTES];
            value[..4].copy_from_slice(&group.identity.to_be_bytes());
            (value[4], value[5]) = (group.state.number(), group.priority);
            value[6..].copy_from_slice(&group.term.to_be_bytes());
            tlv::put(out, attribute::GROUP, &value);
            if group.unreached > 0 {
                let mut value = [0; UNREACHED_BYTES];
                value[..4].copy_from_slice(&group.identity.to_be_bytes());
                value[4..].copy_from_slice(&group.unreached.to_be_bytes());
                tlv::put(out, attribute::GROUP_UNREACHED, &value);
            }
        }
        self.first.encode(out);
    }

    /// Reads what [`Heartbeats::encode`] wrote. Groups beyond [`GROUPS_MAX`] are not read.
    ///
    /// # Errors
    /// What is wrong with the bytes. Never panics, whatever they are.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeartbeatError> {
        let first = Heartbeat::decode(bytes)?;
        let of_groups = tlv::read(bytes).flatten().filter(|(kind, _)| *kind == attribute::GROUP);
        let mut groups =
            of_groups.take(GROUPS_MAX).map(|(_, value)| decode_group(value)).collect::<Result<Vec<_>, _>>()?;
        for (kind, value) in tlv::read(bytes).flatten().filter(|(kind, _)| *kind == attribute::GROUP_UNREACHED) {
            let [i0, i1, i2, i3, unreached @ ..]: [u8; UNREACHED_BYTES] =
                value.try_into().map_err(|_| TlvError::ValueSize(kind))?;
            let identity = u32::from_be_bytes([i0, i1, i2, i3]);
            if let Some(group) = groups.iter_mut().find(|group| group.identity == identity) {
                group.unreached = u16::from_be_bytes(unreached);
            }
        }
        let order = Order::decode(attribute::ORDER, bytes)?;
        Ok(Self { first, groups, order, answers: Order::decode(attribute::ANSWERS, bytes)? })
    }
}

fn decode_group(value: &[u8]) -> Result<GroupHeartbeat, HeartbeatError> {
    let value: &[u8; GROUP_BYTES] = value.try_into().map_err(|_| TlvError::ValueSize(attribute::GROUP))?;
    let [i0, i1, i2, i3, state, priority, term @ ..] = *value;
    Ok(GroupHeartbeat {
        identity: u32::from_be_bytes([i0, i1, i2, i3]),
        state: State::from_number(state).ok_or(HeartbeatError::UnknownState(state))?,
        priority,
        term: u64::from_be_bytes(term),
        unreached: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::NodeId;
    use proptest::prelude::*;

    fn group() -> impl Strategy<Value = GroupHeartbeat> {
        let fields = (any::<u32>(), 0u8..6, any::<u8>(), any::<u64>(), any::<u16>());
        fields.prop_map(|(identity, state, priority, term, unreached)| GroupHeartbeat {
            identity,
            state: State::from_number(state).unwrap(),
            priority,
            term,
            unreached,
        })
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = Heartbeats::decode(&bytes);
        }

        #[test]
        fn what_is_encoded_is_decoded_and_who_knows_no_groups_reads_the_first(
            groups in proptest::collection::vec(group(), 0..=GROUPS_MAX), node in any::<u8>(), term in any::<u64>(),
        ) {
            // Groups have different identities.
            let mut groups: Vec<GroupHeartbeat> = groups;
            groups.sort_by_key(|group| group.identity);
            groups.dedup_by_key(|group| group.identity);
            let first = Heartbeat {
                node: NodeId(node), state: State::Standby, priority: 7, synchronised: true, term, configuration: Some(9),
                unreached: 3, passive: false,
            };
            let order = (term % 2 == 0).then_some(Order { incarnation: 5, sequence: term });
            let answers = (term % 3 == 0).then_some(Order { incarnation: 6, sequence: term });
            let all = Heartbeats { first, groups, order, answers };
            let mut bytes = Vec::new();
            all.encode(&mut bytes);
            prop_assert_eq!(Heartbeat::decode(&bytes), Ok(first));
            prop_assert_eq!(Heartbeats::decode(&bytes), Ok(all));
            for length in 0..bytes.len() {
                prop_assert!(Heartbeats::decode(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn a_group_of_another_size_or_state_is_refused() {
        let first = Heartbeat {
            node: NodeId(1),
            state: State::Active,
            priority: 1,
            synchronised: true,
            term: 1,
            configuration: None,
            unreached: 0,
            passive: false,
        };
        let with = |value: &[u8]| {
            let mut bytes = Vec::new();
            tlv::put(&mut bytes, attribute::GROUP, value);
            first.encode(&mut bytes);
            Heartbeats::decode(&bytes)
        };
        assert_eq!(with(&[0; 13]), Err(TlvError::ValueSize(attribute::GROUP).into()));
        let mut unknown_state = [0; GROUP_BYTES];
        unknown_state[4] = 6;
        assert_eq!(with(&unknown_state), Err(HeartbeatError::UnknownState(6)));
    }
}
