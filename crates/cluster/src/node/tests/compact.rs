//! Compact replication: what a node that has taken over goes on with.

use std::time::Duration;
use std::vec::Vec;

use flow::connection::flags;
use flow::wire::{Transport, ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};
use replication::compact::Representation;

use super::cluster::{CLIENT, Cluster, Compactly, Options, SERVER, segment, syn, syn_ack};
use super::{ACK, FIN_ACK, events, exchange};
use crate::node::{ConfigError, Node, NodeEvent, WhichPrecise};
use crate::role::State;

pub(super) const MULTI_LEVEL: Representation = Representation::ALL[2];
const CONNECTIONS: u16 = 2000;

/// Connections under their own addresses, in a table that has room for all.
pub(super) fn options(compact: Compactly) -> Options {
    Options { compact: Some(compact), is_translated: false, connections_max: 8192, ..Options::default() }
}

pub(super) fn outwards(port: u16) -> Tuple {
    Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80))
}

pub(super) fn client_segment_passes(
    cluster: &mut Cluster,
    port: u16,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
) -> bool {
    cluster.client_sends(port, segment(flags, sequence, acknowledgement), b"");
    cluster.server_receives().is_some_and(|got| got.tuple == outwards(port))
}

pub(super) fn server_segment_passes(
    cluster: &mut Cluster,
    port: u16,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
) -> bool {
    let back = outwards(port).inverse();
    cluster.server_sends_frame(|envelope| envelope.tcp(&back, segment(flags, sequence, acknowledgement), b""));
    cluster.client_receives().is_some_and(|got| got.tuple == back)
}

pub(super) fn connect(cluster: &mut Cluster, port: u16) {
    cluster.client_sends(port, syn(), b"");
    assert!(cluster.server_receives().is_some(), "the SYN of port {port} passes");
    let back = outwards(port).inverse();
    cluster.server_sends_frame(|envelope| envelope.tcp(&back, syn_ack(), b""));
    assert!(cluster.client_receives().is_some(), "and its answer");
    assert!(client_segment_passes(cluster, port, ACK, 1001, 5001));
}

pub(super) fn ports(count: u16) -> impl Iterator<Item = u16> + Clone {
    20_000..20_000 + count
}

pub(super) fn connected(options: Options, count: u16) -> Cluster {
    let mut cluster = Cluster::start(options);
    ports(count).for_each(|port| connect(&mut cluster, port));
    cluster
}

/// Far beyond what was replicated; by turns the client or the server sends first.
pub(super) fn goes_on(cluster: &mut Cluster, port: u16) -> bool {
    let client_first = port.is_multiple_of(2);
    [client_first, !client_first].into_iter().all(|is_client| {
        if is_client {
            client_segment_passes(cluster, port, ACK, 1_000_001, 2_000_001)
        } else {
            server_segment_passes(cluster, port, ACK, 2_000_001, 1_000_001)
        }
    })
}

pub(super) fn going_on(cluster: &mut Cluster, count: u16) -> usize {
    ports(count).filter(|port| goes_on(cluster, *port)).count()
}

fn entries(cluster: &Cluster, id: u8) -> u64 {
    cluster.node(id).status(cluster.now).compact.expect("connections are replicated compactly").sender.entries
}

/// All that the node has to replicate is acknowledged.
pub(super) fn is_replicated(node: &Node) -> bool {
    !node.has_unacknowledged()
}

pub(super) fn take_over(cluster: &mut Cluster, from: u8) {
    cluster.run_until("everything to be replicated", |cluster| is_replicated(cluster.node(from)));
    cluster.kill(from);
    cluster.run_until("the other to take over", |cluster| cluster.node(1 - from).holds_addresses());
}

