//! What a node sends first: detection and heartbeats before replication, and the sessions of several peers in turn.

use std::vec::Vec;

use core::time::Duration;
use flow::wire::{build, ip_protocol};
use flow::{Frame, Instant, NodeId, PacketBatch, PortId, Tuple};

use super::cluster::{
    CLIENT, CLIENT_MAC, INSIDE, OUTSIDE, Options, ROOM_BYTES, SERVER, SERVER_MAC, SHARED_OUTSIDE, node_config,
    port_mac, started, syn,
};
use crate::node::{Node, NodeConfig, PeerConfig, Transmit};
use crate::role;
use replication::representation::Selection;

/// Connections that wait to be replicated: many datagrams for each peer.
const CONNECTIONS: u16 = 500;

fn with_two_peers() -> (Node, NodeConfig) {
    let options = Options { connections_max: 1024, ..Options::default() };
    let mut config = node_config(0, options);
    let second = PeerConfig { id: NodeId(2), ..config.peers[0].clone() };
    config.peers.push(second);
    // Connections are replicated from their first packet on.
    config.selection = Selection::Eager;
    let mut of_peer = node_config(1, options);
    of_peer.peers[0].id = NodeId(0);
    (started(config, options, Instant::from_millis(1)), of_peer)
}

fn begin_connection(node: &mut Node, now: Instant, port: u16) {
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
    let envelope =
        build::Envelope { source: CLIENT_MAC, destination: port_mac(0, INSIDE), ..build::Envelope::default() };
    hand_in(node, now, INSIDE, envelope.tcp(&tuple, syn(), b""));
}

fn hand_in(node: &mut Node, now: Instant, port: PortId, mut bytes: Vec<u8>) {
    let length_bytes = bytes.len();
    bytes.resize(length_bytes + ROOM_BYTES, 0);
    let mut batch = PacketBatch::new();
    batch.push(Frame::new(&mut bytes, 0, length_bytes, port).unwrap());
    node.handle_packets(now, &mut batch);
}

fn run(nodes: &mut [Node], now: &mut Instant, time: Duration) {
    let until = *now + time;
    let mut buffer = Vec::new();
    while *now < until {
        *now = *now + Duration::from_millis(1);
        nodes.iter_mut().for_each(|node| node.handle_timeout(*now));
        for from in 0..nodes.len() {
            while let Some(transmit) = nodes[from].poll_transmit(*now, &mut buffer) {
                let id = NodeId(from as u8);
                match transmit {
                    Transmit::Replication(to) => drop(nodes[usize::from(to.0)].handle_replication(*now, id, &buffer)),
                    Transmit::Detection(to) => drop(nodes[usize::from(to.0)].handle_detection(*now, id, &buffer, 255)),
                    Transmit::Port { .. } => {}
                }
            }
        }
    }
}

#[test]
fn detection_and_heartbeats_pass_a_long_replication_queue_and_peers_take_turns() {
    let (active, of_first) = with_two_peers();
    let options = Options { connections_max: 1024, ..Options::default() };
    let base = node_config(1, options);
    let of_second = NodeConfig { node: NodeId(2), peers: base.peers.clone(), ..base };
    let mut now = Instant::from_millis(1);
    let mut nodes = std::vec![active, started(of_first, options, now), started(of_second, options, now)];
    run(&mut nodes, &mut now, Duration::from_secs(1));
    assert!(nodes[0].holds_addresses());
    assert!(nodes[0].status(now).peers.iter().all(crate::node::PeerStatus::could_take_over));

    // Nobody answers the connections that fill the queue.
    nodes[0].set_start(now, replication::representation::Start::FirstPacket);
    // The server's link address is asked for, and answered.
    begin_connection(&mut nodes[0], now, 9_999);
    let asker = (port_mac(0, OUTSIDE), SHARED_OUTSIDE);
    hand_in(&mut nodes[0], now, OUTSIDE, build::arp_reply(SERVER_MAC, SERVER, asker));
    for port in 0..CONNECTIONS {
        begin_connection(&mut nodes[0], now, 10_000 + port);
    }
    // More than an interval of either later, with the queue as it is.
    now = now + Duration::from_millis(25);
    let mut buffer = Vec::new();
    let mut sent = Vec::new();
    while let Some(transmit) = nodes[0].poll_datagram(now, &mut buffer) {
        sent.push((transmit, role::is_heartbeat(&buffer)));
    }
    let control =
        |(transmit, is_heartbeat): &(Transmit, bool)| *is_heartbeat || matches!(transmit, Transmit::Detection(_));
    assert_eq!(sent.iter().filter(|it| control(it)).count(), 4, "detection and a heartbeat for each peer");
    assert!(sent.iter().take(4).all(control), "{sent:?}");
    let replicated: Vec<_> = sent[4..].iter().map(|(transmit, _)| *transmit).collect();
    assert!(replicated.len() >= 8, "a long queue: {replicated:?}");
    let of = |id| Transmit::Replication(NodeId(id));
    let first = if replicated[0] == of(1) { [of(1), of(2)] } else { [of(2), of(1)] };
    assert!(replicated.chunks_exact(2).all(|pair| pair == first), "the peers take turns: {replicated:?}");
}
