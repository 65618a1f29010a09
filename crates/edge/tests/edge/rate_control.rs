//! Rate control: when windows are clamped, by how much, and what never changes.

use std::time::Duration;

use edge::{Capacity, EdgeEvent, RateControlConfig, RatePhase};
use flow::wire::build;
use flow::wire::checksum;
use flow::{Checksum, NodeId, Segmentation};
use proptest::prelude::*;

use crate::harness::*;

/// Offset of the TCP header in a plain IPv4 frame.
const L4: usize = 34;
const INTERVAL: Duration = Duration::from_millis(100);
/// The maximum segment size that both ends announce.
const SEGMENT_BYTES: u32 = 1460;

fn world(capacity: Capacity) -> World {
    let mut world = World::new(|c| c.rate_control = Some(RateControlConfig::new(capacity)));
    world.edge.handle_timeout(world.now);
    world
}

fn end_interval(world: &mut World) {
    world.wait(INTERVAL);
    assert!(world.edge.poll_timeout().is_some_and(|at| at <= world.now));
    world.edge.handle_timeout(world.now);
}

/// A connection with a round trip of 20 ms, and the survivor that it is on: node 0 fails in these tests.
fn open_slowly(world: &mut World, client_port: u16, scale: Option<u8>) -> Option<(Connection, NodeId)> {
    let connection = Connection { scale, ..Connection::new(client_port) };
    let node = world.enter(connection.near(SYN, 0, 0, b""));
    world.wait(Duration::from_millis(20));
    world.leave(node, connection.far(SYN | ACK, 0, 1, 1000));
    world.enter(connection.near(ACK, 1, 1, b""));
    (node != NodeId(0)).then_some((connection, node))
}

/// The first connection on a survivor.
fn open_on_survivor(world: &mut World, scale: Option<u8>) -> (Connection, NodeId) {
    (1..50).find_map(|port| open_slowly(world, port, scale)).expect("one of them is on a survivor")
}

/// The window in bytes that the near host gets with an acknowledgement.
fn window_given(world: &mut World, (connection, node): (Connection, NodeId), acknowledged: u32, window: u16) -> u32 {
    let bytes = world.leave(node, connection.far(ACK, 1, acknowledged, window));
    u32::from(read(&bytes).1.window) << connection.scale.unwrap_or(0)
}

#[test]
fn the_clamp_begins_at_the_fair_share_and_ends_smoothly_after_the_return() {
    // A megabyte a second and 20 ms: 20 000 bytes in flight, all for the only connection.
    let mut world = world(Capacity::Configured(1_000_000));
    let on = open_on_survivor(&mut world, Some(2));
    let (connection, node) = on;
    world.enter(connection.near(ACK, 1, 1, &[1; 500]));
    assert_eq!(window_given(&mut world, on, 501, 1500), 6000, "nothing is clamped before a failure");
    end_interval(&mut world);

    world.edge.set_node_alive(world.now, NodeId(0), false);
    let clamp = world.edge.rate_status(node).expect("it is configured").window_bytes;
    assert!((20_000..=21_000).contains(&clamp), "{clamp}");
    let whole_segments = clamp.next_multiple_of(SEGMENT_BYTES);
    assert_eq!(window_given(&mut world, on, 501, u16::MAX), whole_segments.next_multiple_of(4), "and to the scale");
    assert_eq!(window_given(&mut world, on, 501, 1000), 4000, "a smaller window stays");

    world.edge.set_node_alive(world.now, NodeId(0), true);
    let mut last = 0;
    for _ in 0..30 {
        end_interval(&mut world);
        let given = window_given(&mut world, on, 501, u16::MAX);
        let most = (last.max(clamp) * 5 / 4).next_multiple_of(SEGMENT_BYTES) + 8;
        assert!(given >= last && given <= most, "it grows by a quarter at most: {last} {given}");
        last = given;
        if last == u32::from(u16::MAX) << 2 {
            break;
        }
    }
    assert_eq!(last, u32::from(u16::MAX) << 2, "in the end the window is whole");
    (0..2).for_each(|_| end_interval(&mut world));
    let phases: Vec<_> = world
        .events()
        .into_iter()
        .filter_map(|event| match event {
            EdgeEvent::RateControl { node: of, status } if of == node => Some(status.phase),
            _ => None,
        })
        .collect();
    assert_eq!(phases, [RatePhase::Active, RatePhase::Releasing, RatePhase::Inactive]);
}

