//! Connections made by hand, and their events.

use std::net::Ipv4Addr;

use flow::Tuple;
use flow::wire::build;
use flow::wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};

use super::super::tests::{merge, ms, pcap};
use super::*;

const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 80);

fn tuple(port: u16) -> Tuple {
    Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(10, 0, 0, 2), port), SERVER)
}

/// A segment of the client's (forth) or of the server's, with what it acknowledges.
fn segment(port: u16, forth: bool, flags: u8, (sequence, acknowledgement): (u32, u32), payload: &[u8]) -> Vec<u8> {
    let tuple = if forth { tuple(port) } else { tuple(port).inverse() };
    build::tcp(&tuple, build::Tcp { flags, sequence, acknowledgement, ..Default::default() }, payload)
}

fn syn(port: u16) -> Vec<u8> {
    segment(port, true, SYN, (100, 0), b"")
}

/// Handshake, a request and its response, and a close: ten milliseconds after each other.
fn frames_of_connection(port: u16, from_ms: u64) -> Vec<(Instant, Vec<u8>)> {
    let frames = [
        syn(port),
        segment(port, false, SYN | ACK, (900, 101), b""),
        segment(port, true, ACK, (101, 901), b""),
        segment(port, true, ACK | PSH, (101, 901), b"GET"),
        segment(port, false, ACK | PSH, (901, 104), b"content"),
        segment(port, true, FIN | ACK, (104, 908), b""),
        segment(port, false, FIN | ACK, (908, 105), b""),
        segment(port, true, ACK, (105, 909), b""),
    ];
    frames.into_iter().enumerate().map(|(step, frame)| (ms(from_ms + 10 * step as u64), frame)).collect()
}

/// The events in words, and the statistics.
fn follow(config: &ConnectionsConfig, frames: Vec<(Instant, Vec<u8>)>) -> (Vec<String>, Statistics, Connections) {
    let mut trace = merge(vec![pcap(frames)]).unwrap();
    let mut connections = Connections::new(config);
    let (mut events, mut statistics) = (Vec::new(), Statistics::default());
    let mut observe = |event: &Event<'_>| {
        statistics.handle_event(event);
        let state = flow::conntrack::state_name(event.connection.original.protocol, &event.connection.protocol);
        let what = match event.kind {
            EventKind::Began => format!("began {state}"),
            EventKind::Changed { .. } => format!("is {state}"),
            EventKind::Ended(end) => format!("ended {} after {} ms", end.label(), event.lifetime().as_millis()),
        };
        events.push(format!("{} {what}", event.notes.id));
    };
    while let Some(packet) = trace.next() {
        connections.handle_packet(&packet, &mut observe);
    }
    connections.finish(&mut observe);
    (events, statistics, connections)
}

#[test]
fn a_connection_has_events_from_its_syn_to_its_last_ack() {
    let (events, statistics, connections) = follow(&ConnectionsConfig::seed(), frames_of_connection(4000, 0));
    let expected = [
        "0 began SYN_SENT",
        "0 is SYN_RECV",
        "0 is ESTABLISHED",
        "0 is FIN_WAIT",
        "0 is LAST_ACK",
        "0 is TIME_WAIT",
        "0 ended closed after 70 ms",
    ];
    assert_eq!(events, expected);
    assert_eq!((statistics.packets, statistics.payload_bytes), (8, 3 + 7));
    assert_eq!((statistics.tcp, statistics.one_way, statistics.open_max), (1, 0, 1));
    assert_eq!(*connections.untracked(), Untracked::default());
}

#[test]
fn in_a_gateway_a_closed_connection_stays_until_its_time_is_over() {
    let mut frames = frames_of_connection(4000, 0);
    frames.push((ms(200_000), syn(4001)));
    let (events, ..) = follow(&ConnectionsConfig::default(), frames);
    let at = events.iter().position(|events| events == "0 ended closed after 70 ms").expect("it ends");
    assert_eq!(
        events[at + 1],
        "1 began SYN_SENT",
        "it ended when the capture's clock said so, not at the capture's end"
    );
}

