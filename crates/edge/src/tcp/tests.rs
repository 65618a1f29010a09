//! What an edge observes of a TCP connection: numbers, windows, round trips.

use super::*;
use flow::wire::tcp::SegmentOptions;
use proptest::prelude::*;
use tcp_flags::{ACK, FIN, RST, SYN};

const NEAR: u32 = u32::MAX - 10;
const FAR: u32 = 7000;

fn segment(flags: u8, sequence: u32, acknowledgement: u32, payload_bytes: u32) -> TcpSegment {
    let options = flags & SYN != 0;
    TcpSegment {
        sequence,
        acknowledgement,
        flags,
        window: 1000,
        payload_bytes,
        window_scale: options.then_some(3),
        sack_permitted: options,
        sack_end: acknowledgement,
        maximum_segment_bytes: options.then_some(1400),
    }
}

/// A connection whose handshake is complete; the near end began it.
fn open() -> TcpConnection {
    let mut tcp = TcpConnection::NEW;
    let near = NEAR.wrapping_add(1);
    assert!(tcp.observe(0, End::Near, &segment(SYN, NEAR, 0, 0), None).has_unacknowledged);
    assert!(tcp.is_in_handshake());
    assert_eq!(tcp.observe(0, End::Far, &segment(SYN | ACK, FAR, near, 0), None).acknowledged_bytes, 1);
    assert_eq!(tcp.observe(0, End::Near, &segment(ACK, near, FAR + 1, 0), None).acknowledged_bytes, 1);
    assert!(!tcp.is_in_handshake() && !tcp.near_is_waiting() && tcp.near_unacknowledged() == near);
    tcp
}

fn near(offset: u32) -> u32 {
    NEAR.wrapping_add(offset).wrapping_add(1)
}

#[test]
fn data_is_unacknowledged_until_its_acknowledgement_passes() {
    let mut tcp = open();
    assert!(tcp.observe(1000, End::Near, &segment(ACK, near(0), FAR + 1, 500), None).has_unacknowledged);
    assert!(tcp.near_is_waiting());
    assert_eq!(tcp.observe(2000, End::Far, &segment(ACK, FAR + 1, near(200), 0), None).acknowledged_bytes, 200);
    assert_eq!(tcp.near_unacknowledged(), near(200));
    assert_eq!(tcp.observe(2000, End::Far, &segment(ACK, FAR + 1, near(500), 0), None).acknowledged_bytes, 300);
    assert!(!tcp.near_is_waiting());
    assert!(!tcp.observe(3000, End::Near, &segment(ACK, near(0), FAR + 1, 500), None).has_unacknowledged);
}

#[test]
fn an_acknowledgement_of_data_that_was_never_sent_changes_nothing() {
    let mut tcp = open();
    tcp.observe(0, End::Near, &segment(ACK, near(0), FAR + 1, 500), None);
    for beyond in [501, 1000, 1 << 29, 1 << 30] {
        let observed = tcp.observe(0, End::Far, &segment(ACK, FAR + 1, near(beyond), 0), None);
        assert_eq!((observed, tcp.near_unacknowledged()), (Observed::default(), near(0)), "{beyond}");
    }
}

#[test]
fn a_segment_beyond_the_advertised_window_is_not_tracked() {
    let mut tcp = open();
    // The window of 1000 in the SYN/ACK is not scaled; that of the next acknowledgement is 8000.
    assert!(!tcp.observe(0, End::Near, &segment(ACK, near(501), FAR + 1, 500), None).has_unacknowledged);
    tcp.observe(0, End::Far, &segment(ACK, FAR + 1, near(0), 0), None);
    assert!(!tcp.observe(0, End::Near, &segment(ACK, near(7501), FAR + 1, 500), None).has_unacknowledged);
    assert!(!tcp.near_is_waiting());
    assert!(tcp.observe(0, End::Near, &segment(ACK, near(7500), FAR + 1, 500), None).has_unacknowledged);
    assert_eq!((tcp.ends[End::Near as usize].edge, tcp.window_shift(End::Far)), (near(8000), Some(3)));
}