#[test]
fn every_connection_goes_on_whatever_the_representation() {
    for representation in Representation::ALL {
        let mut cluster = connected(options(Compactly::of(representation)), CONNECTIONS);
        take_over(&mut cluster, 0);
        assert_eq!(cluster.connections(1), 0, "{}: the standby's table is untouched", representation.name());
        assert_eq!(going_on(&mut cluster, CONNECTIONS), usize::from(CONNECTIONS), "{}", representation.name());
        let recovery = cluster.node(1).status(cluster.now).compact.unwrap().recovery;
        assert_eq!((recovery.restored, recovery.missed), (u64::from(CONNECTIONS), 0), "{}", representation.name());
    }
}

/// The client believes the connection to be established from then on.
#[test]
fn a_connection_goes_on_whose_node_dies_right_behind_the_servers_answer() {
    const LAST: u16 = 30_000;
    for representation in Representation::ALL.into_iter().filter(|it| it.has_states()) {
        let mut cluster = connected(options(Compactly::of(representation)), 10);
        cluster.run_until("everything to be acknowledged", |cluster| is_replicated(cluster.node(0)));
        cluster.client_sends(LAST, syn(), b"");
        assert!(cluster.server_receives().is_some());
        assert!(server_segment_passes(&mut cluster, LAST, tcp_flags::SYN | ACK, 5000, 1001));
        cluster.kill(0);
        cluster.run_until("the other to take over", |cluster| cluster.node(1).holds_addresses());
        assert!(client_segment_passes(&mut cluster, LAST, ACK, 1001, 5001), "{}", representation.name());
    }
}

#[test]
fn pairs_of_hosts_hold_no_translated_connection_which_are_replicated_as_records_and_go_on() {
    const COUNT: u16 = 200;
    let compact = Some(Compactly::of(Representation::HostAggregate));
    let mut cluster = Cluster::start(Options { compact, connections_max: 8192, ..Options::default() });
    let begin = |cluster: &mut Cluster, port| {
        cluster.client_sends(port, syn(), b"");
        let outside = cluster.server_receives().expect("the SYN passes").tuple;
        cluster.server_sends_frame(|envelope| envelope.tcp(&outside.inverse(), syn_ack(), b""));
        assert!(cluster.client_receives().is_some(), "and its answer");
        cluster.client_sends(port, segment(ACK, 1001, 5001), b"");
        assert!(cluster.server_receives().is_some());
        outside
    };
    let outside: Vec<Tuple> = ports(COUNT).map(|port| begin(&mut cluster, port)).collect();
    take_over(&mut cluster, 0);
    assert_eq!((entries(&cluster, 1), cluster.connections(1)), (0, COUNT.into()));
    for (port, outside) in ports(COUNT).zip(outside) {
        let back = segment(ACK, 5001, 1001);
        cluster.server_sends_frame(|envelope| envelope.tcp(&outside.inverse(), back, b""));
        assert!(cluster.client_receives().is_some_and(|got| got.tuple == outwards(port).inverse()), "port {port}");
        cluster.client_sends(port, segment(ACK, 1001, 5001), b"");
        assert!(cluster.server_receives().is_some_and(|got| got.tuple == outside), "port {port}");
    }
    cluster.restart(0);
    cluster.run_until("node 0 to have the records", |cluster| cluster.connections(0) == u32::from(COUNT));
}

#[test]
fn restored_connections_are_replicated_and_a_restarted_node_can_take_over() {
    for representation in Representation::ALL {
        let mut cluster = connected(options(Compactly::of(representation)), 300);
        take_over(&mut cluster, 0);
        assert_eq!(going_on(&mut cluster, 300), 300);
        cluster.restart(0);
        cluster.run_until("node 0 to be synchronised", |cluster| {
            cluster.node(1).status(cluster.now).peers[0].could_take_over() && is_replicated(cluster.node(1))
        });
        assert_eq!(cluster.connections(0), 0);
        take_over(&mut cluster, 1);
        assert_eq!(going_on(&mut cluster, 300), 300, "{}", representation.name());
    }
}

