//! Local recovery: what is held, what is resent after a switch-over, and what never is.

use std::net::Ipv6Addr;
use std::time::Duration;

use edge::{CachePolicy, EdgeConfig, EdgeEvent, RecoveryConfig, Resent};
use flow::wire::build::{self, Tcp};
use flow::wire::ip_protocol;
use flow::{Checksum, NodeId, Segmentation, SegmentationKind, Tuple};

use crate::harness::*;

/// An edge, a connection through it, and its node.
fn open(connection: Connection) -> (World, Connection, NodeId) {
    let mut world = World::new(|_| ());
    let node = connection.open(&mut world);
    (world, connection, node)
}

fn recovery(config: &mut EdgeConfig, change: impl FnOnce(&mut RecoveryConfig)) {
    change(config.recovery.as_mut().expect("it is on by default"));
}

/// The node fails, the survivors take over and confirm, and the edge resends: (sequence, payload bytes) of what goes to a node.
fn resent_after_failure(world: &mut World, node: NodeId) -> Vec<(u32, u32)> {
    world.fail(node);
    world.confirm_all();
    let resent = world.resent();
    resent
        .iter()
        .map(|(_, transmit, bytes)| {
            let (_, segment) = read(bytes);
            assert_ne!(transmit.port, port(node));
            assert_eq!(transmit.checksum, Checksum::Valid);
            (segment.sequence.wrapping_sub(NEAR), segment.payload_bytes)
        })
        .collect()
}

#[test]
fn the_lowest_unacknowledged_segment_is_resent_once_to_the_new_owner() {
    let (mut world, connection, node) = open(Connection::new(1));
    let segment = connection.near(ACK | PSH, 101, 1, &[7; 100]);
    world.enter(connection.near(ACK, 1, 1, &[6; 100]));
    world.enter(segment.clone());
    world.enter(connection.near(ACK, 201, 1, &[8; 100]));
    world.leave(node, connection.far(ACK, 1, 101, u16::MAX));
    // The first segment is acknowledged. The second one came while its slot was taken; its retransmission fills it.
    world.enter(segment.clone());
    world.fail(node);
    assert_eq!(world.resent(), [], "not before the new owner has confirmed its state");
    world.confirm_all();
    let resent = world.resent();
    assert_eq!(resent.len(), 1);
    let (_, transmit, bytes) = &resent[0];
    let owner = NodeId(transmit.port.0 - 1);
    assert_eq!(bytes[6..], segment[6..], "the bytes are as they came");
    assert_eq!(bytes[..6], node_address(owner).0);
    assert_eq!(world.enter(connection.near(ACK, 301, 1, b"")), owner);
    world.confirm_all();
    assert_eq!(world.resent(), [], "each slot is resent once");
    let events = world.events();
    assert_eq!(events[..2], [EdgeEvent::NodeLost(node), EdgeEvent::SwitchedOver(node)]);
    assert!(
        events.contains(&EdgeEvent::Recovered { node: owner, resent: Resent { segments: 1, ..Resent::default() } })
    );
}

#[test]
fn a_packet_that_was_held_after_the_confirmation_is_not_resent() {
    let mut world = World::new(|_| ());
    let opened = (0..30).map(Connection::new).map(|connection| (connection, connection.open(&mut world)));
    let opened: Vec<_> = opened.collect();
    let failed = NodeId(1);
    let mut of_failed = opened.iter().filter(|(_, node)| *node == failed).map(|(connection, _)| *connection);
    let [first, second] = [(); 2].map(|()| of_failed.next().expect("a third of thirty"));
    world.enter(first.near(ACK, 1, 1, &[1; 50]));
    world.fail(failed);
    let owner = world.enter(first.near(ACK, 1, 1, b""));
    world.confirm_all();
    // Before anything is resent, a segment of another connection comes, which passes to its new owner; and the first one is acknowledged.
    world.wait(Duration::from_millis(1));
    let its_owner = world.enter(second.near(ACK, 1, 1, &[2; 50]));
    assert_ne!(its_owner, failed);
    world.leave(owner, first.far(ACK, 1, 51, u16::MAX));
    assert_eq!(world.edge.status().segments_held.0, 1, "the second one is held");
    assert_eq!(world.resent(), [], "it reached its new owner by itself");
}