#[test]
fn what_nobody_answers_expires_and_is_one_way() {
    let frames = vec![(ms(0), syn(1)), (ms(1000), syn(1)), (ms(3000), syn(1)), (ms(30_000), syn(2))];
    let (events, statistics, _) = follow(&ConnectionsConfig::seed(), frames);
    let expected =
        ["0 began SYN_SENT", "0 ended expired after 3000 ms", "1 began SYN_SENT", "1 ended trace_ended after 0 ms"];
    assert_eq!(events, expected);
    assert_eq!((statistics.one_way, statistics.answered_lifetimes.count()), (2, 0));
}

#[test]
fn a_refused_connection_was_answered_and_is_over() {
    let frames = vec![(ms(0), syn(1)), (ms(5), segment(1, false, RST | ACK, (0, 101), b""))];
    let (events, statistics, _) = follow(&ConnectionsConfig::seed(), frames);
    assert_eq!(events.last().map(String::as_str), Some("0 ended refused after 5 ms"));
    assert_eq!((statistics.one_way, statistics.ended_by(End::Refused)), (0, 1));
}

#[test]
fn a_reused_tuple_is_another_connection() {
    let mut frames = frames_of_connection(4000, 0);
    frames.extend(frames_of_connection(4000, 1000));
    let (events, statistics, _) = follow(&ConnectionsConfig::default(), frames);
    assert!(events.contains(&"0 ended reopened after 70 ms".to_owned()), "{events:?}");
    assert_eq!((statistics.begun, statistics.packets), (2, 16));
}

#[test]
fn a_connection_whose_beginning_is_not_in_the_capture_is_picked_up_or_left_out() {
    let middle = || frames_of_connection(4000, 0).split_off(3);
    let (events, _, connections) = follow(&ConnectionsConfig::seed(), middle());
    assert!(events.is_empty());
    assert_eq!(connections.untracked().without_connection, 5);
    let (_, statistics, connections) = follow(&ConnectionsConfig::default(), middle());
    assert_eq!((statistics.begun, statistics.packets), (1, 5));
    assert_eq!(connections.untracked().without_connection, 0);
}

#[test]
fn a_full_table_gives_up_what_was_never_answered_and_keeps_the_others() {
    let config = ConnectionsConfig { connections_max: 2, ..ConnectionsConfig::seed() };
    let mut frames: Vec<_> = frames_of_connection(1, 0).into_iter().take(5).collect();
    frames.extend([(ms(100), syn(2)), (ms(101), syn(3)), (ms(102), syn(4))]);
    let (events, _, connections) = follow(&config, frames);
    assert_eq!(connections.untracked().displaced, 2);
    assert!(events.contains(&"1 ended displaced after 0 ms".to_owned()), "{events:?}");
    assert!(events.contains(&"0 ended trace_ended after 40 ms".to_owned()), "{events:?}");
}

#[test]
fn a_study_leaves_its_word_on_a_connection_and_finds_it_at_the_end() {
    let mut trace = merge(vec![pcap(frames_of_connection(4000, 0)), pcap([(ms(25), syn(9))])]).unwrap();
    let mut connections = Connections::new(&ConnectionsConfig::seed());
    let mut marks = Vec::new();
    while let Some(packet) = trace.next() {
        let outcome = connections.handle_packet(&packet, &mut |event| {
            if matches!(event.kind, EventKind::Ended(_)) {
                marks.push((event.notes.mark, event.notes.captures));
            }
        });
        if let Outcome::Followed { slot, direction: Direction::Reply, .. } = outcome {
            connections.set_mark(slot, 77);
        }
    }
    connections.finish(&mut |event| marks.push((event.notes.mark, event.notes.captures)));
    assert_eq!(marks, [(77, 0b01), (0, 0b10)]);
}

#[test]
fn years_between_two_packets_are_no_more_work_than_seconds() {
    let mut frames: Vec<_> = (1..200).map(|port| (ms(0), syn(port))).collect();
    frames.push((ms(20 * 365 * 86_400_000), syn(9999)));
    let (events, ..) = follow(&ConnectionsConfig::default(), frames);
    assert_eq!(events.iter().filter(|events| events.contains("ended expired")).count(), 199);
}