#[test]
fn a_connection_that_was_idle_is_remembered_when_its_node_has_come_back_with_nothing() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 100);
    take_over(&mut cluster, 0);
    cluster.restart(0);
    cluster.run_until("node 0's new and empty filter to be whole", |cluster| {
        cluster.node(1).status(cluster.now).peers[0].could_take_over()
    });
    cluster.run(Duration::from_secs(5));
    assert_eq!(going_on(&mut cluster, 100), 100);
}

#[test]
fn a_fifth_of_the_datagrams_lost_loses_no_connection() {
    let mut cluster = Cluster::start(options(Compactly::of(MULTI_LEVEL)));
    cluster.loss_percent = 20;
    ports(CONNECTIONS).for_each(|port| connect(&mut cluster, port));
    take_over(&mut cluster, 0);
    assert_eq!(going_on(&mut cluster, CONNECTIONS), usize::from(CONNECTIONS));
}

#[test]
fn a_closing_connection_goes_on_in_its_state_and_one_that_ended_is_forgotten() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 2);
    let (closing, reset) = (20_000, 20_001);
    assert!(client_segment_passes(&mut cluster, closing, FIN_ACK, 1001, 5001));
    assert!(server_segment_passes(&mut cluster, reset, tcp_flags::RST | ACK, 5001, 1001));
    cluster.run(Duration::from_secs(11));
    assert_eq!(entries(&cluster, 0), 1, "a connection that was reset ends soon");
    take_over(&mut cluster, 0);
    assert!(server_segment_passes(&mut cluster, closing, FIN_ACK, 5001, 1002));
    assert!(client_segment_passes(&mut cluster, closing, ACK, 1002, 5002));
    let (slot, _) = cluster.node(1).pipeline().lookup(&outwards(closing)).unwrap();
    let state = cluster.node(1).pipeline().connection(slot).unwrap().protocol.state;
    assert_eq!(state, flow::conntrack::TcpState::TimeWait as u8);
    assert!(!client_segment_passes(&mut cluster, reset, ACK, 1001, 5001));
    assert_eq!(cluster.dropped(1, DropReason::NoConnection), 1);
}

#[test]
fn translation_is_made_from_the_tuple() {
    let compact = Some(Compactly::of(MULTI_LEVEL));
    let mut cluster = Cluster::start(Options { compact, ..Options::default() });
    let seen: Vec<(u16, u16)> = (40_000..40_030).map(|port| (port, cluster.connect(port))).collect();
    take_over(&mut cluster, 0);
    for (port, seen_port) in seen.iter().copied().filter(|(port, _)| port % 2 == 0) {
        exchange(&mut cluster, port, seen_port, 1_000_001, 2_000_001);
    }
    for (port, seen_port) in seen.into_iter().filter(|(port, _)| port % 2 == 1) {
        cluster.server_sends(seen_port, segment(ACK, 2_000_001, 1_000_001), b"first");
        let got = cluster.client_receives().expect("the server's word passes").tuple;
        assert_eq!(got, Tuple::v4(ip_protocol::TCP, (SERVER, 80), (CLIENT, port)));
    }
}

#[test]
fn a_full_filter_loses_what_it_could_not_hold_and_counts_it() {
    let mut cluster = connected(options(Compactly { items_max: 400, ..Compactly::of(MULTI_LEVEL) }), 1000);
    let sender = cluster.node(0).status(cluster.now).compact.unwrap().sender;
    assert!(sender.entries >= 400 && sender.absent > 0 && sender.entries + sender.absent == 1000, "{sender:?}");
    take_over(&mut cluster, 0);
    let survived = going_on(&mut cluster, 1000) as u64;
    // What is not in the filter may look like something that is, once in a thousand.
    assert!((sender.entries..sender.entries + 5).contains(&survived), "{survived} of {}", sender.entries);
}

