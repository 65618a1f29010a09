//! Packets that come before the word of what they belong to.

use std::time::Duration;

use flow::wire::{build, ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};

use super::super::cluster::{CLIENT, INSIDE, OUTSIDE, SERVER, SHARED_OUTSIDE, segment, syn, syn_ack};
use super::pair::{A, B, Pair};
use crate::pipeline::{WAITING_FRAMES_MAX, WAITING_FRAMES_PER_SOURCE_MAX};

const PORT: u16 = 40_000;

/// The link between the nodes takes 5 ms.
fn slow() -> Pair {
    let mut pair = Pair::started();
    pair.delay = Duration::from_millis(5);
    pair
}

/// The connection whose first packet has just gone by way of A, as the server sees it; the answer overtakes the update.
fn expect_help(mut pair: Pair) {
    assert!(pair.client_receives().is_none(), "B knows nothing yet");
    assert_eq!(pair.node(B).pipeline().waiting(), 1);
    pair.run(Duration::from_millis(6));
    assert!(pair.client_receives().is_some(), "now it does");
    let counters = pair.counters(B);
    assert_eq!((counters.held, counters.helped, counters.overdue), (1, 1, 0));
    assert_eq!(pair.node(B).pipeline().waiting(), 0);
}

#[test]
fn a_syn_ack_waits_for_the_word_of_its_syn() {
    let mut pair = slow();
    pair.client_sends(A, PORT, syn(), b"");
    let seen = pair.server_receives().expect("the SYN passes").tuple.source_port;
    pair.server_sends(B, seen, syn_ack(), b"");
    expect_help(pair);
}

#[test]
fn an_answer_over_udp_waits_for_the_word_of_its_query() {
    let mut pair = slow();
    let query = Tuple::v4(ip_protocol::UDP, (CLIENT, PORT), (SERVER, 53));
    pair.host_sends(A, INSIDE, |envelope| envelope.udp(&query, b"query"));
    let seen = pair.server_receives().expect("the query passes").tuple;
    pair.host_sends(B, OUTSIDE, |envelope| envelope.udp(&seen.inverse(), b"answer"));
    expect_help(pair);
}

#[test]
fn an_echo_waits_for_the_word_of_its_request() {
    let mut pair = slow();
    let request = Tuple::echo(CLIENT.into(), SERVER.into(), 77);
    pair.host_sends(A, INSIDE, |envelope| envelope.echo(&request, build::Echo::default(), b"ping"));
    let seen = pair.server_receives().expect("the request passes").tuple;
    let reply = build::Echo { is_reply: true, ..build::Echo::default() };
    pair.host_sends(B, OUTSIDE, |envelope| envelope.echo(&seen.inverse(), reply, b"ping"));
    expect_help(pair);
}

#[test]
fn an_icmp_error_waits_for_the_word_of_what_it_quotes() {
    let mut pair = slow();
    pair.client_sends(A, PORT, syn(), b"");
    let syn = pair.server_receives().expect("the SYN passes");
    let header = build::IcmpHeader { kind: 3, code: 1, parameter: 0 };
    let packet = syn.bytes[usize::from(syn.headers.l3_offset)..].to_vec();
    pair.host_sends(B, OUTSIDE, |envelope| envelope.icmp_error(SERVER.into(), header, &packet).unwrap());
    expect_help(pair);
}

#[test]
fn a_packet_without_an_update_is_dropped_when_its_time_is_over_and_counted_once() {
    let mut pair = Pair::started();
    pair.server_sends(B, 2000, segment(tcp_flags::ACK, 1, 1), b"");
    let stray = Tuple::v4(ip_protocol::UDP, (SERVER, 53), (SHARED_OUTSIDE, 2000));
    pair.host_sends(B, OUTSIDE, |envelope| envelope.udp(&stray, b"stray"));
    pair.run(Duration::from_millis(19));
    assert_eq!(pair.node(B).pipeline().waiting(), 2);
    assert_eq!(pair.dropped(B, DropReason::NoConnection) + pair.dropped(B, DropReason::FirewallDenied), 0);
    assert_eq!(pair.node(B).pipeline().chain_counters().values()[1], 0, "no function was asked in earnest yet");
    pair.run(Duration::from_millis(2));
    let counters = pair.counters(B);
    assert_eq!((counters.held, counters.helped, counters.overdue), (2, 0, 2));
    assert_eq!((pair.dropped(B, DropReason::NoConnection), pair.dropped(B, DropReason::FirewallDenied)), (1, 1));
    assert_eq!(pair.node(B).pipeline().chain_counters().values()[1], 1);
}

#[test]
fn what_may_begin_a_connection_does_not_wait() {
    let mut pair = Pair::started();
    let query = Tuple::v4(ip_protocol::UDP, (CLIENT, PORT), (SERVER, 53));
    pair.host_sends(B, INSIDE, |envelope| envelope.udp(&query, b"query"));
    pair.client_sends(B, PORT, syn(), b"");
    assert_eq!(core::iter::from_fn(|| pair.server_receives()).count(), 2);
    assert_eq!(pair.counters(B).held, 0);
}

#[test]
fn nothing_waits_where_no_peer_could_send_an_update() {
    let mut pair = Pair::started();
    pair.kill(B);
    pair.run_until("node A to know", |pair| pair.node(A).status(pair.now).peers[0].down_since.is_some());
    pair.server_sends(A, 2000, segment(tcp_flags::ACK, 1, 1), b"");
    assert_eq!((pair.counters(A).held, pair.dropped(A, DropReason::NoConnection)), (0, 1));
}

#[test]
fn a_source_that_sprays_packets_leaves_room_for_others_to_wait() {
    let mut pair = slow();
    for port in 1..1000 {
        pair.server_sends(B, port, segment(tcp_flags::ACK, 1, 1), b"");
    }
    assert_eq!(pair.node(B).pipeline().waiting(), WAITING_FRAMES_PER_SOURCE_MAX as usize);
    assert_eq!(pair.counters(B).no_room, 999 - u64::from(WAITING_FRAMES_PER_SOURCE_MAX));
    // The client's own ACK, by way of B, of a connection that A has begun.
    pair.client_sends(A, PORT, syn(), b"");
    assert!(pair.server_receives().is_some());
    pair.client_sends(B, PORT, segment(tcp_flags::ACK, 1001, 5001), b"");
    assert_eq!(pair.node(B).pipeline().waiting(), WAITING_FRAMES_PER_SOURCE_MAX as usize + 1);
}

#[test]
fn when_there_is_no_room_the_newest_does_not_wait_and_nobody_is_pushed_out() {
    let mut pair = slow();
    pair.client_sends(A, PORT, syn(), b"");
    let seen = pair.server_receives().expect("the SYN passes").tuple.source_port;
    pair.server_sends(B, seen, syn_ack(), b"");
    for host in 0..2000_u32 {
        // Hosts on the link, with several ports each.
        let source = std::net::Ipv4Addr::new(198, 51, 100, 100 + (host % 100) as u8);
        let tuple = Tuple::v4(ip_protocol::TCP, (source, 80 + (host / 100) as u16), (SHARED_OUTSIDE, 2000));
        pair.host_sends(B, OUTSIDE, |envelope| envelope.tcp(&tuple, segment(tcp_flags::ACK, 1, 1), b""));
    }
    assert_eq!(pair.node(B).pipeline().waiting(), WAITING_FRAMES_MAX);
    assert_eq!(pair.dropped(B, DropReason::NoConnection), 2001 - WAITING_FRAMES_MAX as u64);
    pair.run(Duration::from_millis(6));
    assert!(pair.client_receives().is_some(), "who waited first is helped");
}