#[test]
fn connections_of_the_failed_node_count_towards_the_share() {
    let mut world = world(Capacity::Configured(10_000_000));
    let mut of = [0.0; NODES as usize];
    for port in 0..60 {
        let connection = Connection::new(port);
        let node = connection.open(&mut world);
        world.enter(connection.near(ACK, 1, 1, &[1; 500]));
        of[usize::from(node.0)] += 1.0;
    }
    world.edge.set_node_alive(world.now, NodeId(0), false);
    // The round trips are below 64 µs on either side. The least clamp is 2 × 1460 bytes.
    let status = world.edge.rate_status(NodeId(1)).expect("it is configured");
    assert_eq!((status.phase, status.window_bytes), (RatePhase::Active, 2920));
    let mut config = RateControlConfig::new(Capacity::Configured(10_000_000_000));
    config.window_bytes_min = 536;
    let mut fast = World::new(|c| c.rate_control = Some(config));
    for port in 0..60 {
        let connection = Connection::new(port);
        connection.open(&mut fast);
        fast.enter(connection.near(ACK, 1, 1, &[1; 500]));
    }
    fast.edge.set_node_alive(fast.now, NodeId(0), false);
    let expected = 10e9 * 128e-6 / (of[1] + of[0] / 2.0);
    let window = fast.edge.rate_status(NodeId(1)).expect("it is configured").window_bytes;
    assert_eq!(window, expected as u32);
}

#[test]
fn a_connection_that_sends_once_in_two_round_trips_is_counted() {
    let mut world = world(Capacity::Configured(10_000_000));
    let slow: Vec<_> = (0..60).map(Connection::new).collect();
    // A round trip of 150 ms: in an interval of 100 ms only one half of the connections sends.
    let nodes: Vec<NodeId> = slow.iter().map(|connection| world.enter(connection.near(SYN, 0, 0, b""))).collect();
    world.wait(Duration::from_millis(150));
    for (connection, node) in slow.iter().zip(&nodes) {
        world.leave(*node, connection.far(SYN | ACK, 0, 1, 8000));
    }
    for interval in 0..8 {
        for connection in slow.iter().skip(interval % 2).step_by(2) {
            world.enter(connection.near(ACK, 1 + interval as u32, 1, &[1]));
        }
        end_interval(&mut world);
    }
    for node in (0..NODES).map(NodeId) {
        let expected = nodes.iter().filter(|of| **of == node).count();
        let counted = world.edge.rate_status(node).expect("it is configured").connections;
        assert_eq!(counted as usize, expected, "{node:?}");
    }
}

#[test]
fn the_clamp_rises_by_a_sixteenth_in_an_interval_at_most() {
    let mut world = world(Capacity::Configured(1_000_000));
    let (connection, node) = open_on_survivor(&mut world, Some(2));
    world.enter(connection.near(ACK, 1, 1, &[1; 500]));
    end_interval(&mut world);
    world.edge.set_node_alive(world.now, NodeId(0), false);
    let clamp = |world: &World| f64::from(world.edge.rate_status(node).expect("it is configured").window_bytes);
    let first = clamp(&world);
    for intervals in 1..=5 {
        // The connection is silent, so equation 9 alone would raise the clamp to several times as much.
        end_interval(&mut world);
        let most = first * (17.0_f64 / 16.0).powi(intervals);
        assert!((clamp(&world) - most).abs() < 16.0, "{} after {intervals}: {most}", clamp(&world));
    }
}

