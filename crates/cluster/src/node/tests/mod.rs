//! Scenarios with two nodes: what a client and a server see.

mod addresses;
mod anti_entropy;
mod backups;
mod below;
mod classes;
mod cluster;
mod compact;
mod compact_failovers;
mod compact_groups;
mod control_first;
mod deferral;
mod direct_return;
mod failed_backends;
mod fast_path;
mod ftp;
mod ftp_workers;
mod groups;
mod large_packets;
mod lookup;
mod mirroring;
mod observing;
mod operations;
mod other_protocols;
mod paths;
mod pause;
mod peers;
mod quotations;
mod readiness;
mod rebirth;
mod refusals;
mod sctp;
mod secured;
mod sharing;
mod site;
mod strays;
mod syn_proxy;
mod tracking;
mod two_sites;
mod unanswered;
mod url_filter;
mod workers;

use std::time::Duration;
use std::vec::Vec;

use flow::wire::{Transport, build, ip_protocol, tcp_flags};
use flow::{DropReason, NodeId, Tuple};

use super::NodeEvent;
use crate::failure_detector::State;
use cluster::{CLIENT, Cluster, OUTSIDE, Options, SERVER, SHARED_OUTSIDE, segment, syn, syn_ack};

const ACK: u8 = tcp_flags::ACK;
const FIN_ACK: u8 = tcp_flags::FIN | tcp_flags::ACK;

fn events(cluster: &mut Cluster, id: u8) -> Vec<NodeEvent> {
    let mut events = Vec::new();
    while let Some((_, event)) = cluster.node_mut(id).poll_event() {
        events.push(event);
    }
    events
}

/// Data in both directions passes, under the translation made at the beginning.
fn exchange(cluster: &mut Cluster, port: u16, seen_port: u16, sequence: u32, acknowledgement: u32) {
    cluster.client_sends(port, segment(ACK, sequence, acknowledgement), b"question");
    let question = cluster.server_receives().expect("the question passes");
    assert_eq!(question.tuple, Tuple::v4(ip_protocol::TCP, (SHARED_OUTSIDE, seen_port), (SERVER, 80)));
    cluster.server_sends(seen_port, segment(ACK, acknowledgement, sequence + 8), b"answer");
    let answer = cluster.client_receives().expect("the answer passes");
    assert_eq!(answer.tuple, Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, port)));
}

#[test]
fn a_connection_goes_on_through_the_other_node_when_the_active_one_dies() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    assert_eq!(cluster.connections(1), 1, "the standby has a copy");
    events(&mut cluster, 1);

    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    // Far beyond what the replica has seen of the connection.
    exchange(&mut cluster, 40_000, seen_port, 1_000_009, 2_000_007);

    let NodeEvent::BecameActive { term, .. } = events(&mut cluster, 1)[1] else { panic!("taking over comes second") };
    assert_eq!(cluster.node(1).pipeline().counters().taken_over, 1);
    assert!(term > 1, "a later take-over than the first node's");
}

#[test]
fn a_take_over_is_reported_in_order() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    events(&mut cluster, 1);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    let reported = events(&mut cluster, 1);
    let order: Vec<_> = reported.iter().filter(|event| !matches!(event, NodeEvent::ReplicationDown(_))).collect();
    assert!(
        matches!(
            order[..],
            [
                NodeEvent::PeerDown(NodeId(0)),
                NodeEvent::BecameActive { .. },
                NodeEvent::AddressesAnnounced { .. },
                NodeEvent::FirstPacketAfterTakeOver
            ]
        ),
        "{reported:?}"
    );
}

#[test]
fn without_replication_the_connection_is_not_known_to_the_other_node() {
    let mut cluster = Cluster::start(Options { replicates: false, ..Options::default() });
    let _ = cluster.connect(40_000);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.dropped(1, DropReason::NoConnection), 1);
}

#[test]
fn a_node_that_stands_by_passes_nothing() {
    let mut cluster = Cluster::start(Options::default());
    cluster.client_sends(40_000, syn(), b"");
    assert!(cluster.server_receives().is_some());
    assert!(cluster.server_receives().is_none(), "the SYN reached both nodes and passed one");
    assert_eq!(cluster.node(1).pipeline().counters().forwarded, 0);
}

#[test]
fn what_the_firewall_does_not_allow_begins_no_connection() {
    let mut cluster = Cluster::start(Options::default());
    cluster.server_sends(2000, syn(), b"");
    assert!(cluster.client_receives().is_none());
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 1);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (0, 0));
}

#[test]
fn first_replies_do_not_wait_for_a_backup_that_is_dead() {
    let hold_first_reply = Duration::from_secs(30);
    let mut cluster = Cluster::start(Options { hold_first_reply, ..Options::default() });
    cluster.kill(1);
    cluster.client_sends(40_000, syn(), b"");
    let seen = cluster.server_receives().expect("the SYN passes at once").tuple;
    cluster.server_sends(seen.source_port, syn_ack(), b"");
    assert!(cluster.client_receives().is_none(), "that the backup is dead is not known yet");
    let is_down = |cluster: &Cluster| cluster.node(0).status(cluster.now).peers[0].detector.state == State::Down;
    cluster.run_until("the backup to count as dead", is_down);
    cluster.run(Duration::from_millis(2));
    assert!(cluster.client_receives().is_some(), "nothing is left to wait for");
    let _ = cluster.connect(40_001);
    assert_eq!(cluster.node(0).status(cluster.now).replies_held, 1, "the next one does not wait at all");
}

