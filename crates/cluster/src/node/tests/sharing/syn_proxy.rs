//! A SYN proxy where both nodes forward: each packet of a handshake may come to either.

use std::time::Duration;

use flow::wire::{TcpSegment, Transport, build, tcp_flags};
use network_functions::syn_proxy::{Mode, Phase, SynProxyState};

use super::super::cluster::{Options, Received, segment, syn};
use super::pair::{A, B, Pair};

const ACK: u8 = tcp_flags::ACK;

fn tcp(received: &Received) -> TcpSegment {
    let Transport::Tcp(segment) = received.headers.transport else { panic!("TCP only") };
    segment
}

/// A handshake, each packet by way of the node that `via` names. Returns the cookie, and the port that the server sees.
fn handshake(pair: &mut Pair, isn: u32, server: u32, via: [u8; 3]) -> (u32, u16) {
    pair.client_sends(via[0], 40_000, build::Tcp { sequence: isn, ..syn() }, b"");
    assert!(pair.server_receives().is_none(), "{via:?}: the SYN does not pass the proxy");
    let cookie = tcp(&pair.client_receives().expect("the proxy answers")).sequence;
    pair.client_sends(via[1], 40_000, segment(ACK, isn + 1, cookie.wrapping_add(1)), b"");
    let seen = pair.server_receives().expect("the SYN to the server").tuple.source_port;
    pair.server_sends(via[2], seen, segment(tcp_flags::SYN | ACK, server, isn + 1), b"");
    pair.run(Duration::from_millis(5));
    let update = tcp(&pair.client_receives().expect("the client's window opens"));
    assert_eq!((update.flags, update.sequence), (ACK, cookie.wrapping_add(1)), "{via:?}");
    let acknowledged = tcp(&pair.server_receives().expect("the server is acknowledged"));
    assert_eq!((acknowledged.sequence, acknowledged.acknowledgement), (isn + 1, server + 1));
    pair.run(Duration::from_millis(5));
    (cookie, seen)
}

/// Data passes both ways by way of either node.
fn exchange(pair: &mut Pair, (cookie, seen): (u32, u16), isn: u32, server: u32) {
    let mut next = (isn + 1, server + 1);
    for (out, back) in [(A, B), (B, A), (A, A), (B, B)] {
        let question = build::Tcp { acknowledgement: cookie.wrapping_add(next.1 - server), ..segment(ACK, next.0, 0) };
        pair.client_sends(out, 40_000, question, b"question");
        let question = tcp(&pair.server_receives().expect("the question passes"));
        assert_eq!((question.sequence, question.acknowledgement), next);
        next.0 += 8;
        pair.server_sends(back, seen, segment(ACK, next.1, next.0), b"answer");
        let answer = tcp(&pair.client_receives().expect("the answer passes"));
        assert_eq!((answer.sequence, answer.acknowledgement), (cookie.wrapping_add(next.1 - server), next.0));
        next.1 += 6;
        pair.run(Duration::from_millis(5));
    }
}

/// The ways of three packets.
fn ways(number: u8) -> [u8; 3] {
    [0, 1, 2].map(|bit| if number >> bit & 1 == 0 { A } else { B })
}

fn started() -> Pair {
    Pair::start(Options { syn_proxy: Mode::Always, ..Options::default() })
}

#[test]
fn a_handshake_opens_whichever_node_its_packets_come_to() {
    for number in 0..8 {
        let mut pair = started();
        let opened = handshake(&mut pair, 1000, 5000, ways(number));
        exchange(&mut pair, opened, 1000, 5000);
    }
}

#[test]
fn a_client_that_returns_from_its_port_is_proxied_anew_whichever_node_its_packets_come_to() {
    for number in 0..16 {
        let mut pair = started();
        let (_, seen) = handshake(&mut pair, 1000, 5000, [A; 3]);
        pair.server_sends(if number < 8 { A } else { B }, seen, segment(tcp_flags::RST | ACK, 5001, 1001), b"");
        pair.run(Duration::from_millis(5));
        pair.client_receives().expect("the reset passes");
        let opened = handshake(&mut pair, 900_000, 70_000, ways(number));
        exchange(&mut pair, opened, 900_000, 70_000);
        let phases = [A, B].map(|id| {
            let chain = pair.node(id).pipeline().chain();
            pair.record(id, 40_000)
                .and_then(|record| chain.state_of::<SynProxyState>(record).map(|state| state.phase()))
        });
        assert_eq!(phases, [Some(Phase::Open); 2], "{number}");
    }
}
