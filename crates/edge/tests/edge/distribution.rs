//! Flows and their nodes: affinity, failures, returns, prediction, and packets without a connection.

use std::net::Ipv4Addr;

use edge::{AddressOf, Affinity, EdgeEvent, NodeSet};
use flow::wire::build::{self, Envelope, IcmpHeader};
use flow::wire::{MacAddress, ip_protocol};
use flow::{Disposition, DropReason, Frame, NodeId, PortId, Tuple};

use crate::harness::*;

fn udp(client_port: u16) -> Tuple {
    Tuple { protocol: ip_protocol::UDP, ..tcp_tuple(client_port) }
}

fn set(nodes: &[u8]) -> NodeSet {
    nodes.iter().copied().map(NodeId).collect()
}

/// What source NAT of a node makes of a connection: its outside tuple.
fn translated(tuple: &Tuple, node: NodeId) -> Tuple {
    let source = (Ipv4Addr::new(203, 0, 113, 1 + node.0), 20_000 + tuple.source_port);
    Tuple::v4(tuple.protocol, source, (Ipv4Addr::new(192, 0, 2, 1), tuple.destination_port))
}

#[test]
fn learned_affinity_returns_replies_to_the_node_that_translated_the_connection() {
    let (mut inside, mut outside) = (World::new(|_| ()), World::new(|_| ()));
    let mut moved_by_hash = 0;
    for client_port in 0..200 {
        let node = inside.enter(build::udp(&udp(client_port), b"query"));
        let out = translated(&udp(client_port), node);
        moved_by_hash += u32::from(outside.edge.predict(&out.inverse(), NodeSet::EMPTY) != Some(node));
        outside.leave(node, build::udp(&out, b"query"));
        assert_eq!(outside.enter(build::udp(&out.inverse(), b"answer")), node);
        inside.leave(node, build::udp(&udp(client_port).inverse(), b"answer"));
        assert_eq!(inside.enter(build::udp(&udp(client_port), b"query")), node);
    }
    assert!(moved_by_hash > 100, "without learning, most replies would go to another node: {moved_by_hash}");
}

#[test]
fn hashed_affinities_agree_at_both_edges_without_a_record() {
    let (mut inside, mut outside) =
        (World::new(|c| c.affinity = Affinity::Tuple), World::new(|c| c.affinity = Affinity::Tuple));
    for client_port in 0..100 {
        let node = inside.enter(build::udp(&udp(client_port), b"query"));
        assert_eq!(outside.enter(build::udp(&udp(client_port).inverse(), b"answer")), node);
    }
    assert_eq!(inside.edge.status().connections, 0);
}

#[test]
fn address_affinity_keeps_a_client_and_its_fragments_on_one_node() {
    let mut inside = World::new(|c| c.affinity = Affinity::Address(AddressOf::NearHost));
    let mut outside = World::new(|c| c.affinity = Affinity::Address(AddressOf::FarHost));
    let node = inside.enter(build::udp(&udp(1), b"query"));
    for client_port in 0..50 {
        assert_eq!(inside.enter(build::udp(&udp(client_port), b"query")), node);
        assert_eq!(outside.enter(build::udp(&udp(client_port).inverse(), b"answer")), node);
    }
    let fragment = flow::wire::ipv6::FragmentHeader { offset_bytes: 64, more: false, identification: 7 };
    let envelope = Envelope { fragment: Some(fragment), ..Envelope::default() };
    assert_eq!(inside.enter(envelope.raw(&udp(3), &[0; 80])), node);
    assert_eq!(inside.edge.status().counters.fragments, 1);
}

#[test]
fn connections_of_a_failed_node_move_and_stay_where_they_are_learned_when_it_returns() {
    let mut world = World::new(|_| ());
    let connections: Vec<_> = (0..300).map(Connection::new).collect();
    let before: Vec<_> = connections.iter().map(|connection| connection.open(&mut world)).collect();
    let failed = NodeId(1);
    let (used, unused): (Vec<_>, Vec<_>) =
        connections.iter().zip(&before).partition(|(connection, _)| connection.tuple.source_port % 2 == 0);

    world.edge.set_node_alive(world.now, failed, false);
    let place = |world: &mut World, connection: &Connection| world.enter(connection.near(ACK, 1, 1, b""));
    let moved: Vec<_> = used.iter().map(|(connection, _)| place(&mut world, connection)).collect();
    for ((_, before), after) in used.iter().zip(&moved) {
        assert!(*after != failed && (**before == failed || *before == after));
    }

    world.edge.set_node_alive(world.now, failed, true);
    for ((connection, _), after) in used.iter().zip(&moved) {
        assert_eq!(place(&mut world, connection), *after, "a connection that was moved stays");
    }
    for (connection, before) in &unused {
        assert_eq!(place(&mut world, connection), **before, "one without packets meanwhile is where it was");
    }
    assert_eq!(world.events(), [EdgeEvent::NodeLost(failed), EdgeEvent::NodeReturned(failed)]);
    let of_failed = used.iter().filter(|(_, before)| **before == failed).count() as u64;
    assert_eq!(world.edge.status().counters.moved, of_failed);
}