#[test]
fn a_flood_of_syns_evicts_its_own_held_segments_and_not_those_of_established_connections() {
    let mut world = World::new(|config| {
        config.connections_max = 60_000;
        recovery(config, |recovery| recovery.memory_bytes_max = 64 << 10);
    });
    let connections: Vec<_> = (0..10).map(Connection::new).collect();
    let owners: Vec<_> = connections.iter().map(|connection| connection.open(&mut world)).collect();
    for connection in &connections {
        world.enter(connection.near(ACK, 1, 1, &[1; 50]));
    }
    let (_, slots_max) = world.edge.status().segments_held;
    assert!((20..100).contains(&slots_max), "{slots_max}");
    for client_port in 1000..11_000 {
        world.enter(Connection::new(client_port).near(SYN, 0, 0, b""));
    }
    let status = world.edge.status();
    assert_eq!(status.segments_held, (slots_max, slots_max));
    assert_eq!(status.recovery.evicted, 10 + 10_000 - u64::from(slots_max));
    // The segments of established connections are still there. A further one takes the place of a SYN.
    let later = Connection::new(10);
    let its_owner = later.open(&mut world);
    world.enter(later.near(ACK, 1, 1, &[2; 60]));
    let of_its_owner = owners.iter().chain([&its_owner]).filter(|owner| **owner == its_owner).count();
    let resent = resent_after_failure(&mut world, its_owner);
    assert_eq!(resent.iter().filter(|(_, payload_bytes)| *payload_bytes > 0).count(), of_its_owner);
}

#[test]
fn a_lost_syn_is_resent() {
    let mut world = World::new(|_| ());
    let connection = Connection::new(1);
    let node = world.enter(connection.near(SYN, 0, 0, b""));
    assert_eq!(resent_after_failure(&mut world, node), [(0, 0)]);
    assert_eq!(world.edge.status().recovery.syns_resent, 1);
}

#[test]
fn a_syn_that_came_between_the_failure_and_the_take_over_is_resent() {
    let mut world = World::new(|_| ());
    let connection = Connection::new(1);
    let first_choice = world.edge.predict(&connection.tuple, Default::default()).expect("all are alive");
    world.fail(first_choice);
    let owner = world.enter(connection.near(SYN, 0, 0, b""));
    world.edge.owner_confirmed(world.now, owner);
    let resent = world.resent();
    assert!(resent.len() == 1 && resent[0].1.port == port(owner));
}

#[test]
fn connections_of_surviving_nodes_are_left_alone() {
    let mut world = World::new(|_| ());
    let mut of = [0_usize; NODES as usize];
    for client_port in 0..60 {
        let connection = Connection::new(client_port);
        let node = connection.open(&mut world);
        of[usize::from(node.0)] += 1;
        world.enter(connection.near(ACK, 1, 1, &[1; 50]));
    }
    assert_eq!(resent_after_failure(&mut world, NodeId(1)).len(), of[1]);
    // A second failure concerns the connections of that node, whether it had them from the start or took them over.
    world.wait(Duration::from_secs(1));
    world.fail(NodeId(2));
    world.edge.owner_confirmed(world.now, NodeId(0));
    let resent: Vec<_> = world.resent();
    assert!(
        resent.len() >= of[2]
            && resent.len() < of[1] + of[2]
            && resent.iter().all(|sent| sent.1.port == port(NodeId(0)))
    );
}