/// The windows that a connection gets with its first two acknowledgements after it was moved, and the clamp. It has sent `sent` bytes
/// when its node fails, and retransmits the first segment of them.
fn windows_after_move(sent: usize) -> ([u32; 2], u32) {
    let mut world = world(Capacity::Configured(100_000));
    let ports = 1..50;
    let mut opened = ports.filter(|port| open_slowly(&mut world, *port, Some(2)).is_none()).map(Connection::new);
    let connection = Connection { scale: Some(2), ..opened.next().expect("one of them is on node 0") };
    world.leave(NodeId(0), connection.far(ACK, 1, 1, u16::MAX));
    world.enter(connection.near(ACK, 1, 1, &vec![1; sent]));
    end_interval(&mut world);
    world.fail(NodeId(0));
    let node = world.enter(connection.near(ACK, 1, 1, &[1; SEGMENT_BYTES as usize]));
    let clamp = world.edge.rate_status(node).expect("it is configured").window_bytes;
    let given =
        [1, 2].map(|segments| window_given(&mut world, (connection, node), 1 + segments * SEGMENT_BYTES, u16::MAX));
    (given, clamp.next_multiple_of(SEGMENT_BYTES))
}

#[test]
fn the_first_acknowledgement_of_a_moved_connection_leaves_room_for_two_new_segments() {
    let ([first, second], clamp) = windows_after_move(5 * SEGMENT_BYTES as usize);
    assert_eq!(first, 4 * SEGMENT_BYTES + 2 * SEGMENT_BYTES, "four segments are not acknowledged");
    assert!(clamp < first, "{clamp}");
    assert_eq!(second, clamp, "then the clamp counts");
}

#[test]
fn a_moved_connection_that_has_sent_many_times_its_share_gets_the_clamp() {
    let ([first, second], clamp) = windows_after_move(30 * SEGMENT_BYTES as usize);
    assert_eq!([first, second], [clamp; 2]);
}

#[test]
fn a_connection_whose_scale_is_unknown_is_left_alone() {
    let mut world = world(Capacity::Configured(1000));
    let node = NodeId(1);
    let connection = Connection::new(1);
    world.leave(node, connection.far(ACK, 1, 1, u16::MAX));
    world.edge.set_node_alive(world.now, NodeId(0), false);
    let bytes = connection.far(ACK, 1, 1, u16::MAX);
    assert_eq!(world.leave(node, bytes.clone()), bytes);
    // Nor is the window of a SYN/ACK changed, which is not scaled.
    let begun = Connection::new(2);
    let node = world.enter(begun.near(SYN, 0, 0, b""));
    let bytes = begun.far(SYN | ACK, 0, 1, u16::MAX);
    assert_eq!(world.leave(node, bytes.clone()), bytes);
}

#[test]
fn a_connection_of_which_data_passed_unseen_is_left_alone() {
    let mut world = world(Capacity::Configured(1000));
    let (connection, node) = open_on_survivor(&mut world, Some(2));
    world.edge.set_node_alive(world.now, NodeId(0), false);
    let beyond = connection.far(ACK, 1, 5000, u16::MAX);
    assert_eq!(world.leave(node, beyond.clone()), beyond, "what it acknowledges was not seen here");
}

