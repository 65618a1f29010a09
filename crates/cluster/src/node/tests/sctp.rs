//! An SCTP association through a cluster: translated, tracked, and taken over.

use std::vec;
use std::vec::Vec;

use flow::conntrack::state_name;
use flow::wire::ip_protocol::SCTP;
use flow::{DropReason, Tuple};

use super::cluster::{CLIENT, Cluster, Options, SERVER, SHARED_OUTSIDE};

/// The tags of packets to the client and to the server.
const TO_CLIENT: u32 = 0xaaaa_0001;
const TO_SERVER: u32 = 0xbbbb_0002;
const COOKIE_ECHO: &[u8] = &[10, 0, 0, 8, 1, 2, 3, 4];
const COOKIE_ACK: &[u8] = &[11, 0, 0, 4];
const ABORT: &[u8] = &[6, 0, 0, 4];
const SHUTDOWN: &[u8] = &[7, 0, 0, 8, 0, 0, 0, 1];
const SHUTDOWN_ACK: &[u8] = &[8, 0, 0, 4];
const SHUTDOWN_COMPLETE: &[u8] = &[14, 0, 0, 4];
const DATA: &[u8] = &[0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];

/// As the client knows it.
fn inside() -> Tuple {
    Tuple::v4(SCTP, (CLIENT, 2905), (SERVER, 2905))
}

/// INIT or INIT ACK, that offers a tag.
fn offering(kind: u8, tag: u32) -> Vec<u8> {
    let mut chunk = vec![kind, 0, 0, 20];
    chunk.extend(tag.to_be_bytes());
    chunk.extend([0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1]);
    chunk
}

/// The tuple under which the server receives it. (A packet's receiver checks its checksum.)
fn client_sends(cluster: &mut Cluster, tag: u32, chunks: &[u8]) -> Option<Tuple> {
    cluster.client_sends_frame(|envelope| envelope.sctp(&inside(), tag, chunks));
    let received = cluster.server_receives()?;
    assert!(received.bytes.ends_with(chunks));
    Some(received.tuple)
}

/// Whether the client receives it.
fn server_sends(cluster: &mut Cluster, outside: &Tuple, tag: u32, chunks: &[u8]) -> bool {
    cluster.server_sends_frame(|envelope| envelope.sctp(&outside.inverse(), tag, chunks));
    let received = cluster.client_receives();
    received.is_some_and(|received| received.tuple == inside().inverse() && received.bytes.ends_with(chunks))
}

/// Opens the association; returns how the server knows it.
fn open(cluster: &mut Cluster) -> Tuple {
    let outside = client_sends(cluster, 0, &offering(1, TO_CLIENT)).expect("the INIT passes");
    assert_eq!((outside.source_ip(), outside.destination_port), (SHARED_OUTSIDE.into(), 2905));
    assert!(server_sends(cluster, &outside, TO_CLIENT, &offering(2, TO_SERVER)));
    assert_eq!(client_sends(cluster, TO_SERVER, COOKIE_ECHO), Some(outside));
    assert!(server_sends(cluster, &outside, TO_CLIENT, COOKIE_ACK));
    outside
}

fn state(cluster: &Cluster, node: u8) -> &'static str {
    let pipeline = cluster.node(node).pipeline();
    let known = pipeline.lookup(&inside()).and_then(|(slot, _)| pipeline.connection(slot));
    known.map_or("", |connection| state_name(SCTP, &connection.protocol))
}

#[test]
fn an_association_goes_on_through_the_other_node_with_its_tags() {
    let mut cluster = Cluster::start(Options::default());
    let outside = open(&mut cluster);
    cluster.run_until("node 1 to know it", |cluster| state(cluster, 1) == "ESTABLISHED");
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());

    assert!(!server_sends(&mut cluster, &outside, 7, ABORT), "anybody could have sent this");
    assert_eq!(client_sends(&mut cluster, TO_CLIENT, DATA), None);
    assert_eq!(cluster.dropped(1, DropReason::InvalidSctpTag), 2);
    assert_eq!(state(&cluster, 1), "ESTABLISHED");

    assert!(server_sends(&mut cluster, &outside, TO_CLIENT, DATA));
    assert_eq!(client_sends(&mut cluster, TO_SERVER, DATA), Some(outside), "under the same port");
    assert_eq!(client_sends(&mut cluster, TO_SERVER, SHUTDOWN), Some(outside));
    assert_eq!(state(&cluster, 1), "SHUTDOWN_SENT");
    assert!(server_sends(&mut cluster, &outside, TO_CLIENT, SHUTDOWN_ACK));
    assert_eq!(client_sends(&mut cluster, TO_SERVER, SHUTDOWN_COMPLETE), Some(outside));
    assert_eq!(state(&cluster, 1), "CLOSED");
}

#[test]
fn a_handshake_goes_on_through_the_other_node() {
    let mut cluster = Cluster::start(Options::default());
    let outside = client_sends(&mut cluster, 0, &offering(1, TO_CLIENT)).expect("the INIT passes");
    assert!(server_sends(&mut cluster, &outside, TO_CLIENT, &offering(2, TO_SERVER)));
    cluster.run_until("node 1 to know it", |cluster| state(cluster, 1) == "COOKIE_WAIT");
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert_eq!(client_sends(&mut cluster, TO_SERVER, COOKIE_ECHO), Some(outside));
    assert!(server_sends(&mut cluster, &outside, TO_CLIENT, COOKIE_ACK));
    assert_eq!(state(&cluster, 1), "ESTABLISHED");
}

#[test]
fn nothing_but_an_init_begins_one_and_an_abort_ends_it() {
    let mut cluster = Cluster::start(Options::default());
    assert_eq!(client_sends(&mut cluster, 9, DATA), None);
    assert_eq!(cluster.dropped(0, DropReason::NoConnection), 1);
    let outside = open(&mut cluster);
    assert!(server_sends(&mut cluster, &outside, TO_CLIENT, ABORT));
    assert_eq!(state(&cluster, 0), "CLOSED");
    let reopened = open(&mut cluster);
    assert_eq!((state(&cluster, 0), cluster.connections(0)), ("ESTABLISHED", 1));
    assert_eq!(reopened.destination, outside.destination);
}