#[test]
fn packets_that_a_dead_node_sent_before_teach_no_flow() {
    let mut world = World::new(|_| ());
    let connection = Connection::new(1);
    let failed = connection.open(&mut world);
    let node_of_flow = |world: &World| world.edge.next_flow(0).expect("there is one").node;
    world.edge.set_node_alive(world.now, failed, false);
    // It moves with its next packet; packets that the dead node sent still arrive.
    let successor = world.enter(connection.near(ACK, 1, 1, b""));
    assert_ne!(successor, failed);
    world.leave(failed, connection.far(ACK, 1, 1, u16::MAX));
    assert_eq!(node_of_flow(&world), successor, "the dead node's packet taught nothing");
    // Nor does it teach the flow of a connection that begins with it.
    let other = Connection::new(2);
    world.leave(failed, other.far(ACK, 1, 1, u16::MAX));
    let survivor = world.enter(other.near(ACK, 1, 1, b""));
    assert_ne!(survivor, failed);
    world.edge.set_node_alive(world.now, failed, true);
    assert_eq!(world.enter(connection.near(ACK, 1, 1, b"")), successor);
    assert_eq!(world.edge.status().counters.moved, 2, "each moved once");
}

#[test]
fn a_live_node_keeps_its_flow_although_a_packet_leaves_from_another() {
    let mut world = World::new(|_| ());
    let connection = Connection::new(1);
    let owner = connection.open(&mut world);
    let other = NodeId((owner.0 + 1) % NODES);
    world.leave(other, connection.far(ACK, 1, 1, u16::MAX));
    assert_eq!(world.enter(connection.near(ACK, 1, 1, b"")), owner, "a connection does not go back and forth");
    assert_eq!(world.edge.status().counters.moved, 0);
}

#[test]
fn a_fragment_that_leaves_begins_no_flow() {
    let mut world = World::new(|_| ());
    for offset_bytes in [0, 64] {
        let fragment = flow::wire::ipv6::FragmentHeader { offset_bytes, more: offset_bytes == 0, identification: 7 };
        let envelope = Envelope { fragment: Some(fragment), ..Envelope::default() };
        world.leave(NodeId(1), envelope.raw(&udp(3).inverse(), &[0; 80]));
    }
    let status = world.edge.status();
    assert_eq!((status.connections, status.counters.fragments), (0, 2), "its ports are not known");
}

#[test]
fn a_drained_node_keeps_its_connections_and_gets_no_new_ones() {
    let mut world = World::new(|_| ());
    let before: Vec<_> = (0..200).map(|port| world.enter(build::udp(&udp(port), b"query"))).collect();
    let drained = before[0];
    assert!(world.edge.set_drained(drained, true));
    for (port, node) in (0..200).zip(&before) {
        assert_eq!(world.enter(build::udp(&udp(port), b"query")), *node, "connections stay");
    }
    let new: Vec<_> = (200..400).map(|port| world.enter(build::udp(&udp(port), b"query"))).collect();
    assert!(new.iter().all(|node| *node != drained), "{new:?}");
    let mut listed = Vec::new();
    let mut from = 0;
    while let Some(flow) = world.edge.next_flow(from) {
        from = flow.place + 1;
        listed.push((flow.entering.source_port, flow.node));
    }
    listed.sort_unstable();
    let expected: Vec<_> = (0..400).zip(before.iter().chain(&new).copied()).collect();
    assert_eq!(listed, expected);

    assert!(world.edge.set_drained(drained, false));
    assert!((400..600).any(|port| world.enter(build::udp(&udp(port), b"query")) == drained), "it gets new ones again");
}

#[test]
fn the_last_live_node_gets_connections_though_it_is_drained() {
    let mut world = World::new(|_| ());
    let last = world.enter(build::udp(&udp(1), b"query"));
    world.edge.set_drained(last, true);
    let others: Vec<_> = world.edge.status().alive.iter().filter(|node| *node != last).collect();
    others.iter().for_each(|node| world.edge.set_node_alive(world.now, *node, false));
    assert_eq!(world.enter(build::udp(&udp(2), b"query")), last);
}

