//! Connections whose directions go by way of different nodes, once they have begun.

use std::time::Duration;

use flow::connection::flags;
use flow::wire::{Transport, build, ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};

use super::super::cluster::{CLIENT, INSIDE, OUTSIDE, Options, SERVER, SHARED_OUTSIDE, segment, syn, syn_ack};
use super::super::ftp::{Hosts, active_mode_at, connect as connect_ends, data_from_server, exchange as exchange_ends};
use super::pair::{A, B, Pair};

const ACK: u8 = tcp_flags::ACK;
const FIN_ACK: u8 = tcp_flags::FIN | tcp_flags::ACK;
const RST: u8 = tcp_flags::RST;
const PORT: u16 = 40_000;

/// Data in both directions passes, by these ways.
fn exchange(pair: &mut Pair, seen: u16, [out, back]: [u8; 2], sequence: u32, acknowledgement: u32) {
    pair.client_sends(out, PORT, segment(ACK, sequence, acknowledgement), b"question");
    let question = pair.server_receives().expect("the question passes");
    assert_eq!(question.tuple, Tuple::v4(ip_protocol::TCP, (SHARED_OUTSIDE, seen), (SERVER, 80)));
    pair.server_sends(back, seen, segment(ACK, acknowledgement, sequence.wrapping_add(8)), b"answer");
    let answer = pair.client_receives().expect("the answer passes");
    assert_eq!(answer.tuple, Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, PORT)));
}

fn is_shared(pair: &Pair, id: u8) -> bool {
    pair.record(id, PORT).expect("the node has the connection").flags & flags::SHARED != 0
}

fn udp_to_server() -> Tuple {
    Tuple::v4(ip_protocol::UDP, (CLIENT, PORT), (SERVER, 53))
}

#[test]
fn a_handshake_takes_a_message_for_each_of_its_segments_and_data_takes_none() {
    let mut pair = Pair::started();
    let before = pair.messages();
    let seen = pair.connect(PORT, A, B);
    assert_eq!(pair.messages() - before, 3);
    assert!(is_shared(&pair, A) && is_shared(&pair, B));
    assert_eq!((pair.master(A, PORT), pair.master(B, PORT)), (A, A));
    for number in 0..100_u32 {
        let (sequence, acknowledgement) = (number.wrapping_mul(1_000_000), number.wrapping_mul(70_000_000));
        exchange(&mut pair, seen, [A, B], 1001 + sequence, acknowledgement.wrapping_add(5001));
    }
    assert_eq!(pair.messages() - before, 3);
    assert_eq!(pair.counters(B).peer_owned_packets, 101, "the SYN/ACK and the answers");
}

#[test]
fn a_connection_all_of_whose_packets_come_to_one_node_is_not_shared() {
    let mut pair = Pair::started();
    let seen = pair.connect(PORT, A, A);
    exchange(&mut pair, seen, [A, A], 1001, 5001);
    assert!(!is_shared(&pair, A) && !is_shared(&pair, B));
    pair.client_sends(A, PORT, segment(ACK, 500_000_000, 5007), b"stray");
    pair.run(Duration::from_millis(30));
    assert!(pair.server_receives().is_none());
    assert_eq!(pair.dropped(A, DropReason::OutOfWindow), 1);
}

#[test]
fn a_connection_that_moves_is_taken_over_and_its_windows_go_on_to_count() {
    let mut pair = Pair::started();
    let seen = pair.connect(PORT, A, A);
    exchange(&mut pair, seen, [A, A], 1001, 5001);
    for number in 0..4 {
        exchange(&mut pair, seen, [B, B], 1009 + 8 * number, 5007 + 6 * number);
    }
    assert_eq!((pair.master(A, PORT), is_shared(&pair, B)), (B, false));
    // Beyond what a node lets pass that has just taken a connection over.
    for number in 0..20_000 {
        exchange(&mut pair, seen, [B, B], 1041 + 8 * number, 5031 + 6 * number);
    }
    pair.client_sends(B, PORT, segment(ACK, 500_000_000, 125_031), b"stray");
    pair.run(Duration::from_millis(30));
    assert!(pair.server_receives().is_none());
    assert_eq!(pair.dropped(B, DropReason::OutOfWindow), 1);
}

#[test]
fn one_direction_of_an_established_connection_may_move() {
    let mut pair = Pair::started();
    let seen = pair.connect(PORT, A, A);
    exchange(&mut pair, seen, [A, A], 1001, 5001);
    for number in 0..50 {
        exchange(&mut pair, seen, [A, B], 1009 + 8 * number, 5007 + 6 * number);
    }
    assert!(is_shared(&pair, A) && is_shared(&pair, B));
    assert_eq!(pair.dropped(A, DropReason::OutOfWindow) + pair.dropped(B, DropReason::OutOfWindow), 0);
}

