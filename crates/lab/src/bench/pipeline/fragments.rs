//! What a fragment costs: UDP datagrams of known connections, each in two parts.
//!
//! Whether fragments pass is the pipeline's affair; their cost is measured either way, and the share that passed is
//! reported.

use std::time::Duration;

use flow::wire::build::Envelope;
use flow::wire::ethernet::ETHERNET_HEADER_BYTES;
use flow::wire::ip_protocol;
use flow::wire::ipv4::IPV4_HEADER_BYTES;
use flow::wire::ipv6::FragmentHeader;
use flow::{Direction, IpFamily, Tuple};

use super::gateway::Gateway;
use super::setting::{FIREWALL_RULES, original};
use super::stage::{Stage, nanos_each};
use super::traffic::{RING_FRAMES, Ring};
use crate::bench::BenchError;
use crate::bench::rounds::{self, Rounds};

const CONNECTIONS: u32 = 1 << 14;
/// Payload of a datagram.
const PAYLOAD: [u8; 40] = [0x5a; 40];
/// Where a datagram is cut, header included: a multiple of eight bytes.
const FIRST_PART_BYTES: usize = 24;

fn tuple(number: u32) -> Tuple {
    original(IpFamily::V4, ip_protocol::UDP, number % CONNECTIONS)
}

/// Adds the two parts of a datagram to the ring.
fn push_parts(ring: &mut Ring, number: u32) {
    let tuple = tuple(number);
    let whole = Envelope::default().udp(&tuple, &PAYLOAD);
    let datagram = &whole[ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES..];
    let (first, last) = datagram.split_at(FIRST_PART_BYTES);
    // IPv4 has 16 bits for it; the parts of a datagram follow each other, so that no other one has the same meanwhile.
    let identification = number & 0xffff;
    for (offset_bytes, part) in [(0, first), (FIRST_PART_BYTES as u32, last)] {
        let fragment = FragmentHeader { offset_bytes, more: offset_bytes == 0, identification };
        let envelope = Envelope { fragment: Some(fragment), ..Envelope::default() };
        ring.push(Direction::Original, &envelope.raw(&tuple, part));
    }
}

/// Nanoseconds for each fragment, and the share of them that was sent on.
pub(super) fn measure(stage: &mut Stage<'_>) -> Result<(Rounds, f64), BenchError> {
    let packets = stage.packets();
    let Stage { args, progress, ring } = stage;
    let mut gateway = Gateway::new(CONNECTIONS, FIREWALL_RULES);
    for number in (0..CONNECTIONS).step_by(RING_FRAMES) {
        ring.clear();
        let frames = (number..CONNECTIONS.min(number + RING_FRAMES as u32)).map(tuple);
        frames.for_each(|tuple| ring.push(Direction::Original, &Envelope::default().udp(&tuple, &PAYLOAD)));
        gateway.handle(ring)?;
    }
    let mut figures = Rounds::default();
    let (mut handled, mut lost) = (0, 0);
    let mut number = 0;
    rounds::repeat(progress, "fragments", args.rounds, |_| {
        let (mut spent, mut left) = (Duration::ZERO, packets);
        while left > 0 {
            ring.clear();
            for _ in 0..RING_FRAMES / 2 {
                push_parts(ring, number);
                number += 1;
            }
            let ring = gateway.try_handle(ring);
            spent += ring.spent;
            handled += ring.packets;
            lost += ring.lost;
            left = left.saturating_sub(ring.packets);
        }
        // Whole rings are handled, the last one too.
        figures.push(nanos_each(spent, packets.next_multiple_of(RING_FRAMES as u64)));
        Ok::<_, BenchError>(())
    })?;
    Ok((figures, (handled - lost) as f64 / handled.max(1) as f64))
}
