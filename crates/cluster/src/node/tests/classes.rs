//! Traffic classes through a failover: what the standby node knows of a connection's class, and what it counts.

use std::boxed::Box;
use std::string::ToString;
use std::time::Duration;
use std::vec::Vec;

use flow::table::Slot;
use flow::{Connection, DropReason};
use network_functions::chain::ChainBuilder;
use network_functions::class::Class;
use network_functions::classifier::{Classifier, ClassifierConfig};
use network_functions::firewall::{Action, Rule};
use network_functions::inspect::tls;
use network_functions::rule_set::Conditions;
use replication::compact::Representation;

use super::ACK;
use super::below::Program;
use super::cluster::{Cluster, Compactly, Options, firewall, nat, rules, segment};
use super::operations::{reload, with_rules};
use crate::node::Reconfiguration;
use crate::pipeline::{ClassTraffic, GatewayReason, PacketPath};

const PORT: u16 = 40_000;
const FILMS: &str = "rr3---sn-a.googlevideo.com";

fn start(options: Options) -> Cluster {
    Cluster::start(Options { is_classified: true, ..options })
}

fn hello(server: &str) -> Vec<u8> {
    tls::in_records(&tls::client_hello_bytes(&[(51, &[7; 1000]), (0, &tls::server_name_bytes(server))]), 1 << 14)
}

/// A node's first connection.
fn only(cluster: &Cluster, id: u8) -> Option<Connection> {
    let pipeline = cluster.node(id).pipeline();
    let slot = pipeline.table().next_occupied(Slot(0))?;
    pipeline.connection(slot).copied()
}

/// The class of a node's first connection.
fn class(cluster: &Cluster, id: u8) -> Option<Class> {
    cluster.node(id).pipeline().class(&only(cluster, id)?)
}

fn traffic(cluster: &Cluster, id: u8, class: Class) -> ClassTraffic {
    cluster.node(id).pipeline().class_traffic().expect("a classifier")[class.index()]
}

/// The client sends a ClientHello with this name. Returns the port that the server sees.
fn connected(cluster: &mut Cluster, server: &str) -> u16 {
    let seen_port = cluster.connect(PORT);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello(server));
    cluster.server_receives().expect("it passes");
    cluster.run(Duration::from_millis(5));
    seen_port
}

fn fail_over(cluster: &mut Cluster) {
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
}

#[test]
fn the_class_survives_the_death_of_the_node_that_found_it() {
    let mut cluster = start(Options::default());
    let seen_port = connected(&mut cluster, FILMS);
    assert_eq!(class(&cluster, 0), Some(Class::Video));
    assert_eq!(class(&cluster, 1), Some(Class::Video), "the standby node knows it");
    assert_eq!(traffic(&cluster, 0, Class::Web).packets, 4, "until the name showed, the port decided");
    for id in [0, 1] {
        assert_eq!(traffic(&cluster, id, Class::Video).connections, 1, "node {id}");
        assert_eq!(traffic(&cluster, id, Class::Web).connections, 0, "node {id}");
    }
    assert_eq!(traffic(&cluster, 1, Class::Video).packets, 0, "it forwarded none");

    fail_over(&mut cluster);
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n");
    cluster.client_receives().expect("it passes");
    assert_eq!(class(&cluster, 1), Some(Class::Video), "later bytes change nothing");
    let counted = traffic(&cluster, 1, Class::Video);
    assert_eq!((counted.connections, counted.packets), (1, 1));
    assert!(counted.bytes > 40, "{counted:?}");
}

#[test]
fn a_connection_whose_node_dies_before_it_is_settled_is_settled_by_the_next_one() {
    let mut cluster = start(Options::default());
    cluster.connect(PORT);
    cluster.run(Duration::from_millis(5));
    fail_over(&mut cluster);
    assert_eq!(class(&cluster, 1), Some(Class::Web));
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello(FILMS));
    cluster.server_receives().expect("it passes");
    assert_eq!(class(&cluster, 1), Some(Class::Video), "the beginning of the stream is known here, too");
}

