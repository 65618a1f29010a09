//! Compact replication through one failover after the other, with several workers, and with deferral.

use std::time::Duration;
use std::vec::Vec;

use flow::wire::{ip_protocol, tcp_flags};
use flow::{DropReason, NodeId, Tuple, WorkerId};
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{DestinationRule, Nat, NatConfig};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;
use replication::compact::{INHERITED_FILTERS_MAX, Representation};
use replication::deferral;

use super::cluster::{CLIENT, Cluster, Compactly, Options, SERVER, SHARED_OUTSIDE, segment, syn, syn_ack};
use super::compact::{
    MULTI_LEVEL, client_segment_passes, connect, connected, goes_on, going_on, is_replicated, options, outwards, ports,
    server_segment_passes, take_over,
};
use super::site::{FORWARDED, Site, ports_answered_elsewhere};
use super::{ACK, FIN_ACK};
use crate::node::{InheritedStatus, WhichPrecise};

const THRESHOLD: Duration = Duration::from_millis(500);

/// The dead node starts again, and receives all that the other replicates.
fn comes_back(cluster: &mut Cluster, id: u8) {
    cluster.restart(id);
    cluster.run_until("it to be synchronised", |cluster| {
        cluster.node(1 - id).status(cluster.now).peers[0].could_take_over() && is_replicated(cluster.node(1 - id))
    });
}

fn inherited(cluster: &Cluster, id: u8) -> InheritedStatus {
    cluster.node(id).compact_status().expect("connections are replicated compactly").inherited
}

#[test]
fn a_connection_that_is_idle_through_several_failovers_goes_on_after_the_last_one() {
    for representation in Representation::ALL {
        let mut cluster = connected(options(Compactly::of(representation)), 100);
        // Those of even ports send after each failover, the others only after the last.
        let sending = |cluster: &mut Cluster| ports(100).step_by(2).filter(|port| goes_on(cluster, *port)).count();
        for from in [0, 1, 0] {
            take_over(&mut cluster, from);
            assert_eq!(sending(&mut cluster), 50, "{}", representation.name());
            comes_back(&mut cluster, from);
        }
        take_over(&mut cluster, 1);
        assert_eq!(going_on(&mut cluster, 100), 100, "{}", representation.name());
    }
}

#[test]
fn the_filter_of_a_restarted_node_is_readvertised_to_it_by_one_that_has_not_taken_over() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 40);
    cluster.run_until("everything to be replicated", |cluster| is_replicated(cluster.node(0)));
    cluster.kill(0);
    cluster.restart(0);
    cluster.run_until("node 1 to re-advertise it", |cluster| inherited(cluster, 1).entries == 40);
    assert!(!cluster.node(1).holds_addresses(), "before it takes over");
    let filter_match = |cluster: &Cluster| {
        ports(40).filter(|port| cluster.node(0).recovery_lookup(&outwards(*port)).is_some()).count()
    };
    cluster.run_until("node 0 to have it", |cluster| filter_match(cluster) == 40);
}

#[test]
fn connections_outlive_an_active_node_that_starts_anew_while_the_standby_stands_still() {
    for representation in Representation::ALL {
        let mut cluster = connected(options(Compactly::of(representation)), 100);
        cluster.run_until("the standby to have the filter", |cluster| is_replicated(cluster.node(0)));
        let standby = cluster.pause(1);
        cluster.run(Duration::from_millis(300));
        cluster.restart(0);
        cluster.run_until("node 0 to serve without any", |cluster| cluster.node(0).holds_addresses());
        cluster.run(Duration::from_secs(5));
        cluster.go_on(1, standby);
        cluster.run_until("node 0 to have received the filter", |cluster| {
            cluster.node(0).status(cluster.now).compact.is_some_and(|compact| compact.recovery_ends_at.is_some())
        });
        cluster.run(Duration::from_secs(1));
        assert!(cluster.node(0).holds_addresses());
        let sending = |cluster: &mut Cluster| ports(100).step_by(2).filter(|port| goes_on(cluster, *port)).count();
        assert_eq!(sending(&mut cluster), 50, "{}", representation.name());
        // The others, which have sent nothing, are still known when the node dies once more.
        cluster.run(Duration::from_secs(1));
        take_over(&mut cluster, 0);
        assert_eq!(going_on(&mut cluster, 100), 100, "{}", representation.name());
    }
}

