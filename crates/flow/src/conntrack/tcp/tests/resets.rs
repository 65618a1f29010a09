//! Which RSTs close a connection (RFC 5961 section 3).

use super::*;

const TALK: &str = "
    > ACK len=100  : pass
    < ACK len=100  : pass
    > ACK          : pass
";

#[test]
fn a_reset_at_the_acknowledged_number_closes() {
    play(&[HANDSHAKE, TALK, "< RST : pass CLOSE timeout=10 change=state"]);
    play(&[HANDSHAKE, TALK, "> RST/ACK : pass CLOSE timeout=10"]);
}

#[test]
fn a_reset_before_the_acknowledged_data_is_dropped() {
    play(&[HANDSHAKE, TALK, "< RST seq=100 : invalid_reset ESTABLISHED timeout=kept"]);
}

#[test]
fn a_reset_beyond_the_window_is_dropped() {
    play(&[HANDSHAKE, TALK, "< RST seq=5000000 : invalid_reset ESTABLISHED"]);
}

#[test]
fn a_reset_elsewhere_in_the_window_is_left_to_the_end_point() {
    // Section 3.2: the receiver sends a challenge ACK, and only the answer to it closes. Meanwhile Linux gives the
    // connection the short timeout of CLOSE.
    play(&[
        HANDSHAKE,
        TALK,
        "
        < RST seq=5000  : pass ESTABLISHED timeout=10 change=none
        > ACK           : pass ESTABLISHED timeout=432000
        < RST seq=101   : pass CLOSE
    ",
    ]);
}

#[test]
fn a_reset_right_behind_its_senders_own_data_closes() {
    // The data is unacknowledged, so the RST is not at the receiver's acknowledgement.
    play(&[
        HANDSHAKE,
        TALK,
        "
        < ACK len=500   : pass ESTABLISHED
        < RST seq=601   : pass CLOSE
    ",
    ]);
}

#[test]
fn a_reset_in_the_handshake_closes_unless_it_lies_before_the_acknowledgement() {
    play(&["
        > SYN           : pass
        < SYN/ACK       : pass SYN_RECV
        > RST seq=1     : pass CLOSE
    "]);
    play(&["
        > SYN           : pass
        < SYN/ACK       : pass SYN_RECV
        > RST raw_seq=4000000000 : invalid_reset SYN_RECV
    "]);
}

#[test]
fn a_client_without_the_syn_refuses_the_syn_ack() {
    // RFC 9293 figure 8: the RST bears the number that the SYN/ACK acknowledged.
    play(&["
        > SYN seq=0     : pass
        < SYN/ACK ack=1 : pass SYN_RECV
        > RST seq=1     : pass CLOSE
    "]);
}

#[test]
fn a_reset_of_a_closing_connection_closes_it() {
    // Linux: the end points may have reused the tuple already, and the tracked windows prove nothing.
    play(&[
        HANDSHAKE,
        TALK,
        "
        > FIN/ACK         : pass FIN_WAIT
        < RST seq=7000000 : pass CLOSE
    ",
    ]);
}

#[test]
fn a_reset_answering_an_ignored_syn_closes_at_any_sequence_number() {
    // The server does not know a connection that the tracker holds: it refuses the client's new SYN.
    play(&[
        HANDSHAKE,
        TALK,
        "
        > SYN seq=600000                    : pass ESTABLISHED
        < RST/ACK raw_seq=0 ack=600001      : pass CLOSE
    ",
    ]);
}

#[test]
fn a_challenge_in_established_ends_the_old_connection_by_the_clients_reset() {
    // RFC 5961 section 4.2: SYN in ESTABLISHED, challenge ACK, RST at the acknowledged number; the next SYN begins a
    // new connection.
    play(&[
        HANDSHAKE,
        TALK,
        "
        > SYN seq=600000          : pass ESTABLISHED timeout=kept
        < ACK seq=101 ack=101     : pass ESTABLISHED
        > RST seq=101             : pass CLOSE
        > SYN seq=600000          : pass SYN_SENT reopens
    ",
    ]);
}

#[test]
fn a_reset_with_a_forged_acknowledgement_is_dropped() {
    play(&[HANDSHAKE, TALK, "< RST/ACK seq=101 ack=900000 : invalid_reset ESTABLISHED"]);
}

#[test]
fn a_reset_without_acknowledgement_number_closes() {
    play(&[HANDSHAKE, TALK, "< RST/ACK seq=101 raw_ack=0 : pass CLOSE"]);
}

#[test]
fn a_client_may_reset_after_its_syn() {
    // RFC 9293 section 3.10.5: an abort in SYN_SENT needs no RST, but some stacks send one.
    play(&["
        > SYN   : pass SYN_SENT
        > RST   : pass closes none
    "]);
}

#[test]
fn a_reset_without_acknowledgement_does_not_answer_a_syn() {
    // Both sides have sent a SYN. Only a RST that acknowledges it may lie anywhere (RFC 9293 section 3.10.7.3).
    for reset in ["< RST seq=700000000", "< RST/ACK seq=700000000 raw_ack=0", "> RST seq=700000000"] {
        play(&[&format!(
            "
            > SYN         : pass SYN_SENT
            < SYN         : pass SYN_SENT2
            {reset}       : invalid_reset SYN_SENT2
        "
        )]);
    }
}

#[test]
fn a_reset_does_not_answer_a_syn_of_its_sender() {
    play(&[
        HANDSHAKE,
        TALK,
        "
        > SYN raw_seq=600000                       : pass ESTABLISHED
        > RST/ACK seq=70000000 raw_ack=600001      : invalid_reset ESTABLISHED
    ",
    ]);
}

#[test]
fn resets_before_the_acknowledgement_shorten_no_timeout() {
    // They may be forged and must have no effect.
    play(&[
        HANDSHAKE,
        TALK,
        "
        < RST seq=50  : invalid_reset ESTABLISHED timeout=kept
        > RST seq=50  : invalid_reset ESTABLISHED timeout=kept
        < RST seq=50  : invalid_reset ESTABLISHED timeout=kept
    ",
    ]);
}

#[test]
fn a_reset_left_to_the_end_point_does_not_assure_the_connection() {
    let loose = TrackerConfig { loose: true, ..TrackerConfig::default() };
    play_with(
        loose,
        &["
        > ACK raw_seq=5000 raw_ack=300 len=10    : pass ESTABLISHED
        < ACK raw_seq=300 raw_ack=5010           : pass ESTABLISHED unassured
        > RST/ACK raw_seq=5500 raw_ack=300       : pass ESTABLISHED unassured timeout=10
    "],
    );
}

#[test]
fn a_reset_moves_no_window() {
    // Segments without valid numbers prove nothing: an acknowledgement of the claimed data is dropped as usual.
    play(&[
        HANDSHAKE,
        TALK,
        "
        < RST seq=5000 win=65535  : pass ESTABLISHED
        > ACK ack=5000            : out_of_window
    ",
    ]);
}
