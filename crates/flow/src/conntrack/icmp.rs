//! ICMP and ICMPv6 queries: a request begins a connection, replies belong to it and do not end it (a request to a group
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

/// Request and reply tuples differ, so a request from the responder begins a separate connection. A caller that found
/// the connection otherwise must not accept it as a reply.
pub(super) fn advance(timeouts: &Timeouts, flags: &mut u8, direction: Direction, query: &IcmpQuery) -> Advance {
    if query.is_reply != (direction == Direction::Reply) {
        return Advance::refuse(DropReason::NoConnection);
    }
    let change: Change = note_reply(flags, direction);
    Advance::pass(change, Some(timeouts.icmp))
}
