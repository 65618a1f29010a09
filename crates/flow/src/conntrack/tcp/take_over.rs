//! Continuing from a replica that is older than the connection.
//!
//! The replica has the state and window scales of the last replicated change. The end points have since exchanged
//! unknown data, and sequence numbers may even have wrapped. So the windows are discarded and relearnt:
//!
//! ```text
//!   unlearnt ──first segment of the side──► relearning ──other side acknowledges data──► tracked as usual
//!   (window_max 0)                         (RELEARNING)  sent only after the take-over
//! ```
//!
//! The middle stage exists because a side has often sent more than its first visible segment shows: it retransmits the
//! oldest lost segment, and the answer acknowledges everything that the former node still forwarded. During this stage,
//! a side's limit is the data that it was allowed to send, not the data that was seen.

use core::time::Duration;

use super::automaton::{Kind, record_segment};
use super::{Advance, Arrival, Change, ProtocolState, TcpPeer, TcpState, Timeouts, peer_flags};
use crate::Direction;
use crate::serial::is_before;

/// The minimum assumed window: segments in flight during the take-over may arrive out of order.
const REORDERING_BYTES_MIN: u32 = 66_000;
/// Half of the range in which sequence numbers are comparable, less the largest window.
const REORDERING_BYTES_MAX: u32 = 1 << 29;

/// See [`crate::conntrack::Tracker::take_over`].
pub(in crate::conntrack) fn take_over(state: &mut ProtocolState) {
    let kept = peer_flags::WINDOW_SCALE
        | peer_flags::SACK_PERMITTED
        | peer_flags::FIN_SENT
        | peer_flags::LIBERAL
        | peer_flags::DIRECT;
    let unlearnt = |peer: TcpPeer| TcpPeer {
        window_scale: peer.window_scale,
        flags: peer.flags & kept | peer_flags::RELEARNING,
        ..TcpPeer::default()
    };
    *state = ProtocolState {
        state: state.state,
        last_kind: Kind::None as u8,
        peers: state.peers.map(unlearnt),
        ..ProtocolState::default()
    };
}

/// Whether no segment of one of the sides has arrived since the take-over.
pub(super) fn is_unlearnt(state: &ProtocolState) -> bool {
    state.peers.iter().any(|peer| is_relearning(peer) && peer.window_max == 0)
}

pub(super) const fn is_relearning(peer: &TcpPeer) -> bool {
    peer.flags & peer_flags::RELEARNING != 0
}

/// How far beyond its known limits a side may validly be while it is relearnt.
pub(super) fn allowance_bytes(receiver: &TcpPeer) -> u32 {
    receiver.window_max.clamp(REORDERING_BYTES_MIN, REORDERING_BYTES_MAX)
}

/// Sets the sequence number behind all data that `peer` can have sent through the former node, now that `receiver` is
/// known.
pub(super) fn set_end_of_relearning(peer: &mut TcpPeer, receiver: &TcpPeer) {
    let limit = peer.end_max.wrapping_add(allowance_bytes(receiver));
    peer.relearnt_at = ((limit >> 16) as u16).wrapping_add(1);
}

/// Records that `peer` was acknowledged up to `acknowledgement`.
pub(crate) const fn note_acknowledgement(peer: &mut TcpPeer, acknowledgement: u32) {
    if is_relearning(peer) && peer.window_max != 0 && !is_before(acknowledgement, (peer.relearnt_at as u32) << 16) {
        peer.flags &= !peer_flags::RELEARNING;
    }
}

/// Handles a RST while the windows are unknown. This node cannot validate it, but its receiver can (RFC 5961 section
/// 3), so it passes without closing the connection.
///
/// After a genuine RST no more packets follow, so the connection gets a short timeout. ESTABLISHED gets enough time for
/// the keep-alives of an idle connection. The RST's number is kept for a node that knows the windows: see
/// [`reset::is_confirmed`].
pub(super) fn pass_reset(arrival: Arrival<'_>) -> Advance {
    record_segment(arrival.state, arrival.direction, Kind::Rst);
    arrival.state.last_sequence = arrival.segment.sequence;
    Advance::pass(Change::None, Some(timeout_after_unverified_reset(&arrival.config.timeouts, arrival.from)))
}

/// The lifetime of a connection after a RST that passed without being verified.
pub(super) fn timeout_after_unverified_reset(timeouts: &Timeouts, state: TcpState) -> Duration {
    let lively = if state == TcpState::Established { timeouts.tcp_unacknowledged } else { timeouts.tcp_close };
    lively.min(timeouts.tcp(state))
}

/// The state that the connection must have reached for this segment, if the replica's state is earlier: the former node
/// saw the rest of the handshake. Later states need no catching up, as earlier states allow every segment that may
/// follow them.
pub(super) fn catch_up(state: &mut ProtocolState, from: TcpState, direction: Direction, kind: Kind) -> TcpState {
    let to = match (from, direction, kind) {
        (TcpState::SynSent | TcpState::SynSent2, _, Kind::Ack | Kind::Fin) => TcpState::Established,
        (TcpState::SynSent, Direction::Original, Kind::SynAck) => TcpState::SynSent2,
        _ => return from,
    };
    if from == TcpState::SynSent {
        // Only the former node saw the other side's SYN with its window scale: without it that side's windows cannot be
        // computed.
        for peer in &mut state.peers {
            peer.flags |= peer_flags::LIBERAL;
        }
    }
    to
}