#[test]
fn entries_that_were_not_restored_are_readvertised() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 100);
    take_over(&mut cluster, 0);
    let readvertised = inherited(&cluster, 1);
    assert_eq!((readvertised.filters, readvertised.entries), (1, 100));
    assert_eq!(ports(60).filter(|port| goes_on(&mut cluster, *port)).count(), 60);
    assert_eq!(inherited(&cluster, 1).entries, 40);
    comes_back(&mut cluster, 0);
    let is_in_filter = |cluster: &Cluster, port: u16| cluster.node(0).recovery_lookup(&outwards(port)).is_some();
    assert!(ports(100).all(|port| is_in_filter(&cluster, port)), "from one filter or the other");
}

#[test]
fn an_inherited_filter_ends_with_the_recovery_and_is_forgotten_by_its_receivers() {
    let lasts = Duration::from_secs(5);
    let mut cluster = connected(options(Compactly { recovery_lasts: lasts, ..Compactly::of(MULTI_LEVEL) }), 10);
    take_over(&mut cluster, 0);
    comes_back(&mut cluster, 0);
    assert!(cluster.node(0).recovery_lookup(&outwards(20_000)).is_some());
    cluster.run_until("the recovery to end", |cluster| !cluster.node(1).pipeline().recovery.is_active());
    assert_eq!(inherited(&cluster, 1), InheritedStatus::default());
    // It is re-advertised no more: that shows by the silence.
    cluster.run(Duration::from_secs(40));
    assert!(cluster.node(0).recovery_lookup(&outwards(20_000)).is_none());
}

#[test]
fn no_more_filters_are_readvertised_than_there_are_streams() {
    let mut cluster = connected(options(Compactly::of(MULTI_LEVEL)), 10);
    for failover in 0..INHERITED_FILTERS_MAX as u8 + 2 {
        let from = failover % 2;
        take_over(&mut cluster, from);
        // Each filter has something that never comes back.
        connect(&mut cluster, 30_000 + u16::from(failover));
        comes_back(&mut cluster, from);
        assert!(inherited(&cluster, 1 - from).filters <= INHERITED_FILTERS_MAX as u64);
    }
    assert_eq!(inherited(&cluster, 1).filters, INHERITED_FILTERS_MAX as u64);
}

#[test]
fn precise_words_take_what_the_filter_leaves_of_the_budget_and_the_filter_is_not_starved_by_them() {
    // Both together may take 4000 bytes a second; a half of it is kept for precise words.
    let precise = WhichPrecise::LongerThan { age: Duration::from_secs(1), budget_bytes_per_second: Some(2000) };
    let compact = Compactly { precise, budget_bytes_per_second: Some(4000), ..Compactly::of(MULTI_LEVEL) };
    let mut cluster = connected(options(compact), 400);
    cluster.run(Duration::from_secs(1));
    let replicated_precisely = |cluster: &Cluster| cluster.node(0).compact_status().unwrap().precision.long_lived;
    // Nothing waits for the filter while these grow old.
    let (before, began_at) = (replicated_precisely(&cluster), cluster.now);
    cluster.run(Duration::from_secs(5));
    let idle = replicated_precisely(&cluster) - before;
    let by_half = 2000 * cluster.now.saturating_since(began_at).as_secs() / 150;
    assert!(idle > by_half * 5 / 4, "more than a half: {idle} of about 150 bytes each, {by_half} would be a half");
    connect(&mut cluster, 30_000);
    cluster.run_until("the new one to be in the filter all the same", |cluster| {
        cluster.node(1).recovery_lookup(&outwards(30_000)).is_some()
    });
}

