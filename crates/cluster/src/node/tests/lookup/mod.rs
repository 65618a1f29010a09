//! Packets that land on a node without their connection: it pulls the state from the node that has it, and goes on.

mod nodes;

use std::format;
use std::time::Duration;
use std::vec::Vec;

use flow::connection::flags;
use flow::wire::{ip_protocol, tcp_flags};
use flow::{DropReason, NodeId, Tuple};

use super::cluster::{CLIENT, Options, SERVER, segment, syn};
use super::site::Site;
use crate::pipeline::{GatewayReason, LookupLimits, PacketPath, StateServiceConfig};
use nodes::{Nodes, Setting};

const ACK: u8 = tcp_flags::ACK;
const PORT: u16 = 40_000;

fn without_broadcast() -> LookupLimits {
    LookupLimits { broadcast: false, ..LookupLimits::default() }
}

#[test]
fn a_segment_on_a_node_without_its_connection_pulls_it_and_the_old_owner_yields() {
    let mut nodes = Nodes::started();
    let seen = nodes.connect(PORT, 0);
    let before = nodes.record(0, PORT).expect("it began here").version;
    assert!(nodes.record(2, PORT).is_none(), "nothing is replicated");
    assert!(nodes.question_passes(2, PORT, seen));
    assert!(nodes.answer_passes(2, PORT, seen));
    let (old, new) = (nodes.record(0, PORT).expect("it is kept"), nodes.record(2, PORT).expect("it was pulled"));
    assert_eq!((old.owner, new.owner), (NodeId(2), NodeId(2)));
    assert_eq!((old.flags & flags::REPLICA, new.flags & flags::REPLICA), (flags::REPLICA, 0));
    assert!(!new.is_older_than(old.version) && (before >> 16) + 1 == new.version >> 16, "the next owner's versions");
    let lookup = nodes.service(2).lookup;
    assert_eq!((lookup.pulls, lookup.pulled, lookup.queries), (1, 1, 0));
    assert_eq!(nodes.service(0).lookup.handed_over, 1);
    assert_eq!(nodes.service(1).lookup.handed_over, 0);
    assert_eq!(nodes.node(2).pipeline().counters().taken_over, 1);
}

#[test]
fn a_reply_finds_the_connection_by_its_translated_tuple() {
    let mut nodes = Nodes::started();
    let seen = nodes.connect(PORT, 0);
    assert!(nodes.answer_passes(1, PORT, seen));
    assert!(nodes.question_passes(1, PORT, seen));
    assert_eq!(nodes.record(1, PORT).map(|record| record.owner), Some(NodeId(1)));
    assert_eq!(nodes.service(1).lookup.pulls, 1);
}

#[test]
fn both_directions_may_land_on_different_nodes_without_the_connection() {
    let mut nodes = Nodes::start(Setting { nodes: 4, ..Setting::default() });
    let seen = nodes.connect(PORT, 0);
    for _ in 0..3 {
        assert!(nodes.question_passes(2, PORT, seen));
        assert!(nodes.answer_passes(3, PORT, seen));
    }
    let pulls: u64 = (0..4).map(|id| nodes.service(id).lookup.pulled).sum();
    assert_eq!(pulls, 2, "each of the two nodes has pulled it once");
}

#[test]
fn a_udp_flow_keeps_its_translation_on_a_node_that_pulls_it() {
    for reply_first in [false, true] {
        let mut nodes = Nodes::started();
        nodes.client_sends_udp(0, PORT);
        let seen = nodes.server_receives().expect("it may begin").tuple.source_port;
        nodes.server_sends_udp(0, seen);
        assert!(nodes.client_receives().is_some());
        nodes.run(Duration::from_millis(60));
        let receive = |nodes: &mut Nodes| nodes.server_receives().map(|question| question.tuple.source_port);
        let answer = |nodes: &mut Nodes| nodes.client_receives().map(|answer| answer.tuple.destination_port);
        if reply_first {
            nodes.server_sends_udp(2, seen);
            assert!(nodes.arrives(answer, PORT));
        }
        nodes.client_sends_udp(2, PORT);
        assert!(nodes.arrives(receive, seen));
        nodes.server_sends_udp(2, seen);
        assert!(nodes.arrives(answer, PORT));
        assert_eq!(nodes.service(2).lookup.pulled, 1);
    }
}

