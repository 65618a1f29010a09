//! Deferral: connections that are replicated only once they have lived for a while.

use std::time::Duration;
use std::vec::Vec;

use flow::wire::{ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};
use replication::deferral::{Config, DeferralStatus, Dynamic, IDLE_RECHECK_INTERVAL};

use super::cluster::{CLIENT, Cluster, INSIDE, OUTSIDE, Options, SERVER, SHARED_OUTSIDE, segment};
use super::ftp;
use super::site::Site;
use super::{ACK, FIN_ACK, exchange};
use crate::node::REPLICATED_WITHIN;
use crate::role::State;

const THRESHOLD: Duration = Duration::from_millis(500);

fn deferring() -> Options {
    Options { lazy: Some(Config::Fixed(THRESHOLD)), connections_max: 4096, ..Options::default() }
}

fn status(cluster: &Cluster) -> DeferralStatus {
    cluster.node(0).status(cluster.now).lazy.expect("it defers connections")
}

/// Messages about connections that node 0 has sent.
fn messages(cluster: &Cluster) -> u64 {
    cluster.node(0).status(cluster.now).peers[0].session.expect("it replicates").messages_sent
}

/// A connection that is opened and closed by both sides.
fn short_connection(cluster: &mut Cluster, port: u16) {
    let seen_port = cluster.connect(port);
    cluster.client_sends(port, segment(FIN_ACK, 1001, 5001), b"");
    cluster.server_receives().expect("the client's FIN passes");
    cluster.server_sends(seen_port, segment(FIN_ACK, 5001, 1002), b"");
    cluster.client_receives().expect("the server's FIN passes");
    cluster.client_sends(port, segment(ACK, 1002, 5002), b"");
    cluster.server_receives().expect("the last ACK passes");
}

fn goes_on(cluster: &mut Cluster, port: u16) -> bool {
    cluster.client_sends(port, segment(ACK, 1001, 5001), b"question");
    cluster.server_receives().is_some()
}

fn take_over(cluster: &mut Cluster) {
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
}

#[test]
fn a_failover_loses_connections_younger_than_the_threshold_and_no_others() {
    let mut cluster = Cluster::start(deferring());
    let old = cluster.connect(40_000);
    cluster.run(THRESHOLD / 2);
    let _ = cluster.connect(40_001);
    assert_eq!((status(&cluster).deferred, cluster.connections(1)), (2, 0));
    cluster.run_until("the older one to be replicated", |cluster| cluster.connections(1) == 1);
    assert_eq!(status(&cluster).deferred, 1, "this many a failover now would lose");

    take_over(&mut cluster);
    exchange(&mut cluster, 40_000, old, 1001, 5001);
    assert!(!goes_on(&mut cluster, 40_001));
    assert_eq!(cluster.dropped(1, DropReason::NoConnection), 1);
}

#[test]
fn a_connection_is_replicated_in_its_current_state_when_it_is_old_enough() {
    let mut cluster = Cluster::start(deferring());
    let seen_port = cluster.connect(40_000);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    let began = cluster.now;
    cluster.run_until("it to be replicated", |cluster| cluster.connections(1) == 1);
    let late = cluster.now.saturating_since(began);
    assert!(THRESHOLD <= late && late <= THRESHOLD + Duration::from_millis(20), "{late:?}");
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 80));
    let known = |cluster: &Cluster, id: u8| {
        let pipeline = cluster.node(id).pipeline();
        let (slot, _) = pipeline.lookup(&tuple).unwrap();
        let connection = pipeline.connection(slot).unwrap();
        (connection.version, connection.protocol.state)
    };
    assert_eq!(known(&cluster, 0), known(&cluster, 1));
}

#[test]
fn short_connections_cost_no_message_even_where_tuples_are_reused() {
    let mut cluster = Cluster::start(deferring());
    let before = messages(&cluster);
    for _ in 0..3 {
        (40_000..40_050).for_each(|port| short_connection(&mut cluster, port));
        cluster.run(Duration::from_millis(5));
    }
    cluster.run(THRESHOLD * 2);
    let sent = messages(&cluster) - before;
    let DeferralStatus { never_replicated, deferred, replicated_late, .. } = status(&cluster);
    assert_eq!((sent, never_replicated, deferred, replicated_late), (0, 150, 0, 0));
    assert_eq!(cluster.connections(1), 0);
    cluster.run(Duration::from_secs(130));
    assert_eq!((cluster.connections(0), messages(&cluster)), (0, before), "nor do they when they are forgotten");
}

