//! A fluid model of the bottleneck after a failover: flows with a congestion window each share what one node can forward.
//!
//! Time advances by round trips. In each, a flow sends the smaller of its congestion window and the window that it was given. If all
//! together exceed what the node forwards and queues, flows lose a segment in proportion to what they sent: their congestion window is
//! halved. Else it grows by a segment.

use std::time::Duration;

use edge::{Capacity, RateControlConfig};
use flow::random::SplitMix64;
use flow::{NodeId, Segmentation, SegmentationKind};

use crate::harness::*;

const ROUND_TRIP: Duration = Duration::from_millis(20);
const CAPACITY_BYTES_PER_S: u64 = 10_000_000;
const SEGMENT_BYTES: u32 = 1460;
const FLOWS: usize = 10;
const ROUNDS: usize = 125;
/// Rounds before the measurement.
const ROUNDS_FIRST: usize = 25;

struct Flow {
    connection: Connection,
    node: NodeId,
    sent: u32,
    congestion_bytes: u32,
    /// Behind the last byte that it may send.
    edge: u32,
    measured_bytes: u64,
}

/// Jain's fairness index of the goodputs, the rounds in which the queue overflowed, and the goodput as a share of the capacity.
fn run(has_rate_control: bool) -> (f64, u32, f64) {
    let control = RateControlConfig::new(Capacity::Configured(CAPACITY_BYTES_PER_S));
    let mut world = World::new(|c| c.rate_control = has_rate_control.then_some(control));
    let mut random = SplitMix64::new(7);
    let mut flows: Vec<Flow> = (0..FLOWS as u16).map(|port| open(&mut world, port, &mut random)).collect();
    // The flows of two nodes are moved to the third.
    for node in [NodeId(0), NodeId(1)] {
        world.fail(node);
    }
    let queue_bytes = CAPACITY_BYTES_PER_S as f64 * ROUND_TRIP.as_secs_f64() / 4.0;
    let forwarded_bytes = CAPACITY_BYTES_PER_S as f64 * ROUND_TRIP.as_secs_f64();
    let (mut overflows, mut total) = (0, 0_u64);
    for round in 0..ROUNDS {
        let sent: Vec<u32> = flows.iter_mut().map(|flow| send(&mut world, flow)).collect();
        world.wait(ROUND_TRIP);
        let sum: u32 = sent.iter().sum();
        let excess = f64::from(sum) - forwarded_bytes - queue_bytes;
        overflows += u32::from(excess > 0.0);
        for (flow, bytes) in flows.iter_mut().zip(&sent) {
            let is_lost = excess > 0.0 && (random.between(0, 999) as f64) < 3000.0 * f64::from(*bytes) / f64::from(sum);
            let congestion_bytes =
                if is_lost { flow.congestion_bytes / 2 } else { flow.congestion_bytes + SEGMENT_BYTES };
            flow.congestion_bytes = congestion_bytes.max(SEGMENT_BYTES);
            acknowledge(&mut world, flow);
            // What exceeds the node's capacity waits or is lost: the goodput is in proportion.
            let good_bytes = f64::from(*bytes) * (forwarded_bytes / f64::from(sum).max(forwarded_bytes));
            if round >= ROUNDS_FIRST {
                flow.measured_bytes += good_bytes as u64;
                total += good_bytes as u64;
            }
        }
        world.edge.handle_timeout(world.now);
    }
    let goodputs: Vec<f64> = flows.iter().map(|flow| flow.measured_bytes as f64).collect();
    let (sum, squares) = (goodputs.iter().sum::<f64>(), goodputs.iter().map(|goodput| goodput * goodput).sum::<f64>());
    let share = total as f64 / (forwarded_bytes * (ROUNDS - ROUNDS_FIRST) as f64);
    (sum * sum / (goodputs.len() as f64 * squares), overflows, share)
}

fn open(world: &mut World, port: u16, random: &mut SplitMix64) -> Flow {
    let connection = Connection { scale: Some(4), ..Connection::new(port) };
    let node = world.enter(connection.near(SYN, 0, 0, b""));
    world.wait(ROUND_TRIP);
    world.leave(node, connection.far(SYN | ACK, 0, 1, 8000));
    world.enter(connection.near(ACK, 1, 1, b""));
    let mut flow = Flow { connection, node, sent: 1, congestion_bytes: 0, edge: 8001, measured_bytes: 0 };
    flow.congestion_bytes = SEGMENT_BYTES * random.between(1, 40) as u32;
    flow
}

/// The flow sends what its windows allow, in frames of several segments; returns the bytes.
fn send(world: &mut World, flow: &mut Flow) -> u32 {
    let bytes = flow.congestion_bytes.min(flow.edge.saturating_sub(flow.sent));
    let mut left = bytes;
    while left > 0 {
        let part = left.min(32_000);
        let mut frame = flow.connection.near(ACK, flow.sent, 1, &vec![0; part as usize]);
        let large = Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1460, ..Segmentation::default() };
        let checksum = flow::wire::build::offload_checksum(&mut frame);
        match world.arrive_with(NETWORK, &mut frame, checksum, large) {
            flow::Disposition::Transmit(port) => flow.node = NodeId(port.0 - 1),
            other => panic!("{other:?}"),
        }
        flow.sent += part;
        left -= part;
    }
    bytes
}

/// Everything is acknowledged, and the far end advertises a megabyte.
fn acknowledge(world: &mut World, flow: &mut Flow) {
    let bytes = world.leave(flow.node, flow.connection.far(ACK, 1, flow.sent, u16::MAX));
    flow.edge = flow.sent + (u32::from(read(&bytes).1.window) << 4);
}

#[test]
fn rate_control_shares_the_surviving_node_fairly_without_overflows() {
    let (fairness, overflows, goodput) = run(true);
    let (fairness_without, overflows_without, goodput_without) = run(false);
    println!("Jain {fairness:.4}, {overflows} overflows, goodput {goodput:.3} with rate control");
    println!("Jain {fairness_without:.4}, {overflows_without} overflows, goodput {goodput_without:.3} without");
    assert!(fairness >= 0.99, "{fairness}");
    assert!(fairness_without < fairness && overflows * 5 < overflows_without, "{overflows} {overflows_without}");
    assert!(goodput > 0.9, "{goodput}");
}
