//! Local recovery beside a reference model: whatever arrives, forged segments included, only bytes are resent that the near end has
//! sent, within the window it was given, and that are not acknowledged.

use std::collections::BTreeMap;

use flow::NodeId;
use proptest::prelude::*;

use crate::harness::*;

/// Bytes of the near end's stream: a function of their place.
fn stream(from: u32, length: u32) -> Vec<u8> {
    (from..from + length).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// The near end sends or retransmits these bytes of its stream: (first, length).
    Send(u32, u32),
    /// The far end acknowledges so many bytes of what was sent, in 256ths.
    Acknowledge(u8),
    /// Someone forges a segment at this distance from the near end's numbers, beyond its window.
    ForgeSegment(u32, u32),
    /// Someone forges an acknowledgement so far beyond what was sent.
    ForgeAcknowledgement(u32),
    /// Someone forges a SYN or a reset outside the window.
    ForgeControl(bool, u32),
    /// A segment of another connection.
    OtherConnection(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..400, 1u32..1400).prop_map(|(back, length)| Step::Send(back, length)),
        4 => any::<u8>().prop_map(Step::Acknowledge),
        2 => (1u32..1 << 30, 1u32..1400).prop_map(|(beyond, length)| Step::ForgeSegment(beyond, length)),
        2 => (1u32..1 << 30).prop_map(Step::ForgeAcknowledgement),
        1 => (any::<bool>(), 1u32..1 << 30).prop_map(|(is_syn, beyond)| Step::ForgeControl(is_syn, beyond)),
        1 => (0u32..1000).prop_map(Step::OtherConnection),
    ]
}

/// The reference: the near end's unacknowledged segments by their first number, as the near end sent them last.
#[derive(Default)]
struct Model {
    next: u32,
    acknowledged: u32,
    sent: BTreeMap<u32, u32>,
}

impl Model {
    const WINDOW: u32 = 4 * (u16::MAX as u32);

    /// The part of a wish that the near end may send: it begins within what was sent, and ends within its window.
    fn send(&mut self, back: u32, length: u32) -> Option<(u32, u32)> {
        let first = self.next.saturating_sub(back).max(self.acknowledged);
        let length = length.min((self.acknowledged + Self::WINDOW).saturating_sub(first));
        if length == 0 {
            return None;
        }
        self.next = self.next.max(first + length);
        self.sent.insert(first, length);
        Some((first, length))
    }

    fn acknowledge(&mut self, part: u8) -> u32 {
        self.acknowledged += ((u64::from(self.next - self.acknowledged) * u64::from(part)) >> 8) as u32;
        let acknowledged = self.acknowledged;
        self.sent.retain(|first, length| *first + *length > acknowledged);
        acknowledged
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn only_unacknowledged_bytes_of_the_near_end_are_resent(steps in prop::collection::vec(step(), 1..60)) {
        let (mut world, connection, other) = (World::new(|_| ()), Connection::new(1), Connection::new(2));
        let node = connection.open(&mut world);
        other.open(&mut world);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Send(back, length) => {
                    if let Some((first, length)) = model.send(back, length) {
                        world.enter(connection.near(ACK, 1 + first, 1, &stream(first, length)));
                    }
                }
                Step::Acknowledge(part) => {
                    let acknowledged = model.acknowledge(part);
                    world.leave(node, connection.far(ACK, 1, 1 + acknowledged, u16::MAX));
                }
                Step::ForgeSegment(beyond, length) => {
                    let first = 1 + model.acknowledged + Model::WINDOW + beyond;
                    world.enter(connection.near(ACK, first, 1, &vec![0xff; length as usize]));
                }
                Step::ForgeAcknowledgement(beyond) => {
                    world.leave(node, connection.far(ACK, 1, 1 + model.next + beyond, u16::MAX));
                }
                Step::ForgeControl(is_syn, beyond) => {
                    let flags = if is_syn { SYN } else { RST };
                    world.enter(connection.near(flags, 1 + model.acknowledged + Model::WINDOW + beyond, 1, b""));
                }
                Step::OtherConnection(first) => {
                    world.enter(other.near(ACK, 1 + first, 1, &[0xee; 20]));
                }
            }
        }
        world.fail(node);
        world.confirm_all();
        let resent = world.resent();
        let of_connection: Vec<_> =
            resent.iter().map(|(_, _, bytes)| (read(bytes), bytes)).filter(|((headers, _), _)| headers.tuple == connection.tuple).collect();
        prop_assert!(of_connection.len() <= 1, "a slot is resent once");
        for ((headers, segment), bytes) in &of_connection {
            let first = segment.sequence.wrapping_sub(NEAR).wrapping_sub(1);
            let payload = &bytes[usize::from(headers.payload_offset)..headers.l3_end()];
            prop_assert_eq!(payload, stream(first, segment.payload_bytes), "these are bytes of the near end");
            prop_assert!(first + segment.payload_bytes > model.acknowledged && first + segment.payload_bytes <= model.next);
            prop_assert_eq!(model.sent.get(&first), Some(&segment.payload_bytes), "it is a segment as it was sent last");
        }
        // If the lowest byte has been sent since the last acknowledgement, it is what is resent.
        prop_assert!(of_connection.is_empty() || !model.sent.is_empty());
    }

    #[test]
    fn the_lowest_segment_is_resent_whatever_follows_it(lengths in prop::collection::vec(1u32..1400, 1..30), order in any::<u64>()) {
        let (mut world, connection) = (World::new(|_| ()), Connection::new(1));
        let node = connection.open(&mut world);
        let mut segments: Vec<(u32, u32)> = Vec::new();
        for length in lengths {
            let first = segments.last().map_or(0, |(first, length)| first + length);
            segments.push((first, length));
        }
        let lowest = segments[0];
        let by = order as usize % segments.len();
        segments.rotate_left(by);
        for (first, length) in segments {
            world.enter(connection.near(ACK, 1 + first, 1, &stream(first, length)));
        }
        world.fail(node);
        (0..NODES).for_each(|node| world.edge.owner_confirmed(world.now, NodeId(node)));
        let resent = world.resent();
        prop_assert_eq!(resent.len(), 1);
        let (_, segment) = read(&resent[0].2);
        prop_assert_eq!((segment.sequence.wrapping_sub(NEAR), segment.payload_bytes), (1 + lowest.0, lowest.1));
    }
}
