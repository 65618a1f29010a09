//! Validation of RSTs (RFC 5961 section 3, and Linux's variant between the end points).

use super::automaton::{Kind, record_segment};
use super::{Arrival, ProtocolState, TcpState, peer_flags};
use crate::Direction;
use crate::connection::flags::{ASSURED, REPLIED};
use crate::serial::is_before;
use crate::wire::tcp_flags::ACK;

/// The classification of a RST.
pub(super) enum Reset {
    /// It lies before the receiver's acknowledgement: forged or stale.
    Invalid,
    /// It closes the connection, at any sequence number.
    Accepted,
    /// It closes the connection if it lies within the window.
    IfInWindow,
    /// It lies within the window but not at its beginning. The receiver answers it with a challenge ACK, and the
    /// connection continues until the answer to that.
    LeftToEndPoint,
}

pub(super) fn classify(arrival: &Arrival<'_>) -> Reset {
    // The end points may have discarded a closing connection and reused its tuple: its windows prove nothing.
    if arrival.from.is_closing() {
        return Reset::Accepted;
    }
    let sequence = arrival.segment.sequence;
    let receiver = &arrival.state.peers[arrival.direction.reverse().index()];
    // A passed SYN may have begun another connection, to which the old acknowledgement does not apply.
    let is_known = receiver.flags & peer_flags::ACKNOWLEDGED != 0 && arrival.state.last_kind != Kind::Syn as u8;
    let is_established = arrival.from == TcpState::Established;
    // A RST without ACK that answers a SYN has sequence number 0 (RFC 9293 section 3.10.7.1).
    let may_answer_syn = sequence == 0 && !is_established;
    if !is_known {
        let is_reply = answers_ignored_segment(arrival) || answers_challenge(arrival);
        return if is_reply { Reset::Accepted } else { Reset::IfInWindow };
    }
    if may_answer_syn {
        return Reset::IfInWindow;
    }
    if is_before(sequence, receiver.acknowledged_max) {
        return Reset::Invalid;
    }
    let is_exact = sequence == receiver.acknowledged_max;
    if is_established && !is_exact && !follows_own_data(arrival.state, arrival.direction, sequence) {
        return Reset::LeftToEndPoint;
    }
    Reset::IfInWindow
}

/// Whether the RST comes right behind its sender's last data, which the receiver cannot have acknowledged yet.
fn follows_own_data(state: &ProtocolState, direction: Direction, sequence: u32) -> bool {
    state.last_kind == Kind::Ack as u8 && state.last_direction == direction as u8 && sequence == state.last_end
}

/// Whether the last segment of an established connection was a RST that passed without being verified.
pub(in crate::conntrack) fn has_unverified_reset(state: &ProtocolState) -> bool {
    state.state == TcpState::Established as u8 && state.last_kind == Kind::Rst as u8
}

/// Enters a RST that passed another node without being verified.
pub(in crate::conntrack) const fn set_unverified_reset(state: &mut ProtocolState, direction: u8, sequence: u32) {
    let direction = if direction == Direction::Reply as u8 { Direction::Reply } else { Direction::Original };
    record_segment(state, direction, Kind::Rst);
    state.last_sequence = sequence;
}

/// Whether `local` proves that the RST, which another node passed without verifying it and whose number is in
/// `received`, ends an established connection: the rule of [`classify`].
pub(super) fn is_confirmed(received: &ProtocolState, local: &ProtocolState) -> bool {
    if !has_unverified_reset(received) || local.state != TcpState::Established as u8 {
        return false;
    }
    let direction =
        if received.last_direction == Direction::Reply as u8 { Direction::Reply } else { Direction::Original };
    let receiver = &local.peers[direction.reverse().index()];
    let sequence = received.last_sequence;
    receiver.flags & peer_flags::ACKNOWLEDGED != 0
        && !is_before(sequence, receiver.acknowledged_max)
        && (sequence == receiver.acknowledged_max || follows_own_data(local, direction, sequence))
}

/// The RST answers an ignored SYN, or an ACK on a half-open connection: it acknowledges exactly that segment, and the
/// window does not apply.
fn answers_ignored_segment(arrival: &Arrival<'_>) -> bool {
    let (state, flags) = (&arrival.state, *arrival.flags);
    let is_reply = state.last_direction != arrival.direction as u8;
    let to_syn = is_reply && flags & REPLIED != 0 && state.last_kind == Kind::Syn as u8;
    let to_ack = flags & ASSURED == 0 && state.last_kind == Kind::Ack as u8;
    // Where no such segment is recorded, a RST without an acknowledgement must not match.
    let acknowledges = arrival.segment.has(ACK) && arrival.segment.acknowledgement != 0;
    (to_syn || to_ack) && acknowledges && arrival.segment.acknowledgement == state.last_end
}

/// The client answers a challenge ACK with the RST that the server expects (RFC 5961 section 4). The challenge came
/// from a server that still holds an older connection.
fn answers_challenge(arrival: &Arrival<'_>) -> bool {
    let state = &arrival.state;
    arrival.from == TcpState::SynSent
        && state.last_kind == Kind::Ack as u8
        && state.last_direction == Direction::Reply as u8
        && arrival.segment.sequence == state.last_acknowledgement
}
