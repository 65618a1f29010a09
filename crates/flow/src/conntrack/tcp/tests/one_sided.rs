//! A node that sees the client's segments alone. `x<` are the server's.

use proptest::prelude::*;

use super::*;
use crate::conntrack::{decode_protocol_state, encode_protocol_state};

const OPEN: &str = "
    > SYN wscale=7 sackok     : pass SYN_SENT
    one side
    x< SYN/ACK wscale=7 sackok
    > ACK                     : pass ESTABLISHED assured change=state timeout=10800
";

#[test]
fn the_clients_acknowledgement_establishes_the_connection() {
    play(&[
        OPEN,
        "
        > ACK len=1400            : pass ESTABLISHED change=none timeout=10800
        x< ACK len=500000
        > ACK                     : pass change=none
        # Retransmissions and acknowledgements that come late.
        > ACK seq=1 len=1400 ack=1 : pass change=none
    ",
    ]);
}

#[test]
fn the_first_segment_after_the_syn_may_have_data() {
    play(&["> SYN : pass SYN_SENT", "one side", "x< SYN/ACK", "> ACK len=100 : pass ESTABLISHED assured"]);
    play(&["> SYN : pass", "one side", "x< SYN/ACK", "> ACK seq=70000 : out_of_window SYN_SENT unassured"]);
}

#[test]
fn a_repeated_syn_keeps_the_time_and_a_new_one_has_other_numbers() {
    play(&[
        "> SYN : pass SYN_SENT",
        "one side",
        "> SYN seq=0 : pass SYN_SENT change=none timeout=kept",
        "> SYN seq=5000000 : pass SYN_SENT change=detail timeout=kept",
        "x< SYN/ACK",
        "> ACK seq=5000001 : pass ESTABLISHED",
    ]);
}

#[test]
fn acknowledgements_beyond_the_clients_windows_are_refused() {
    play(&[
        OPEN,
        "
        # The window is 8000 scaled by 7.
        > ACK ack=1024003         : pass
        > ACK ack=3100000         : out_of_window ESTABLISHED
        > ACK ack=1024003 sack=3100000 : out_of_window
        > ACK ack=2048000         : pass
    ",
    ]);
}

#[test]
fn the_clients_fin_gives_it_a_short_time_and_further_segments_renew_it() {
    play(&[
        OPEN,
        "
        > ACK len=100             : pass
        > FIN/ACK                 : pass FIN_WAIT change=state timeout=120
        x< ACK len=900000
        > ACK                     : pass FIN_WAIT change=none timeout=120
        x< FIN/ACK
        > ACK                     : pass FIN_WAIT timeout=120
        > SYN seq=9000000         : pass reopens SYN_SENT
    ",
    ]);
}

#[test]
fn a_reset_at_the_next_number_closes_and_others_are_left_to_the_server() {
    play(&[
        OPEN,
        "
        > ACK len=1000            : pass
        > RST seq=500             : pass ESTABLISHED change=none timeout=300
        > RST seq=90000000        : invalid_reset ESTABLISHED
        > RST                     : pass CLOSE change=state timeout=10
        > ACK                     : pass CLOSE timeout=10
        > SYN seq=9000000         : pass reopens SYN_SENT
    ",
    ]);
}

#[test]
fn a_client_that_connects_anew_over_a_connection_that_the_server_forgot_can() {
    play(&[
        OPEN,
        "
        > ACK len=1000            : pass
        > SYN seq=2000000000      : pass ESTABLISHED change=none timeout=kept
        x< SYN/ACK
        > ACK seq=2000000001      : pass ESTABLISHED change=detail
        > ACK len=100             : pass ESTABLISHED
    ",
    ]);
}

#[test]
fn a_forged_syn_and_acknowledgement_do_not_end_a_connection() {
    play(&[
        OPEN,
        "
        > ACK len=1000            : pass
        > SYN seq=2000000000      : pass
        > ACK seq=2000000001      : pass ESTABLISHED
        > RST seq=2000000001      : pass ESTABLISHED timeout=300
        > ACK seq=1001 len=10     : pass ESTABLISHED timeout=10800
    ",
    ]);
}