#[test]
fn nodes_are_drained_only_where_the_edge_learns_the_nodes_of_connections() {
    let mut world = World::new(|c| c.affinity = Affinity::Tuple);
    assert!(!world.edge.set_drained(NodeId(0), true), "connections would not stay");
}

#[test]
fn a_prediction_names_the_node_that_the_connection_then_goes_to() {
    for affinity in [Affinity::Learned, Affinity::Tuple, Affinity::Address(AddressOf::NearHost)] {
        let mut world = World::new(|c| c.affinity = affinity);
        for client_port in 0..60 {
            let connection = Connection::new(client_port);
            let node = connection.open(&mut world);
            assert_eq!(world.edge.predict(&connection.tuple, NodeSet::EMPTY), Some(node));
            let next = world.edge.predict(&connection.tuple, set(&[node.0])).expect("two are left");
            let last = world.edge.predict(&connection.tuple, set(&[node.0, next.0])).expect("one is left");
            assert_eq!(world.edge.predict(&connection.tuple, set(&[0, 1, 2])), None);
            for (failed, expected) in [(node, next), (next, last)] {
                world.edge.set_node_alive(world.now, failed, false);
                assert_eq!(world.enter(connection.near(ACK, 1, 1, b"")), expected);
            }
            [node, next].iter().for_each(|node| world.edge.set_node_alive(world.now, *node, true));
        }
    }
}

#[test]
fn a_failed_node_that_still_sends_teaches_nothing() {
    let mut world = World::new(|_| ());
    let connection = Connection::new(1);
    let failed = connection.open(&mut world);
    world.fail(failed);
    let owner = world.enter(connection.near(ACK, 1, 1, b""));
    world.leave(failed, connection.far(ACK, 1, 1, 100));
    assert_eq!(world.enter(connection.near(ACK, 1, 1, b"")), owner);
    // The packets of another survivor do.
    let other = (0..NODES).map(NodeId).find(|node| *node != failed && *node != owner).expect("there are three");
    world.leave(other, connection.far(ACK, 1, 1, 100));
    assert_eq!(world.enter(connection.near(ACK, 1, 1, b"")), other);
}

#[test]
fn an_icmp_error_goes_to_the_node_of_the_connection_that_it_quotes() {
    let mut world = World::new(|_| ());
    for client_port in 0..20 {
        let node = NodeId((client_port % 3) as u8);
        let out = build::udp(&udp(client_port).inverse(), b"to a near host");
        world.leave(node, out.clone());
        let error = IcmpHeader { kind: 3, code: 3, parameter: 0 };
        let error =
            build::icmp_error(Ipv4Addr::new(10, 0, 0, 2).into(), error, &out[14..]).expect("it is about a packet");
        assert_eq!(world.enter(error), node);
    }
}

/// The ports that a frame was copied to.
fn copies(world: &mut World) -> Vec<PortId> {
    world.resent().into_iter().map(|(_, transmit, _)| transmit.port).collect()
}

#[test]
fn frames_to_a_group_go_to_every_port_but_their_own() {
    let mut world = World::new(|_| ());
    let host = (MacAddress([2, 0, 0, 0, 0, 9]), Ipv4Addr::new(10, 0, 0, 2));
    let mut request = build::arp_request(host.0, host.1, Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(world.arrive(NETWORK, &mut request), Disposition::Transmit(port(NodeId(0))));
    assert_eq!(request[..6], [0xff; 6], "a broadcast stays one");
    assert_eq!(copies(&mut world), [port(NodeId(1)), port(NodeId(2))]);
    assert_eq!(world.arrive(port(NodeId(1)), &mut request), Disposition::Transmit(NETWORK));
    assert_eq!(copies(&mut world), [port(NodeId(0)), port(NodeId(2))]);
    // A node that is not alive for flows may be a passive one, which must know its neighbours.
    world.edge.set_node_alive(world.now, NodeId(0), false);
    world.arrive(NETWORK, &mut request);
    assert_eq!(copies(&mut world), [port(NodeId(1)), port(NodeId(2))]);
    // Copies that are not sent are limited.
    for _ in 0..1000 {
        world.arrive(NETWORK, &mut request);
    }
    assert_eq!(copies(&mut world).len(), 512);
    assert_eq!(world.edge.status().counters.dropped_for(DropReason::TransmitFailed), 2000 - 512);
}

#[test]
fn frames_between_nodes_go_to_nodes_and_never_to_the_network() {
    let mut world = World::new(|_| ());
    let mut carry = |ingress: PortId, destination: [u8; 6]| {
        let mut bytes = [&destination[..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb5], &[0; 46]].concat();
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, ingress).unwrap();
        world.edge.carry_between_nodes(&mut frame);
        let mut ports = copies(&mut world);
        match frame.disposition {
            Disposition::Transmit(port) => ports.push(port),
            disposition => assert_eq!(disposition, Disposition::Consumed),
        }
        ports.sort();
        ports
    };
    let group = [3, 0x4d, 0x53, 0, 0, 1];
    assert_eq!(carry(port(NodeId(1)), group), [port(NodeId(0)), port(NodeId(2))]);
    assert_eq!(carry(port(NodeId(1)), node_address(NodeId(2)).0), [port(NodeId(2))]);
    assert_eq!(carry(port(NodeId(1)), node_address(NodeId(1)).0), []);
    assert_eq!(carry(NETWORK, group), []);
    assert_eq!(carry(NETWORK, node_address(NodeId(2)).0), []);
}

