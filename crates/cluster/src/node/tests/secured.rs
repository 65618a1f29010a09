//! Two nodes whose channel is encrypted, and strangers beside them.

use std::time::Duration;
use std::vec::Vec;

use alloc::sync::Arc;

use flow::{Instant, NodeId};
use replication::secure::{ChannelError, Credentials, PreSharedKey, REFUSALS, Refusal, Security, is_channel};

use super::cluster::{CLIENT, Cluster, Options, security, segment};
use super::operations::{reload, with_rules};
use super::site::Site;
use super::{ACK, events, exchange};
use crate::failure_detector;
use crate::node::{NodeError, NodeEvent, Reconfiguration, ReloadError};

fn secured() -> Options {
    Options { keys: Some([1, 1]), ..Options::default() }
}

fn credentials(keys: &[u8]) -> Security {
    let keys = keys.iter().map(|key| PreSharedKey::new([*key; 32])).collect();
    let credentials = Arc::new(Credentials::new(keys, None).unwrap());
    Security { credentials, ..security(1, 0, Instant::ZERO) }
}

#[test]
fn a_connection_goes_on_through_the_other_node_and_nobody_could_read_along() {
    let mut cluster = Cluster::start(secured());
    let seen_port = cluster.connect(40_000);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    assert_eq!(cluster.connections(1), 1, "the standby has a copy");
    cluster.run(Duration::from_millis(500));
    assert!(cluster.refusals.is_empty(), "{:?}", cluster.refusals);
    assert!(cluster.overheard.len() > 100 && cluster.overheard.iter().all(|(_, datagram)| is_channel(datagram)));
    let shows = |datagram: &[u8]| datagram.windows(4).any(|bytes| bytes == CLIENT.octets());
    assert!(!cluster.overheard.iter().any(|(_, datagram)| shows(datagram)));

    let killed_at = cluster.now;
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    assert!(cluster.now.saturating_since(killed_at) < Duration::from_millis(130), "detection is as fast as without");
    exchange(&mut cluster, 40_000, seen_port, 1_000_009, 2_000_007);
}

#[test]
fn a_handshake_does_not_delay_the_start() {
    let started = |options: Options| Cluster::start(options).now;
    let (plain, encrypted) = (started(Options::default()), started(secured()));
    assert!(encrypted.saturating_since(plain) <= Duration::from_millis(5), "{plain:?} and {encrypted:?}");
}

#[test]
fn each_worker_has_a_channel_of_its_own_with_its_like() {
    let mut site = Site::start([2; 2], secured()).ready();
    let ports: Vec<(u16, u16)> = (40_000..40_008).map(|port| (port, site.connect(port))).collect();
    site.run(Duration::from_millis(20));
    for node in site.nodes.iter().flatten() {
        let status = node.status(site.now);
        let channel = status.peers[0].channel.as_ref().unwrap();
        assert!(channel.keys.is_some() && channel.opened > 0 && channel.refused == [0; REFUSALS]);
        assert!(!node.pipeline().table().is_empty(), "both workers have connections");
    }
    site.kill(0);
    site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
    for (port, seen_port) in ports {
        site.exchange(port, seen_port);
    }
}

#[test]
fn a_node_that_comes_back_is_accepted_and_takes_over() {
    let mut cluster = Cluster::start(secured());
    let ports: Vec<(u16, u16)> = (40_000..40_010).map(|port| (port, cluster.connect(port))).collect();
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    cluster.restart(0);
    cluster.run_until("node 0 to know them", |cluster| cluster.connections(0) == 10);
    cluster.run(Duration::from_millis(500));
    cluster.kill(1);
    cluster.run_until("node 0 to take over", |cluster| cluster.node(0).holds_addresses());
    for (port, seen_port) in ports {
        exchange(&mut cluster, port, seen_port, 1001, 5001);
    }
}

#[test]
fn a_node_with_another_key_receives_nothing_and_the_error_names_the_reason() {
    let mut cluster = Cluster::begin(Options { keys: Some([1, 2]), ..Options::default() });
    cluster.run(Duration::from_secs(2));
    assert!(cluster.node(0).holds_addresses(), "a node that receives no heartbeat takes the addresses");
    cluster.client_sends(40_000, super::syn(), b"");
    cluster.run(Duration::from_secs(1));
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 0));
    for id in 0..2 {
        let status = cluster.node(id).status(cluster.now);
        let peer = &status.peers[0];
        let session = peer.session.unwrap();
        assert_eq!((session.datagrams_received, session.datagrams_sent), (0, 0));
        assert_eq!(peer.detector.state, failure_detector::State::Down);
        assert!(peer.heartbeats.iter().all(Option::is_none));
        let channel = peer.channel.as_ref().unwrap();
        assert!(channel.keys.is_none() && channel.refused[Refusal::UnknownKey as usize] > 0);
    }
    let said = std::format!("{}", cluster.refusals[0].1);
    assert!(said.contains("pre_shared_keys of both nodes have a key in common"), "{said}");
}

