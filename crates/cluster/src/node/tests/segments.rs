//! Unacknowledged segments: replicated by the owner, resent by the node that takes over.

use std::time::Duration;
use std::vec::Vec;

use flow::wire::{Transport, build, ip_protocol, tcp_flags};
use flow::{NodeId, Tuple};
use replication::message::SegmentMessage;

use super::cluster::{CLIENT, Cluster, Options, Received, SERVER, SHARED_OUTSIDE, segment, syn, syn_ack};
use super::{ACK, FIN_ACK, events, exchange};
use crate::node::NodeEvent;
use crate::pipeline::{SegmentCounters, SegmentPolicy, SegmentsConfig, SegmentsResent};

fn start(options: Options, policy: SegmentPolicy) -> Cluster {
    let mut cluster = Cluster::start(options);
    let config = SegmentsConfig { policy, ..SegmentsConfig::default() };
    for id in [0, 1] {
        cluster.node_mut(id).set_segments(Some(config));
    }
    cluster
}

fn always() -> Cluster {
    start(Options::default(), SegmentPolicy::Always)
}

fn fail_over(cluster: &mut Cluster) {
    cluster.run(Duration::from_millis(20));
    events(cluster, 1);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.run(Duration::from_millis(20));
}

fn counters(cluster: &Cluster, id: u8) -> SegmentCounters {
    cluster.node(id).segments_status().expect("it is on").counters
}

fn resent(cluster: &mut Cluster) -> Vec<SegmentsResent> {
    let of = |event| if let NodeEvent::SegmentsResent(resent) = event { Some(resent) } else { None };
    events(cluster, 1).into_iter().filter_map(of).collect()
}

fn sequence(received: &Received) -> u32 {
    let Transport::Tcp(segment) = received.headers.transport else { panic!("it is TCP") };
    segment.sequence
}

#[test]
fn a_take_over_resends_the_lowest_unacknowledged_segment_of_each_direction_once() {
    let mut cluster = always();
    let seen_port = cluster.connect(40_000);
    for (sequence, payload) in [(1001, b"first."), (1007, b"second")] {
        cluster.client_sends(40_000, segment(ACK, sequence, 5001), payload);
        assert!(cluster.server_receives().is_some());
    }
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"reply");
    assert!(cluster.client_receives().is_some());

    fail_over(&mut cluster);
    let to_server = cluster.server_receives().expect("the client's segment is resent");
    assert_eq!(to_server.tuple, Tuple::v4(ip_protocol::TCP, (SHARED_OUTSIDE, seen_port), (SERVER, 80)));
    assert!(sequence(&to_server) == 1001 && to_server.bytes.ends_with(b"first."));
    let to_client = cluster.client_receives().expect("the server's segment is resent");
    assert_eq!(to_client.tuple, Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, 40_000)));
    assert!(sequence(&to_client) == 5001 && to_client.bytes.ends_with(b"reply"));
    cluster.run(Duration::from_secs(2));
    assert!(cluster.server_receives().is_none() && cluster.client_receives().is_none(), "once each");
    assert_eq!(resent(&mut cluster), [SegmentsResent { syns: 0, segments: 2, dropped: 0 }]);
    // The server acknowledges all that the dead node had forwarded.
    cluster.server_sends(seen_port, segment(ACK, 5006, 1013), b"");
    assert!(cluster.client_receives().is_some(), "the windows of the new owner permit it");
    exchange(&mut cluster, 40_000, seen_port, 1013, 5006);
}

#[test]
fn a_take_over_resends_a_syn_that_was_not_answered() {
    for policy in [SegmentPolicy::SynOnly, SegmentPolicy::Always] {
        let mut cluster = start(Options::default(), policy);
        cluster.client_sends(40_000, syn(), b"");
        assert!(cluster.server_receives().is_some());
        fail_over(&mut cluster);
        let resent_syn = cluster.server_receives().expect("the SYN is resent");
        cluster.server_sends(resent_syn.tuple.source_port, syn_ack(), b"");
        let answer = cluster.client_receives().expect("the answer passes");
        assert_eq!(answer.tuple, Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, 40_000)));
        assert_eq!(resent(&mut cluster), [SegmentsResent { syns: 1, segments: 0, dropped: 0 }]);
    }
}

#[test]
fn a_take_over_resends_a_syn_ack_that_was_not_acknowledged() {
    let mut cluster = start(Options::default(), SegmentPolicy::SynOnly);
    cluster.client_sends(40_000, syn(), b"");
    let seen_port = cluster.server_receives().expect("the SYN passes").tuple.source_port;
    cluster.server_sends(seen_port, syn_ack(), b"");
    assert!(cluster.client_receives().is_some());
    fail_over(&mut cluster);
    assert!(cluster.server_receives().is_none(), "the SYN was answered");
    assert!(cluster.client_receives().is_some(), "the SYN/ACK is resent");
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_some());
}

