//! Opening, closing and reopening.

use super::*;

#[test]
fn a_connection_opens_and_closes_through_all_its_states() {
    // RFC 9293 figures 6 and 12; timeouts as in Linux.
    play(&["
        > SYN                : pass SYN_SENT timeout=120
        < SYN/ACK            : pass SYN_RECV timeout=60 replied unassured change=state
        > ACK                : pass ESTABLISHED timeout=432000 assured change=state
        > ACK/PSH len=100    : pass ESTABLISHED timeout=300 change=none
        < ACK                : pass ESTABLISHED timeout=432000 change=none
        > FIN/ACK            : pass FIN_WAIT timeout=120 change=state
        < ACK                : pass CLOSE_WAIT timeout=60
        < FIN/ACK            : pass LAST_ACK timeout=30
        > ACK                : pass TIME_WAIT timeout=120
    "]);
}

#[test]
fn only_a_syn_begins_a_connection() {
    for first in ["ACK", "SYN/ACK", "FIN/ACK", "RST", "ACK/PSH len=5"] {
        play(&[&format!("> {first} : no_connection none")]);
    }
}

#[test]
fn a_connection_is_picked_up_in_the_middle_only_if_configured() {
    let loose = TrackerConfig { loose: true, ..TrackerConfig::default() };
    // Linux's tcp_loose: no windows are checked, and without an answer the timeout is at most five minutes.
    play_with(
        loose,
        &["
        > ACK seq=5000 ack=1 len=10       : pass ESTABLISHED timeout=300
        < ACK ack=5010 seq=1 len=1000     : pass ESTABLISHED replied unassured timeout=300
        > ACK seq=900000                  : pass ESTABLISHED assured
        "],
    );
    play_with(loose, &["> RST : no_connection none", "> SYN/ACK : no_connection none"]);
}

#[test]
fn a_picked_up_connection_accepts_acknowledgements_of_unseen_data() {
    // The data passed before the pick-up; its acknowledgement is valid, also a selective one.
    let loose = TrackerConfig { loose: true, ..TrackerConfig::default() };
    play_with(
        loose,
        &["
        > ACK raw_seq=5000 raw_ack=4294967000           : pass ESTABLISHED timeout=300
        < ACK raw_seq=4294967000 raw_ack=900000 len=500 : pass ESTABLISHED replied
        > ACK raw_seq=900000 raw_ack=204                : pass ESTABLISHED assured
        < RST raw_seq=4294966000                        : invalid_reset ESTABLISHED
        # of the place where its receiver stands not enough is known: it is left to the end point
        < RST raw_seq=204                               : pass ESTABLISHED timeout=10
    "],
    );
}

#[test]
fn a_new_connection_in_place_of_a_picked_up_one_is_checked() {
    let loose = TrackerConfig { loose: true, ..TrackerConfig::default() };
    play_with(
        loose,
        &["
        > ACK raw_seq=5000 raw_ack=900      : pass ESTABLISHED
        > SYN raw_seq=70000                 : pass ESTABLISHED
        < SYN/ACK raw_seq=10 raw_ack=70001  : pass SYN_RECV
        > ACK raw_seq=70001 raw_ack=11      : pass ESTABLISHED assured
        > ACK raw_seq=900000 raw_ack=11     : out_of_window
    "],
    );
}

#[test]
fn endless_syn_retransmissions_do_not_keep_the_entry() {
    // Linux does not renew the timeout on a repeated SYN.
    play(&["
        > SYN       : pass SYN_SENT timeout=120
        > SYN seq=0 : pass SYN_SENT timeout=kept change=none
        > SYN seq=0 : pass SYN_SENT timeout=kept change=none
    "]);
}

#[test]
fn a_restarted_client_begins_with_a_higher_number() {
    // RFC 9293 section 3.4.3.
    play(&["
        > SYN seq=0              : pass SYN_SENT
        > SYN seq=50000          : pass SYN_SENT
        < SYN/ACK ack=50001      : pass SYN_RECV
        > ACK seq=50001          : pass ESTABLISHED
    "]);
}

#[test]
fn a_refused_connection_is_removed_at_once() {
    // RFC 9293 section 3.10.7.1: a RST that answers a SYN takes its sequence number from that SYN.
    play(&["
        > SYN             : pass SYN_SENT
        < RST/ACK raw_seq=0 ack=1 : pass closes none
        > SYN             : pass SYN_SENT
    "]);
}

#[test]
fn a_connection_refused_late_gets_the_close_timeout() {
    play(&[HANDSHAKE, "< RST/ACK : pass CLOSE timeout=10 change=state"]);
}

#[test]
fn both_sides_may_open_at_once() {
    // RFC 9293 figure 7.
    play(&["
        > SYN             : pass SYN_SENT
        # an answer that is none does not renew the timeout
        < SYN             : pass SYN_SENT2 timeout=kept replied
        < SYN seq=0       : pass SYN_SENT2 timeout=120
        > SYN/ACK seq=0   : pass SYN_RECV
        < SYN/ACK seq=0   : pass SYN_RECV
        < ACK             : pass ESTABLISHED
        > ACK len=10      : pass ESTABLISHED
    "]);
}

#[test]
fn both_sides_may_close_at_once() {
    // RFC 9293 figure 13.
    play(&[
        HANDSHAKE,
        "
        > FIN/ACK        : pass FIN_WAIT
        < FIN/ACK ack=1  : pass LAST_ACK
        > ACK            : pass TIME_WAIT
        < ACK            : pass TIME_WAIT
    ",
    ]);
}

#[test]
fn a_side_that_has_finished_still_receives() {
    // RFC 9293 section 3.6, half-close: the server continues to send after the client's FIN.
    play(&[
        HANDSHAKE,
        "
        > FIN/ACK        : pass FIN_WAIT
        < ACK            : pass CLOSE_WAIT
        < ACK len=1400   : pass CLOSE_WAIT
        > ACK            : pass CLOSE_WAIT
        < FIN/ACK        : pass LAST_ACK
        > ACK            : pass TIME_WAIT
    ",
    ]);
}

#[test]
fn a_repeated_fin_changes_nothing() {
    play(&[
        HANDSHAKE,
        "
        > FIN/ACK        : pass FIN_WAIT
        < ACK            : pass CLOSE_WAIT
        < FIN/ACK        : pass LAST_ACK
        < FIN/ACK seq=1  : pass LAST_ACK change=none
        > ACK            : pass TIME_WAIT
        < FIN/ACK seq=1  : pass TIME_WAIT
        > ACK            : pass TIME_WAIT timeout=120
    ",
    ]);
}

const CLOSED: &str = "
    > FIN/ACK : pass FIN_WAIT
    < FIN/ACK : pass LAST_ACK
    > ACK     : pass TIME_WAIT
";

#[test]
fn a_syn_reopens_a_connection_in_time_wait() {
    // RFC 9293 section 3.10.7.4 permits it; the tracker does not know which side closed first.
    play(&[
        HANDSHAKE,
        CLOSED,
        "
        > SYN seq=90000 : pass SYN_SENT reopens timeout=120
        < SYN/ACK seq=70000 ack=90001 : pass SYN_RECV
    ",
    ]);
}

#[test]
fn a_server_may_reopen_a_connection_in_time_wait_too() {
    let stage = play(&[HANDSHAKE, CLOSED, "< SYN seq=90000 : pass SYN_SENT reopens"]);
    assert_eq!(stage.flags, 0);
}

#[test]
fn in_time_wait_a_lower_number_begins_a_new_connection_too() {
    // RFC 9293 section 3.10.7.4 and RFC 6191 define when a SYN may reopen a connection: by a higher number or by later
    // timestamps. The answer shows the end point's decision; the tracker's old state is discarded in either case.
    for number in [90_000, 0] {
        play(&[
            HANDSHAKE,
            "> ACK len=1400 : pass\n < ACK len=1400 : pass",
            CLOSED,
            &format!(
                "
                > SYN seq={number}          : pass SYN_SENT reopens unassured
                < SYN/ACK seq=70000 ack={}  : pass SYN_RECV
                > ACK                       : pass ESTABLISHED assured
            ",
                number + 1
            ),
        ]);
    }
}

#[test]
fn a_late_segment_of_the_old_connection_does_not_disturb_time_wait() {
    play(&[
        HANDSHAKE,
        CLOSED,
        "
        < ACK seq=1 len=1      : pass TIME_WAIT
        > SYN/ACK              : invalid_tcp_state TIME_WAIT
        < FIN/ACK seq=1        : pass TIME_WAIT timeout=120
        > ACK seq=5000000      : out_of_window TIME_WAIT
    ",
    ]);
}

#[test]
fn a_client_may_reopen_a_connection_after_its_reset() {
    // Linux: the last segment was the client's own RST.
    play(&[
        HANDSHAKE,
        "
        > RST           : pass CLOSE
        > SYN seq=50000 : pass SYN_SENT reopens
    ",
    ]);
}

#[test]
fn after_the_servers_reset_a_new_syn_waits_for_the_server_to_agree() {
    play(&[
        HANDSHAKE,
        "
        < RST                          : pass CLOSE
        > SYN seq=50000                : pass CLOSE timeout=kept
        < SYN/ACK seq=80000 ack=50001  : pass SYN_RECV
        > ACK                          : pass ESTABLISHED assured
        < ACK len=100                  : pass ESTABLISHED
    ",
    ]);
}

#[test]
fn a_reused_tuple_comes_back_into_step_by_its_syn_ack() {
    // The end points have lost a connection that the tracker still holds: the SYN passes, and the SYN/ACK that
    // acknowledges it proves that both begin anew.
    play(&[
        HANDSHAKE,
        "
        > SYN seq=1000000 wscale=9                  : pass ESTABLISHED change=none timeout=kept
        < SYN/ACK seq=2000000 ack=1000001 wscale=3  : pass SYN_RECV change=state
        > ACK                                       : pass ESTABLISHED
        < ACK len=8000                              : pass ESTABLISHED
        > ACK win=1000                              : pass ESTABLISHED
    ",
    ]);
}

#[test]
fn an_unrelated_syn_ack_does_not_reset_the_tracked_connection() {
    play(&[
        HANDSHAKE,
        "
        > SYN seq=1000000                 : pass ESTABLISHED
        < SYN/ACK seq=2000000 ack=999999  : pass ESTABLISHED
        > ACK seq=1 ack=1 len=100         : pass ESTABLISHED
    ",
    ]);
}

#[test]
fn a_repeated_syn_ack_passes_without_effect() {
    play(&["
        > SYN            : pass SYN_SENT
        < SYN/ACK        : pass SYN_RECV
        < SYN/ACK seq=0  : pass SYN_RECV change=none
        > ACK            : pass ESTABLISHED
        < SYN/ACK seq=0  : pass ESTABLISHED change=none
        > ACK            : pass ESTABLISHED
    "]);
}

#[test]
fn an_old_syn_ack_does_not_disturb_the_handshake() {
    // A SYN/ACK of an earlier attempt acknowledges a number that this client never sent. The next one must be accepted.
    play(&["
        > SYN                              : pass SYN_SENT
        < SYN/ACK seq=5000 raw_ack=77      : out_of_window SYN_SENT
        < SYN/ACK seq=900000 ack=1         : pass SYN_RECV
        > ACK ack=900001                   : pass ESTABLISHED
    "]);
}

#[test]
fn a_challenge_from_a_server_with_an_older_connection_is_answered_with_a_reset() {
    // RFC 5961 section 4.2: SYN, challenge ACK with the old connection's number, RST with just that number.
    play(&["
        > SYN seq=0                    : pass SYN_SENT
        < ACK raw_seq=123 raw_ack=456  : pass SYN_SENT timeout=kept
        > RST raw_seq=456              : pass CLOSE
    "]);
}

#[test]
fn a_challenge_ack_is_not_taken_for_the_acknowledgement_of_the_last_fin() {
    // RFC 5961 section 4, and Linux's care for LAST_ACK.
    play(&[
        HANDSHAKE,
        "
        > FIN/ACK         : pass FIN_WAIT
        < FIN/ACK         : pass LAST_ACK
        > SYN seq=60000   : pass LAST_ACK
        < ACK ack=2       : pass LAST_ACK change=none
        > ACK seq=2       : pass TIME_WAIT
    ",
    ]);
}

#[test]
fn fast_open_data_in_the_syn_may_be_acknowledged_or_not() {
    // RFC 7413.
    for acknowledged in [1, 501] {
        play(&[&format!(
            "
            > SYN len=500                       : pass SYN_SENT
            < SYN/ACK ack={acknowledged}        : pass SYN_RECV
            > ACK seq={acknowledged}            : pass ESTABLISHED
        "
        )]);
    }
}

#[test]
fn segments_invalid_in_the_state_are_dropped() {
    play(&["
        > SYN        : pass SYN_SENT
        > ACK        : invalid_tcp_state SYN_SENT
        > FIN/ACK    : invalid_tcp_state SYN_SENT
        < FIN/ACK    : invalid_tcp_state SYN_SENT
        < SYN/ACK    : pass SYN_RECV
        < SYN        : invalid_tcp_state SYN_RECV
        > ACK        : pass ESTABLISHED
        > SYN/ACK    : invalid_tcp_state ESTABLISHED
    "]);
}

#[test]
fn replicated_changes_are_reported() {
    play(&["
        > SYN wscale=7                : pass SYN_SENT
        < SYN/ACK wscale=2            : pass SYN_RECV change=state
        > ACK                         : pass ESTABLISHED change=state
        > FIN/ACK                     : pass FIN_WAIT change=state
        > ACK                         : pass CLOSE_WAIT change=state
        < FIN/ACK                     : pass LAST_ACK change=state
        < FIN/ACK seq=1               : pass LAST_ACK change=none
    "]);
    // A second client's SYN with other options changes only the record.
    play(&["> SYN : pass", "> SYN seq=9 wscale=3 : pass SYN_SENT change=detail"]);
}
