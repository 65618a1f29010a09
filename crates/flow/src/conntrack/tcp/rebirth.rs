//! A tuple that is used again: whether a SYN begins a new connection on the record of one that has ended.
//!
//! The tracker decides as Linux does, with the functions' states left as they are. Where functions keep states, the caller must know
//! the beginning of a connection, as each of them is to begin anew.

use super::{ProtocolState, TcpState, is_one_sided};
use crate::Direction;
use crate::serial::is_after;
use crate::wire::tcp_flags::{ACK, FIN, RST, SYN};
use crate::wire::{Headers, Transport};

/// See [`crate::conntrack::begins_anew`].
pub(in crate::conntrack) fn begins_anew(state: &ProtocolState, direction: Direction, headers: &Headers) -> bool {
    let Transport::Tcp(segment) = &headers.transport else { return false };
    if segment.flags & (SYN | ACK | FIN | RST) != SYN || is_one_sided(state) {
        return false;
    }
    match TcpState::from_u8(state.state) {
        Some(TcpState::TimeWait | TcpState::Close) => true,
        Some(TcpState::LastAck) => {
            let sender = &state.peers[direction.index()];
            sender.window_max == 0 || is_after(segment.sequence, sender.end)
        }
        _ => false,
    }
}

/// See [`crate::conntrack::has_restarted`].
pub(in crate::conntrack) fn has_restarted(before: u8, state: &ProtocolState, headers: &Headers) -> bool {
    let Transport::Tcp(segment) = &headers.transport else { return false };
    let was_open =
        TcpState::from_u8(before).is_some_and(|before| before == TcpState::Established || before.is_closing());
    segment.has(SYN | ACK) && was_open && state.state == TcpState::SynRecv as u8
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::conntrack::{TcpPeer, begins_anew, has_restarted};
    use crate::wire::{TcpSegment, ip_protocol};

    const TCP: u8 = ip_protocol::TCP;

    fn headers(flags: u8, sequence: u32) -> Headers {
        Headers { transport: Transport::Tcp(TcpSegment { flags, sequence, ..TcpSegment::default() }), ..Headers::NONE }
    }

    fn state(state: TcpState) -> ProtocolState {
        let peer = TcpPeer { end: 1000, window_max: 1, ..TcpPeer::default() };
        ProtocolState { state: state as u8, peers: [peer; 2], ..ProtocolState::default() }
    }

    #[test]
    fn a_syn_begins_anew_after_both_fins_or_a_reset() {
        let begins = |state: &ProtocolState, flags, sequence| {
            let both = [Direction::Original, Direction::Reply];
            let [one, other] = both.map(|direction| begins_anew(TCP, state, direction, &headers(flags, sequence)));
            assert_eq!(one, other);
            one
        };
        let by_state = |sequence| -> Vec<TcpState> {
            TcpState::ALL.into_iter().filter(|number| begins(&state(*number), SYN, sequence)).collect()
        };
        assert_eq!(by_state(5000), [TcpState::LastAck, TcpState::TimeWait, TcpState::Close]);
        assert_eq!(by_state(500), [TcpState::TimeWait, TcpState::Close], "an old SYN may be late");
        for flags in [SYN | ACK, ACK, RST, FIN | ACK] {
            assert!(TcpState::ALL.into_iter().all(|number| !begins(&state(number), flags, 5000)));
        }
    }

    #[test]
    fn a_syn_ack_on_an_open_connection_that_moves_it_back_shows_a_restart() {
        let answered = state(TcpState::SynRecv);
        let shows = |before: TcpState| has_restarted(TCP, before as u8, &answered, &headers(SYN | ACK, 1));
        assert!(shows(TcpState::Established) && shows(TcpState::FinWait) && shows(TcpState::Close));
        assert!(!shows(TcpState::SynSent) && !shows(TcpState::SynRecv) && !shows(TcpState::SynSent2));
        assert!(!has_restarted(TCP, TcpState::Established as u8, &answered, &headers(ACK, 1)));
    }
}