#[test]
fn the_end_of_a_replicated_connection_is_replicated_and_so_is_that_of_its_successor() {
    let mut cluster = Cluster::start(deferring());
    let seen_port = cluster.connect(40_000);
    cluster.run_until("it to be replicated", |cluster| cluster.connections(1) == 1);
    cluster.client_sends(40_000, segment(FIN_ACK, 1001, 5001), b"");
    cluster.server_sends(seen_port, segment(FIN_ACK, 5001, 1002), b"");
    cluster.client_sends(40_000, segment(ACK, 1002, 5002), b"");
    while cluster.server_receives().is_some() || cluster.client_receives().is_some() {}
    // The tuple is used again at once, by a connection that is short.
    short_connection(&mut cluster, 40_000);
    cluster.run_until("the standby to forget the first", |cluster| cluster.connections(1) == 0);
    // And by one that is not.
    let seen_port = cluster.connect(40_000);
    cluster.run_until("it to be replicated", |cluster| cluster.connections(1) == 1);
    take_over(&mut cluster);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn single_queries_and_their_answers_are_never_replicated_and_longer_exchanges_are() {
    let mut cluster = Cluster::start(deferring());
    let sends = |cluster: &mut Cluster, port: u16| {
        let tuple = Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53));
        cluster.client_sends_frame(|envelope| envelope.udp(&tuple, b"question"));
        let seen = cluster.server_receives().expect("the question passes").tuple;
        assert_eq!(seen.source_ip(), SHARED_OUTSIDE);
        cluster.server_sends_frame(|envelope| envelope.udp(&seen.inverse(), b"answer"));
        cluster.client_receives().expect("the answer passes");
    };
    (40_000..40_010).for_each(|port| sends(&mut cluster, port));
    for _ in 0..8 {
        cluster.run(Duration::from_millis(200));
        sends(&mut cluster, 41_000);
    }
    cluster.run(IDLE_RECHECK_INTERVAL);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (11, 1));
    let before = messages(&cluster);
    cluster.run(Duration::from_secs(40));
    let sent = messages(&cluster) - before;
    assert_eq!(
        (sent, status(&cluster).never_replicated),
        (1, 10),
        "of all their ends only that of the longer exchange"
    );
}

#[test]
fn a_full_synchronisation_leaves_out_deferred_connections_and_the_digests_agree() {
    let mut cluster = Cluster::start(deferring());
    let old = cluster.connect(40_000);
    cluster.run_until("it to be replicated", |cluster| cluster.connections(1) == 1);
    cluster.kill(1);
    cluster.run(Duration::from_millis(300));
    cluster.restart(1);
    // Young ones begin all the time during the full synchronisation.
    let mut port = 41_000;
    while !(cluster.is_settled() && cluster.connections(1) > 0) {
        let _ = cluster.connect(port);
        port += 1;
        cluster.run(Duration::from_millis(5));
        assert!(port < 43_000, "the resynchronisation ends");
    }
    let deferred = status(&cluster).deferred;
    assert!(deferred > 0 && cluster.connections(1) + deferred == cluster.connections(0), "{deferred} are deferred");
    cluster.run_until("all to be replicated", |cluster| cluster.connections(1) == cluster.connections(0));
    cluster.run(Duration::from_secs(3));
    let session = cluster.node(1).status(cluster.now).peers[0].session.unwrap();
    assert!(session.anti_entropy.divergent == 0, "{:?}", session.anti_entropy);
    take_over(&mut cluster);
    exchange(&mut cluster, 40_000, old, 1001, 5001);
}

#[test]
fn a_connection_that_passed_the_threshold_during_a_partition_is_replicated_afterwards() {
    let mut cluster = Cluster::start(deferring());
    cluster.is_replication_down = true;
    let seen_port = cluster.connect(40_000);
    cluster.run(THRESHOLD * 4);
    assert_eq!((status(&cluster).deferred, cluster.connections(1)), (0, 0));
    cluster.is_replication_down = false;
    cluster.run_until("it to be replicated", |cluster| cluster.connections(1) == 1);
    take_over(&mut cluster);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
}