#[test]
fn the_packet_that_was_held_first_is_resent_first_and_at_the_configured_rate() {
    let mut world = World::new(|c| recovery(c, |r| r.resends_per_s_max = 1000));
    let mut ports = Vec::new();
    for client_port in [5, 3, 9, 1, 4, 8, 2, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30] {
        let connection = Connection::new(client_port);
        if connection.open(&mut world) == NodeId(0) {
            world.enter(connection.near(ACK, 1, 1, &[1; 50]));
            ports.push(client_port);
        }
    }
    assert!(ports.len() >= 4, "the test needs connections on this node: {ports:?}");
    world.fail(NodeId(0));
    // One owner takes all over.
    world.fail(NodeId(1));
    world.edge.owner_confirmed(world.now, NodeId(2));
    let resent = world.resent();
    assert_eq!(resent.iter().map(|(_, _, bytes)| read(bytes).0.tuple.source_port).collect::<Vec<_>>(), ports);
    let last = resent.last().expect("there are some").0.saturating_since(world.now);
    // A burst of four, and then one a millisecond.
    assert_eq!(last.as_millis() as usize, ports.len() - 4);
}

#[test]
fn a_retransmission_replaces_what_is_held_and_a_later_segment_does_not() {
    let (mut world, connection, node) = open(Connection::new(1));
    world.enter(connection.near(ACK, 101, 1, &[2; 100]));
    world.enter(connection.near(ACK, 201, 1, &[3; 100]));
    // A lower segment was late; its retransmission is shorter.
    world.enter(connection.near(ACK, 1, 1, &[1; 100]));
    world.enter(connection.near(ACK, 1, 1, &[9; 60]));
    assert_eq!(resent_after_failure(&mut world, node), [(1, 60)]);
}

#[test]
fn of_a_segment_acknowledged_in_part_a_retransmission_of_the_rest_is_held() {
    let (mut world, connection, node) = open(Connection::new(1));
    world.enter(connection.near(ACK, 1, 1, &[1; 100]));
    world.leave(node, connection.far(ACK, 1, 41, u16::MAX));
    assert_eq!(world.edge.status().segments_held.0, 1, "a part is missing");
    world.enter(connection.near(ACK, 41, 1, &[2; 60]));
    assert_eq!(resent_after_failure(&mut world, node), [(41, 60)]);
}

#[test]
fn nothing_is_resent_that_was_acknowledged_meanwhile_or_retransmitted_to_the_new_owner() {
    let mut world = World::new(|_| ());
    let connections: Vec<_> = (0..40).map(Connection::new).collect();
    let of_failed: Vec<_> = connections.iter().filter(|c| c.open(&mut world) == NodeId(0)).collect();
    for connection in &of_failed {
        world.enter(connection.near(ACK, 1, 1, &[1; 50]));
    }
    let [acknowledged, retransmitted, reset, plain, ..] = of_failed[..] else { panic!("too few connections") };
    world.fail(NodeId(0));
    world.confirm_all();
    world.wait(Duration::from_millis(1));
    let owner = world.enter(retransmitted.near(ACK, 1, 1, &[1; 50]));
    assert_ne!(owner, NodeId(0));
    world.leave(owner, acknowledged.far(ACK, 1, 51, u16::MAX));
    world.enter(reset.near(RST, 51, 0, b""));
    let resent: Vec<_> = world.resent().iter().map(|(_, _, bytes)| read(bytes).0.tuple).collect();
    assert!(resent.contains(&plain.tuple) && resent.len() == of_failed.len() - 3);
    for gone in [acknowledged, retransmitted, reset] {
        assert!(!resent.contains(&gone.tuple));
    }
}