/// The owner of a connection, as a node has it.
fn owner(nodes: &Nodes, id: u8, tuple: &Tuple) -> Option<NodeId> {
    let pipeline = nodes.node(id).pipeline();
    let (slot, _) = pipeline.lookup(tuple)?;
    pipeline.connection(slot).map(|connection| connection.owner)
}

/// The source port of the next frame that the server receives within a time: it may be a fragment, which is no whole packet.
fn fragment_arrives(nodes: &mut Nodes) -> Option<u16> {
    (0..100).find_map(|_| {
        nodes.step();
        nodes.server_receives_bytes().map(|bytes| u16::from_be_bytes([bytes[34], bytes[35]]))
    })
}

/// The node that does not have the connection, and the one that backs it up; node 0 owns it.
fn without_and_backup(nodes: &Nodes, tuple: &Tuple) -> [u8; 2] {
    let find = |has_it: bool| (1..4).find(|id| owner(nodes, *id, tuple).is_some() == has_it);
    [find(false), find(true)].map(|found| found.expect("one of three nodes backs it up"))
}

#[test]
fn fragments_pass_by_a_copy_and_do_not_move_a_datagram_flow_from_its_owner() {
    let mut nodes = with_backups(&[]);
    let tuple = Tuple::v4(ip_protocol::UDP, (CLIENT, PORT), (SERVER, 53));
    nodes.client_sends_udp(0, PORT);
    let seen = nodes.server_receives().expect("it may begin").tuple.source_port;
    nodes.run(Duration::from_millis(60));
    let [high, low] = PORT.to_be_bytes();
    let datagram = [high, low, 0, 53, 0x10, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let [without, backup] = without_and_backup(&nodes, &tuple);
    // A fragment does not wait: the first one requests the copy, and is dropped.
    nodes.client_sends_first_fragment(without, &tuple, &datagram);
    assert_eq!(fragment_arrives(&mut nodes), None);
    for via in [without, backup] {
        for round in 0..20 {
            nodes.client_sends_first_fragment(via, &tuple, &datagram);
            let place = format!("round {round} at node {via}");
            assert_eq!(fragment_arrives(&mut nodes), Some(seen), "{place}: under the translation of the flow");
            let owners = [0, via].map(|id| owner(&nodes, id, &tuple));
            assert_eq!(owners, [Some(NodeId(0)); 2], "{place}");
        }
    }
    assert_eq!((nodes.service(without).lookup.pulled, nodes.service(0).lookup.handed_over), (0, 0));
}

#[test]
fn forged_fragments_do_not_move_a_tcp_connection_from_its_owner() {
    let mut nodes = with_backups(&[]);
    let seen = nodes.connect(PORT, 0);
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, PORT), (SERVER, 80));
    let first_fragment = |sequence: u32, flags: u8| {
        let numbers = [sequence.to_be_bytes(), 5001_u32.to_be_bytes()].concat();
        let ports = [PORT.to_be_bytes(), 80_u16.to_be_bytes()].concat();
        [&ports[..], &numbers, &[5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0, 1, 2, 3, 4]].concat()
    };
    // Within the window and beyond it, of data and of a reset that nobody sent.
    let forged = [(1001, ACK), (0x7000_0000, ACK), (0x7000_0000, tcp_flags::RST)];
    for via in without_and_backup(&nodes, &tuple) {
        for (sequence, flags) in forged.into_iter().chain(forged) {
            nodes.client_sends_first_fragment(via, &tuple, &first_fragment(sequence, flags));
            nodes.run(Duration::from_millis(20));
            assert_eq!(owner(&nodes, 0, &tuple), Some(NodeId(0)), "{sequence:#x} at node {via}");
            assert_eq!(owner(&nodes, via, &tuple), Some(NodeId(0)), "{sequence:#x} at node {via}");
        }
        assert_eq!(nodes.service(via).lookup.pulled, 0);
    }
    assert_eq!(nodes.service(0).lookup.handed_over, 0);
    while nodes.server_receives_bytes().is_some() {}
    assert!(nodes.question_passes(0, PORT, seen), "it goes on at its owner");
    assert!(nodes.answer_passes(0, PORT, seen));
}