#[test]
fn a_node_that_leaves_replicates_all_deferred_connections_before_the_addresses_move() {
    let mut cluster = Cluster::start(deferring());
    let seen: Vec<u16> = (40_000..40_300).map(|port| cluster.connect(port)).collect();
    assert_eq!((status(&cluster).deferred, cluster.connections(1)), (300, 0));
    let now = cluster.now;
    cluster.node_mut(0).leave(now);
    assert!(cluster.node(0).holds_addresses(), "not yet");
    // One that begins meanwhile is replicated at once.
    let latest = cluster.connect(41_000);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert!(cluster.now.saturating_since(now) < REPLICATED_WITHIN, "it waited no longer than it had to");
    cluster.kill(0);
    for (port, seen_port) in (40_000..).zip(seen).chain([(41_000, latest)]) {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}

#[test]
fn a_node_that_nobody_listens_to_leaves_all_the_same() {
    let mut cluster = Cluster::start(deferring());
    let _ = cluster.connect(40_000);
    cluster.is_replication_down = true;
    let now = cluster.now;
    cluster.node_mut(0).leave(now);
    cluster.run(REPLICATED_WITHIN + Duration::from_millis(20));
    assert_ne!(cluster.node(0).role(), State::Active);
}

#[test]
fn a_drained_node_defers_connections_once_it_is_back() {
    let mut cluster = Cluster::start(deferring());
    let seen_port = cluster.connect(40_000);
    let now = cluster.now;
    cluster.node_mut(0).drain(now, false).unwrap();
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.run_until("node 0 to be drained", |cluster| cluster.node(0).role() == State::Left);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    let now = cluster.now;
    cluster.node_mut(0).undrain(now);
    cluster.node_mut(1).drain(now, true).unwrap();
    cluster.run_until("node 0 to take over", |cluster| {
        cluster.node(0).holds_addresses() && !cluster.node(1).holds_addresses()
    });
    let _ = cluster.connect(40_001);
    assert_eq!(status(&cluster).deferred, 1);
}

#[test]
fn connections_whose_first_reply_is_held_are_replicated_at_once() {
    let mut cluster = Cluster::start(Options { hold_first_reply: Duration::from_secs(1), ..deferring() });
    let _ = cluster.connect(40_000);
    assert_eq!((status(&cluster).deferred, cluster.connections(1)), (0, 1));
}

#[test]
fn the_load_decides_how_many_are_deferred() {
    let dynamic = Dynamic { interval: Duration::from_millis(200), is_bounded: false, ..Dynamic::default() };
    let mut cluster = Cluster::start(Options { lazy: Some(Config::Dynamic(dynamic)), ..deferring() });
    let turn = |cluster: &mut Cluster, utilisation_per_mille: u16| {
        cluster.node_mut(0).note_utilisation(utilisation_per_mille);
        for port in 40_000..40_010 {
            short_connection(cluster, port);
        }
        cluster.run(dynamic.interval);
    };
    turn(&mut cluster, 400);
    assert_eq!((status(&cluster).level, status(&cluster).threshold), (0, Duration::ZERO));
    for _ in 0..4 {
        turn(&mut cluster, 990);
    }
    let busy = status(&cluster);
    assert!(busy.level >= 3 && busy.threshold >= dynamic.threshold_min, "{busy:?}");
    let before = messages(&cluster);
    turn(&mut cluster, 950);
    assert_eq!(messages(&cluster), before, "all of them are shorter than the threshold");
    let young = cluster.connect(45_000);
    for _ in 0..10 {
        turn(&mut cluster, 300);
    }
    assert_eq!((status(&cluster).level, status(&cluster).threshold), (0, Duration::ZERO));
    assert!(messages(&cluster) > before);
    take_over(&mut cluster);
    exchange(&mut cluster, 45_000, young, 1001, 5001);
}

#[test]
fn deferred_connections_are_replicated_when_deferral_is_switched_off() {
    let mut cluster = Cluster::start(deferring());
    let _ = cluster.connect(40_000);
    let now = cluster.now;
    assert!(cluster.node_mut(0).set_lazy(now, Some(Config::Fixed(Duration::ZERO))).is_err());
    assert_eq!(status(&cluster).deferred, 1, "nothing has changed");
    cluster.node_mut(0).set_lazy(now, None).unwrap();
    cluster.deliver();
    assert_eq!((cluster.node(0).status(cluster.now).lazy, cluster.connections(1)), (None, 1));
}

#[test]
fn all_workers_replicate_deferred_connections_before_the_node_leaves() {
    let mut site = Site::start([2; 2], deferring()).ready();
    let ports: Vec<(u16, u16)> = (40_000..40_048).map(|port| (port, site.connect(port))).collect();
    assert_eq!(site.connections(1), [0, 0]);
    let now = site.now;
    site.nodes[0][0].leave(now);
    site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
    assert!(site.now.saturating_since(now) < REPLICATED_WITHIN);
    site.kill(0);
    for (port, seen_port) in ports {
        site.exchange(port, seen_port);
    }
}

#[test]
fn a_reset_is_the_end_of_a_connection_that_is_never_replicated() {
    let mut cluster = Cluster::start(deferring());
    let before = messages(&cluster);
    let _ = cluster.connect(40_000);
    cluster.client_sends(40_000, segment(tcp_flags::RST | ACK, 1001, 5001), b"");
    cluster.run(THRESHOLD * 2);
    assert_eq!((messages(&cluster), status(&cluster).deferred), (before, 0));
}

#[test]
fn a_connection_that_announces_another_is_replicated_at_once_and_so_is_the_announced_one() {
    let mut cluster = Cluster::start(deferring());
    let control = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_000), (SERVER, 21));
    let mut control = ftp::connect(&mut cluster, INSIDE, control).expect("the firewall lets it out");
    assert_eq!((status(&cluster).deferred, cluster.connections(1)), (1, 0));
    let target = ftp::active_mode_at(&mut cluster, &mut control, 5000);
    assert_eq!((status(&cluster).deferred, cluster.connections(1)), (0, 1));
    let data = ftp::data_from_server(target);
    let mut data = ftp::connect(&mut cluster, OUTSIDE, data).expect("it was announced");
    assert_eq!((status(&cluster).deferred, cluster.connections(1)), (0, 2));
    take_over(&mut cluster);
    ftp::exchange(&mut cluster, &mut data);
    ftp::exchange(&mut cluster, &mut control);
}