#[test]
fn an_asymmetric_connection_goes_on_when_either_node_dies_and_its_windows_count() {
    for dies in [A, B] {
        let mut pair = Pair::started();
        let seen = pair.connect(PORT, A, B);
        exchange(&mut pair, seen, [A, B], 1001, 5001);
        pair.kill(dies);
        let lives = 1 - dies;
        pair.run_until("the other node to hold all addresses", |pair| pair.holds_all(lives));
        for number in 0..20_000 {
            exchange(&mut pair, seen, [lives, lives], 1_000_009 + 8 * number, 2_000_007 + 6 * number);
        }
        assert_eq!((pair.master(lives, PORT), is_shared(&pair, lives)), (lives, false), "node {dies} died");
        pair.client_sends(lives, PORT, segment(ACK, 500_000_000, 2_120_007), b"stray");
        assert_eq!(pair.dropped(lives, DropReason::OutOfWindow), 1, "there is nobody to wait for");
    }
}

#[test]
fn a_flow_lives_at_its_owner_while_a_peer_forwards_it() {
    let mut pair = Pair::started();
    pair.host_sends(A, INSIDE, |envelope| envelope.udp(&udp_to_server(), b"subscribe"));
    let seen = pair.server_receives().expect("the request passes").tuple;
    let before = pair.messages();
    for _ in 0..40 {
        pair.host_sends(B, OUTSIDE, |envelope| envelope.udp(&seen.inverse(), b"news"));
        assert_eq!(pair.client_receives().expect("the news pass").tuple, udp_to_server().inverse());
        pair.run_long(Duration::from_secs(5));
    }
    for id in [A, B] {
        assert!(pair.node(id).pipeline().lookup(&udp_to_server()).is_some(), "node {id}");
    }
    // B has become its owner with the first answer, and receives the packets itself.
    assert!(pair.messages() - before <= 2);
}

#[test]
fn a_peer_shows_the_owner_now_and_then_that_a_flow_lives() {
    let mut pair = Pair::started();
    pair.host_sends(A, INSIDE, |envelope| envelope.udp(&udp_to_server(), b"first"));
    let seen = pair.server_receives().expect("the request passes").tuple;
    for _ in 0..2 {
        pair.host_sends(A, OUTSIDE, |envelope| envelope.udp(&seen.inverse(), b"a stream"));
        pair.run_long(Duration::from_secs(3));
    }
    let before = pair.messages();
    for _ in 0..40 {
        pair.host_sends(B, INSIDE, |envelope| envelope.udp(&udp_to_server(), b"more"));
        assert_eq!(pair.server_receives().expect("it passes").tuple, seen);
        pair.run_long(Duration::from_secs(5));
    }
    assert!(pair.node(A).pipeline().lookup(&udp_to_server()).is_some());
    // After a quarter of the 120 s. From then on B is its owner.
    let counters = pair.counters(B);
    assert_eq!((counters.peer_owned_packets, counters.renewed, pair.messages() - before), (7, 1, 1));
}

#[test]
fn an_end_by_timeout_of_a_connection_that_lives_here_is_refused() {
    let mut pair = Pair::started();
    let seen = pair.connect(PORT, A, B);
    exchange(&mut pair, seen, [A, B], 1001, 5001);
    // A RST that neither node can check here gives the connection 300 s at its owner.
    pair.client_sends(A, PORT, segment(RST, 77, 0), b"");
    assert!(pair.server_receives().is_some(), "its receiver can check it");
    pair.run_long(Duration::from_secs(295));
    pair.server_sends(B, seen, segment(ACK, 5007, 1009), b"still here");
    assert!(pair.client_receives().is_some());
    pair.run_long(Duration::from_secs(10));
    assert_eq!(pair.counters(B).ends_refused, 1);
    assert_eq!((pair.master(A, PORT), pair.master(B, PORT)), (B, B));
    exchange(&mut pair, seen, [A, B], 1009, 5017);
}

