//! What was seen of a connection.

use crate::conntrack::{ProtocolState, TcpPeer, TcpState, note_acknowledgement, peer_flags};
use crate::serial::later;

/// One side of a TCP connection as a sender: the numbers of [`TcpPeer`] that the program checks and raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// Highest sequence number sent, plus one.
    pub end: u32,
    /// Highest sequence number that the other side permits.
    pub end_max: u32,
    /// Largest advertised window, in bytes.
    pub window_max: u32,
    /// Its highest acknowledgement.
    pub acknowledged_max: u32,
    /// Shift of the windows that it advertises, 0–14 (RFC 7323).
    pub window_scale: u8,
    /// It permits selective acknowledgements (RFC 2018).
    pub permits_sack: bool,
}

/// The windows of a TCP connection, by the direction in which the sides send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Windows {
    /// The original side, then the reply side.
    pub sides: [Side; 2],
}

impl Windows {
    /// The windows of an established connection of which both sides are known. `None` for others, which need the tracker.
    ///
    /// After a take-over the tracker goes on to allow for data that a side has sent before. These windows do not: what it alone
    /// allows is not within them.
    #[must_use]
    pub fn of(state: &ProtocolState) -> Option<Self> {
        let is_known = |peer: &TcpPeer| peer.window_max != 0 && peer.flags & peer_flags::ACKNOWLEDGED != 0;
        let side = |peer: &TcpPeer| Side {
            end: peer.end,
            end_max: peer.end_max,
            window_max: peer.window_max,
            acknowledged_max: peer.acknowledged_max,
            window_scale: peer.window_scale,
            permits_sack: peer.flags & peer_flags::SACK_PERMITTED != 0,
        };
        let is_plain = state.state == TcpState::Established as u8 && state.peers.iter().all(is_known);
        is_plain.then(|| Self { sides: [side(&state.peers[0]), side(&state.peers[1])] })
    }

    /// Raises the numbers of `state` to these, as if the tracker had seen the segments.
    ///
    /// The program does not count retransmissions. Whether a side's data is unacknowledged follows from the numbers.
    pub fn raise_state(&self, state: &mut ProtocolState) {
        for (peer, side) in state.peers.iter_mut().zip(&self.sides) {
            peer.end = later(peer.end, side.end);
            peer.end_max = later(peer.end_max, side.end_max);
            peer.window_max = peer.window_max.max(side.window_max);
            peer.acknowledged_max = later(peer.acknowledged_max, side.acknowledged_max);
        }
        let [original, reply] = state.peers.map(|peer| peer.acknowledged_max);
        for (sender, acknowledged) in state.peers.iter_mut().zip([reply, original]) {
            note_acknowledgement(sender, acknowledged);
            let flag = if sender.end == acknowledged { 0 } else { peer_flags::UNACKNOWLEDGED };
            sender.flags = sender.flags & !peer_flags::UNACKNOWLEDGED | flag;
        }
    }
}

/// What was forwarded of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activity {
    /// The time of the last packet in nanoseconds of the monotonic clock; before the first, of the installation.
    pub last_packet_ns: u64,
    /// Packets, by direction. A frame that stands for many segments is one.
    pub packets: [u32; 2],
    /// Bytes (from the IP header on), by direction.
    pub bytes: [u64; 2],
    /// The windows of a TCP connection.
    pub windows: Option<Windows>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_raised_and_never_lowered() {
        let peer = |end: u32| TcpPeer {
            end,
            end_max: end + 100,
            window_max: 100,
            acknowledged_max: 50,
            flags: peer_flags::ACKNOWLEDGED,
            ..TcpPeer::default()
        };
        let before = ProtocolState {
            state: TcpState::Established as u8,
            peers: [peer(50), peer(80)],
            ..ProtocolState::default()
        };
        let mut windows = Windows::of(&before).unwrap();
        let mut state = before;
        windows.sides[0].end = 40;
        windows.sides[0].acknowledged_max = 80;
        windows.sides[1].window_max = 500;
        windows.raise_state(&mut state);
        assert_eq!(state.peers[0].end, 50);
        assert_eq!((state.peers[0].acknowledged_max, state.peers[1].window_max), (80, 500));
        assert_eq!(state.peers.map(|peer| peer.flags & peer_flags::UNACKNOWLEDGED), [0, 0], "all is acknowledged");
        windows.sides[1].end = 90;
        windows.raise_state(&mut state);
        assert_eq!(state.peers.map(|peer| peer.flags & peer_flags::UNACKNOWLEDGED), [0, peer_flags::UNACKNOWLEDGED]);
    }
}