#[test]
fn a_connection_goes_to_the_fast_path_when_its_class_is_settled() {
    let mut cluster = start(Options::default());
    let program = Program::default();
    let now = cluster.now;
    cluster.node_mut(0).set_fast_path(now, Box::new(program.clone()));
    cluster.node_mut(0).beat_fast_path(now);
    let seen_port = cluster.connect(PORT);
    for _ in 0..10 {
        cluster.client_sends(PORT, segment(ACK, 1001, 5001), b"");
        cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"");
    }
    cluster.run(Duration::from_millis(5));
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), b"");
    assert_eq!(path(&cluster), Some(PacketPath::Gateway(GatewayReason::Function)), "its packets are still needed");

    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello(FILMS));
    cluster.run(Duration::from_millis(5));
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"");
    assert_eq!(path(&cluster), Some(PacketPath::Kernel));
    assert_eq!(program.below().installed.len(), 1);
}

fn path(cluster: &Cluster) -> Option<PacketPath> {
    cluster.node(0).packet_path(cluster.now, &only(cluster, 0)?.original)
}

/// The configuration of a node with a rule against films before the others.
fn without_films(cluster: &Cluster, id: u8) -> Reconfiguration {
    let conditions = Conditions { classes: [Class::Video].into(), ..Conditions::default() };
    let rule = Rule { name: "no-films".to_string(), conditions, action: Action::Drop, log: false };
    let rules = [rule].into_iter().chain(rules(None)).collect();
    let classifier = Classifier::new(&ClassifierConfig::default()).unwrap();
    let layout = cluster.node(id).pipeline().chain().layout();
    let chain = ChainBuilder::new().push(classifier).push(firewall(rules)).push(nat(id, true));
    Reconfiguration { chain: chain.build_within(layout).unwrap(), ..with_rules(cluster, id, Vec::new()) }
}

#[test]
fn a_connection_that_a_rule_denies_by_class_stays_denied_on_the_other_node() {
    let mut cluster = start(Options::default());
    for id in [0, 1] {
        let new = without_films(&cluster, id);
        reload(&mut cluster, id, new);
    }
    let seen_port = cluster.connect(PORT);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello(FILMS));
    assert!(cluster.server_receives().is_none(), "the name shows what it is");
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 1);
    cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"answer");
    assert!(cluster.client_receives().is_none());
    cluster.run(Duration::from_millis(5));
    fail_over(&mut cluster);
    cluster.client_sends(PORT, segment(ACK, 1001, 5001), &hello(FILMS));
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.dropped(1, DropReason::FirewallDenied), 1);
}

#[test]
fn with_states_in_the_filter_it_holds_the_class() {
    for representation in Representation::ALL.into_iter().filter(|representation| representation.has_states()) {
        let compact = Some(Compactly::of(representation));
        let mut cluster = start(Options { compact, ..Options::default() });
        let seen_port = connected(&mut cluster, FILMS);
        cluster.run(Duration::from_millis(200));
        assert_eq!(cluster.connections(1), 0, "no record");
        fail_over(&mut cluster);
        cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"answer");
        cluster.client_receives().expect("it passes");
        assert_eq!(class(&cluster, 1), Some(Class::Video), "{representation:?}");
    }
}

#[test]
fn with_compact_replication_a_class_that_the_port_does_not_show_is_replicated_precisely() {
    for (server, is_by_port) in [("a.example", true), (FILMS, false)] {
        let compact = Some(Compactly::of(Representation::FlowDigest));
        let mut cluster = start(Options { compact, ..Options::default() });
        let seen_port = connected(&mut cluster, server);
        cluster.run(Duration::from_millis(200));
        assert_eq!(cluster.connections(1), u32::from(!is_by_port), "{server}: a record, beside the filter");
        fail_over(&mut cluster);
        cluster.server_sends(seen_port, segment(ACK, 5001, 1001), b"answer");
        cluster.client_receives().expect("it passes");
        let expected = if is_by_port { Class::Web } else { Class::Video };
        assert_eq!(class(&cluster, 1), Some(expected), "{server}");
    }
}
