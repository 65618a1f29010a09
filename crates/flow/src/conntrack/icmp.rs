//! ICMP and ICMPv6 queries: a request begins a connection, replies belong to it and end nothing (a request to a group
//! may have many).

use core::time::Duration;

use super::{Advance, Change, ProtocolState, Timeouts, note_reply};
use crate::wire::IcmpQuery;
use crate::{Direction, DropReason};

pub(super) fn begin(timeouts: &Timeouts, query: &IcmpQuery) -> Result<(ProtocolState, Duration), DropReason> {
    if query.is_reply {
        return Err(DropReason::NoConnection);
    }
    Ok((ProtocolState::default(), timeouts.icmp))
}

/// The tuples of requests and of replies differ, so that a request from the answering side begins a connection of its own.
/// Whoever looked the connection up otherwise must not have it pass as an answer.
pub(super) fn advance(timeouts: &Timeouts, flags: &mut u8, direction: Direction, query: &IcmpQuery) -> Advance {
    if query.is_reply != (direction == Direction::Reply) {
        return Advance::refuse(DropReason::NoConnection);
    }
    let change: Change = note_reply(flags, direction);
    Advance::pass(change, Some(timeouts.icmp))
}
