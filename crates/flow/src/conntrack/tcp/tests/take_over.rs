//! Continuing from a replica. `x>` and `x<` are segments that only the former node saw.

use super::*;

const LONG_TALK: &str = "
    x> ACK len=2000000000
    x< ACK len=2000000000
    x> ACK len=1000000000
    take over
";

#[test]
fn data_continues_at_any_window_and_strays_are_dropped_after_relearning() {
    play(&[
        HANDSHAKE,
        LONG_TALK,
        "
        > ACK len=1400          : pass ESTABLISHED change=none timeout=300
        < ACK                   : pass ESTABLISHED timeout=432000
        > ACK seq=1             : out_of_window
        > ACK seq=500000000     : out_of_window
        < ACK ack=1             : out_of_window
        > ACK len=1400          : pass
        < ACK len=1400          : pass
    ",
    ]);
}

#[test]
fn windows_keep_the_scale_of_the_handshake() {
    play(&[
        "
        > SYN win=65535 wscale=9      : pass
        < SYN/ACK win=65535 wscale=8  : pass
        > ACK                         : pass
        ",
        LONG_TALK,
        "
        < ACK win=40000               : pass
        # 40000 << 8 bytes may be in flight
        > ACK len=9000000             : pass
        > ACK len=1000000             : pass
        < ACK win=40000               : pass
    ",
    ]);
}

#[test]
fn an_answer_to_a_retransmission_may_acknowledge_all_data_forwarded_by_the_former_node() {
    play(&[
        HANDSHAKE,
        "
        x> ACK len=100000
        x< ACK
        # ten segments, of which the acknowledgements die with the former node
        x> ACK len=14000
        take over
        > ACK seq=100001 len=1400   : pass
        > ACK seq=101401 len=1400   : pass timeout=300
        < ACK ack=114001            : pass timeout=432000
        > ACK seq=114001 len=1400   : pass
        < ACK                       : pass timeout=432000
    ",
    ]);
}

#[test]
fn a_hole_left_by_the_failure_is_filled_in_steps() {
    // The receiver holds the end of the flight but two segments of it died: its acknowledgement jumps.
    play(&[
        HANDSHAKE,
        "
        x> ACK len=14000
        take over
        < ACK ack=1401              : pass
        > ACK seq=1401 len=1400     : pass
        < ACK ack=8401              : pass
        > ACK seq=8401 len=1400     : pass
        < ACK ack=14001             : pass
    ",
    ]);
}

#[test]
fn the_answer_to_a_keep_alive_acknowledges_one_byte_more() {
    play(&[
        HANDSHAKE,
        "
        x> ACK len=7000
        x< ACK
        take over
        > ACK seq=7000   : pass
        < ACK ack=7001   : pass ESTABLISHED timeout=432000
        > ACK len=500    : pass
        < ACK            : pass
    ",
    ]);
}

#[test]
fn a_reordered_acknowledgement_during_the_take_over_does_not_block_data() {
    play(&[
        HANDSHAKE,
        "
        x> ACK len=1000000
        take over
        # the later acknowledgement went by way of the former node, and opened the window further
        < ACK ack=1                 : pass
        x< ACK
        > ACK seq=1000001 len=1400  : pass
        > ACK seq=1500001 len=1400  : pass
        < ACK                       : pass
    ",
    ]);
}

#[test]
fn both_windows_are_exact_once_new_data_is_acknowledged() {
    let talk = "> ACK len=8000 : pass\n < ACK len=8000 : pass\n".repeat(300);
    let stage = play(&[
        HANDSHAKE,
        LONG_TALK,
        &talk,
        "
        > ACK                  : pass
        < ACK raw_ack=705099100 : out_of_window
    ",
    ]);
    let state = stage.connection.unwrap();
    assert!(state.peers.iter().all(|peer| peer.flags & peer_flags::RELEARNING == 0), "{state:#?}");
}

#[test]
fn a_reset_during_relearning_passes_without_closing() {
    play(&[
        HANDSHAKE,
        LONG_TALK,
        "
        < RST                : pass ESTABLISHED timeout=300 change=none
        > ACK                : pass ESTABLISHED
        < RST raw_seq=7      : pass ESTABLISHED timeout=300
        < ACK                : pass ESTABLISHED timeout=432000
        < RST raw_seq=7      : invalid_reset ESTABLISHED
        < RST                : pass CLOSE
    ",
    ]);
}