#[test]
fn link_control_goes_to_the_addressed_node_or_the_first_live_one() {
    let mut world = World::new(|_| ());
    let host = (MacAddress([2, 0, 0, 0, 0, 9]), Ipv4Addr::new(10, 0, 0, 2));
    let mut request = build::arp_request(host.0, host.1, Ipv4Addr::new(10, 0, 0, 1));
    request[..6].copy_from_slice(&node_address(NodeId(2)).0);
    assert_eq!(world.arrive(NETWORK, &mut request), Disposition::Transmit(port(NodeId(2))));
    assert_eq!(world.arrive(port(NodeId(0)), &mut request), Disposition::Transmit(port(NodeId(2))), "between nodes");
    // Its address was learned from the host's side: the one that the host knows is of a node that is gone.
    request[..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    assert_eq!(world.arrive(NETWORK, &mut request), Disposition::Transmit(port(NodeId(0))));
    world.edge.set_node_alive(world.now, NodeId(0), false);
    request[..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    assert_eq!(world.arrive(NETWORK, &mut request), Disposition::Transmit(port(NodeId(1))));
    assert_eq!(request[..6], node_address(NodeId(1)).0);
    world.edge.set_link_address(NodeId(1), MacAddress([2, 7, 7, 7, 7, 7]));
    world.arrive(NETWORK, &mut request);
    assert_eq!(request[..6], [2, 7, 7, 7, 7, 7]);
}

#[test]
fn a_query_to_an_address_goes_to_the_node_that_announced_it_last() {
    let mut world = World::new(|_| ());
    let shared = Ipv4Addr::new(10, 0, 0, 1);
    let tuple = Tuple::v4(ip_protocol::ICMP, (Ipv4Addr::new(10, 0, 0, 2), 0), (shared, 0));
    let query =
        |id: u32| Envelope::default().icmp(&tuple, IcmpHeader { kind: 8, code: 0, parameter: id << 16 | 1 }, b"ping");
    for node in [NodeId(2), NodeId(0)] {
        let mut announcement = build::arp_request(node_address(node), shared, shared);
        world.arrive(port(node), &mut announcement);
        for id in 0..20 {
            assert_eq!(world.enter(query(id)), node);
        }
    }
    world.edge.set_node_alive(world.now, NodeId(0), false);
    assert_ne!(world.enter(query(1)), NodeId(0));
}

#[test]
fn every_drop_has_a_reason_and_is_counted() {
    let mut world = World::new(|_| ());
    let mut frame = build::udp(&udp(1), b"query");
    assert_eq!(world.arrive(PortId(99), &mut frame), Disposition::Drop(DropReason::NoRoute));
    let mut damaged = frame.clone();
    damaged[40] ^= 1;
    assert_eq!(world.arrive(NETWORK, &mut damaged), Disposition::Drop(DropReason::BadTransportChecksum));
    (0..NODES).for_each(|node| world.edge.set_node_alive(world.now, NodeId(node), false));
    assert_eq!(world.arrive(NETWORK, &mut frame), Disposition::Drop(DropReason::NoRoute));
    let counters = world.edge.status().counters;
    assert_eq!(
        (counters.dropped_for(DropReason::NoRoute), counters.dropped_for(DropReason::BadTransportChecksum)),
        (2, 1)
    );
    assert_eq!((counters.entered, counters.left), (0, 0));
}