#[test]
fn what_begins_a_connection_begins_it_at_once_and_what_does_not_is_dropped_as_unknown() {
    let mut nodes = Nodes::started();
    nodes.messages.clear();
    nodes.client_sends(1, PORT, syn(), b"");
    assert!(nodes.server_receives().is_some(), "without a message");
    nodes.client_sends_udp(1, PORT);
    assert!(nodes.server_receives().is_some());
    assert!(nodes.messages.is_empty());
    nodes.client_sends(1, PORT + 1, segment(ACK, 1001, 5001), b"question");
    assert_eq!(nodes.service(1).waiting, 1);
    nodes.run(Duration::from_millis(30));
    assert!(nodes.server_receives().is_none());
    assert_eq!(nodes.dropped(1, DropReason::UnknownConnection), 1);
    assert_eq!((nodes.service(1).lookup.queries, nodes.service(1).waiting), (1, 0));
}

#[test]
fn a_connection_that_has_ended_elsewhere_leaves_its_tuple_to_a_new_one() {
    let mut nodes = Nodes::started();
    let seen = nodes.connect(PORT, 0);
    nodes.client_sends(0, PORT, segment(tcp_flags::RST | ACK, 1001, 5001), b"");
    assert_eq!(nodes.server_receives().map(|reset| reset.tuple.source_port), Some(seen));
    // A closed connection is kept for some seconds.
    let ended = (0..20_000).any(|_| {
        nodes.step();
        nodes.record(0, PORT).is_none()
    });
    assert!(ended);
    // The index of node 0 still has it, for up to 50 ms.
    nodes.client_sends(1, PORT, syn(), b"");
    nodes.run(Duration::from_millis(30));
    assert!(nodes.server_receives().is_some(), "the SYN was delayed and has begun a connection");
    assert_eq!(nodes.record(1, PORT).map(|record| record.owner), Some(NodeId(1)));
    assert!(nodes.service(1).lookup.not_held > 0);
}

#[test]
fn a_node_that_returns_empty_pulls_each_connection_at_its_first_packet() {
    let mut nodes = Nodes::start(Setting { replicating: &[0, 1], ..Setting::default() });
    let ports: Vec<u16> = (PORT..PORT + 10).collect();
    let seen: Vec<u16> = ports.iter().map(|port| nodes.connect(*port, 0)).collect();
    nodes.client_sends_udp(0, PORT);
    let seen_udp = nodes.server_receives().expect("it may begin").tuple.source_port;
    nodes.server_sends_udp(0, seen_udp);
    assert!(nodes.client_receives().is_some());
    nodes.run(Duration::from_millis(60));
    nodes.kill(0);
    nodes.run(Duration::from_millis(500));
    for (port, seen) in ports.iter().zip(&seen) {
        assert!(nodes.question_passes(1, *port, *seen), "the backup has it");
    }
    nodes.restart(0);
    // Its session brings what node 1 owns: it shall come empty.
    nodes.until_ready();
    assert_eq!(nodes.service(1).lookup.pulls, 0);
    nodes.restart(2);
    nodes.until_ready();
    assert_eq!(nodes.node(2).pipeline().table().len(), 0, "it returns empty");
    for (port, seen) in ports.iter().zip(&seen) {
        assert!(nodes.question_passes(2, *port, *seen));
        assert!(nodes.answer_passes(2, *port, *seen));
    }
    assert_eq!(nodes.service(2).lookup.pulled, 10);
    nodes.client_sends_udp(2, PORT);
    assert!(nodes.arrives(|nodes| nodes.server_receives().map(|one| one.tuple.source_port), seen_udp));
    assert_eq!(nodes.service(2).lookup.pulled, 11);
}

