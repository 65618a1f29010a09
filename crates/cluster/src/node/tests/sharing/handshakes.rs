//! Whole connections whose segments come by either node, whatever the link between the nodes does.

use std::time::Duration;
use std::vec::Vec;

use flow::wire::{Transport, ip_protocol, tcp_flags};
use flow::{PortId, Tuple};

use super::super::cluster::{CLIENT, INSIDE, OUTSIDE, Options, Received, SERVER, segment};
use super::end_points::{EndPoint, Sent};
use super::pair::{A, B, Pair};

/// By which node each kind of segment goes.
#[derive(Clone, Copy, Debug)]
struct Paths {
    syn: u8,
    syn_ack: u8,
    from_client: u8,
    from_server: u8,
    fins: [u8; 2],
}

impl Paths {
    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        (0..64_u8).map(|bits| {
            let bit = |number: u8| bits >> number & 1;
            Self { syn: bit(0), syn_ack: bit(1), from_client: bit(2), from_server: bit(3), fins: [bit(4), bit(5)] }
        })
    }

    /// Those of two asymmetric directions, each of which keeps to its node.
    fn asymmetric() -> [Self; 2] {
        [(A, B), (B, A)].map(|(out, back)| Self {
            syn: out,
            syn_ack: back,
            from_client: out,
            from_server: back,
            fins: [out, back],
        })
    }

    fn of(&self, is_client: bool, sent: &Sent) -> u8 {
        let is = |flag: u8| sent.flags & flag != 0;
        match is_client {
            true if is(tcp_flags::SYN) => self.syn,
            false if is(tcp_flags::SYN) => self.syn_ack,
            _ if is(tcp_flags::FIN) => self.fins[usize::from(!is_client)],
            true => self.from_client,
            false => self.from_server,
        }
    }
}

/// How long a host takes to answer.
#[derive(Clone, Copy, Debug)]
struct Answers(Duration);

struct Outcome {
    retransmissions: u32,
}

/// A client and a server exchange some bytes and close.
fn play(pair: &mut Pair, port: u16, paths: Paths, answers: Answers, closes_second: bool) -> Outcome {
    let began = pair.now;
    let mut client = EndPoint::new(true, u32::MAX - 700, 1200, false);
    let mut server = EndPoint::new(false, u32::MAX - 1500, 2600, closes_second);
    let to_server = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
    let mut to_client = None;
    let mut arrived: Vec<(flow::Instant, bool, Received)> = Vec::new();
    while !(client.is_done() && server.is_done()) {
        assert!(pair.now.saturating_since(began) < Duration::from_secs(20), "stuck: {paths:?}");
        for sent in client.poll(pair.now) {
            send(pair, paths.of(true, &sent), INSIDE, &to_server, &sent);
        }
        if let Some(tuple) = to_client {
            for sent in server.poll(pair.now) {
                send(pair, paths.of(false, &sent), OUTSIDE, &tuple, &sent);
            }
        }
        let at = pair.now + answers.0;
        arrived.extend(core::iter::from_fn(|| pair.client_receives()).map(|received| (at, true, received)));
        arrived.extend(core::iter::from_fn(|| pair.server_receives()).map(|received| (at, false, received)));
        let now = pair.now;
        for (_, is_client, received) in arrived.extract_if(.., |(at, ..)| *at <= now) {
            let Transport::Tcp(tcp) = received.headers.transport else { panic!("TCP only") };
            if is_client {
                assert_eq!(received.tuple, to_server.inverse(), "the client knows the server by its name");
                client.receive(&tcp);
            } else {
                let back = *to_client.get_or_insert(received.tuple.inverse());
                assert_eq!(received.tuple.inverse(), back, "the client is seen under one name");
                server.receive(&tcp);
            }
        }
        pair.step();
    }
    Outcome { retransmissions: client.retransmissions + server.retransmissions }
}