#[test]
fn acknowledged_segments_are_not_resent() {
    let mut cluster = always();
    let seen_port = cluster.connect(40_000);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    cluster.client_sends(40_000, segment(ACK, 1009, 5007), b"");
    assert!(cluster.server_receives().is_some());
    fail_over(&mut cluster);
    assert!(cluster.server_receives().is_none() && cluster.client_receives().is_none());
    assert!(counters(&cluster, 1).received >= 2, "they were replicated");
    assert_eq!(cluster.node(1).segments_status().expect("it is on").of_peers, 0);
}

#[test]
fn what_a_newer_update_acknowledges_is_dropped_though_the_message_was_lost() {
    let mut cluster = always();
    let seen_port = cluster.connect(40_000);
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_some());
    cluster.run(Duration::from_millis(20));
    assert_eq!(cluster.node(1).segments_status().expect("it is on").of_peers, 1);
    // From now on node 0 reports nothing of segments, but the end of its server's stream.
    cluster.node_mut(0).set_segments(None);
    cluster.server_sends(seen_port, segment(FIN_ACK, 5001, 1009), b"");
    assert!(cluster.client_receives().is_some());
    cluster.run(Duration::from_millis(20));
    assert_eq!(cluster.node(1).segments_status().expect("it is on").of_peers, 0);
    fail_over(&mut cluster);
    assert!(cluster.server_receives().is_none());
}

#[test]
fn nothing_is_resent_to_a_connection_that_was_reset() {
    let mut cluster = always();
    let seen_port = cluster.connect(40_000);
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_some());
    cluster.run(Duration::from_millis(20));
    cluster.server_sends(seen_port, segment(tcp_flags::RST | ACK, 5001, 1001), b"");
    assert!(cluster.client_receives().is_some());
    fail_over(&mut cluster);
    assert!(cluster.server_receives().is_none() && cluster.client_receives().is_none());
}

#[test]
fn nothing_is_replicated_or_resent_unless_configured() {
    let mut cluster = Cluster::start(Options::default());
    let _ = cluster.connect(40_000);
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_some());
    fail_over(&mut cluster);
    assert!(cluster.server_receives().is_none());
    assert!(cluster.node(1).segments_status().is_none() && resent(&mut cluster).is_empty());
}

#[test]
fn a_peer_without_the_section_ignores_the_messages_and_takes_over_as_ever() {
    let mut cluster = Cluster::start(Options::default());
    cluster.node_mut(0).set_segments(Some(SegmentsConfig::default()));
    let seen_port = cluster.connect(40_000);
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_some());
    cluster.run(Duration::from_millis(20));
    assert!(counters(&cluster, 0).sent > 0);
    let session = cluster.node(1).status(cluster.now).peers[0].session.expect("there is one");
    assert_eq!(session.bad_datagrams, 0);
    fail_over(&mut cluster);
    assert!(cluster.server_receives().is_none());
    exchange(&mut cluster, 40_000, seen_port, 1009, 5001);
}

#[test]
fn messages_travel_in_the_secure_channel() {
    let mut cluster = start(Options { keys: Some([7, 7]), ..Options::default() }, SegmentPolicy::Always);
    let _ = cluster.connect(40_000);
    // A whole segment does not fit a datagram: its beginning is held.
    let payload = [b'x'; 1460];
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), &payload);
    assert!(cluster.server_receives().is_some());
    fail_over(&mut cluster);
    let resent_segment = cluster.server_receives().expect("the segment is resent");
    assert_eq!(sequence(&resent_segment), 1001);
    let length = resent_segment.bytes.len() - usize::from(resent_segment.headers.payload_offset);
    assert!((1000..1460).contains(&length), "{length}");
}

#[test]
fn messages_that_no_honest_node_sends_are_refused_and_harm_nothing() {
    let mut cluster = always();
    let seen_port = cluster.connect(40_000);
    cluster.run(Duration::from_millis(20));
    let now = cluster.now;
    let acknowledgement =
        build::tcp(&Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80)), segment(ACK, 1, 1), b"");
    for packet in [&b""[..], b"E", &[0x45; 60], &[0x60; 60], &acknowledgement[14..]] {
        cluster.node_mut(1).pipeline_mut().note_segment_message(now, NodeId(0), &SegmentMessage::Held(packet));
    }
    assert_eq!(cluster.node(1).segments_status().expect("it is on").of_peers, 0);
    assert!(counters(&cluster, 1).refused >= 5);
    fail_over(&mut cluster);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn with_two_groups_the_survivor_resends_what_the_dead_node_forwarded() {
    let mut cluster = start(Options { has_groups: true, ..Options::default() }, SegmentPolicy::Always);
    cluster.run(Duration::from_secs(1));
    assert!(cluster.node(0).holds_addresses() && cluster.node(1).holds_addresses(), "each has a group");
    cluster.client_sends(40_000, syn(), b"");
    assert!(cluster.server_receives().is_some());
    cluster.run(Duration::from_millis(20));
    assert_eq!(cluster.node(1).segments_status().expect("it is on").of_peers, 1);
    cluster.kill(0);
    cluster.run(Duration::from_secs(1));
    assert!(cluster.server_receives().is_some(), "the SYN is resent");
    assert_eq!(counters(&cluster, 1).syns_resent, 1);
}