#[test]
fn lost_messages_are_repeated_until_the_connection_goes_on() {
    let mut nodes = Nodes::start(Setting { nodes: 4, ..Setting::default() });
    nodes.loss_percent = 30;
    let mut repeated = 0;
    for port in PORT..PORT + 20 {
        let seen = nodes.connect(port, 0);
        let attempts = (1..).find(|_| nodes.question_passes(2, port, seen)).expect("it passes some time");
        repeated += attempts - 1;
        assert!(attempts <= 5, "the host has sent it {attempts} times");
        assert!(nodes.answer_passes(2, port, seen));
    }
    let lookup = nodes.service(2).lookup;
    assert_eq!(lookup.pulled, 20);
    assert!(lookup.pulls > 20 && repeated < 20, "{lookup:?}, {repeated} repeated");
}

#[test]
fn without_a_state_service_or_with_all_messages_lost_a_segment_does_not_pass() {
    let mut nodes = Nodes::start(Setting { without_service: &[0, 1, 2], ..Setting::default() });
    let seen = nodes.connect(PORT, 0);
    assert!(!nodes.question_passes(2, PORT, seen) && !nodes.answer_passes(2, PORT, seen));
    assert_eq!(nodes.record(0, PORT).map(|record| record.owner), Some(NodeId(0)), "it does not yield");
    let mut nodes = Nodes::started();
    let seen = nodes.connect(PORT, 0);
    nodes.loss_percent = 100;
    assert!(!nodes.question_passes(2, PORT, seen));
    assert_eq!((nodes.service(2).lookup.pulled, nodes.dropped(2, DropReason::UnknownConnection)), (0, 1));
    assert!(nodes.service(2).lookup.pulls > 0);
}

/// Packets of no connection, so many a millisecond, from many hosts; the messages of the state service that they cause in 200 ms.
fn messages_of_flood(limits: LookupLimits, packets_per_ms: u16) -> usize {
    let mut nodes = Nodes::start(Setting { nodes: 4, limits, ..Setting::default() });
    nodes.messages.clear();
    for millis in 0..200 {
        for number in 0..packets_per_ms {
            nodes.client_sends(1, 1024 + millis * packets_per_ms + number, segment(ACK, 1, 1), b"");
        }
        nodes.step();
    }
    nodes.run(Duration::from_millis(100));
    let (unknown, limited) =
        (nodes.dropped(1, DropReason::UnknownConnection), nodes.dropped(1, DropReason::LookupLimit));
    assert_eq!(unknown + limited, 200 * u64::from(packets_per_ms), "each was dropped for a reason");
    assert_eq!(nodes.service(1).waiting, 0);
    nodes.messages.len()
}

#[test]
fn a_flood_causes_a_bounded_number_of_messages_with_indexes_and_more_without() {
    let [slow, fast] = [2, 20].map(|rate| messages_of_flood(LookupLimits::default(), rate));
    // At most 20 queries at once and 200 a second, of three peers, each with answers of both sides.
    let most = (20 + 60) * 3 * 3;
    assert!(slow <= most && fast <= most, "{slow} and {fast}");
    let [slow, fast] = [2, 20].map(|rate| messages_of_flood(without_broadcast(), rate));
    assert!(fast > 3 * slow && fast > 2 * most, "{slow} and {fast}");
}

#[test]
fn a_connection_of_another_node_is_found_in_a_flood() {
    let mut nodes = Nodes::started();
    let seen = nodes.connect(PORT, 0);
    for millis in 0..100 {
        for number in 0..40 {
            nodes.client_sends(1, 1024 + millis * 40 + number, segment(ACK, 1, 1), b"");
        }
        nodes.step();
    }
    assert!(nodes.dropped(1, DropReason::LookupLimit) > 0, "there is more than can be looked up");
    // The flood's packets fill the places of its source, which is not the server.
    assert!(nodes.answer_passes(1, PORT, seen));
}

