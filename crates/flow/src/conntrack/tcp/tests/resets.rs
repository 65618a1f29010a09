//! Which RSTs close a connection (RFC 5961 section 3).

use super::*;

const TALK: &str = "
    > ACK len=100  : pass
    < ACK len=100  : pass
    > ACK          : pass
";

#[test]
fn a_reset_at_the_very_place_closes() {
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
fn a_reset_somewhere_in_the_window_is_left_to_the_end_point() {
    // Section 3.2: the receiver answers with a challenge ACK, and only the answer to that closes. Linux gives the
    // connection the short timeout of CLOSE meanwhile.
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
    // The data is not acknowledged yet, so the RST is not at the place that the receiver acknowledged.
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
fn a_reset_during_the_handshake_closes_if_it_is_not_before_what_was_acknowledged() {
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
fn a_client_that_never_sent_the_syn_refuses_the_syn_ack() {
    // RFC 9293 figure 8: the RST bears the number that the SYN/ACK acknowledged.
    play(&["
        > SYN seq=0     : pass
        < SYN/ACK ack=1 : pass SYN_RECV
        > RST seq=1     : pass CLOSE
    "]);
}

#[test]
fn a_reset_of_a_closing_connection_is_believed() {
    // Linux: the end points may have reused the tuple already, and what we know of windows proves nothing.
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
fn the_answer_to_a_syn_that_was_ignored_closes_wherever_it_lies() {
    // The server knows nothing of a connection that we hold: it refuses the client's new SYN.
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
    // RFC 5961 section 4.2: SYN in ESTABLISHED, challenge ACK, RST at the acknowledged place; the next SYN begins anew.
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
fn a_reset_whose_stack_leaves_the_acknowledgement_out_closes() {
    play(&[HANDSHAKE, TALK, "< RST/ACK seq=101 raw_ack=0 : pass CLOSE"]);
}

#[test]
fn a_client_may_take_its_syn_back() {
    // RFC 9293 section 3.10.5: an abort in SYN_SENT needs no RST, but some stacks send one.
    play(&["
        > SYN   : pass SYN_SENT
        > RST   : pass closes none
    "]);
}

#[test]
fn a_reset_that_acknowledges_nothing_does_not_pass_for_the_answer_to_a_syn() {
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
fn a_reset_does_not_answer_its_own_senders_syn() {
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
fn resets_that_are_before_what_was_acknowledged_shorten_no_timeout() {
    // They may be forged by anybody: as if they had not come.
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
fn a_reset_that_is_left_to_the_end_point_does_not_make_a_connection_assured() {
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
    // Nobody vouches for it: the acknowledgement of what it pretends to have sent is dropped as ever.
    play(&[
        HANDSHAKE,
        TALK,
        "
        < RST seq=5000 win=65535  : pass ESTABLISHED
        > ACK ack=5000            : out_of_window
    ",
    ]);
}
