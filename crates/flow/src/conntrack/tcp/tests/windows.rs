//! Windows, scaling, selective acknowledgements, retransmission.

use super::*;

#[test]
fn data_beyond_the_receivers_window_is_dropped() {
    // RFC 9293 section 3.4: the server offered 8000 bytes from 1 on, scaled by 2^0.
    play(&["
        > SYN win=8000              : pass
        < SYN/ACK win=8000          : pass
        > ACK win=8000              : pass ESTABLISHED
        > ACK seq=8001 len=100      : pass
        > ACK seq=90000 len=100     : out_of_window ESTABLISHED
        > ACK seq=1 len=100         : pass
    "]);
}

#[test]
fn a_segment_slightly_over_the_window_is_left_to_the_receiver_and_may_be_acknowledged() {
    // Linux: a segment over the present window, but within the largest one ever offered, passes without effect (its FIN
    // is ignored). If the receiver accepts it, the acknowledgement passes.
    play(&["
        > SYN win=8000                      : pass
        < SYN/ACK win=8000                  : pass
        > ACK                               : pass ESTABLISHED
        > FIN/ACK seq=8002 len=100          : pass ESTABLISHED timeout=kept
        < ACK ack=8103                      : pass ESTABLISHED
    "]);
    play(&["
        > SYN win=8000                      : pass
        < SYN/ACK win=8000                  : pass
        > ACK                               : pass ESTABLISHED
        > ACK seq=15901 len=100             : out_of_window
        < ACK ack=16001                     : out_of_window
    "]);
}

#[test]
fn a_segment_over_the_window_that_acknowledges_unsent_data_is_dropped() {
    play(&[HANDSHAKE, "> ACK seq=8002 ack=90000 len=100 : out_of_window"]);
}

#[test]
fn a_shrinking_window_accepts_segments_in_flight() {
    // RFC 9293 section 3.8.6: a receiver should not take a window back, but some do.
    play(&["
        > SYN                           : pass
        < SYN/ACK                       : pass
        > ACK                           : pass
        < ACK win=8000                  : pass
        > ACK seq=1 len=1400            : pass timeout=300
        < ACK ack=1 win=1               : pass
        > ACK seq=1401 len=1400         : pass
        < ACK ack=2801 win=1            : pass timeout=432000
        > ACK seq=2801 len=1            : pass
    "]);
}

#[test]
fn sequence_numbers_wrap_within_a_segment_and_within_a_window() {
    // RFC 9293 section 3.4. The client begins 301 before the end of the numbers.
    play(&[
        HANDSHAKE,
        "
        > ACK len=200                   : pass
        # up to the last number but 100
        < ACK ack=201                   : pass timeout=432000
        > ACK len=1400                  : pass
        > ACK raw_seq=1300 len=1        : pass
        < ACK raw_ack=1300              : pass timeout=300
        < ACK raw_ack=1301              : pass timeout=432000
        < ACK raw_ack=1302              : out_of_window
        > ACK raw_seq=4294967290 len=20 : pass timeout=432000
    ",
    ]);
}

#[test]
fn a_closed_window_may_be_probed_without_data() {
    // Linux's window probe: no data, one below the acknowledgement.
    play(&[
        HANDSHAKE,
        "
        > ACK len=8000              : pass
        < ACK win=0                 : pass timeout=300
        > ACK seq=8000              : pass timeout=432000
        < ACK win=0 ack=8001        : pass timeout=300
        < ACK win=100 ack=8001      : pass timeout=432000
        > ACK seq=8001 len=1400     : pass
    ",
    ]);
}

#[test]
fn urgent_and_pushed_data_and_congestion_marks_are_as_other_data() {
    // RFC 3168: ECE and CWR negotiate ECN in the handshake and signal congestion afterwards.
    play(&["
        > SYN/ECE/CWR            : pass SYN_SENT
        < SYN/ACK/ECE            : pass SYN_RECV
        > ACK                    : pass ESTABLISHED
        > ACK/PSH len=10         : pass ESTABLISHED
        > ACK/URG len=10         : pass ESTABLISHED
        > ACK/URG/PSH len=10     : pass ESTABLISHED
        < ACK/ECE                : pass ESTABLISHED timeout=432000
        > ACK/CWR len=10         : pass ESTABLISHED
        > FIN/ACK/URG/PSH len=10 : pass FIN_WAIT
    "]);
}

#[test]
fn windows_grow_by_the_scale_of_the_side_that_advertises_them() {
    // RFC 7323 section 2: the window of a SYN is unscaled, all others are scaled.
    play(&["
        > SYN win=8000 wscale=7     : pass
        < SYN/ACK win=8000 wscale=3 : pass
        > ACK win=1000              : pass ESTABLISHED
        # the server's 8000 of the SYN/ACK; then 8000 << 3
        > ACK seq=16002 len=1       : out_of_window
        < ACK win=8000              : pass
        > ACK seq=64000 win=1000    : pass
        # the client's 1000 << 7
        < ACK seq=128001 len=1      : pass
        < ACK seq=256003 len=1      : out_of_window
    "]);
}

#[test]
fn without_the_offer_of_both_sides_no_window_is_scaled() {
    // RFC 7323 section 1.3.
    let stage = play(&["
        > SYN win=8000 wscale=7     : pass
        < SYN/ACK win=8000          : pass
        > ACK win=1000              : pass ESTABLISHED
        < ACK seq=9000 len=1        : out_of_window
    "]);
    assert_eq!(stage.connection.unwrap().peers.map(|peer| peer.window_scale), [0, 0]);
}

#[test]
fn a_window_scale_beyond_fourteen_counts_as_fourteen() {
    // RFC 7323 section 2.3.
    let stage = play(&["
        > SYN wscale=200 : pass
        < SYN/ACK wscale=14 : pass
    "]);
    assert_eq!(stage.connection.unwrap().peers.map(|peer| peer.window_scale), [14, 14]);
}

#[test]
fn an_acknowledgement_of_unsent_data_is_dropped() {
    // RFC 9293 section 3.10.7.4.
    play(&[
        HANDSHAKE,
        "
        < ACK ack=1   : pass
        < ACK ack=2   : out_of_window ESTABLISHED
        > ACK len=1   : pass
        < ACK ack=2   : pass
    ",
    ]);
}

#[test]
fn a_selective_acknowledgement_of_unsent_data_is_dropped() {
    // RFC 2018 section 8 and Linux: the highest block counts like an acknowledgement.
    play(&[
        HANDSHAKE,
        "
        > ACK len=1000             : pass
        < ACK ack=1 sack=1001      : pass
        < ACK ack=1 sack=90000     : out_of_window
    ",
    ]);
}

#[test]
fn selective_acknowledgements_count_only_if_negotiated() {
    play(&["
        > SYN                      : pass
        < SYN/ACK                  : pass
        > ACK len=1000             : pass ESTABLISHED
        < ACK ack=1 sack=90000     : pass
    "]);
}

#[test]
fn old_segments_pass_without_effect() {
    // Linux: data below the lower bounds is left to the end points.
    let fill = "> ACK len=60000 : pass\n < ACK : pass\n".repeat(20);
    play(&[
        HANDSHAKE,
        &fill,
        "
        > ACK seq=1 len=100  : pass change=none timeout=kept
        < ACK ack=1          : pass change=none timeout=kept
        > FIN/ACK seq=1      : pass ESTABLISHED timeout=kept
    ",
    ]);
}

#[test]
fn a_keep_alive_and_its_response_pass() {
    // RFC 1122 section 4.2.3.6: one byte, or none, before the last byte sent.
    play(&[
        HANDSHAKE,
        "
        > ACK len=100            : pass
        < ACK                    : pass
        > ACK seq=100            : pass ESTABLISHED timeout=432000
        < ACK ack=101            : pass ESTABLISHED timeout=432000
        > ACK seq=100 len=1      : pass ESTABLISHED
        < ACK ack=101            : pass ESTABLISHED
    ",
    ]);
}

#[test]
fn a_closed_window_is_probed_and_shortens_the_timeout() {
    // RFC 9293 section 3.8.6.1; Linux keeps such a connection for its retransmission timeout.
    play(&["
        > SYN                      : pass
        < SYN/ACK                  : pass
        > ACK                      : pass
        > ACK len=8000             : pass
        < ACK win=0                : pass timeout=300
        > ACK seq=8001 len=1       : pass
        < ACK win=0 ack=8001       : pass
        < ACK win=8000 ack=8002    : pass timeout=432000
    "]);
}

#[test]
fn retransmission_shortens_the_timeout() {
    // Linux's tcp_max_retrans: three retransmissions of the same segment.
    let longer = Timeouts { tcp_unacknowledged: Duration::from_secs(400_000), ..Timeouts::default() };
    let repeated = "> ACK seq=1 len=100 : pass timeout=400000\n".repeat(3);
    play_with(
        TrackerConfig { timeouts: longer, ..TrackerConfig::default() },
        &[
            HANDSHAKE,
            &repeated,
            "
            > ACK seq=1 len=100 : pass timeout=300
            > ACK seq=1 len=100 : pass timeout=300
            < ACK               : pass timeout=432000
        ",
        ],
    );
}

#[test]
fn data_without_acknowledgement_shortens_the_timeout() {
    // Linux's nf_conntrack_tcp_timeout_unacknowledged.
    play(&[
        HANDSHAKE,
        "
        > ACK len=100 : pass timeout=300
        < ACK ack=50  : pass timeout=300
        < ACK ack=101 : pass timeout=432000
    ",
    ]);
}

#[test]
fn one_frame_may_stand_for_many_segments_and_reach_beyond_the_window() {
    // Generic segmentation offload: the frame was cut by the sender's kernel to the window at its beginning.
    play(&["
        > SYN win=8000 wscale=9     : pass
        < SYN/ACK win=65000 wscale=9 : pass
        > ACK win=65000             : pass ESTABLISHED
        > ACK len=64000             : pass
        < ACK win=65000 ack=64001   : pass
        > ACK len=65226             : pass
        > ACK len=65226             : pass
        < ACK win=65000             : pass timeout=432000
    "]);
}

#[test]
fn a_frame_that_reached_beyond_the_window_may_be_repeated_from_its_beginning() {
    play(&["
        > SYN                   : pass
        < SYN/ACK win=100       : pass
        > ACK                   : pass ESTABLISHED
        > ACK len=65000         : pass
        < ACK win=100           : pass
        > ACK seq=1 len=1000    : pass timeout=432000
    "]);
}

#[test]
fn liberal_tracking_passes_out_of_window_segments_except_resets() {
    // Linux's tcp_be_liberal.
    let liberal = TrackerConfig { liberal: true, ..TrackerConfig::default() };
    play_with(
        liberal,
        &[
            HANDSHAKE,
            "
        > ACK len=100               : pass
        < ACK                       : pass
        > ACK seq=500000 len=100    : pass
        < ACK ack=700000            : pass
        > FIN/ACK seq=800000        : pass FIN_WAIT
    ",
        ],
    );
    play_with(
        liberal,
        &[
            HANDSHAKE,
            "
        > ACK len=100               : pass
        < ACK                       : pass
        > RST seq=5                 : invalid_reset ESTABLISHED
    ",
        ],
    );
}

#[test]
fn out_of_window_fins_of_both_sides_shorten_the_timeout() {
    // Linux: the tracking is then out of step, and the connection need not be kept for days.
    play(&[
        HANDSHAKE,
        "
        > FIN/ACK seq=2000000  : out_of_window ESTABLISHED timeout=kept
        > FIN/ACK seq=2000000  : out_of_window ESTABLISHED timeout=kept
        < FIN/ACK seq=9000000  : out_of_window ESTABLISHED timeout=300
    ",
    ]);
}

#[test]
fn a_liberally_passed_segment_initialises_an_unknown_side() {
    // Linux's tcp_be_liberal: the SYN/ACK acknowledges nonsense, but its sender is known from then on.
    let liberal = TrackerConfig { liberal: true, ..TrackerConfig::default() };
    let stage = play_with(
        liberal,
        &["
        > SYN                       : pass SYN_SENT
        < SYN/ACK raw_ack=77        : pass SYN_RECV
        > ACK len=100               : pass ESTABLISHED timeout=300
        < ACK                       : pass ESTABLISHED timeout=432000
    "],
    );
    assert!(stage.connection.unwrap().peers.iter().all(|peer| peer.window_max > 0));
}