#[test]
fn both_fins_acknowledged_close_the_connection() {
    let mut tcp = open();
    tcp.observe(0, End::Near, &segment(FIN | ACK, near(0), FAR + 1, 10), None);
    tcp.observe(0, End::Far, &segment(FIN | ACK, FAR + 1, near(11), 0), None);
    assert!(!tcp.is_closed(), "the far FIN is not acknowledged");
    // Nothing follows a FIN.
    assert!(!tcp.observe(0, End::Near, &segment(ACK, near(11), FAR + 1, 10), None).has_unacknowledged);
    tcp.observe(0, End::Near, &segment(ACK, near(11), FAR + 2, 0), None);
    assert!(tcp.is_closed());
    assert!(tcp.observe(0, End::Near, &segment(SYN, near(5000), 0, 0), None).is_reopened);
    assert!(tcp.near_is_waiting() && !tcp.is_closed());
}

#[test]
fn resets_close_only_within_the_window_or_as_the_answer_to_a_syn() {
    let mut tcp = open();
    for forged in [near(u32::MAX), near(70_000), near(1 << 31)] {
        tcp.observe(0, End::Near, &segment(RST, forged, 0, 0), None);
        assert!(!tcp.is_closed());
    }
    tcp.observe(0, End::Near, &segment(RST, near(0), 0, 0), None);
    assert!(tcp.is_closed());

    let mut refused = TcpConnection::NEW;
    refused.observe(0, End::Near, &segment(SYN, NEAR, 0, 0), None);
    refused.observe(0, End::Far, &segment(RST | ACK, 0, near(7), 0), None);
    assert!(!refused.is_closed());
    refused.observe(0, End::Far, &segment(RST | ACK, 0, near(0), 0), None);
    assert!(refused.is_closed());
}

#[test]
fn a_forged_syn_changes_nothing_and_a_contradicting_syn_ack_from_a_node_replaces_the_state() {
    let mut tcp = open();
    tcp.observe(0, End::Near, &segment(ACK, near(0), FAR + 1, 10), None);
    for flags in [SYN, SYN | ACK] {
        assert_eq!(tcp.observe(0, End::Near, &segment(flags, near(1 << 31), FAR + 1, 0), None), Observed::default());
    }
    // A SYN/ACK that was retransmitted because the node lost its acknowledgement is old.
    tcp.observe(0, End::Far, &segment(SYN | ACK, FAR, near(0), 0), None);
    assert!(tcp.near_is_waiting() && tcp.window_shift(End::Far) == Some(3));
    tcp.observe(0, End::Far, &segment(SYN | ACK, FAR ^ 1 << 31, near(1 << 30 | 5), 0), None);
    assert!(!tcp.near_is_waiting() && tcp.near_unacknowledged() == near(1 << 30 | 5));
    assert_eq!(tcp.window_shift(End::Far), None, "the near SYN was not seen");
}

#[test]
fn a_connection_in_the_middle_is_picked_up_without_scale_and_sack() {
    let mut tcp = TcpConnection::NEW;
    assert!(tcp.observe(0, End::Near, &segment(ACK, near(0), FAR, 100), None).has_unacknowledged);
    assert_eq!(tcp.observe(0, End::Far, &segment(ACK, FAR, near(100), 0), None).acknowledged_bytes, 100);
    assert_eq!(tcp.window_shift(End::Far), None);
    assert!(!tcp.is_without_sack(), "it is unknown");
}

