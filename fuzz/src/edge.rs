//! An edge among frames of any kind, while nodes fail, return and take over.

use std::net::Ipv4Addr;
use std::time::Duration;

use edge::{Affinity, CachePolicy, Capacity, Edge, EdgeConfig, NodePort, RateControlConfig, RecoveryConfig};
use flow::wire::build::{self, Tcp};
use flow::wire::{self, MacAddress, Parsed, Transport, ip_protocol};
use flow::{Checksum, Disposition, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Segmentation};
use flow::{SegmentationKind, Tuple};

use arbitrary::{Arbitrary, Unstructured};

const NODES: u8 = 3;
const MEMORY_BYTES_MAX: usize = 64 << 10;

/// What happens to the edge.
#[derive(Arbitrary, Debug)]
enum Step {
    /// A frame of any bytes.
    Frame { ingress: u8, checksum: u8, bytes: Vec<u8> },
    /// A segment of one of a few connections, with numbers near those in use.
    Segment {
        flow: u8,
        is_far: bool,
        node: u8,
        flags: u8,
        sequence: u16,
        acknowledgement: u16,
        window: u16,
        bytes: u16,
        is_large: bool,
    },
    /// Time passes, in milliseconds.
    Wait(u16),
    /// A node is alive or not.
    Alive(u8, bool),
    /// It has lost heartbeats.
    HeartbeatsLost(u8, u8),
    /// It was switched over.
    SwitchedOver(u8),
    /// It has confirmed to be the owner.
    Confirmed(u8),
    /// It is saturated or not.
    Saturated(u8, bool),
}

fn configured(choice: u8) -> EdgeConfig {
    let node =
        |n| NodePort { node: NodeId(n), port: PortId(n + 1), link_address: Some(MacAddress([2, 0, 0, 0, 1, n])) };
    let policy = match choice % 4 {
        0 => CachePolicy::Always,
        1 => CachePolicy::FromSecondLostHeartbeat,
        2 => CachePolicy::SynOnly,
        _ => CachePolicy::HeavyHitters { connections_max: 2 },
    };
    let recovery = RecoveryConfig { policy, memory_bytes_max: MEMORY_BYTES_MAX, resends_per_s_max: 1000 };
    let capacity = if choice & 4 == 0 { Capacity::Measured } else { Capacity::Configured(1 << 20) };
    EdgeConfig {
        affinity: if choice & 8 == 0 { Affinity::Learned } else { Affinity::Tuple },
        connections_max: 4,
        recovery: Some(recovery),
        rate_control: Some(RateControlConfig::new(capacity)),
        ..EdgeConfig::new(PortId(0), (0..NODES).map(node).collect(), HashKey([1, 2]))
    }
}

/// The first byte chooses the configuration, the rest are the steps.
pub fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let Ok(mut edge) = Edge::new(configured(*choice)) else { panic!("the configuration is valid") };
    let mut now = Instant::from_millis(1);
    let mut unstructured = Unstructured::new(rest);
    let mut buffer = Vec::new();
    while let Ok(step) = Step::arbitrary(&mut unstructured) {
        let passed = take(&mut edge, &mut now, step);
        edge.handle_timeout(now);
        while edge.poll_transmit(now, &mut buffer).is_some() {
            // Copies of a frame to a group are as it came.
            let is_copy = buffer.first().is_none_or(|first| first & 1 != 0) && passed.as_ref() == Some(&buffer);
            if !is_copy {
                check_resent(&mut buffer);
            }
        }
        while edge.poll_event().is_some() {}
        let status = edge.status();
        assert!(status.held_bytes <= MEMORY_BYTES_MAX && status.connections <= 4);
        if unstructured.is_empty() {
            return;
        }
    }
}

/// Returns the frame of the step, if it is one.
fn take(edge: &mut Edge, now: &mut Instant, step: Step) -> Option<Vec<u8>> {
    match step {
        Step::Frame { ingress, checksum, mut bytes } => {
            let checksum = match checksum % 3 {
                0 => Checksum::Unverified,
                1 => Checksum::Valid,
                _ => Checksum::Partial { start: 34, offset: 16 },
            };
            let passed = bytes.clone();
            pass(edge, *now, ingress % 5, &mut bytes, checksum, false);
            return Some(passed);
        }
        Step::Segment { flow, is_far, node, flags, sequence, acknowledgement, window, bytes, is_large } => {
            let client = (Ipv4Addr::new(10, 0, 0, 2), 1000 + u16::from(flow % 6));
            let tuple = Tuple::v4(ip_protocol::TCP, client, (Ipv4Addr::new(192, 0, 2, 1), 80));
            let is_syn = flags & 2 != 0;
            let fields = Tcp {
                flags: flags & 0x1f,
                sequence: u32::from(sequence),
                acknowledgement: u32::from(acknowledgement),
                window,
                window_scale: is_syn.then_some(flow % 15),
                sack_permitted: is_syn && flow & 1 == 0,
                ..Tcp::default()
            };
            let payload = vec![flags; usize::from(bytes % if is_large { 20_000 } else { 1460 })];
            let tuple = if is_far { tuple.inverse() } else { tuple };
            let mut frame = build::tcp(&tuple, fields, &payload);
            let checksum = if is_large { build::offload_checksum(&mut frame) } else { Checksum::Unverified };
            let ingress = if is_far { 1 + node % NODES } else { 0 };
            pass(edge, *now, ingress, &mut frame, checksum, is_large);
        }
        Step::Wait(millis) => *now = *now + Duration::from_millis(millis.into()),
        Step::Alive(node, is_alive) => edge.set_node_alive(*now, NodeId(node % 5), is_alive),
        Step::HeartbeatsLost(node, count) => edge.note_heartbeats_lost(*now, NodeId(node), count.into()),
        Step::SwitchedOver(node) => edge.switched_over(*now, NodeId(node)),
        Step::Confirmed(node) => edge.owner_confirmed(*now, NodeId(node)),
        Step::Saturated(node, is_saturated) => edge.note_saturated(*now, NodeId(node), is_saturated),
    }
    None
}

fn pass(edge: &mut Edge, now: Instant, ingress: u8, bytes: &mut [u8], checksum: Checksum, is_large: bool) {
    let length_bytes = bytes.len();
    let mut frame = Frame::new(bytes, 0, length_bytes, PortId(ingress)).expect("it is its buffer");
    frame.checksum = checksum;
    if is_large {
        frame.segmentation =
            Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1400, ..Segmentation::default() };
    }
    let was_valid = matches!(wire::parse(&frame), Ok(Parsed::Ip(_)));
    let mut batch = PacketBatch::new();
    batch.push(frame);
    edge.handle_packets(now, &mut batch);
    match batch[0].disposition {
        Disposition::Transmit(_) => assert!(!was_valid || wire::parse(&batch[0]).is_ok(), "a valid packet stays valid"),
        Disposition::Drop(_) => {}
        other => panic!("the frame is {other:?}"),
    }
}

/// Whatever is resent is one valid TCP segment, as large as a packet.
fn check_resent(bytes: &mut [u8]) {
    let length_bytes = bytes.len();
    assert!(length_bytes <= 1518);
    let frame = Frame::new(bytes, 0, length_bytes, PortId(0)).expect("it is its buffer");
    match wire::parse(&frame) {
        Ok(Parsed::Ip(headers)) => assert!(matches!(headers.transport, Transport::Tcp(_)) && !headers.is_fragment),
        other => panic!("what was resent is {other:?}"),
    }
}