#[test]
fn what_a_full_filter_cannot_hold_is_replicated_precisely_in_a_mixture() {
    let precise = WhichPrecise::LongerThan { age: Duration::from_secs(3600), budget_bytes_per_second: None };
    let compact = Compactly { items_max: 400, precise, ..Compactly::of(MULTI_LEVEL) };
    let mut cluster = connected(options(compact), 1000);
    take_over(&mut cluster, 0);
    let copies = cluster.connections(1);
    assert!(copies > 300, "{copies} copies beside the filter");
    assert_eq!(going_on(&mut cluster, 1000), 1000);
}

#[test]
fn a_connection_that_grows_old_moves_from_the_filter_to_precise_words() {
    let age = Duration::from_secs(10);
    let precise = WhichPrecise::LongerThan { age, budget_bytes_per_second: None };
    let mut cluster = connected(options(Compactly { precise, ..Compactly::of(MULTI_LEVEL) }), 50);
    cluster.run(Duration::from_secs(2));
    assert_eq!((cluster.connections(1), entries(&cluster, 0)), (0, 50));
    cluster
        .run_until("the old ones to be replicated", |cluster| cluster.connections(1) == 50 && entries(cluster, 0) == 0);
    connect(&mut cluster, 30_000);
    assert_eq!(cluster.node(0).status(cluster.now).compact.unwrap().precision.long_lived, 50);

    take_over(&mut cluster, 0);
    assert_eq!((cluster.connections(1), going_on(&mut cluster, 50)), (50, 50));
    assert!(goes_on(&mut cluster, 30_000), "the young one comes from the filter");
    cluster.restart(0);
    cluster.run_until("node 0 to have the old ones", |cluster| cluster.connections(0) == 50);
    take_over(&mut cluster, 1);
    assert_eq!(going_on(&mut cluster, 50), 50);
    assert!(goes_on(&mut cluster, 30_000));
}

#[test]
fn precise_words_keep_to_their_budget_and_go_to_the_oldest_first() {
    let precise = WhichPrecise::LongerThan { age: Duration::ZERO, budget_bytes_per_second: Some(1000) };
    let mut cluster = Cluster::start(options(Compactly { precise, ..Compactly::of(MULTI_LEVEL) }));
    ports(200).for_each(|port| connect(&mut cluster, port));
    cluster.run(Duration::from_secs(4));
    let precise = cluster.connections(1);
    assert!((5..60).contains(&precise), "about a hundred bytes and more for each of {precise}");
    let has_copy = |port: &u16| cluster.node(1).pipeline().lookup(&outwards(*port)).is_some();
    assert!(ports(200).take(precise as usize).all(|port| has_copy(&port)), "the oldest");
    take_over(&mut cluster, 0);
    assert_eq!(going_on(&mut cluster, 200), 200);
}

#[test]
fn a_node_that_hands_over_lets_go_what_the_other_has_taken() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 100);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).expect("node 1 can take over");
    cluster.run_until("node 1 to have taken over", |cluster| {
        cluster.node(1).holds_addresses() && cluster.node(0).role() == State::Left
    });
    assert_eq!(ports(60).filter(|port| goes_on(&mut cluster, *port)).count(), 60);
    cluster.run_until("node 0 to let go of these", |cluster| cluster.connections(0) == 40);
    assert_eq!(entries(&cluster, 0), 40, "the idle ones may still be asked for");
    assert_eq!(going_on(&mut cluster, 100), 100);
    cluster.run_until("node 0 to let go of all", |cluster| cluster.connections(0) == 0);

    let now = cluster.now;
    cluster.node_mut(0).undrain(now);
    cluster.run_until("node 0 to be ready", |cluster| {
        cluster.node(1).status(cluster.now).peers[0].could_take_over() && is_replicated(cluster.node(1))
    });
    take_over(&mut cluster, 1);
    assert_eq!(going_on(&mut cluster, 100), 100);
}