#[test]
fn deferred_connections_enter_the_filter_when_they_are_old_enough() {
    let lazy = Some(deferral::Config::Fixed(THRESHOLD));
    let mut cluster = Cluster::start(Options { lazy, ..options(Compactly::of(MULTI_LEVEL)) });
    let sent = |cluster: &Cluster| cluster.node(0).compact_status().unwrap().sender.words;
    for port in ports(50) {
        connect(&mut cluster, port);
        assert!(client_segment_passes(&mut cluster, port, FIN_ACK, 1001, 5001));
        let back = outwards(port).inverse();
        cluster.server_sends_frame(|envelope| envelope.tcp(&back, segment(FIN_ACK, 5001, 1002), b""));
        assert!(cluster.client_receives().is_some() && client_segment_passes(&mut cluster, port, ACK, 1002, 5002));
    }
    connect(&mut cluster, 30_000);
    cluster.run_until("the one that lives to be replicated", |cluster| {
        cluster.node(0).compact_status().unwrap().sender.entries == 1
    });
    cluster.run_until("it to have arrived", |cluster| is_replicated(cluster.node(0)));
    assert_eq!(
        (sent(&cluster), cluster.node(0).status(cluster.now).lazy.unwrap().never_replicated),
        (1, 50),
        "the short ones cost nothing"
    );
    connect(&mut cluster, 30_001);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert!(goes_on(&mut cluster, 30_000));
    assert!(!client_segment_passes(&mut cluster, 30_001, ACK, 1_000_001, 2_000_001), "too young to be replicated");
    assert_eq!(cluster.dropped(1, DropReason::NoConnection), 1);
    assert!(!cluster.node(1).is_deferred(cluster.node(1).pipeline().lookup(&outwards(30_000)).unwrap().0));
}

#[test]
fn a_node_that_leaves_enters_deferred_connections_into_the_filter_first() {
    let lazy = Some(deferral::Config::Fixed(Duration::from_secs(30)));
    let mut cluster = connected(Options { lazy, ..options(Compactly::of(MULTI_LEVEL)) }, 100);
    assert_eq!(cluster.node(0).status(cluster.now).lazy.unwrap().deferred, 100);
    let now = cluster.now;
    cluster.node_mut(0).leave(now);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.kill(0);
    assert_eq!(going_on(&mut cluster, 100), 100);
}

#[test]
fn a_node_that_leaves_hands_over_handshakes_that_its_filter_does_not_hold() {
    const ANSWERED: u16 = 30_000;
    for representation in Representation::ALL {
        let mut cluster = connected(options(Compactly::of(representation)), 10);
        cluster.client_sends(ANSWERED, syn(), b"");
        assert!(cluster.server_receives().is_some());
        assert!(server_segment_passes(&mut cluster, ANSWERED, tcp_flags::SYN | ACK, 5000, 1001));
        // The handshake's last segment is lost before the node.
        let now = cluster.now;
        cluster.node_mut(0).leave(now);
        cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
        cluster.run_until("node 0 to end", |cluster| cluster.node(0).has_left());
        cluster.kill(0);
        assert!(client_segment_passes(&mut cluster, ANSWERED, ACK, 1001, 5001), "{}", representation.name());
        assert_eq!(going_on(&mut cluster, 10), 10, "{}", representation.name());
        // The other node's filter holds it from now on, or a record.
        comes_back(&mut cluster, 0);
        take_over(&mut cluster, 1);
        assert!(client_segment_passes(&mut cluster, ANSWERED, ACK, 1001, 5001), "{}", representation.name());
    }
}