#[test]
fn without_indexes_a_connection_is_pulled_from_the_peer_that_has_it() {
    let mut nodes = Nodes::start(Setting { nodes: 4, limits: without_broadcast(), ..Setting::default() });
    let seen = nodes.connect(PORT, 0);
    nodes.messages.clear();
    assert!(nodes.question_passes(2, PORT, seen));
    assert_eq!(nodes.messages.len(), 3 + 3, "three are asked, and all respond");
    assert!(nodes.answer_passes(2, PORT, seen));
    assert_eq!(nodes.record(0, PORT).map(|record| record.owner), Some(NodeId(2)));
}

#[test]
fn a_peer_that_has_not_announced_a_state_service_receives_no_message_of_it() {
    let mut nodes = Nodes::start(Setting { without_service: &[1], ..Setting::default() });
    let seen = nodes.connect(PORT, 0);
    nodes.client_sends(2, PORT + 1, segment(ACK, 1, 1), b"");
    assert!(nodes.question_passes(2, PORT, seen));
    assert!(nodes.messages.contains(&0) && nodes.messages.contains(&2));
    assert!(!nodes.messages.contains(&1), "it would not understand them");
    assert_eq!((nodes.service(0).peers, nodes.service(2).peers), (1, 1));
    // It forwards as a node of its release does.
    nodes.client_sends(1, PORT, segment(ACK, 1001, 5001), b"question");
    nodes.run(Duration::from_millis(30));
    assert_eq!(nodes.dropped(1, DropReason::UnknownConnection), 0);
}

#[test]
fn messages_travel_in_the_encrypted_channel() {
    let mut nodes = Nodes::start(Setting { is_encrypted: true, ..Setting::default() });
    let seen = nodes.connect(PORT, 0);
    assert!(nodes.question_passes(2, PORT, seen));
    assert!(nodes.messages.is_empty(), "none is in plain text");
    assert_eq!((nodes.service(2).lookup.pulled, nodes.service(0).lookup.handed_over), (1, 1));
}

#[test]
fn a_pull_takes_the_connection_off_the_fast_path_of_its_owner() {
    let mut nodes = Nodes::started();
    nodes.set_fast_path(0);
    let seen = nodes.connect(PORT, 0);
    for _ in 0..20 {
        assert!(nodes.question_passes(0, PORT, seen) && nodes.answer_passes(0, PORT, seen));
    }
    assert_eq!(nodes.program(0).below().in_force().count(), 1, "the kernel forwards it");
    let forwarded = nodes.program(0).below().forwarded;
    assert!(nodes.question_passes(2, PORT, seen));
    assert_eq!(nodes.program(0).below().in_force().count(), 0);
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, PORT), (SERVER, 80));
    let path = nodes.node(0).packet_path(nodes.now, &tuple);
    assert_eq!(path, Some(PacketPath::Gateway(GatewayReason::NotOwner)));
    assert!(nodes.answer_passes(0, PORT, seen), "the replica of the old owner serves a late packet");
    assert_eq!(nodes.program(0).below().forwarded, forwarded);
}

#[test]
fn a_replica_is_pulled_when_its_owner_is_dead() {
    let mut nodes = Nodes::start(Setting { replicating: &[0, 1], ..Setting::default() });
    let seen = nodes.connect(PORT, 0);
    assert_eq!(nodes.record(1, PORT).map(|record| record.owner), Some(NodeId(0)));
    nodes.kill(0);
    nodes.run(Duration::from_millis(500));
    assert!(nodes.question_passes(2, PORT, seen));
    assert_eq!(nodes.record(2, PORT).map(|record| record.owner), Some(NodeId(2)));
    assert_eq!(nodes.record(1, PORT).map(|record| record.owner), Some(NodeId(2)), "its replica is the new owner's");
}

/// Four nodes, each of whose connections has a backup.
fn with_backups(without_service: &'static [u8]) -> Nodes {
    let mut nodes = Nodes::start(Setting { nodes: 4, backups: Some(1), without_service, ..Setting::default() });
    nodes.run(Duration::from_secs(2));
    nodes
}