#[test]
fn a_reset_at_a_peer_ends_the_connection_on_both_nodes_unless_it_shows_that_it_lives() {
    let mut pair = Pair::started();
    let seen = pair.connect(PORT, A, B);
    exchange(&mut pair, seen, [A, B], 1001, 5001);
    pair.server_sends(B, seen, segment(RST, 77, 0), b"");
    assert!(pair.client_receives().is_some(), "its receiver can check it");
    exchange(&mut pair, seen, [A, B], 1009, 5007);
    pair.server_sends(B, seen, segment(RST | ACK, 5013, 1017), b"");
    assert!(pair.client_receives().is_some());
    pair.run_long(Duration::from_secs(310));
    assert!(pair.record(A, PORT).is_none() && pair.record(B, PORT).is_none());
}

#[test]
fn a_reset_through_the_node_that_is_not_the_owner_closes_the_connection_on_both() {
    for ways in [[A, A], [A, B]] {
        let mut pair = Pair::started();
        let seen = pair.connect(PORT, ways[0], ways[1]);
        exchange(&mut pair, seen, ways, 1001, 5001);
        pair.client_sends(A, PORT, segment(ACK, 1009, 5007), b"");
        pair.run(Duration::from_millis(30));
        pair.server_sends(B, seen, segment(RST, 5007, 0), b"");
        assert!(pair.client_receives().is_some(), "its receiver can check it");
        pair.run(Duration::from_millis(30));
        let closed = flow::conntrack::TcpState::Close as u8;
        for id in [A, B] {
            assert_eq!(pair.record(id, PORT).map(|record| record.protocol.state), Some(closed), "{ways:?}, node {id}");
        }
        pair.run_long(Duration::from_secs(12));
        assert!(pair.record(A, PORT).is_none() && pair.record(B, PORT).is_none(), "{ways:?}");
    }
}

#[test]
fn a_connection_that_is_refused_is_forgotten_by_both_nodes() {
    let mut pair = Pair::started();
    pair.client_sends(A, PORT, syn(), b"");
    let seen = pair.server_receives().expect("the SYN passes").tuple.source_port;
    pair.server_sends(B, seen, segment(RST | ACK, 0, 1001), b"");
    assert!(pair.client_receives().is_some());
    pair.run(Duration::from_millis(20));
    assert!(pair.record(A, PORT).is_none() && pair.record(B, PORT).is_none());
}

#[test]
fn fins_that_cross_end_the_connection_on_both_nodes() {
    let mut pair = Pair::started();
    let seen = pair.connect(PORT, A, B);
    pair.delay = Duration::from_millis(5);
    pair.client_sends(A, PORT, segment(FIN_ACK, 1001, 5001), b"");
    pair.server_sends(B, seen, segment(FIN_ACK, 5001, 1001), b"");
    pair.run(Duration::from_millis(12));
    pair.client_sends(A, PORT, segment(ACK, 1002, 5002), b"");
    pair.server_sends(B, seen, segment(ACK, 5002, 1002), b"");
    assert_eq!(core::iter::from_fn(|| pair.client_receives()).count(), 2);
    assert_eq!(core::iter::from_fn(|| pair.server_receives()).count(), 2);
    pair.run(Duration::from_millis(30));
    let time_wait = flow::conntrack::TcpState::TimeWait as u8;
    for id in [A, B] {
        assert_eq!(pair.record(id, PORT).map(|record| record.protocol.state), Some(time_wait), "node {id}");
    }
}

#[test]
fn ports_are_reused_by_way_of_either_node() {
    let mut pair = Pair::started();
    for [out, back] in [[A, B], [B, A], [B, B], [A, A], [A, B]] {
        let seen = pair.connect(PORT, out, back);
        pair.client_sends(out, PORT, segment(FIN_ACK, 1001, 5001), b"");
        pair.server_sends(back, seen, segment(FIN_ACK, 5001, 1002), b"");
        pair.client_sends(out, PORT, segment(ACK, 1002, 5002), b"");
        assert_eq!(core::iter::from_fn(|| pair.client_receives()).count(), 1);
        assert_eq!(core::iter::from_fn(|| pair.server_receives()).count(), 2);
        pair.run(Duration::from_millis(30));
    }
    // Whatever is left ends, and takes nothing else with it.
    pair.run_long(Duration::from_secs(125));
    assert!(pair.record(A, PORT).is_none() && pair.record(B, PORT).is_none());
}

#[test]
fn an_icmp_error_finds_its_connection_by_way_of_the_other_node() {
    let mut pair = Pair::started();
    pair.client_sends(A, PORT, syn(), b"");
    let syn = pair.server_receives().expect("the SYN passes");
    let header = build::IcmpHeader { kind: 3, code: 1, parameter: 0 };
    let packet = syn.bytes[usize::from(syn.headers.l3_offset)..].to_vec();
    pair.host_sends(B, OUTSIDE, |envelope| envelope.icmp_error(SERVER.into(), header, &packet).unwrap());
    let error = pair.client_receives().expect("the error passes");
    let Transport::IcmpError(about) = error.headers.transport else { panic!("an error stays one") };
    assert_eq!(about.inner, Tuple::v4(ip_protocol::TCP, (CLIENT, PORT), (SERVER, 80)));
}