#[test]
fn a_signed_segment_is_left_alone() {
    let mut world = world(Capacity::Configured(1000));
    let (connection, node) = open_on_survivor(&mut world, Some(2));
    world.edge.set_node_alive(world.now, NodeId(0), false);
    // An MD5 signature (RFC 2385) covers the window.
    let plain = connection.far(ACK, 1, 1, u16::MAX);
    let mut transport = plain[L4..].to_vec();
    transport[12] = 10 << 4;
    transport.extend([&[19, 18][..], &[7; 16], &[0; 2]].concat());
    transport[16..18].fill(0);
    let tuple = connection.tuple.inverse();
    let sum = checksum::Sum::of(&transport).plus(checksum::pseudo_header(&tuple, transport.len() as u32));
    transport[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
    let signed = build::Envelope::default().raw(&tuple, &transport);
    assert_ne!(world.leave(node, plain.clone()), plain, "without the option the window is clamped");
    assert_eq!(world.leave(node, signed.clone()), signed);
}

#[test]
fn a_capacity_is_measured_in_saturated_intervals_only() {
    let mut world = world(Capacity::Measured);
    let on = open_on_survivor(&mut world, Some(2));
    let (connection, node) = on;
    let mut sent = 1;
    let mut transfer = |world: &mut World, segments: u32| {
        for _ in 0..segments {
            world.enter(connection.near(ACK, sent, 1, &[1; 1000]));
            sent += 1000;
            window_given(world, on, sent, u16::MAX);
        }
    };
    transfer(&mut world, 50);
    end_interval(&mut world);
    world.edge.set_node_alive(world.now, NodeId(0), false);
    let capacity = |world: &World| world.edge.rate_status(node).expect("it is configured").capacity_bytes_per_s;
    assert_eq!((capacity(&world), world.edge.rate_status(node).unwrap().phase), (0, RatePhase::Inactive));
    world.edge.note_saturated(world.now, node, true);
    transfer(&mut world, 20);
    end_interval(&mut world);
    world.edge.note_saturated(world.now, node, false);
    assert_eq!(capacity(&world), 200_000);
    assert_eq!(world.edge.rate_status(node).unwrap().phase, RatePhase::Active, "the failure has not ended");
    end_interval(&mut world);
    transfer(&mut world, 40);
    end_interval(&mut world);
    assert_eq!(capacity(&world), 200_000, "an interval that was not saturated shows nothing");
}

#[test]
fn a_checksum_left_to_hardware_is_right_once_it_is_completed() {
    let mut world = world(Capacity::Configured(1000));
    let (connection, node) = open_on_survivor(&mut world, Some(2));
    world.edge.set_node_alive(world.now, NodeId(0), false);
    let mut frame = connection.far(ACK, 1, 1, u16::MAX);
    let partial = build::offload_checksum(&mut frame);
    world.arrive_with(port(node), &mut frame, partial, Segmentation::default());
    assert_eq!(frame[L4 + 14..L4 + 16], 730_u16.to_be_bytes(), "2920 bytes at a scale of 2");
    let Checksum::Partial { start, offset } = partial else { panic!("it is offloaded") };
    assert!(checksum::complete_partial(&mut frame, start, offset));
    assert_eq!(read(&frame).1.window, 730);
}

proptest! {
    /// Whatever windows the far end advertises and however its acknowledgements advance: no window is raised, and none is below the
    /// lowest clamp but where the far end's own is.
    #[test]
    fn windows_never_grow_and_never_fall_below_the_lowest_clamp(
        scale in 0u8..=14, capacity in 1u64..10_000_000,
        steps in prop::collection::vec((any::<u16>(), 0u32..5000, 0u8..10), 1..60),
    ) {
        let mut world = world(Capacity::Configured(capacity));
        let (connection, node) = open_on_survivor(&mut world, Some(scale));
        let least = RateControlConfig::new(Capacity::Measured).window_bytes_min;
        let (mut acknowledged, mut is_failed) = (1_u32, false);
        for (window, progress, event) in steps {
            match event {
                0 => is_failed = !is_failed,
                1 => end_interval(&mut world),
                _ => {}
            }
            world.edge.set_node_alive(world.now, NodeId(0), !is_failed);
            if progress > 0 {
                world.enter(connection.near(ACK, acknowledged, 1, &vec![1; progress as usize]));
                acknowledged += progress;
            }
            let original = connection.far(ACK, 1, acknowledged, window);
            let (_, given) = read(&world.leave(node, original));
            prop_assert!(given.window <= window);
            let bytes = |window: u16| u32::from(window) << scale;
            prop_assert!(bytes(given.window) >= least.min(bytes(window)));
        }
    }
}