#[test]
fn a_reset_of_a_half_open_replica_gets_the_close_timeout() {
    play(&["
        > SYN      : pass
        take over
        < RST/ACK raw_seq=0  : pass SYN_SENT timeout=10
    "]);
}

#[test]
fn a_handshake_with_a_replicated_syn_completes() {
    play(&["
        > SYN wscale=7 sackok      : pass SYN_SENT
        take over
        < SYN/ACK wscale=7 sackok  : pass SYN_RECV change=state
        > ACK                      : pass ESTABLISHED assured
        > ACK len=1000             : pass
        < ACK                      : pass timeout=432000
    "]);
}

#[test]
fn a_handshake_with_a_retransmitted_syn_completes() {
    play(&["
        > SYN wscale=7 sackok      : pass SYN_SENT
        take over
        > SYN seq=0 wscale=7 sackok : pass SYN_SENT
        < SYN/ACK wscale=7 sackok  : pass SYN_RECV
        > ACK len=5                : pass ESTABLISHED
        < ACK                      : pass
    "]);
}

#[test]
fn a_handshake_without_replicated_syn_ack_completes_with_the_clients_ack() {
    play(&["
        > SYN wscale=7 sackok      : pass SYN_SENT
        x< SYN/ACK wscale=7 sackok
        take over
        > ACK                      : pass ESTABLISHED change=state timeout=300
        > ACK len=5000             : pass ESTABLISHED
        < ACK len=60000            : pass ESTABLISHED replied
        > ACK                      : pass ESTABLISHED assured
    "]);
}

#[test]
fn a_handshake_completes_with_the_servers_data_alone() {
    play(&["
        > SYN wscale=7             : pass SYN_SENT
        x< SYN/ACK wscale=7
        x> ACK
        take over
        < ACK len=1400             : pass ESTABLISHED change=state
        # the server's window scale is not known here: its windows cannot be held against the client
        > ACK len=60000            : pass
        > ACK len=60000            : pass
        < ACK                      : pass
        > FIN/ACK                  : pass FIN_WAIT
    "]);
}

#[test]
fn a_replica_in_syn_recv_accepts_any_later_segment() {
    let half_open = "
        > SYN wscale=7             : pass SYN_SENT
        < SYN/ACK wscale=7         : pass SYN_RECV
    ";
    play(&[half_open, "take over\n > ACK : pass ESTABLISHED assured"]);
    play(&[half_open, "take over\n < SYN/ACK seq=0 : pass SYN_RECV\n > ACK : pass ESTABLISHED"]);
    play(&[half_open, "x> ACK\n take over\n < ACK len=1400 : pass SYN_RECV\n > ACK : pass ESTABLISHED"]);
    play(&[half_open, "x> ACK len=9000\n take over\n < FIN/ACK : pass FIN_WAIT\n > ACK : pass CLOSE_WAIT"]);
}

#[test]
fn a_replica_in_simultaneous_open_completes() {
    play(&["
        > SYN            : pass SYN_SENT
        x< SYN
        take over
        > SYN/ACK seq=0  : pass SYN_RECV
        < SYN/ACK seq=0  : pass SYN_RECV
        > ACK            : pass ESTABLISHED
    "]);
    play(&["
        > SYN            : pass SYN_SENT
        < SYN            : pass SYN_SENT2
        take over
        > ACK len=10     : pass ESTABLISHED
    "]);
}

#[test]
fn an_established_replica_that_sees_the_close_gets_a_short_timeout() {
    play(&[
        HANDSHAKE,
        "
        x> FIN/ACK
        x< FIN/ACK
        take over
        > ACK      : pass ESTABLISHED timeout=300
    ",
    ]);
    play(&[
        HANDSHAKE,
        "
        x> FIN/ACK
        take over
        < FIN/ACK  : pass FIN_WAIT
        > ACK      : pass CLOSE_WAIT timeout=60
    ",
    ]);
}

#[test]
fn a_closing_replica_never_returns_to_an_earlier_state() {
    play(&[
        HANDSHAKE,
        "
        > FIN/ACK  : pass FIN_WAIT
        x< ACK len=20000
        take over
        < ACK len=1400 : pass CLOSE_WAIT
        > ACK      : pass CLOSE_WAIT
        take over
        < FIN/ACK  : pass LAST_ACK
        take over
        > ACK      : pass TIME_WAIT
        take over
        < FIN/ACK  : pass TIME_WAIT
        > SYN seq=70000 : pass SYN_SENT reopens
    ",
    ]);
}

#[test]
fn a_second_take_over_may_follow_during_relearning() {
    play(&[
        HANDSHAKE,
        LONG_TALK,
        "
        > ACK len=100 : pass
        take over
        x< ACK len=100000
        take over
        < ACK len=100 : pass
        > ACK len=100 : pass
        < ACK         : pass timeout=432000
    ",
    ]);
}

#[test]
fn a_reused_tuple_is_resynchronised_after_a_take_over() {
    play(&[
        HANDSHAKE,
        LONG_TALK,
        "
        > SYN seq=5000                     : pass ESTABLISHED
        < SYN/ACK seq=9000 ack=5001        : pass SYN_RECV
        > ACK                              : pass ESTABLISHED
        > ACK seq=900000                   : out_of_window
    ",
    ]);
}