#[test]
fn a_recovery_that_begins_once_more_resends_nothing_twice_to_a_node() {
    let mut world = World::new(|_| ());
    let connections: Vec<_> = (0..60).map(Connection::new).collect();
    let owners: Vec<_> = connections.iter().map(|connection| connection.open(&mut world)).collect();
    for connection in &connections {
        world.enter(connection.near(ACK, 1, 1, &[1; 50]));
    }
    world.fail(NodeId(0));
    world.confirm_all();
    let (mut sent, mut buffer) = (Vec::new(), Vec::new());
    while sent.len() < 8 {
        match world.edge.poll_transmit(world.now, &mut buffer) {
            Some(_) => sent.push(buffer.clone()),
            None => world.wait(Duration::from_micros(10)),
        }
    }
    // The second failure comes while the first one is recovered from.
    world.fail(NodeId(1));
    world.edge.owner_confirmed(world.now, NodeId(2));
    sent.extend(world.resent().into_iter().map(|(_, _, bytes)| bytes));
    let mut resent: Vec<_> = sent.iter().map(|bytes| (bytes[..6].to_vec(), read(bytes).0.tuple.source_port)).collect();
    let to_last = resent.iter().filter(|(address, _)| address[..] == node_address(NodeId(2)).0).count();
    let all = resent.len();
    resent.sort_unstable();
    resent.dedup();
    assert_eq!(resent.len(), all, "each once to each node");
    assert_eq!(to_last, owners.iter().filter(|owner| **owner != NodeId(2)).count(), "and all to the last one");
}

#[test]
fn a_connection_that_both_ends_have_closed_holds_nothing() {
    let (mut world, connection, node) = open(Connection::new(1));
    world.enter(connection.near(FIN | ACK, 1, 1, &[1; 10]));
    assert_eq!(world.edge.status().segments_held.0, 1);
    world.leave(node, connection.far(FIN | ACK, 1, 12, u16::MAX));
    world.enter(connection.near(ACK, 12, 2, b""));
    world.enter(connection.near(FIN | ACK, 1, 2, &[1; 10]));
    assert_eq!(world.edge.status().segments_held.0, 0);
    assert_eq!(resent_after_failure(&mut world, node), []);
}

#[test]
fn a_fin_is_resent_with_its_data() {
    let (mut world, connection, node) = open(Connection::new(1));
    let fin = connection.near(FIN | ACK | PSH, 1, 1, &[1; 10]);
    world.enter(fin.clone());
    world.fail(node);
    world.confirm_all();
    assert_eq!(world.resent()[0].2[6..], fin[6..]);
}

#[test]
fn of_a_large_frame_the_first_segment_is_resent_with_its_own_lengths_and_flags() {
    let large = Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1400, ..Segmentation::default() };
    let stated = Segmentation { size_bytes: 0, ..large };
    for (segmentation, expected) in [(large, 1400), (stated, 1460)] {
        let (mut world, connection, node) = open(Connection::new(1));
        let payload: Vec<u8> = (0..20_000_u32).map(|at| (at / 7) as u8).collect();
        let mut frame = connection.near(ACK | PSH | FIN, 1, 1, &payload);
        let checksum = build::offload_checksum(&mut frame);
        world.arrive_with(NETWORK, &mut frame, checksum, segmentation);
        world.fail(node);
        world.confirm_all();
        let (_, _, bytes) = &world.resent()[0];
        let (headers, segment) = read(bytes);
        assert_eq!((segment.flags, segment.payload_bytes), (ACK, expected));
        assert_eq!(bytes[usize::from(headers.payload_offset)..], payload[..expected as usize]);
    }
}

#[test]
fn segments_in_ipv6_are_resent_with_valid_checksums() {
    let mut world = World::new(|_| ());
    let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    let tuple = Tuple::v6(ip_protocol::TCP, (address(2), 1000), (address(1), 443));
    let large = Segmentation { kind: SegmentationKind::TcpIpv6, size_bytes: 1200, ..Segmentation::default() };
    let fields = Tcp { flags: ACK, sequence: NEAR, acknowledgement: FAR, ..Tcp::default() };
    let mut frame = build::tcp(&tuple, fields, &[5; 5000]);
    let checksum = build::offload_checksum(&mut frame);
    world.arrive_with(NETWORK, &mut frame, checksum, large);
    let node = world.edge.predict(&tuple, Default::default()).expect("all are alive");
    assert_eq!(resent_after_failure(&mut world, node), [(0, 1200)]);
}

