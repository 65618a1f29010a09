//! Both nodes begin at once.

use std::time::Duration;

use flow::wire::{Transport, ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};

use super::super::cluster::{CLIENT, OUTSIDE, Options, SERVER, segment, syn, syn_ack};
use super::pair::{A, B, Pair};

const PORT: u16 = 40_000;

/// The client's SYN comes to both nodes before either has received the other's connection. The ports that the server sees.
fn begin_twice(pair: &mut Pair) -> [u16; 2] {
    pair.is_link_held = true;
    [A, B].map(|via| {
        pair.client_sends(via, PORT, syn(), b"");
        pair.server_receives().expect("the SYN passes").tuple.source_port
    })
}

fn let_go(pair: &mut Pair) {
    pair.is_link_held = false;
    pair.run(Duration::from_millis(10));
}

fn go_on(pair: &mut Pair, seen: u16) {
    pair.client_sends(A, PORT, segment(tcp_flags::ACK, 1001, 5001), b"question");
    assert_eq!(pair.server_receives().expect("the question passes").tuple.source_port, seen);
    pair.server_sends(B, seen, segment(tcp_flags::ACK, 5001, 1009), b"answer");
    assert_eq!(pair.client_receives().expect("the answer passes").tuple.destination_port, PORT);
}

#[test]
fn of_two_translations_of_one_connection_both_nodes_keep_the_same() {
    let mut pair = Pair::started();
    let [seen_of_a, seen_of_b] = begin_twice(&mut pair);
    assert_ne!(seen_of_a, seen_of_b, "each node has ports of its own");
    let_go(&mut pair);
    for id in [A, B] {
        assert_eq!(pair.record(id, PORT).map(|record| record.reply.destination_port), Some(seen_of_a), "node {id}");
    }
    pair.server_sends(B, seen_of_b, syn_ack(), b"");
    pair.run(Duration::from_millis(30));
    assert!(pair.client_receives().is_none(), "the client sees one connection");
    assert_eq!(pair.dropped(B, DropReason::NoConnection), 1);
    pair.server_sends(B, seen_of_a, syn_ack(), b"");
    assert!(pair.client_receives().is_some());
    go_on(&mut pair, seen_of_a);
}

#[test]
fn of_two_translations_the_one_is_kept_that_was_answered() {
    let mut pair = Pair::started();
    let [seen_of_a, seen_of_b] = begin_twice(&mut pair);
    pair.server_sends(B, seen_of_b, syn_ack(), b"");
    assert!(pair.client_receives().is_some(), "nobody knows better yet");
    let_go(&mut pair);
    for id in [A, B] {
        assert_eq!(pair.record(id, PORT).map(|record| record.reply.destination_port), Some(seen_of_b), "node {id}");
    }
    pair.server_sends(A, seen_of_a, syn_ack(), b"");
    pair.run(Duration::from_millis(30));
    assert!(pair.client_receives().is_none(), "the client sees one connection");
    go_on(&mut pair, seen_of_b);
}

#[test]
fn with_held_first_replies_the_client_sees_one_translation_only() {
    let mut pair = Pair::start(Options { hold_first_reply: Duration::from_millis(250), ..Options::default() });
    let [seen_of_a, seen_of_b] = begin_twice(&mut pair);
    for (via, seen, sequence) in [(A, seen_of_a, 5000), (B, seen_of_b, 9_000_000)] {
        pair.server_sends(via, seen, segment(tcp_flags::SYN | tcp_flags::ACK, sequence, 1001), b"");
        assert!(pair.client_receives().is_none(), "the other node has not confirmed the connection");
    }
    let_go(&mut pair);
    pair.run(Duration::from_millis(300));
    let answers: std::vec::Vec<u32> = core::iter::from_fn(|| pair.client_receives())
        .map(|received| match received.headers.transport {
            Transport::Tcp(segment) => segment.sequence,
            _ => panic!("TCP only"),
        })
        .collect();
    assert_eq!(answers, [5000]);
    go_on(&mut pair, seen_of_a);
}

#[test]
fn an_untranslated_connection_that_both_nodes_began_is_one() {
    let mut pair = Pair::start(Options { is_translated: false, ..Options::default() });
    let _ = begin_twice(&mut pair);
    let to_client = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, PORT));
    pair.host_sends(B, OUTSIDE, |envelope| envelope.tcp(&to_client, syn_ack(), b""));
    assert!(pair.client_receives().is_some());
    let_go(&mut pair);
    pair.client_sends(A, PORT, segment(tcp_flags::ACK, 1001, 5001), b"question");
    assert!(pair.server_receives().is_some());
    pair.host_sends(B, OUTSIDE, |envelope| envelope.tcp(&to_client, segment(tcp_flags::ACK, 5001, 1009), b"answer"));
    assert!(pair.client_receives().is_some());
    for id in [A, B] {
        let established = flow::conntrack::TcpState::Established as u8;
        assert_eq!(pair.record(id, PORT).map(|record| record.protocol.state), Some(established), "node {id}");
    }
}

#[test]
fn nodes_never_give_two_connections_one_name() {
    let mut pair = Pair::started();
    pair.is_link_held = true;
    let mut seen = std::collections::BTreeSet::new();
    for port in 20_000..20_200 {
        pair.client_sends((port % 2) as u8, port, syn(), b"");
        let source = pair.server_receives().expect("the SYN passes").tuple.source_port;
        assert!(seen.insert(source), "{source} is another connection's");
    }
    let_go(&mut pair);
    assert_eq!([A, B].map(|id| pair.node(id).pipeline().table().len()), [200; 2]);
    assert_eq!([A, B].map(|id| pair.node(id).status(pair.now).peers[0].replica.conflicts), [0; 2]);
}