/// A firewall that lets everything pass, and no translation.
fn open(_: u8, _: Options) -> Chain {
    let accept = Rule { name: "all".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let firewall = Firewall::new(FirewallConfig { rules: std::vec![accept], ..FirewallConfig::default() }).unwrap();
    ChainBuilder::new().push(firewall).build().unwrap()
}

fn passes(site: &mut Site, port: u16, is_clients: bool, tcp: flow::wire::build::Tcp<'_>) -> bool {
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
    if is_clients {
        site.client_sends_frame(|envelope| envelope.tcp(&tuple, tcp, b""));
        site.server_receives().is_some()
    } else {
        site.server_sends_frame(|envelope| envelope.tcp(&tuple.inverse(), tcp, b""));
        site.client_receives().is_some()
    }
}

fn site(lazy: Option<deferral::Config>) -> (Site, Vec<u16>) {
    let compact = Some(Compactly::of(MULTI_LEVEL));
    let options = Options { lazy, compact, is_translated: false, connections_max: 512, ..Options::default() };
    let mut site = Site::start_with([2; 2], options, open).ready();
    let ports: Vec<u16> = (40_000..40_064).collect();
    for port in &ports {
        assert!(passes(&mut site, *port, true, syn()) && passes(&mut site, *port, false, syn_ack()));
        assert!(passes(&mut site, *port, true, segment(ACK, 1001, 5001)));
    }
    (site, ports)
}

fn entries(site: &Site, id: u8) -> Vec<u64> {
    let of =
        |worker| site.worker(id, WorkerId(worker)).compact_status().expect("it replicates compactly").sender.entries;
    [0, 1].map(of).into()
}

fn site_goes_on(site: &mut Site, port: u16) -> bool {
    let client_first = port.is_multiple_of(2);
    [client_first, !client_first].into_iter().all(|is_clients| {
        let (sequence, acknowledgement) = if is_clients { (9_001, 8_001) } else { (8_001, 9_001) };
        passes(site, port, is_clients, segment(tcp_flags::ACK, sequence, acknowledgement))
    })
}

fn site_take_over(site: &mut Site) {
    site.run_until("all workers to have replicated", |site| {
        site.nodes[0].iter().all(|node| !node.has_unacknowledged())
    });
    site.kill(0);
    site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
}

#[test]
fn each_worker_replicates_its_share_by_a_filter_of_its_own_and_all_connections_outlive_their_node() {
    let (mut site, ports) = site(None);
    let shares = entries(&site, 0);
    assert!(shares.iter().all(|share| *share > 10) && shares.iter().sum::<u64>() == 64, "{shares:?}");
    site_take_over(&mut site);
    assert_eq!(site.connections(1), [0, 0], "the standby's tables are untouched");
    assert!(ports.into_iter().all(|port| site_goes_on(&mut site, port)));
    assert_eq!(site.connections(1).iter().sum::<u32>(), 64);
    assert_eq!(entries(&site, 1), shares, "each came back to the worker that its packets come to");
}

#[test]
fn all_workers_enter_deferred_connections_into_their_filters_before_the_node_leaves() {
    let (mut site, ports) = site(Some(deferral::Config::Fixed(Duration::from_secs(30))));
    assert_eq!(entries(&site, 0), [0, 0]);
    let now = site.now;
    site.nodes[0][0].leave(now);
    site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
    site.kill(0);
    assert!(ports.into_iter().all(|port| site_goes_on(&mut site, port)));
}

#[test]
fn all_workers_readvertise_the_filter_of_a_peer_that_has_handed_over_and_dies_later() {
    let (mut site, _) = site(None);
    let now = site.now;
    site.nodes[0][0].drain(now, false).expect("node 1 can take over");
    site.run_until("node 1 to have taken over", |site| site.lead(1).holds_addresses());
    let filters =
        |site: &Site| [0, 1].map(|at| site.worker(1, WorkerId(at)).compact_status().unwrap().inherited.filters);
    assert_eq!(filters(&site), [0, 0], "node 0 lives and has its connections itself");
    site.kill(0);
    site.run_until("both workers to know that node 0 is gone", |site| filters(site) == [1, 1]);
    assert!(site.events(1).contains(&crate::node::NodeEvent::PeerDown(NodeId(0))));
}

/// Two nodes of two workers, and a computed translation: replies come to either worker, whichever has the connection.
fn translated_site(representation: Representation) -> Site {
    let options = Options { compact: Some(Compactly::of(representation)), connections_max: 512, ..Options::default() };
    Site::start_with([2; 2], options, super::cluster::chain).ready()
}

/// The server sends first. If it is not known which host is meant, hosts are asked, and the server repeats its segment.
fn server_goes_on(site: &mut Site, port: u16, seen: u16) -> bool {
    site.server_sends(80, seen, segment(ACK, 5001, 1001));
    let received = site.client_receives().map(|received| received.tuple.destination_port);
    if received != Some(port) {
        return false;
    }
    site.client_sends(port, 80, segment(ACK, 1001, 5001));
    let acknowledged = site.server_receives().is_some_and(|received| received.tuple.source_port == seen);
    site.server_sends(80, seen, segment(ACK, 5001, 1001));
    acknowledged && site.client_receives().is_some_and(|received| received.tuple.destination_port == port)
}

#[test]
fn translated_connections_of_several_workers_go_on_whoever_sends_first() {
    for representation in [MULTI_LEVEL, Representation::FlowDigest] {
        let mut site = translated_site(representation);
        let ports: Vec<(u16, u16)> = (40_000..40_064).map(|port| (port, site.connect(port))).collect();
        site_take_over(&mut site);
        for (port, seen) in ports {
            if port.is_multiple_of(2) {
                site.exchange(port, seen);
            } else {
                // Questions are limited for each source.
                site.run(Duration::from_millis(20));
                assert!(server_goes_on(&mut site, port, seen), "{}, port {port}", representation.name());
            }
        }
        assert_eq!(site.connections(1).iter().sum::<u32>(), 64, "{}", representation.name());
        assert!(site.handed_over(1) > 0, "replies have come to the other worker");
    }
}

#[test]
fn a_worker_without_entries_hands_replies_to_the_one_that_has_the_connection() {
    let steering = flow::Steering::new(2).unwrap();
    let mut site = translated_site(MULTI_LEVEL);
    let is_answered_elsewhere = |port: u16, seen: u16| {
        let reply = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (SHARED_OUTSIDE, seen));
        steering.worker_of_tuple(&outwards(port)) != steering.worker_of_tuple(&reply)
    };
    let found = (40_000..40_064).find(|port| {
        let seen = site.connect(*port);
        is_answered_elsewhere(*port, seen)
    });
    let port = found.expect("one of 64 replies comes to the other worker");
    let mut site = translated_site(MULTI_LEVEL);
    let seen = site.connect(port);
    assert!(entries(&site, 0).contains(&0), "one worker has no entry");
    site_take_over(&mut site);
    assert!(server_goes_on(&mut site, port, seen));
}

