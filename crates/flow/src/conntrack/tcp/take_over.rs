//! Going on from a copy that is older than the connection.
//!
//! The copy tells the state and the window scales as of the last change that was replicated. What the sides have sent
//! since is unknown, and not even comparable: the sequence numbers may have gone round. So the windows are forgotten
//! and learnt again:
//!
//! ```text
//!   unlearnt ──first segment of the side──► relearning ──the other side acknowledges what──► tracked as ever
//!   (window_max 0)                         (RELEARNING)   can only have been sent since
//! ```
//!
//! The middle stage is there because a side has often sent more than the first segment seen of it tells: it repeats
//! the oldest lost segment, and is answered with an acknowledgement of everything that the former node still passed on.
//! Until it is over, the limit of what a side has sent is what it was allowed to send, and not what was seen of it.

use super::automaton::Kind;
use super::{Advance, Change, ProtocolState, TcpPeer, TcpState, TrackerConfig, peer_flags};
use crate::Direction;
use crate::serial::is_before;

/// A window that is assumed at least: segments in flight during the take-over may arrive out of order.
const REORDERING_BYTES_MIN: u32 = 66_000;
/// Half of what keeps sequence numbers comparable, less the largest window.
const REORDERING_BYTES_MAX: u32 = 1 << 29;

/// See [`crate::conntrack::Tracker::take_over`].
pub(in crate::conntrack) fn take_over(state: &mut ProtocolState) {
    let kept = peer_flags::WINDOW_SCALE | peer_flags::SACK_PERMITTED | peer_flags::FIN_SENT | peer_flags::LIBERAL;
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

/// Whether nothing was heard yet of one of the sides since the take-over.
pub(super) fn is_unlearnt(state: &ProtocolState) -> bool {
    state.peers.iter().any(|peer| is_relearning(peer) && peer.window_max == 0)
}

pub(super) const fn is_relearning(peer: &TcpPeer) -> bool {
    peer.flags & peer_flags::RELEARNING != 0
}

/// How far beyond the limits that we know a side may lawfully be, while it is relearnt.
pub(super) fn allowance_bytes(receiver: &TcpPeer) -> u32 {
    receiver.window_max.clamp(REORDERING_BYTES_MIN, REORDERING_BYTES_MAX)
}

/// Everything that `peer` can have sent by way of the former node lies before here, now that `receiver` was heard of.
pub(super) fn set_end_of_relearning(peer: &mut TcpPeer, receiver: &TcpPeer) {
    let limit = peer.end_max.wrapping_add(allowance_bytes(receiver));
    peer.relearnt_at = ((limit >> 16) as u16).wrapping_add(1);
}

/// `peer` was acknowledged up to `acknowledgement`.
pub(super) const fn note_acknowledgement(peer: &mut TcpPeer, acknowledgement: u32) {
    if is_relearning(peer) && peer.window_max != 0 && !is_before(acknowledgement, (peer.relearnt_at as u32) << 16) {
        peer.flags &= !peer_flags::RELEARNING;
    }
}

/// A RST before the windows are known. Nobody here can tell whether it is genuine, but its receiver can (RFC 5961
/// section 3), so it passes; and it must not destroy a connection that the receiver may well keep. If it was genuine
/// nothing more will come, so the connection gets only a short time to show that it lives. ESTABLISHED gets enough for
/// the keep-alives of a connection that is idle.
pub(super) fn pass_reset(config: &TrackerConfig, state: TcpState) -> Advance {
    let timeouts = &config.timeouts;
    let lively = if state == TcpState::Established { timeouts.tcp_unacknowledged } else { timeouts.tcp_close };
    Advance::pass(Change::None, Some(lively.min(timeouts.tcp(state))))
}

/// The state that the connection must have reached for this segment to be sent, if the copy's state is before that: the
/// former node saw the rest of the handshake. Later states need no catching up, for every segment that may follow them
/// is allowed in earlier ones.
pub(super) fn catch_up(state: &mut ProtocolState, from: TcpState, direction: Direction, kind: Kind) -> TcpState {
    let to = match (from, direction, kind) {
        (TcpState::SynSent | TcpState::SynSent2, _, Kind::Ack | Kind::Fin) => TcpState::Established,
        (TcpState::SynSent, Direction::Original, Kind::SynAck) => TcpState::SynSent2,
        _ => return from,
    };
    if from == TcpState::SynSent {
        // The other side's SYN was seen by the former node alone, and with it its window scale: without that its
        // windows cannot be reckoned.
        for peer in &mut state.peers {
            peer.flags |= peer_flags::LIBERAL;
        }
    }
    to
}
