//! Segments of connections that no node has any more: an inside host learns of the end at once, and never by mistake.

use std::time::Duration;

use flow::DropReason;
use flow::conntrack::{StrayResets, TrackerConfig};
use flow::wire::{Transport, tcp_flags};

use super::ACK;
use super::cluster::{Cluster, Options, rules, segment};
use super::operations::{reload, with_rules};
use crate::node::Reconfiguration;

const STRANGER: u16 = 40_900;

/// Both nodes answer stray segments so, and the first has been active for long.
fn cluster(options: Options, stray_resets: StrayResets) -> Cluster {
    let mut cluster = Cluster::start(options);
    for id in 0..2 {
        let tracker = TrackerConfig { stray_resets, ..TrackerConfig::default() };
        let new = Reconfiguration { tracker, ..with_rules(&cluster, id, rules(None)) };
        reload(&mut cluster, id, new);
    }
    cluster.run(Duration::from_millis(250));
    cluster
}

/// The flags and the sequence number of what the client receives in answer to a segment of no connection.
fn answer(cluster: &mut Cluster, flags: u8) -> Option<(u8, u32)> {
    cluster.client_sends(STRANGER, segment(flags, 100, 7000), b"stray");
    cluster.run(Duration::from_millis(5));
    let received = cluster.client_receives()?;
    let Transport::Tcp(reset) = received.headers.transport else { panic!("TCP only") };
    assert_eq!(received.tuple.destination_port, STRANGER);
    Some((reset.flags, reset.sequence))
}

#[test]
fn a_stray_segment_of_a_translated_inside_host_is_answered_by_a_reset() {
    let mut cluster = cluster(Options::default(), StrayResets::Served);
    assert_eq!(answer(&mut cluster, ACK), Some((tcp_flags::RST, 7000)));
    assert_eq!(answer(&mut cluster, tcp_flags::FIN | ACK), Some((tcp_flags::RST, 7000)));
    assert_eq!(answer(&mut cluster, tcp_flags::RST | ACK), None, "a reset is not answered");
    assert_eq!(cluster.dropped(0, DropReason::NoConnection), 3);
    // A server's segment to the shared address is not of an inside host.
    cluster.server_sends(50_000, segment(ACK, 1, 2), b"");
    cluster.run(Duration::from_millis(5));
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.node(0).pipeline().reset_counters().strays, 2);
}

#[test]
fn stray_segments_that_the_rules_deny_or_the_operator_leaves_unanswered_have_no_answer() {
    assert_eq!(answer(&mut cluster(Options::default(), StrayResets::Never), ACK), None);
    let mut denied = cluster(Options::default(), StrayResets::Always);
    let tracker = TrackerConfig { stray_resets: StrayResets::Always, ..TrackerConfig::default() };
    let new = Reconfiguration { tracker, ..with_rules(&denied, 0, rules(Some(STRANGER))) };
    reload(&mut denied, 0, new);
    assert_eq!(answer(&mut denied, ACK), None);
}

#[test]
fn a_node_whose_peer_may_live_beyond_a_failed_link_answers_no_stray_segments() {
    let mut cluster = cluster(Options::default(), StrayResets::Served);
    let seen_port = cluster.connect(40_000);
    cluster.run(Duration::from_millis(20));
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert_eq!(answer(&mut cluster, ACK), None);
    cluster.run(Duration::from_millis(500));
    assert_eq!(answer(&mut cluster, ACK), None);
    super::exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn where_another_node_forwards_too_stray_segments_are_not_answered_while_it_lives() {
    let mut cluster = cluster(Options { has_groups: true, ..Options::default() }, StrayResets::Served);
    assert_eq!(answer(&mut cluster, ACK), None);
}
