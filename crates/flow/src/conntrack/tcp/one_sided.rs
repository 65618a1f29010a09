//! Connections of which only the client's segments pass here: the server answers the client directly.
//!
//! ```text
//!   NONE ──SYN──► SYN_SENT ──ACK──► ESTABLISHED ──FIN──► FIN_WAIT          RST, exactly at the client's next number: ─► CLOSE
//!                                                                         SYN in FIN_WAIT or CLOSE: a new connection begins
//! ```
//!
//! **What is checked.** The client's acknowledgements: the server can have sent no more than the client's windows have permitted. The
//! client's sequence numbers only roughly, by half of their range, as the server's windows are not seen. The end points check the rest.
//!
//! **The end.** The server's FIN and RST are not seen. A FIN of the client gives the connection a short timeout that its further segments
//! renew. A connection that the server has aborted stays until it times out, after [`ESTABLISHED_MAX`] at most.
//!
//! **A SYN on an established connection** may be the client's next connection, or forged. If its acknowledgement follows before anything
//! else of the old connection, the numbers are those of the new one. From then on windows are not checked: a sender that forges both
//! segments cannot end the connection.

use core::time::Duration;

use super::automaton::{self, Kind, record_segment};
use super::take_over::{is_relearning, timeout_after_unverified_reset};
use super::window::{WINDOW_BYTES_MAX, peer_of_syn};
use super::{Advance, Change, Next, ProtocolState, Replicated, TcpPeer, TcpState, TrackerConfig, peer_flags};
use crate::connection::flags::ASSURED;
use crate::serial::{is_after, later};
use crate::wire::TcpSegment;
use crate::wire::tcp_flags::ACK;
use crate::{Direction, DropReason};

/// The longest time without a segment: more than the two hours after which an idle connection is probed (RFC 9293 section 3.8.4). A
/// connection that the server has aborted is not known to have ended.
pub(super) const ESTABLISHED_MAX: Duration = Duration::from_secs(3 * 3600);
/// How far from its next number a client's first segment after its SYN may be, and a RST that may be of the connection.
const NEAR_BYTES: u32 = 66_000;

/// Only the client's segments pass here from now on.
pub(in crate::conntrack) const fn see_one_side(state: &mut ProtocolState) {
    state.peers[1].flags |= peer_flags::DIRECT;
}

pub(in crate::conntrack) const fn is_one_sided(state: &ProtocolState) -> bool {
    state.peers[1].flags & peer_flags::DIRECT != 0
}

/// The lifetime of the connection in this state.
pub(in crate::conntrack) fn timeout(config: &TrackerConfig, state: TcpState) -> Duration {
    let timeout = config.timeouts.tcp(state);
    if state == TcpState::Established { timeout.min(ESTABLISHED_MAX) } else { timeout }
}

/// A segment of such a connection. See [`crate::conntrack::Tracker::advance`].
pub(super) fn advance(
    config: &TrackerConfig,
    state: &mut ProtocolState,
    flags: &mut u8,
    direction: Direction,
    segment: &TcpSegment,
) -> Advance {
    if !automaton::are_valid_flags(segment.flags) {
        return Advance::refuse(DropReason::InvalidTcpFlags);
    }
    if direction == Direction::Reply {
        // The server sends by way of this node after all. Nothing depends on it.
        return Advance::pass(Change::None, None);
    }
    let from = TcpState::from_u8(state.state).unwrap_or(TcpState::None);
    match Kind::of(segment.flags) {
        Kind::None | Kind::SynAck => Advance::refuse(DropReason::InvalidTcpState),
        Kind::Syn => syn(state, from, segment),
        Kind::Rst => reset(config, state, from, segment),
        kind => acknowledgement(config, state, flags, (from, kind), segment),
    }
}

fn syn(state: &mut ProtocolState, from: TcpState, segment: &TcpSegment) -> Advance {
    if from.is_closing() {
        return Advance { verdict: Ok(()), change: Change::None, next: Next::Reopen, timeout: None };
    }
    if from == TcpState::SynSent {
        // A client that retries endlessly must not keep an entry alive: the time stays as it is.
        let change = if state.peers[0].end == segment.end() { Change::None } else { Change::Detail };
        state.peers[0] = peer_of_syn(segment, 0);
        return Advance::pass(change, None);
    }
    record_segment(state, Direction::Original, Kind::Syn);
    state.last_end = segment.end();
    Advance::pass(Change::None, None)
}

