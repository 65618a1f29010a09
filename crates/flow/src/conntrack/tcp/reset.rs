//! Which RSTs are to be believed (RFC 5961 section 3, and what Linux makes of it between the end points).

use super::automaton::Kind;
use super::{Arrival, TcpState, peer_flags};
use crate::Direction;
use crate::connection::flags::{ASSURED, REPLIED};
use crate::serial::is_before;
use crate::wire::tcp_flags::ACK;

/// What to make of a RST.
pub(super) enum Reset {
    /// It lies before what its receiver has acknowledged: forged, or long out of date.
    Invalid,
    /// It closes the connection, wherever its numbers lie.
    Believed,
    /// It closes the connection if it lies within the window.
    IfInWindow,
    /// It lies within the window but not at its very beginning, where its receiver takes no RST for good but answers
    /// with a challenge ACK: the connection goes on until the answer to that.
    LeftToEndPoint,
}

pub(super) fn judge(arrival: &Arrival<'_>) -> Reset {
    // The end points may have forgotten a closing connection and reused its tuple: its windows prove nothing.
    if arrival.from.is_closing() {
        return Reset::Believed;
    }
    let sequence = arrival.segment.sequence;
    let receiver = &arrival.state.peers[arrival.direction.reverse().index()];
    // A SYN that was let through may have begun another connection, of which the old acknowledgement says nothing.
    let is_known = receiver.flags & peer_flags::ACKNOWLEDGED != 0 && arrival.state.last_kind != Kind::Syn as u8;
    let is_established = arrival.from == TcpState::Established;
    // A RST without ACK that answers a SYN has sequence number 0 (RFC 9293 section 3.10.7.1).
    let may_answer_syn = sequence == 0 && !is_established;
    if !is_known {
        let is_answer = answers_ignored_segment(arrival) || answers_challenge(arrival);
        return if is_answer { Reset::Believed } else { Reset::IfInWindow };
    }
    if may_answer_syn {
        return Reset::IfInWindow;
    }
    if is_before(sequence, receiver.acknowledged_max) {
        return Reset::Invalid;
    }
    let is_exact = sequence == receiver.acknowledged_max;
    if is_established && !is_exact && !follows_own_data(arrival) {
        return Reset::LeftToEndPoint;
    }
    Reset::IfInWindow
}

/// The RST comes right behind the last data of its own sender, which the receiver cannot have acknowledged yet.
fn follows_own_data(arrival: &Arrival<'_>) -> bool {
    let state = &arrival.state;
    state.last_kind == Kind::Ack as u8
        && state.last_direction == arrival.direction as u8
        && arrival.segment.sequence == state.last_end
}

/// The RST is the answer to a SYN that was ignored, or to an ACK on a connection that is only half open: it
/// acknowledges just that segment, and the window has no say.
fn answers_ignored_segment(arrival: &Arrival<'_>) -> bool {
    let (state, flags) = (&arrival.state, *arrival.flags);
    let is_answer = state.last_direction != arrival.direction as u8;
    let to_syn = is_answer && flags & REPLIED != 0 && state.last_kind == Kind::Syn as u8;
    let to_ack = flags & ASSURED == 0 && state.last_kind == Kind::Ack as u8;
    // Nothing may be remembered of that segment, and a RST that acknowledges nothing must not fit that.
    let acknowledges = arrival.segment.has(ACK) && arrival.segment.acknowledgement != 0;
    (to_syn || to_ack) && acknowledges && arrival.segment.acknowledgement == state.last_end
}

/// The client answers a challenge ACK (to its SYN, from a server that still holds an older connection) with the RST
/// that the server asked for (RFC 5961 section 4).
fn answers_challenge(arrival: &Arrival<'_>) -> bool {
    let state = &arrival.state;
    arrival.from == TcpState::SynSent
        && state.last_kind == Kind::Ack as u8
        && state.last_direction == Direction::Reply as u8
        && arrival.segment.sequence == state.last_acknowledgement
}