#[test]
fn acknowledgements_are_resent_three_times_without_sack_and_before_the_first_timeout() {
    for (sack, wait_ms, copies) in [(false, 100, 3), (false, 250, 0), (true, 100, 0)] {
        let (mut world, connection, node) = open(Connection { sack, timestamps: Some((7, 7)), ..Connection::new(1) });
        world.wait(Duration::from_millis(10));
        world.enter(connection.near(ACK, 1, 1, &[1; 100]));
        let acknowledgement = world.leave(node, connection.far(ACK, 1, 51, 500));
        // Data of the far end comes after it, with the same acknowledgement: it is not a duplicate.
        world.wait(Duration::from_millis(wait_ms));
        world.fail(node);
        world.confirm_all();
        let resent = world.resent();
        let to_host: Vec<_> = resent.iter().filter(|(_, transmit, _)| transmit.port == NETWORK).collect();
        assert_eq!(to_host.len(), copies, "SACK {sack}, {wait_ms} ms");
        for (_, _, bytes) in to_host {
            assert_eq!(*bytes, acknowledgement, "a copy as the host got it");
        }
        assert_eq!(resent.len() - copies, 1, "the segment is resent in any case");
    }
}

#[test]
fn a_resent_acknowledgement_has_no_data_and_the_next_sequence_number() {
    let (mut world, connection, node) = open(Connection { sack: false, ..Connection::new(1) });
    world.enter(connection.near(ACK, 1, 1, &[1; 100]));
    let fields = Tcp { flags: ACK | PSH, sequence: FAR + 1, acknowledgement: NEAR.wrapping_add(51), ..Tcp::default() };
    world.leave(node, build::tcp(&connection.tuple.inverse(), fields, &[9; 300]));
    world.fail(node);
    world.confirm_all();
    let (_, segment) = read(&world.resent()[0].2);
    assert_eq!((segment.flags, segment.payload_bytes, segment.sequence), (ACK, 0, FAR + 301));
    assert_eq!(segment.acknowledgement, NEAR.wrapping_add(51));
}

#[test]
fn policies_hold_what_they_name() {
    let held = |policy, heartbeats_lost| {
        let mut world = World::new(|c| recovery(c, |r| r.policy = policy));
        let syn = world.enter(Connection::new(1).near(SYN, 0, 0, b""));
        let syns_held = world.edge.status().segments_held.0;
        let node = Connection::new(2).open(&mut world);
        [syn, node].iter().for_each(|node| world.edge.note_heartbeats_lost(world.now, *node, heartbeats_lost));
        world.enter(Connection::new(2).near(ACK, 1, 1, &[1; 100]));
        (syns_held, world.edge.status().segments_held.0 - syns_held)
    };
    assert_eq!(held(CachePolicy::Always, 0), (1, 1));
    assert_eq!(held(CachePolicy::SynOnly, 0), (1, 0));
    assert_eq!(held(CachePolicy::FromSecondLostHeartbeat, 1), (0, 0));
    assert_eq!(held(CachePolicy::FromSecondLostHeartbeat, 2), (0, 1));
    assert_eq!(held(CachePolicy::HeavyHitters { connections_max: 1 }, 0), (0, 1));
}

#[test]
fn heavy_hitters_displace_connections_with_fewer_bytes() {
    let mut world = World::new(|c| recovery(c, |r| r.policy = CachePolicy::HeavyHitters { connections_max: 2 }));
    let connections = [1, 2, 3].map(Connection::new);
    for connection in &connections {
        connection.open(&mut world);
    }
    for (connection, bytes) in connections.iter().zip([1000, 10, 20]) {
        world.enter(connection.near(ACK, 1, 1, &vec![1; bytes]));
    }
    let status = world.edge.status();
    assert_eq!((status.segments_held.0, status.recovery.released), (2, 1));
}