/// The nodes that have the connection.
fn nodes_with(nodes: &Nodes, port: u16) -> Vec<u8> {
    (0..4).filter(|id| nodes.record(*id, port).is_some()).collect()
}

#[test]
fn a_pull_from_a_backup_ends_the_ownership_of_the_owner_too() {
    let mut nodes = with_backups(&[]);
    for port in PORT..PORT + 20 {
        let seen = nodes.connect(port, 0);
        let empty = (1..4).find(|id| nodes.record(*id, port).is_none()).expect("not all nodes back it up");
        assert!(nodes.question_passes(empty, port, seen));
        assert!(nodes.answer_passes(empty, port, seen));
        nodes.run(Duration::from_millis(50));
        for id in [0, empty] {
            assert_eq!(nodes.record(id, port).map(|record| record.owner), Some(NodeId(empty)), "node {id}, {port}");
        }
    }
    let by_backups: u64 = (1..4).map(|id| nodes.service(id).lookup.handed_over).sum();
    assert!(by_backups > 0 && nodes.service(0).lookup.handed_over > 0, "of both kinds");
    nodes.run(Duration::from_secs(30));
    for port in PORT..PORT + 20 {
        let owners: Vec<_> =
            nodes_with(&nodes, port).iter().map(|id| nodes.record(*id, port).expect("it has it").owner).collect();
        assert!(owners.len() >= 2 && owners.iter().all(|owner| *owner == owners[0]), "{port}: {owners:?}");
    }
}

#[test]
fn connections_survive_more_failures_than_they_have_backups_if_one_node_has_them() {
    let mut nodes = with_backups(&[]);
    let seen = nodes.connect(PORT, 0);
    let backup = (1..4).find(|id| nodes.record(*id, PORT).is_some()).expect("it has a backup");
    let empty = (1..4).find(|id| nodes.record(*id, PORT).is_none()).expect("not all nodes back it up");
    nodes.kill(0);
    nodes.run(Duration::from_millis(500));
    assert!(nodes.question_passes(empty, PORT, seen), "the prediction was wrong, and it is pulled");
    nodes.run(Duration::from_secs(2));
    nodes.kill(backup);
    nodes.run(Duration::from_millis(500));
    let last = (1..4).find(|id| *id != backup && *id != empty).expect("a fourth node");
    assert!(nodes.question_passes(last, PORT, seen), "from the new owner, or its new backup");
}

#[test]
fn while_a_peer_has_no_state_service_all_nodes_have_all_connections() {
    let mut nodes = with_backups(&[3]);
    nodes.connect(PORT, 0);
    assert_eq!(nodes_with(&nodes, PORT), [0, 1, 2, 3]);
    let mut nodes = with_backups(&[]);
    nodes.connect(PORT, 0);
    assert!(nodes_with(&nodes, PORT).len() < 4);
}

#[test]
fn each_worker_pulls_the_connections_of_its_like() {
    let mut site = Site::start([2; 2], Options { has_groups: true, replicates: false, ..Options::default() });
    let config = StateServiceConfig { key: [3, 4], limits: LookupLimits::default() };
    for (workers, incarnation) in site.nodes.iter_mut().zip([10, 20]) {
        let without = core::mem::take(workers).into_iter().zip(incarnation..);
        *workers = without.map(|(node, number)| node.with_state_service(config, number).unwrap()).collect();
    }
    site.run_until("both nodes to forward", |site| [0, 1].into_iter().all(|id| site.lead(id).holds_addresses()));
    site.run(Duration::from_millis(300));
    for port in PORT..PORT + 16 {
        site.via = Some(0);
        let seen = site.connect(port);
        site.run(Duration::from_millis(60));
        site.via = Some(1);
        site.exchange(port, seen);
    }
    assert!(site.connections(1).iter().all(|connections| *connections > 0), "{:?}", site.connections(1));
    let pulled = |node: &crate::node::Node| node.pipeline().state_service_status().map_or(0, |it| it.lookup.pulled);
    assert_eq!(site.nodes[1].iter().map(pulled).sum::<u64>(), 16);
}