#[test]
fn the_first_reply_waits_until_the_backup_knows_the_connection() {
    let hold_first_reply = Duration::from_secs(1);
    let mut cluster = Cluster::start(Options { hold_first_reply, ..Options::default() });
    cluster.is_replication_down = true;
    cluster.client_sends(40_000, syn(), b"");
    let seen = cluster.server_receives().expect("the SYN passes at once").tuple;
    cluster.server_sends(seen.source_port, syn_ack(), b"");
    assert!(cluster.client_receives().is_none(), "the backup knows nothing yet");

    cluster.is_replication_down = false;
    let before = cluster.now;
    cluster.run_until("the reply to be let go", |cluster| cluster.connections(1) == 1);
    cluster.run(Duration::from_millis(2));
    assert!(cluster.client_receives().is_some());
    assert!(cluster.now.saturating_since(before) < Duration::from_millis(150), "a lost message is soon retransmitted");
    let status = cluster.node(0).status(cluster.now);
    assert_eq!((status.replies_held, status.replies_overdue), (1, 0));
}

#[test]
fn a_reply_that_no_backup_confirms_is_let_go_when_its_time_is_over() {
    let hold_first_reply = Duration::from_millis(20);
    let mut cluster = Cluster::start(Options { hold_first_reply, ..Options::default() });
    cluster.is_replication_down = true;
    cluster.client_sends(40_000, syn(), b"");
    let seen = cluster.server_receives().expect("the SYN passes at once").tuple;
    cluster.server_sends(seen.source_port, syn_ack(), b"");
    cluster.run(Duration::from_millis(19));
    assert!(cluster.client_receives().is_none());
    cluster.run(Duration::from_millis(2));
    assert!(cluster.client_receives().is_some());
    assert_eq!(cluster.node(0).status(cluster.now).replies_overdue, 1);
}

#[test]
fn a_connection_that_times_out_ends_on_both_nodes() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    cluster.client_sends(40_000, segment(FIN_ACK, 1001, 5001), b"");
    cluster.server_sends(seen_port, segment(FIN_ACK, 5001, 1002), b"");
    cluster.client_sends(40_000, segment(ACK, 1002, 5002), b"");
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 1), "TIME_WAIT");
    // In larger steps than the failure detector allows, so that neither node is called alone.
    let after = cluster.now + Duration::from_secs(125);
    while cluster.now < after {
        cluster.run(Duration::from_millis(500));
    }
    assert_eq!((cluster.connections(0), cluster.connections(1)), (0, 0));
}

#[test]
fn a_node_that_restarts_empty_learns_every_connection_and_can_take_over() {
    let mut cluster = Cluster::start(Options::default());
    let ports: Vec<(u16, u16)> = (40_000..40_010).map(|port| (port, cluster.connect(port))).collect();
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.restart(0);
    // Most of the connections have sent nothing through node 1: it replicates them all the same.
    cluster.run_until("node 0 to know them", |cluster| cluster.connections(0) == 10);
    cluster.run(Duration::from_millis(500));
    assert!(!cluster.node(0).holds_addresses(), "a node that comes back does not take over by itself");

    cluster.kill(1);
    cluster.run_until("node 0 to take over", |cluster| cluster.node(0).holds_addresses());
    for (port, seen_port) in ports {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}

#[test]
fn replicas_of_connections_that_ended_during_a_partition_are_swept_after_it() {
    let mut cluster = Cluster::start(Options { connections_max: 8, ..Options::default() });
    let seen_port = cluster.connect(40_000);
    let _ = cluster.connect(40_001);
    assert_eq!(cluster.connections(1), 2);
    cluster.is_replication_down = true;
    cluster.run(Duration::from_millis(100));
    // A reset ends the first: its deletion is lost, and given up when the peer counts as away.
    cluster.server_sends(seen_port, segment(tcp_flags::RST | ACK, 5001, 1001), b"");
    cluster.run(Duration::from_secs(30));
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 2));
    cluster.is_replication_down = false;
    cluster.run_until("the copy to be swept", |cluster| cluster.connections(1) == 1);
}

