//! A SYN proxy where both nodes forward: each packet of a handshake may come to either.

use std::time::Duration;

use flow::wire::{TcpSegment, Transport, build, tcp_flags};
use network_functions::syn_proxy::Mode;

use super::super::cluster::{Options, Received, segment, syn};
use super::pair::{A, B, Pair};

const ACK: u8 = tcp_flags::ACK;

fn tcp(received: &Received) -> TcpSegment {
    let Transport::Tcp(segment) = received.headers.transport else { panic!("TCP only") };
    segment
}

/// Each packet by way of the node that `via` names, then data both ways by way of either node.
fn opens(via: [u8; 3]) {
    let mut pair = Pair::start(Options { syn_proxy: Mode::Always, ..Options::default() });
    pair.client_sends(via[0], 40_000, syn(), b"");
    let cookie = tcp(&pair.client_receives().expect("the proxy answers")).sequence;
    pair.client_sends(via[1], 40_000, segment(ACK, 1001, cookie.wrapping_add(1)), b"");
    let seen = pair.server_receives().expect("the SYN to the server").tuple.source_port;
    pair.server_sends(via[2], seen, segment(tcp_flags::SYN | ACK, 5000, 1001), b"");
    pair.run(Duration::from_millis(5));
    let update = tcp(&pair.client_receives().expect("the client's window opens"));
    assert_eq!((update.flags, update.sequence), (ACK, cookie.wrapping_add(1)), "{via:?}");
    let acknowledged = tcp(&pair.server_receives().expect("the server is acknowledged"));
    assert_eq!((acknowledged.sequence, acknowledged.acknowledgement), (1001, 5001));
    pair.run(Duration::from_millis(5));
    let mut next = (1001, 5001);
    for (out, back) in [(A, B), (B, A), (A, A), (B, B)] {
        let question = build::Tcp { acknowledgement: cookie.wrapping_add(next.1 - 5000), ..segment(ACK, next.0, 0) };
        pair.client_sends(out, 40_000, question, b"question");
        let question = tcp(&pair.server_receives().expect("the question passes"));
        assert_eq!((question.sequence, question.acknowledgement), next, "{via:?}");
        next.0 += 8;
        pair.server_sends(back, seen, segment(ACK, next.1, next.0), b"answer");
        let answer = tcp(&pair.client_receives().expect("the answer passes"));
        assert_eq!((answer.sequence, answer.acknowledgement), (cookie.wrapping_add(next.1 - 5000), next.0), "{via:?}");
        next.1 += 6;
        pair.run(Duration::from_millis(5));
    }
}

#[test]
fn a_handshake_opens_whichever_node_its_packets_come_to() {
    for number in 0..8 {
        opens([0, 1, 2].map(|bit| if number >> bit & 1 == 0 { A } else { B }));
    }
}