#[test]
fn a_recovery_is_reported_and_ends() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 10);
    take_over(&mut cluster, 0);
    assert_eq!(going_on(&mut cluster, 10), 10);
    let reported = events(&mut cluster, 1);
    assert!(reported.iter().any(|event| matches!(event, NodeEvent::RecoveryBegan { entries: 10.. })), "{reported:?}");
    let ends_at = cluster.node(1).status(cluster.now).compact.unwrap().recovery_ends_at.expect("it lasts");
    cluster.now = ends_at;
    cluster.run(Duration::from_millis(2));
    assert!(events(&mut cluster, 1).contains(&NodeEvent::RecoveryEnded { restored: 10 }));
    assert!(!cluster.node(1).pipeline().recovery.is_active());
}

#[test]
fn a_cold_start_makes_good_what_the_last_update_came_too_late_for() {
    let compact = Compactly { cold_start: true, ..Compactly::of(Representation::FlowDigest) };
    let mut cluster = connected(options(compact), 100);
    cluster.run_until("these to be replicated", |cluster| is_replicated(cluster.node(0)));
    cluster.is_replication_down = true;
    (30_000..30_020).for_each(|port| connect(&mut cluster, port));
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert_eq!(going_on(&mut cluster, 100), 100);
    for port in (30_000..30_020).step_by(2) {
        assert!(client_segment_passes(&mut cluster, port, ACK, 1001, 5001), "the inside is trusted");
    }
    for port in (30_001..30_020).step_by(2) {
        let back = outwards(port).inverse();
        cluster.server_sends_frame(|envelope| envelope.tcp(&back, segment(ACK, 5001, 1001), b"data"));
        let probe = cluster.client_receives().expect("the client is asked");
        assert!(matches!(probe.headers.transport, Transport::Tcp(it) if it.payload_bytes == 0 && it.sequence == 5000));
        assert!(client_segment_passes(&mut cluster, port, ACK, 1001, 5001), "and answers");
        assert!(server_segment_passes(&mut cluster, port, ACK, 5001, 1001));
    }
}

#[test]
fn it_goes_through_the_encrypted_channel() {
    let mut cluster = connected(Options { keys: Some([1, 1]), ..options(Compactly::of(MULTI_LEVEL)) }, 200);
    assert!(cluster.refusals.is_empty(), "{:?}", cluster.refusals);
    take_over(&mut cluster, 0);
    assert_eq!(going_on(&mut cluster, 200), 200);
}

#[test]
fn what_cannot_be_had_together_is_refused() {
    let compact = Some(Compactly::of(MULTI_LEVEL));
    let refusal = |options: Options| {
        let config = super::cluster::node_config(0, options);
        Node::new(config, flow::Instant::from_millis(1)).err().expect("it is refused")
    };
    let held = Options { compact, hold_first_reply: Duration::from_millis(5), ..Options::default() };
    assert!(matches!(refusal(held), ConfigError::NotWithCompact(_)));
    assert!(matches!(
        refusal(Options { compact, has_groups: true, ..Options::default() }),
        ConfigError::NotWithCompact(_)
    ));
    assert!(matches!(
        refusal(Options { compact, replicates: false, ..Options::default() }),
        ConfigError::NotWithCompact(_)
    ));
}

#[test]
fn a_node_that_stood_by_for_a_moment_learns_the_windows_of_all_its_connections_afresh() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 300);
    let now = cluster.now;
    let node = cluster.node_mut(0);
    let seen =
        |node: &Node| node.pipeline().table().iter().filter(|(_, known)| known.flags & flags::REPLICA == 0).count();
    assert_eq!(seen(node), 300);
    // Another node held the addresses, and gave them up before this one had looked at a connection.
    node.replication.compact.as_mut().unwrap().begin_standby(now);
    (0..3).for_each(|_| node.handle_timeout(now));
    assert_eq!(seen(node), 0, "what the other node forwarded meanwhile is not held against them");
    assert!(ports(300).all(|port| goes_on(&mut cluster, port)));
}
