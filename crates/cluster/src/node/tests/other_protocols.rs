//! Protocols without an automaton of their own: GRE, ESP and whatever else comes.

use std::time::Duration;

use flow::{DropReason, Tuple};

use super::cluster::{CLIENT, Cluster, Options, SERVER, SHARED_OUTSIDE};

const GRE: u8 = 47;
const ESP: u8 = 50;
const PROTOCOLS: [u8; 2] = [GRE, ESP];
/// The first bytes of a payload: what would be ports, if anybody took them for ports.
const PAYLOAD: &[u8] = &[0x12, 0x34, 0x00, 0x50, 1, 2, 3, 4, 5, 6, 7, 8];

fn client_sends(cluster: &mut Cluster, protocol: u8) {
    let tuple = Tuple::v4(protocol, (CLIENT, 0), (SERVER, 0));
    cluster.client_sends_frame(|envelope| envelope.raw(&tuple, PAYLOAD));
}

fn server_sends(cluster: &mut Cluster, protocol: u8) {
    let tuple = Tuple::v4(protocol, (SERVER, 0), (SHARED_OUTSIDE, 0));
    cluster.server_sends_frame(|envelope| envelope.raw(&tuple, PAYLOAD));
}

/// A packet in each direction passes; addresses are translated and nothing else.
fn assert_passes_both_ways(cluster: &mut Cluster, protocol: u8) {
    client_sends(cluster, protocol);
    let seen = cluster.server_receives().expect("the client's packet passes");
    assert_eq!(seen.tuple, Tuple::v4(protocol, (SHARED_OUTSIDE, 0), (SERVER, 0)));
    assert!(seen.bytes.ends_with(PAYLOAD), "protocol {protocol}: the payload is nobody's business");
    server_sends(cluster, protocol);
    let answer = cluster.client_receives().expect("the answer passes");
    assert_eq!(answer.tuple, Tuple::v4(protocol, (SERVER, 0), (CLIENT, 0)));
    assert!(answer.bytes.ends_with(PAYLOAD));
}

#[test]
fn they_pass_both_ways_with_their_address_translated_and_nothing_else() {
    let mut cluster = Cluster::start(Options::default());
    for (number, protocol) in (1..).zip(PROTOCOLS) {
        assert_passes_both_ways(&mut cluster, protocol);
        assert_passes_both_ways(&mut cluster, protocol);
        assert_eq!(cluster.connections(0), number, "each protocol is a connection of its own");
    }
}

#[test]
fn nobody_begins_them_from_outside() {
    let mut cluster = Cluster::start(Options::default());
    for protocol in PROTOCOLS {
        server_sends(&mut cluster, protocol);
        assert!(cluster.client_receives().is_none());
    }
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 2);
    assert_eq!(cluster.connections(0), 0);
}

#[test]
fn they_go_on_through_the_other_node_when_the_active_one_dies() {
    let mut cluster = Cluster::start(Options::default());
    for protocol in PROTOCOLS {
        assert_passes_both_ways(&mut cluster, protocol);
    }
    cluster.run_until("node 1 to know them", |cluster| cluster.connections(1) == 2);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    for protocol in PROTOCOLS {
        server_sends(&mut cluster, protocol);
        let first = cluster.client_receives().expect("the server may be the first to send");
        assert_eq!(first.tuple, Tuple::v4(protocol, (SERVER, 0), (CLIENT, 0)));
        assert_passes_both_ways(&mut cluster, protocol);
    }
    assert_eq!(cluster.node(1).pipeline().counters().taken_over, 2);
}

#[test]
fn they_end_ten_minutes_after_the_last_packet() {
    let mut cluster = Cluster::start(Options::default());
    assert_passes_both_ways(&mut cluster, GRE);
    let run_s = |cluster: &mut Cluster, seconds: u64| {
        let until = cluster.now + Duration::from_secs(seconds);
        while cluster.now < until {
            cluster.run(Duration::from_millis(500));
        }
    };
    run_s(&mut cluster, 590);
    assert_passes_both_ways(&mut cluster, GRE);
    run_s(&mut cluster, 590);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 1), "the packets have renewed it");
    run_s(&mut cluster, 20);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (0, 0));
}