fn send(pair: &mut Pair, via: u8, port: PortId, tuple: &Tuple, sent: &Sent) {
    let payload = std::vec![b'x'; sent.payload_bytes as usize];
    let segment = segment(sent.flags, sent.sequence, sent.acknowledgement);
    pair.host_sends(via, port, |envelope| envelope.tcp(tuple, segment, &payload));
}

/// Nothing is left of what was played: both nodes hold the same, all of it closed.
fn settle(pair: &mut Pair, connections: u32) {
    pair.run(Duration::from_millis(300));
    for id in [A, B] {
        let table = pair.node(id).pipeline().table();
        assert!(table.len() <= connections, "node {id}");
    }
}

fn translated_or_not() -> [Options; 2] {
    [true, false].map(|is_translated| Options { is_translated, ..Options::default() })
}

#[test]
fn no_segment_is_lost_to_a_slow_link_between_the_nodes() {
    for options in translated_or_not() {
        let mut pair = Pair::start(options);
        let mut port = 30_000;
        for delay_ms in [0, 1, 5] {
            pair.delay = Duration::from_millis(delay_ms);
            for (paths, answers_ms) in Paths::asymmetric().into_iter().flat_map(|paths| [(paths, 0), (paths, 3)]) {
                for closes_second in [false, true] {
                    port += 1;
                    let answers = Answers(Duration::from_millis(answers_ms));
                    let outcome = play(&mut pair, port, paths, answers, closes_second);
                    assert_eq!(
                        outcome.retransmissions, 0,
                        "{paths:?} delay {delay_ms} ms, answers after {answers_ms} ms, {closes_second}"
                    );
                }
            }
        }
        settle(&mut pair, u32::from(port - 30_000));
    }
}

#[test]
fn whichever_way_each_segment_goes_the_connection_is_whole() {
    for options in translated_or_not() {
        let mut pair = Pair::start(options);
        let mut port = 30_000;
        for delay_ms in [0, 1, 5] {
            pair.delay = Duration::from_millis(delay_ms);
            for paths in Paths::all() {
                port += 1;
                play(&mut pair, port, paths, Answers(Duration::from_millis(1)), port % 2 == 0);
            }
        }
        settle(&mut pair, u32::from(port - 30_000));
    }
}

/// Of asymmetric connections over a link that loses every fifth datagram: how many need a retransmission.
fn hampered(options: Options, wait_for_peer: Duration) -> u32 {
    const PLAYS: u16 = 200;
    let mut pair = Pair::start(options);
    for id in [A, B] {
        pair.node_mut(id).pipeline_mut().set_wait_for_peer(wait_for_peer);
    }
    pair.delay = Duration::from_millis(1);
    pair.loss_percent = 20;
    let mut hampered = 0;
    for port in 0..PLAYS {
        let paths = Paths::asymmetric()[usize::from(port % 2)];
        let outcome = play(&mut pair, 30_000 + port, paths, Answers(Duration::from_millis(1)), port % 3 == 0);
        hampered += u32::from(outcome.retransmissions > 0);
    }
    hampered
}

#[test]
fn a_link_that_loses_every_fifth_datagram_breaks_nothing_and_hampers_few_that_waiting_helps() {
    for options in translated_or_not() {
        let [without, with] = [0, 20].map(|wait_ms| hampered(options, Duration::from_millis(wait_ms)));
        assert!(with * 2 < without, "{with} of 200 connections repeat something, {without} if nothing waits");
    }
}

#[test]
fn whichever_way_each_segment_goes_a_link_that_loses_breaks_nothing() {
    for options in translated_or_not() {
        let mut pair = Pair::start(options);
        pair.loss_percent = 20;
        let mut port = 30_000;
        for delay_ms in [0, 1, 5] {
            pair.delay = Duration::from_millis(delay_ms);
            pair.seed(delay_ms + 1);
            for (paths, closes_second) in Paths::all().flat_map(|paths| [(paths, false), (paths, true)]) {
                port += 1;
                play(&mut pair, port, paths, Answers(Duration::from_millis(1)), closes_second);
            }
        }
    }
}