#[test]
fn strays_that_may_be_answers_to_connections_of_other_workers_are_dropped_and_limited() {
    let mut site = translated_site(MULTI_LEVEL);
    let seen = site.connect(40_000);
    site_take_over(&mut site);
    let restored = |site: &Site| site.connections(1).iter().sum::<u32>();
    for _ in 0..1000 {
        site.server_sends(81, seen, segment(ACK, 1, 1));
    }
    assert_eq!((restored(&site), site.client_receives().is_some()), (0, false));
    let limited = site.dropped(1, DropReason::RecoverySourceLimit) + site.dropped(1, DropReason::RecoveryWorkLimit);
    assert!(limited > 100, "{limited}");
    // Hosts inside are served all the same.
    site.exchange(40_000, seen);
}

/// All may pass, and one outside port is forwarded to the client.
fn forwarding(node: u8, _: Options) -> Chain {
    let accept = Rule { name: "all".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let firewall = Firewall::new(FirewallConfig { rules: std::vec![accept], ..FirewallConfig::default() }).unwrap();
    let conditions = Conditions {
        destinations: std::vec![core::net::IpAddr::from(SHARED_OUTSIDE).into()],
        protocols: std::vec![ip_protocol::TCP],
        destination_ports: std::vec![PortRange::single(FORWARDED.0)],
        ..Conditions::default()
    };
    let rule = DestinationRule { conditions, address: CLIENT.into(), port: Some(FORWARDED.1) };
    let nat = Nat::new(NatConfig {
        destination_rules: std::vec![rule],
        source_rules: Vec::new(),
        ports: PortRange::new(1024, 65_535).unwrap(),
        node: NodeId(node),
        nodes: 2.try_into().unwrap(),
        key: flow::HashKey([7, node.into()]),
    })
    .unwrap();
    ChainBuilder::new().push(firewall).push(nat).build().unwrap()
}

#[test]
fn the_first_reply_of_a_forwarded_connection_passes_by_way_of_its_worker() {
    let compact = Some(Compactly::of(MULTI_LEVEL));
    let mut site = Site::start_with([2; 2], Options { compact, ..Options::default() }, forwarding).ready();
    let ports: Vec<u16> = ports_answered_elsewhere(2).map(|(port, _)| port).take(20).collect();
    ports.iter().for_each(|port| site.connect_in(*port));
    site_take_over(&mut site);
    for port in ports {
        site.client_sends(FORWARDED.1, port, segment(ACK, 5001, 1001));
        let reply = site.server_receives().expect("its only candidate is restored at once").tuple;
        assert_eq!((reply.source_port, reply.destination_port), (FORWARDED.0, port));
        site.exchange_in(port);
    }
}