/// The client's host sends by way of one node, the server's by way of the other.
struct Asymmetric(Pair);

impl Hosts for Asymmetric {
    fn host_sends(&mut self, port: flow::PortId, tuple: &Tuple, segment: build::Tcp<'_>, payload: &[u8]) {
        let via = if port == INSIDE { A } else { B };
        self.0.host_sends(via, port, |envelope| envelope.tcp(tuple, segment, payload));
    }

    fn host_receives(&mut self, port: flow::PortId) -> Option<super::super::cluster::Received> {
        if port == INSIDE { self.0.client_receives() } else { self.0.server_receives() }
    }
}

#[test]
fn a_data_connection_of_ftp_comes_by_way_of_the_other_node() {
    let mut hosts = Asymmetric(Pair::started());
    let control = Tuple::v4(ip_protocol::TCP, (CLIENT, PORT), (SERVER, 21));
    let mut control = connect_ends(&mut hosts, INSIDE, control).expect("the firewall lets it out");
    for port in [5000, 5001, 5002] {
        let target = active_mode_at(&mut hosts, &mut control, port);
        let mut data = connect_ends(&mut hosts, OUTSIDE, data_from_server(target)).expect("it was announced");
        exchange_ends(&mut hosts, &mut data);
    }
    exchange_ends(&mut hosts, &mut control);
    assert_eq!(hosts.0.node(B).pipeline().counters().related, 3);
}

#[test]
fn a_word_that_is_late_does_not_take_a_connection_back_to_an_earlier_state() {
    let mut pair = Pair::started();
    pair.client_sends(A, PORT, syn(), b"");
    let seen = pair.server_receives().expect("the SYN passes").tuple.source_port;
    pair.is_link_held = true;
    pair.server_sends(A, seen, syn_ack(), b"");
    pair.client_sends(A, PORT, segment(ACK, 1001, 5001), b"");
    // All that B knows is the SYN, and what it makes of this is newer by version.
    pair.server_sends(B, seen, syn_ack(), b"");
    pair.is_link_held = false;
    pair.run(Duration::from_millis(10));
    let established = flow::conntrack::TcpState::Established as u8;
    for id in [A, B] {
        assert_eq!(pair.record(id, PORT).map(|record| record.protocol.state), Some(established), "node {id}");
    }
}

#[test]
fn what_a_node_left_behind_is_not_taken_for_its_own_when_it_comes_back() {
    let mut pair = Pair::started();
    let seen = pair.connect(PORT, A, B);
    pair.kill(A);
    pair.run_until("node B to hold all addresses", |pair| pair.holds_all(B));
    assert_eq!(pair.master(B, PORT), A, "nothing has come for the connection since");
    pair.restart(A);
    pair.run_until("node A to have its group again", Pair::have_each_their_own);
    assert_eq!((pair.master(A, PORT), pair.master(B, PORT)), (B, B));
    exchange(&mut pair, seen, [A, B], 1001, 5001);
    exchange(&mut pair, seen, [A, B], 1009, 5007);
    assert!(is_shared(&pair, A) && is_shared(&pair, B));
}

#[test]
fn a_first_reply_at_a_peer_waits_until_the_former_owner_knows_of_it() {
    let hold_first_reply = Duration::from_millis(250);
    let mut pair = Pair::start(Options { hold_first_reply, ..Options::default() });
    pair.client_sends(A, PORT, syn(), b"");
    let seen = pair.server_receives().expect("the SYN passes").tuple.source_port;
    pair.is_link_held = true;
    pair.server_sends(B, seen, syn_ack(), b"");
    pair.run(Duration::from_millis(5));
    assert!(pair.client_receives().is_none(), "should B die now, A would know of no answer");
    pair.is_link_held = false;
    pair.run(Duration::from_millis(5));
    assert!(pair.client_receives().is_some());
    pair.kill(B);
    pair.client_sends(A, PORT, segment(ACK, 1001, 5001), b"");
    assert!(pair.server_receives().is_some());
    pair.run_until("node A to know", |pair| pair.node(A).status(pair.now).peers[0].down_since.is_some());
    exchange(&mut pair, seen, [A, A], 1001, 5001);
}
