//! A node that sees a part of a connection. `x>` and `x<` are segments through the other node.

use proptest::prelude::*;

use super::*;
use crate::conntrack::{decode_protocol_state, encode_protocol_state};

#[test]
fn one_direction_suffices_to_keep_a_connection_alive() {
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
fn a_reset_at_the_acknowledgement_seen_here_closes() {
    play(&[HANDSHAKE, "share", "< ACK len=100 : pass", "> ACK : pass", "< RST : pass CLOSE timeout=10"]);
}

#[test]
fn any_other_reset_is_left_to_its_receiver_with_a_short_timeout() {
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
fn both_fins_are_tracked_from_half_of_the_segments() {
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
fn completing_a_handshake_requires_the_other_sides_number() {
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

/// The RST is passed by a node that has taken the connection over; `known` is what the former owner has seen.
fn reset_through_another_node(known: &str, reset: &str) -> (bool, u8) {
    let owner = play(&[HANDSHAKE, known]);
    let other = play(&[HANDSHAKE, "take over", reset]);
    let mut bytes = std::vec::Vec::new();
    encode_protocol_state(ip_protocol::TCP, &other.connection.unwrap(), &mut bytes);
    let mut received = decode_protocol_state(ip_protocol::TCP, &bytes).unwrap();
    let is_new = merge(&mut received, &owner.connection.unwrap());
    (is_new, received.state)
}

#[test]
fn a_reset_through_another_node_closes_if_the_windows_of_the_owner_prove_it() {
    use TcpState::{Close, Established};
    let (kept, closed) = ((false, Established as u8), (true, Close as u8));
    let exact = "< ACK len=100 : pass\n> ACK : pass";
    for (known, reset, expected) in [
        (exact, "< RST seq=101 : pass ESTABLISHED timeout=300", closed),
        // Right behind data that the receiver has not acknowledged.
        ("< ACK len=100 : pass\n> ACK : pass\n< ACK len=50 : pass", "< RST seq=151 : pass ESTABLISHED", closed),
        ("> ACK len=70 : pass\n< ACK : pass", "> RST seq=71 : pass ESTABLISHED", closed),
        (exact, "< RST seq=100 : pass ESTABLISHED", kept),
        (exact, "< RST seq=102 : pass ESTABLISHED", kept),
        (exact, "> RST seq=101 : pass ESTABLISHED", kept),
        // A segment that passed since shows that the connection lives.
        (exact, "< RST seq=101 : pass\n> ACK seq=1 ack=101 : pass", kept),
    ] {
        assert_eq!(reset_through_another_node(known, reset), expected, "{known} {reset}");
    }
}

fn closing(state: TcpState, fins: [bool; 2]) -> ProtocolState {
    let peer = |fin: bool| TcpPeer { flags: if fin { peer_flags::FIN_SENT } else { 0 }, ..TcpPeer::default() };
    ProtocolState { state: state as u8, peers: fins.map(peer), ..ProtocolState::default() }
}

#[test]
fn views_of_a_close_from_two_nodes_are_merged() {
    use TcpState::{Close, CloseWait, Established, FinWait, LastAck, TimeWait};
    for (received, known, expected) in [
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
        let mut state = closing(received.0, received.1);
        let is_new = merge(&mut state, &closing(known.0, known.1));
        assert_eq!(
            (is_new, state.state),
            (expected.is_some(), expected.unwrap_or(received.0) as u8),
            "{received:?} {known:?}"
        );
    }
}

#[test]
fn merging_with_an_older_view_keeps_the_finished_handshake() {
    let mut established = closing(TcpState::Established, [false; 2]);
    established.peers[0].end = 77;
    for received in [TcpState::SynSent, TcpState::SynRecv] {
        let mut state = closing(received, [false; 2]);
        assert!(merge(&mut state, &established));
        assert_eq!(state, established);
        assert!(!merge(&mut state, &closing(received, [false; 2])));
    }
}

proptest! {
    /// A node that sees any part of any exchange drops no segment after the handshake.
    #[test]
    fn any_visible_part_of_an_exchange_passes(script in prop::collection::vec((any::<bool>(), any::<bool>(), 0u32..100_000), 0..40)) {
        let line = |(is_reply, is_seen, bytes): (bool, bool, u32)| {
            let (hidden, expected) = if is_seen { ("", " : pass ESTABLISHED") } else { ("x", "") };
            format!("{hidden}{} ACK len={bytes}{expected}", if is_reply { "<" } else { ">" })
        };
        let lines: std::vec::Vec<String> = script.into_iter().map(line).collect();
        play(&[HANDSHAKE, "share", &lines.join("\n")]);
    }
}
