//! A node that sees a part of a connection. `x>` and `x<` are segments that went by way of the other node.

use proptest::prelude::*;

use super::*;

#[test]
fn one_direction_is_enough_to_keep_a_connection_going() {
    play(&[
        HANDSHAKE,
        "
        share
        x< ACK len=500000
        > ACK                   : pass ESTABLISHED change=none timeout=432000
        > ACK len=1400          : pass timeout=432000
        x< ACK len=2000000000
        > ACK                   : pass ESTABLISHED timeout=432000
        # Keep-alives whose answers go the other way are no retransmissions.
        > ACK seq=1             : pass timeout=432000
        > ACK seq=1             : pass timeout=432000
        > ACK seq=1             : pass timeout=432000
        > ACK seq=1             : pass timeout=432000
        > ACK seq=1             : pass timeout=432000
    ",
    ]);
}

#[test]
fn a_reset_at_what_was_acknowledged_here_ends_the_connection() {
    play(&[HANDSHAKE, "share", "< ACK len=100 : pass", "> ACK : pass", "< RST : pass CLOSE timeout=10"]);
}

#[test]
fn any_other_reset_is_left_to_its_receiver_and_the_connection_is_to_show_that_it_lives() {
    play(&[
        HANDSHAKE,
        "
        share
        x> ACK len=100000
        < RST seq=77            : pass ESTABLISHED change=none timeout=300
        > ACK                   : pass ESTABLISHED timeout=432000
        < RST seq=200           : pass ESTABLISHED timeout=300
    ",
    ]);
}

#[test]
fn both_ends_are_seen_though_half_of_their_segments_are_not() {
    play(&[
        HANDSHAKE,
        "
        share
        x< ACK len=3000000
        > FIN/ACK               : pass FIN_WAIT timeout=120
        x< ACK
        x< FIN/ACK
        > ACK                   : pass CLOSE_WAIT timeout=60
    ",
    ]);
}

#[test]
fn a_handshake_is_still_completed_only_by_who_has_seen_the_other_sides_number() {
    let stage = play(&["
        > SYN                   : pass SYN_SENT
        < SYN/ACK               : pass SYN_RECV
        share
        > ACK ack=9000000       : pass SYN_RECV change=none
        > ACK                   : pass ESTABLISHED
    "]);
    assert!(stage.flags & ASSURED != 0);
}

#[test]
fn a_lone_acknowledgement_of_a_syn_stays_invalid() {
    play(&["> SYN : pass", "share", "x< SYN/ACK", "> ACK : invalid_tcp_state SYN_SENT"]);
}

fn closing(state: TcpState, fins: [bool; 2]) -> ProtocolState {
    let peer = |fin: bool| TcpPeer { flags: if fin { peer_flags::FIN_SENT } else { 0 }, ..TcpPeer::default() };
    ProtocolState { state: state as u8, peers: fins.map(peer), ..ProtocolState::default() }
}

#[test]
fn what_two_nodes_saw_of_an_end_is_put_together() {
    use TcpState::{Close, CloseWait, Established, FinWait, LastAck, TimeWait};
    for (told, known, expected) in [
        ((FinWait, [true, false]), (FinWait, [false, true]), Some(LastAck)),
        ((CloseWait, [true, false]), (FinWait, [false, true]), Some(LastAck)),
        ((Established, [false, false]), (FinWait, [false, true]), Some(FinWait)),
        ((LastAck, [true, true]), (TimeWait, [true, true]), Some(TimeWait)),
        ((Established, [false, false]), (Close, [false, false]), Some(Close)),
        // These know it all.
        ((FinWait, [true, false]), (CloseWait, [true, false]), None),
        ((LastAck, [true, true]), (FinWait, [true, false]), None),
        ((TimeWait, [true, true]), (Established, [false, false]), None),
    ] {
        let mut state = closing(told.0, told.1);
        let is_new = merge(&mut state, &closing(known.0, known.1));
        assert_eq!((is_new, state.state), (expected.is_some(), expected.unwrap_or(told.0) as u8), "{told:?} {known:?}");
    }
}

#[test]
fn the_end_of_a_handshake_is_not_forgotten_for_one_who_has_not_heard_of_it() {
    let mut established = closing(TcpState::Established, [false; 2]);
    established.peers[0].end = 77;
    for told in [TcpState::SynSent, TcpState::SynRecv] {
        let mut state = closing(told, [false; 2]);
        assert!(merge(&mut state, &established));
        assert_eq!(state, established);
        assert!(!merge(&mut state, &closing(told, [false; 2])));
    }
}

proptest! {
    /// Whoever sees any part of any exchange refuses nothing of it once the handshake is over.
    #[test]
    fn whatever_part_is_seen_passes(script in prop::collection::vec((any::<bool>(), any::<bool>(), 0u32..100_000), 0..40)) {
        let line = |(is_reply, is_seen, bytes): (bool, bool, u32)| {
            let (hidden, expected) = if is_seen { ("", " : pass ESTABLISHED") } else { ("x", "") };
            format!("{hidden}{} ACK len={bytes}{expected}", if is_reply { "<" } else { ">" })
        };
        let lines: std::vec::Vec<String> = script.into_iter().map(line).collect();
        play(&[HANDSHAKE, "share", &lines.join("\n")]);
    }
}