fn reset(config: &TrackerConfig, state: &mut ProtocolState, from: TcpState, segment: &TcpSegment) -> Advance {
    let client = &state.peers[0];
    let is_uncertain = is_unlearnt(client) || client.flags & peer_flags::LIBERAL != 0 || config.liberal;
    if !is_uncertain && segment.sequence == client.end {
        record_segment(state, Direction::Original, Kind::Rst);
        state.state = TcpState::Close as u8;
        let change = if from == TcpState::Close { Change::None } else { Change::State };
        return Advance::pass(change, Some(config.timeouts.tcp_close));
    }
    if is_uncertain || distance(segment.sequence, client.end) <= NEAR_BYTES {
        // Its receiver validates it (RFC 5961 section 3).
        return Advance::pass(Change::None, Some(timeout_after_unverified_reset(&config.timeouts, from)));
    }
    Advance::refuse(DropReason::InvalidReset)
}

/// A segment with ACK: it may have data, or FIN.
fn acknowledgement(
    config: &TrackerConfig,
    state: &mut ProtocolState,
    flags: &mut u8,
    (from, kind): (TcpState, Kind),
    segment: &TcpSegment,
) -> Advance {
    let before = *state;
    let is_first = from == TcpState::SynSent;
    let answers_new_syn = state.last_kind == Kind::Syn as u8 && segment.sequence == state.last_end && !is_first;
    if answers_new_syn {
        state.peers[0].flags |= peer_flags::LIBERAL;
        state.peers[0].end = segment.sequence;
        forget_acknowledgements(state);
    }
    if is_unlearnt(&state.peers[0]) {
        (state.peers[0].end, state.peers[0].window_max) = (segment.sequence, 1);
        state.peers[0].flags &= !peer_flags::RELEARNING;
        forget_acknowledgements(state);
    }
    let is_checked = !config.liberal && state.peers[0].flags & peer_flags::LIBERAL == 0;
    if is_checked && !is_within(state, segment, is_first) {
        *state = before;
        return Advance::refuse(DropReason::OutOfWindow);
    }
    note_segment(state, segment);
    record_segment(state, Direction::Original, kind);
    let next = match (from, kind) {
        (TcpState::Close, _) => TcpState::Close,
        (from, Kind::Fin) if !from.is_closing() => TcpState::FinWait,
        (from, _) if from.is_closing() => from,
        _ => TcpState::Established,
    };
    state.state = next as u8;
    if kind == Kind::Fin {
        state.peers[0].flags |= peer_flags::FIN_SENT;
    }
    let mut change = Replicated::of(&before).change_to(state);
    if next == TcpState::Established && *flags & ASSURED == 0 {
        *flags |= ASSURED;
        change = Change::State;
    }
    Advance::pass(change, Some(timeout(config, next)))
}

/// Whether the segment can be one of the client's.
fn is_within(state: &ProtocolState, segment: &TcpSegment, is_first: bool) -> bool {
    let [client, server] = &state.peers;
    let near = if is_first { NEAR_BYTES } else { WINDOW_BYTES_MAX };
    if distance(segment.sequence, client.end) > near {
        return false;
    }
    let is_known = client.flags & peer_flags::ACKNOWLEDGED != 0;
    !is_known || !is_after(segment.sack_end, server.end_max)
}

/// Updates the client, and what its windows permit the server to send.
fn note_segment(state: &mut ProtocolState, segment: &TcpSegment) {
    let [client, server] = &mut state.peers;
    client.end = later(client.end, segment.end());
    let window = u32::from(segment.window) << client.window_scale;
    client.window_max = client.window_max.max(window);
    if !segment.has(ACK) {
        return;
    }
    // A closed window is probed with one byte (RFC 9293 section 3.8.6.1), and the server's FIN takes one more.
    let edge = later(segment.acknowledgement, segment.sack_end).wrapping_add(window).wrapping_add(2);
    let is_known = client.flags & peer_flags::ACKNOWLEDGED != 0;
    server.end_max = if is_known { later(server.end_max, edge) } else { edge };
    client.acknowledged_max =
        if is_known { later(client.acknowledged_max, segment.acknowledgement) } else { segment.acknowledgement };
    client.flags |= peer_flags::ACKNOWLEDGED;
}

const fn forget_acknowledgements(state: &mut ProtocolState) {
    state.peers[0].flags &= !peer_flags::ACKNOWLEDGED;
}

/// Whether no segment of the client has arrived since the take-over.
const fn is_unlearnt(client: &TcpPeer) -> bool {
    is_relearning(client) && client.window_max == 0
}

/// How far apart two numbers are, whichever is the later.
const fn distance(a: u32, b: u32) -> u32 {
    (a.wrapping_sub(b) as i32).unsigned_abs()
}