#[test]
fn sack_and_scale_count_only_if_both_syns_have_them() {
    let mut tcp = TcpConnection::NEW;
    tcp.observe(0, End::Near, &segment(SYN, NEAR, 0, 0), None);
    assert!(!tcp.is_without_sack() && tcp.window_shift(End::Near).is_none());
    let plain = TcpSegment { window_scale: None, sack_permitted: false, ..segment(SYN | ACK, FAR, near(0), 0) };
    tcp.observe(0, End::Far, &plain, None);
    assert!(tcp.is_without_sack() && tcp.window_shift(End::Near) == Some(0));
    assert!(!open().is_without_sack());
    // SACK blocks show it, whatever the SYNs said.
    let mut lying = tcp;
    for (from, sequence, acknowledgement) in [(End::Far, FAR + 1, near(0)), (End::Near, near(0), FAR + 1)] {
        let blocks = TcpSegment { sack_end: acknowledgement + 5, ..segment(ACK, sequence, acknowledgement, 0) };
        lying.observe(0, from, &blocks, None);
    }
    assert!(!lying.is_without_sack());
}

#[test]
fn the_round_trip_is_the_sum_of_both_sides_and_gives_the_timeout() {
    let mut tcp = open();
    assert!(!tcp.near_has_timed_out(0));
    tcp.observe(1_000_000, End::Near, &segment(ACK, near(0), FAR + 1, 100), None);
    assert!(!tcp.near_has_timed_out(1_199_999) && tcp.near_has_timed_out(2_000_000));
    tcp.observe(1_300_000, End::Far, &segment(ACK, FAR + 1, near(100), 100), None);
    tcp.observe(1_301_000, End::Near, &segment(ACK, near(100), FAR + 101, 100), None);
    // The handshake took 1 µs on either side, which counts as 64.
    assert_eq!(tcp.least_round_trip_us(), Some(128));
    assert!(!tcp.near_has_timed_out(1_500_000));
    tcp.observe(1_400_000, End::Near, &segment(ACK, near(100), FAR + 101, 100), None);
    assert!(tcp.near_has_timed_out(1_400_000), "it has retransmitted");
}

#[test]
fn timestamps_are_read_from_options_that_are_well_formed() {
    let mut header = [0; 32];
    header[12] = 8 << 4;
    header[20..].copy_from_slice(&[1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9]);
    let timestamps = |header: &[u8]| SegmentOptions::read(header).timestamps;
    assert_eq!(timestamps(&header), Some((7, 9)));
    assert_eq!(timestamps(&header[..20]), None);
    header[23] = 9;
    assert_eq!(timestamps(&header), None, "a value of 7 bytes");
    header[23] = 11;
    assert_eq!(timestamps(&header), None, "a value that does not fit");
    header[20..24].copy_from_slice(&[19, 12, 0, 0]);
    assert!(SegmentOptions::read(&header).is_signed);
}

proptest! {
    /// Whatever passes, the near end's numbers stay in order, and only what was sent is acknowledged.
    #[test]
    fn numbers_stay_in_order_whatever_passes(
        steps in prop::collection::vec((any::<bool>(), any::<u8>(), -3000i32..3000, -3000i32..3000, 0u32..2000, any::<u16>()), 0..80),
    ) {
        let mut tcp = TcpConnection::NEW;
        for (is_near, flags, sequence, acknowledgement, payload_bytes, window) in steps {
            let (from, own, other) = if is_near { (End::Near, NEAR, FAR) } else { (End::Far, FAR, NEAR) };
            let numbers = (own.wrapping_add_signed(sequence), other.wrapping_add_signed(acknowledgement));
            let passing = TcpSegment { window, ..segment(flags & 0x17, numbers.0, numbers.1, payload_bytes) };
            let before = tcp.near_unacknowledged();
            let observed = tcp.observe(0, from, &passing, None);
            let [near, far] = &tcp.ends;
            for end in [near, far] {
                prop_assert!(!is_after(end.unacknowledged, end.next), "{end:?}");
            }
            let is_near_ack = from == End::Far && observed.acknowledged_bytes > 0;
            prop_assert!(!is_near_ack || passing.flags & SYN != 0 || before.wrapping_add(observed.acknowledged_bytes) == tcp.near_unacknowledged());
            prop_assert!(!observed.has_unacknowledged || is_after(passing.end(), tcp.ends[from as usize].unacknowledged));
        }
    }
}