#[test]
fn a_standby_without_room_for_all_connections_reports_it_and_goes_on_with_those_it_has() {
    let mut cluster = Cluster::start(Options { standby_connections_max: Some(4), ..Options::default() });
    let is_ready = |cluster: &Cluster| cluster.node(0).status(cluster.now).peers[0].could_take_over();
    let ports: Vec<_> = (40_000..40_004).map(|port| (port, cluster.connect(port))).collect();
    cluster.run(Duration::from_millis(100));
    assert!(is_ready(&cluster));
    let _ = cluster.connect(40_004);
    cluster.run_until("node 0 to know that its peer lacks a connection", |cluster| !is_ready(cluster));
    assert!(cluster.node(0).status(cluster.now).peers[0].lacks_connections());
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    for (port, seen_port) in ports {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}

#[test]
fn an_icmp_error_reaches_the_client_as_if_it_were_about_its_own_packet() {
    let mut cluster = Cluster::start(Options::default());
    cluster.client_sends(40_000, syn(), b"");
    let syn = cluster.server_receives().expect("the SYN passes");
    let header = build::IcmpHeader { kind: 3, code: 1, parameter: 0 };
    let packet = &syn.bytes[usize::from(syn.headers.l3_offset)..];
    cluster.server_sends_frame(|envelope| envelope.icmp_error(SERVER.into(), header, packet).unwrap());
    let error = cluster.client_receives().expect("the error passes");
    let Transport::IcmpError(about) = error.headers.transport else { panic!("an error stays one") };
    assert_eq!(about.inner, Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80)));
    assert_eq!(error.tuple.destination_ip(), CLIENT);
}

#[test]
fn an_icmp_error_about_nothing_known_is_dropped() {
    let mut cluster = Cluster::start(Options::default());
    let tuple = Tuple::v4(ip_protocol::TCP, (SHARED_OUTSIDE, 4000), (SERVER, 80));
    let frame = build::tcp(&tuple, segment(ACK, 1, 1), b"");
    let header = build::IcmpHeader { kind: 3, code: 1, parameter: 0 };
    cluster.server_sends_frame(|envelope| envelope.icmp_error(SERVER.into(), header, &frame[14..]).unwrap());
    assert!(cluster.client_receives().is_none());
    assert_eq!(cluster.dropped(0, DropReason::UnrelatedIcmpError), 1);
}

#[test]
fn a_full_table_refuses_new_connections_rather_than_established_ones() {
    let mut cluster = Cluster::start(Options { connections_max: 4, ..Options::default() });
    for port in 40_000..40_004 {
        let seen_port = cluster.connect(port);
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
    cluster.client_sends(40_004, syn(), b"");
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.dropped(0, DropReason::TableFull), 1);
    assert_eq!(cluster.connections(0), 4);
}

#[test]
fn a_full_table_gives_up_a_connection_that_was_never_answered_for_a_new_one() {
    let mut cluster = Cluster::start(Options { connections_max: 4, ..Options::default() });
    for port in 40_000..40_006 {
        cluster.client_sends(port, syn(), b"");
        assert!(cluster.server_receives().is_some(), "port {port}");
    }
    assert_eq!((cluster.connections(0), cluster.connections(1)), (4, 0), "nobody has answered them");
    assert_eq!(cluster.node(0).pipeline().counters().early_dropped, 2);
}

#[test]
fn nonsense_and_other_versions_from_the_peer_are_named_and_harm_nothing() {
    let mut cluster = Cluster::start(Options::default());
    let seen_port = cluster.connect(40_000);
    let now = cluster.now;
    let node = cluster.node_mut(0);
    assert!(node.handle_replication(now, NodeId(1), b"nonsense").is_err());
    assert!(node.handle_replication(now, NodeId(1), &[]).is_err());
    assert!(node.handle_replication(now, NodeId(1), &[0, 1, 0, 200]).is_err(), "a heartbeat cut short");
    let other_version = [0xff; 64];
    let error = node.handle_replication(now, NodeId(1), &other_version).unwrap_err();
    assert!(std::format!("{error}").contains("version"), "{error}");
    assert!(node.handle_detection(now, NodeId(1), b"nonsense", 255).is_err());
    assert!(node.handle_replication(now, NodeId(9), b"who?").is_err());
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    cluster.run(Duration::from_secs(1));
    assert!(cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses());
}

#[test]
fn the_shared_addresses_answer_pings_and_nothing_else() {
    let mut cluster = Cluster::start(Options::default());
    let tuple = Tuple::echo(SERVER.into(), SHARED_OUTSIDE.into(), 7);
    cluster.server_sends_frame(|envelope| envelope.echo(&tuple, build::Echo::default(), b"ping"));
    let answer = cluster.server_receives().expect("an echo");
    assert_eq!(answer.tuple.source_ip(), SHARED_OUTSIDE);
    assert!(matches!(answer.headers.transport, Transport::IcmpQuery(query) if query.is_reply));
    assert_eq!(cluster.connections(0), 0);
}

#[test]
fn a_truncated_frame_and_a_wrong_checksum_reach_no_function() {
    let mut cluster = Cluster::start(Options::default());
    let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (SHARED_OUTSIDE, 2000));
    let whole = build::tcp(&tuple, syn(), b"");
    cluster.hand_in(OUTSIDE, whole[..40].to_vec());
    let mut damaged = whole;
    damaged[38] ^= 0x10;
    cluster.hand_in(OUTSIDE, damaged);
    assert_eq!(cluster.dropped(0, DropReason::Truncated), 1);
    assert_eq!(cluster.dropped(0, DropReason::BadTransportChecksum), 1);
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 0);
}