#[test]
fn segments_of_the_server_that_come_this_way_pass_and_change_nothing() {
    play(&[OPEN, "< ACK len=100 : pass ESTABLISHED change=none timeout=kept", "< RST : pass ESTABLISHED timeout=kept"]);
}

#[test]
fn a_connection_that_was_taken_over_continues_and_learns_its_numbers() {
    play(&[
        OPEN,
        "
        x> ACK len=2000000000
        x< ACK len=2000000000
        take over
        > RST seq=7               : pass ESTABLISHED change=none timeout=300
        > ACK len=100             : pass ESTABLISHED change=none timeout=10800
        > ACK                     : pass
        > ACK seq=9               : out_of_window
        > RST                     : pass CLOSE timeout=10
    ",
    ]);
    play(&[
        "> SYN : pass",
        "one side",
        "x< SYN/ACK",
        "x> ACK",
        "take over",
        "> ACK len=5 : pass ESTABLISHED assured change=state",
    ]);
}

#[test]
fn that_one_side_is_seen_is_replicated() {
    let state = play(&[OPEN]).connection.expect("it is open");
    let mut bytes = std::vec![];
    encode_protocol_state(ip_protocol::TCP, &state, &mut bytes);
    let replica = decode_protocol_state(ip_protocol::TCP, &bytes).unwrap();
    assert!(crate::conntrack::is_one_sided(ip_protocol::TCP, &replica));
    assert_eq!(replica.peers, state.peers);
}

proptest! {
    /// Whatever segments come, the tracker neither panics nor changes anything for one that it drops, and a client that has sent all it
    /// has sent through it is never refused.
    #[test]
    fn a_dropped_segment_changes_nothing(
        segments in prop::collection::vec((any::<u8>(), any::<u32>(), any::<u32>(), any::<u16>(), 0u32..70_000, any::<bool>()), 0..40),
    ) {
        let mut stage = play(&[OPEN]);
        for (flags, sequence, acknowledgement, window, payload_bytes, is_reply) in segments {
            let segment = TcpSegment { flags, sequence, acknowledgement, sack_end: acknowledgement, window, payload_bytes, ..TcpSegment::default() };
            let direction = if is_reply { Direction::Reply } else { Direction::Original };
            let mut state = stage.connection.expect("it stays");
            let (before, flags_before) = (state, stage.flags);
            let advance = advance(&TrackerConfig::default(), &mut state, &mut stage.flags, direction, &segment);
            if advance.verdict.is_err() {
                prop_assert_eq!((before, flags_before), (state, stage.flags));
            }
            stage.connection = Some(state);
        }
    }

    /// A client that keeps to the server's and to its own windows is never refused, whatever part of its segments is lost before.
    #[test]
    fn a_client_within_the_windows_is_never_refused(
        steps in prop::collection::vec((0u32..60_000, 0u32..1_000_000, any::<bool>()), 1..60),
    ) {
        let mut stage = play(&[OPEN]);
        let [mut sent, mut received] = INITIAL_SEQUENCES.map(|initial| initial.wrapping_add(1));
        let mut permitted = received.wrapping_add(8000 << 7);
        for (length, answer, is_seen) in steps {
            // The server sends no more than the client's last segment that reached it permits.
            let room = permitted.wrapping_sub(received);
            received = received.wrapping_add(answer.min(room));
            let segment = TcpSegment {
                flags: tcp_flags::ACK, sequence: sent, acknowledgement: received, sack_end: received, window: 8000,
                payload_bytes: length, ..TcpSegment::default()
            };
            sent = sent.wrapping_add(length);
            if !is_seen {
                continue;
            }
            permitted = received.wrapping_add(8000 << 7);
            let mut state = stage.connection.expect("it stays");
            let advance = advance(&TrackerConfig::default(), &mut state, &mut stage.flags, Direction::Original, &segment);
            prop_assert_eq!(advance.verdict, Ok(()));
            stage.connection = Some(state);
        }
    }
}