#[test]
fn whoever_can_reach_the_ports_can_neither_kill_a_node_nor_keep_a_dead_one_alive() {
    let mut cluster = Cluster::start(secured());
    let seen_port = cluster.connect(40_000);
    // What two nodes send without encryption, to be sent by a stranger.
    let mut plain = Cluster::start(Options::default());
    let (now, mut buffer) = (plain.now, Vec::new());
    plain.run(Duration::from_millis(20));
    plain.node_mut(1).leave(now);
    let mut said = Vec::new();
    while let Some(transmit) = plain.node_mut(1).poll_transmit(now, &mut buffer) {
        said.push((transmit, buffer.clone()));
    }
    assert!(!said.is_empty());
    cluster.kill(1);
    let killed_at = cluster.now;
    let mut replayed = cluster.overheard.iter().filter(|(to, _)| *to == 0).map(|(_, datagram)| datagram.clone());
    let replayed: Vec<Vec<u8>> = replayed.by_ref().collect();
    for number in 0..400 {
        let now = cluster.now;
        let node = cluster.node_mut(0);
        for (_, datagram) in &said {
            let refused = node.handle_replication(now, NodeId(1), datagram);
            assert_eq!(refused, Err(NodeError::Channel(ChannelError::Unprotected)));
            assert!(node.handle_detection(now, NodeId(1), datagram, 255).is_err());
        }
        let _ = node.handle_replication(now, NodeId(1), &replayed[number % replayed.len()]);
        cluster.run(Duration::from_millis(1));
    }
    let status = cluster.node(0).status(cluster.now);
    let down_since = status.peers[0].down_since.expect("the dead node is found dead all the same");
    assert!(down_since.saturating_since(killed_at) < Duration::from_millis(130));
    assert!(status.peers[0].channel.as_ref().unwrap().refused[Refusal::Unprotected as usize] > 100);
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    assert!(cluster.node(0).holds_addresses());
}

#[test]
fn a_node_without_encryption_reports_that_its_peer_encrypts() {
    let mut secured = Cluster::start(secured());
    let mut plain = Cluster::start(Options::default());
    let now = plain.now;
    secured.run(Duration::from_millis(10));
    let (_, datagram) = secured.overheard.last().unwrap();
    assert_eq!(plain.node_mut(0).handle_replication(now, NodeId(1), datagram), Err(NodeError::NotSecured));
}

#[test]
fn keys_are_exchanged_by_reloads_without_a_session_noticing() {
    let mut cluster = Cluster::start(secured());
    let seen_port = cluster.connect(40_000);
    (0..2).for_each(|id| drop(events(&mut cluster, id)));
    for (id, keys) in [(0, &[1, 2][..]), (1, &[1, 2]), (0, &[2, 1]), (1, &[2, 1]), (0, &[2]), (1, &[2])] {
        let new = with_rules(&cluster, id, super::cluster::rules(None));
        reload(&mut cluster, id, Reconfiguration { security: Some(credentials(keys)), ..new });
        cluster.run(Duration::from_secs(2));
    }
    for id in 0..2 {
        let reported = events(&mut cluster, id);
        assert!(reported.contains(&NodeEvent::SessionKeysExchanged(NodeId(1 - id))));
        assert!(reported.iter().all(|event| matches!(event, NodeEvent::SessionKeysExchanged(_))), "{reported:?}");
        let status = cluster.node(id).status(cluster.now);
        let keys = status.peers[0].channel.as_ref().unwrap().keys.clone().unwrap();
        assert_eq!(keys.key, Some(PreSharedKey::new([2; 32]).id()));
    }
    exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
    let new = Reconfiguration { security: None, ..with_rules(&cluster, 0, super::cluster::rules(None)) };
    let now = cluster.now;
    assert_eq!(cluster.node_mut(0).reload(now, new), Err(ReloadError::SecurityDiffers));
}

#[test]
fn datagrams_leave_room_for_what_encryption_adds() {
    let mut cluster = Cluster::start(Options { connections_max: 256, ..secured() });
    let now = cluster.now;
    cluster.node_mut(0).set_start(now, replication::representation::Start::FirstPacket);
    for port in 40_000..40_200 {
        cluster.client_sends(port, super::syn(), b"");
    }
    // All of them are replicated anew.
    cluster.kill(1);
    cluster.run(Duration::from_secs(2));
    cluster.restart(1);
    cluster.run_until("node 1 to know them", |cluster| cluster.connections(1) == 200);
    let longest = cluster.overheard.iter().map(|(_, datagram)| datagram.len()).max().unwrap();
    assert!((1300..=1472).contains(&longest), "{longest}");
    cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"");
}