#[test]
fn under_a_memory_limit_the_packet_that_was_held_first_is_evicted() {
    let mut world = World::new(|c| recovery(c, |r| r.memory_bytes_max = 64 << 10));
    let slots = world.edge.status().segments_held.1;
    assert!((35..=37).contains(&slots), "seven eighths of 64 KiB hold {slots} segments");
    let mut of_first = Vec::new();
    for client_port in 0..(slots + 10) as u16 {
        world.wait(Duration::from_millis(1));
        let node = world.enter(Connection::new(client_port).near(SYN, 0, 0, b""));
        if node == NodeId(0) && u32::from(client_port) >= 10 {
            of_first.push(client_port);
        }
    }
    let status = world.edge.status();
    assert_eq!((status.segments_held.0, status.recovery.evicted), (slots, 10));
    assert!(status.held_bytes <= 64 << 10);
    world.fail(NodeId(0));
    world.confirm_all();
    let resent: Vec<_> = world.resent().iter().map(|(_, _, bytes)| read(bytes).0.tuple.source_port).collect();
    assert_eq!(resent.iter().copied().collect::<std::collections::BTreeSet<_>>(), of_first.into_iter().collect());
}

#[test]
fn a_connection_that_leaves_the_table_takes_its_packet_along() {
    let mut world = World::new(|c| c.connections_max = 5);
    for port in 0..20 {
        world.enter(Connection::new(port).near(SYN, 0, 0, b""));
    }
    assert_eq!(world.edge.status().segments_held.0, 5);
    world.wait(Duration::from_secs(121));
    assert!(world.edge.poll_timeout().is_some_and(|at| at <= world.now));
    world.edge.handle_timeout(world.now);
    let status = world.edge.status();
    assert_eq!((status.connections, status.segments_held.0, status.flows.expired), (0, 0, 5));
}

#[test]
fn a_reused_port_holds_the_syn_of_the_new_connection() {
    let (mut world, connection, node) = open(Connection::new(1));
    world.enter(connection.near(ACK, 1, 1, &[1; 100]));
    world.leave(node, connection.far(RST, 1, 0, 0));
    assert_eq!(world.edge.status().segments_held.0, 0);
    let node = world.enter(connection.near(SYN, 1 << 31, 0, b""));
    assert_eq!(resent_after_failure(&mut world, node), [(1 << 31, 0)]);
}

#[test]
fn a_connection_that_its_ends_began_anew_holds_nothing_of_the_former() {
    let (mut world, connection, node) = open(Connection::new(1));
    world.enter(connection.near(ACK, 1, 1, &[1; 100]));
    // The near end was restarted. Its SYN looks forged, but the far end has answered it.
    world.enter(connection.near(SYN, 1 << 31, 0, b""));
    assert_eq!(world.edge.status().segments_held.0, 1);
    world.leave(node, connection.far(SYN | ACK, 1 << 31, (1 << 31) + 1, u16::MAX));
    assert_eq!(world.edge.status().segments_held.0, 0);
    assert_eq!(resent_after_failure(&mut world, node), []);
}

#[test]
fn a_flood_of_segments_of_no_connection_displaces_no_open_connection() {
    let mut world = World::new(|c| c.connections_max = 100);
    let connection = Connection::new(1);
    let node = connection.open(&mut world);
    world.enter(connection.near(ACK, 1, 1, &[1; 100]));
    for flags in [SYN, ACK, ACK | FIN] {
        (100..400).for_each(|port| _ = world.enter(Connection::new(port).near(flags, 1, 1, b"")));
    }
    let status = world.edge.status();
    assert_eq!((status.connections, status.flows.evicted), (100, 1 + 300 - 100 + 2 * 300));
    assert!(resent_after_failure(&mut world, node).contains(&(1, 100)));
}

#[test]
fn a_node_that_returns_before_the_take_over_is_sent_nothing_twice() {
    let (mut world, connection, node) = open(Connection::new(1));
    world.enter(connection.near(ACK, 1, 1, &[1; 100]));
    world.fail(node);
    world.edge.set_node_alive(world.now, node, true);
    world.confirm_all();
    assert_eq!(world.resent(), []);
    assert_eq!(world.enter(connection.near(ACK, 1, 1, &[1; 100])), node);
}
