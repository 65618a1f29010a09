//! An owner and a backup, with messages that can be lost between them.

use std::time::Duration;
use std::vec::Vec;

use flow::conntrack::peer_flags::ACKNOWLEDGED;
use flow::conntrack::{ProtocolState, TcpState};
use flow::wire::{Headers, Parsed, Transport, build, ip_protocol, parse, tcp_flags, tlv};
use flow::{Checksum, Frame, HashKey, PortId, Tuple};
use proptest::prelude::*;

use super::*;

const OWNER: NodeId = NodeId(0);
const ROOM_BYTES: usize = 1448;
const FIRST_PORT: u16 = 4000;
const SEGMENT_BYTES: u32 = 100;

/// The client's tuple of a connection.
fn tuple(connection: u16) -> Tuple {
    let port = FIRST_PORT + connection;
    Tuple::v4(ip_protocol::TCP, ([10, 0, 0, 1].into(), port), ([10, 0, 0, 2].into(), 80))
}

/// Connections of the owner, whose clients send and are acknowledged.
struct Pair {
    now: Instant,
    table: Table,
    slots: Vec<Slot>,
    owner: Segments,
    backup: Segments,
}

impl Pair {
    fn new(connections: u16, config: &SegmentsConfig) -> Self {
        let now = Instant::from_millis(1000);
        let mut table = Table::new(64, HashKey([1, 2]));
        let protocol = ProtocolState { state: TcpState::Established as u8, ..ProtocolState::default() };
        let insert = |port| {
            let connection = Connection::new(tuple(port), OWNER, protocol, now + Duration::from_secs(1000));
            table.insert(connection, now).expect("there is room")
        };
        let slots = (0..connections).map(insert).collect();
        let (owner, backup) = (Segments::new(config, ROOM_BYTES - 4), Segments::new(config, ROOM_BYTES - 4));
        Self { now, table, slots, owner, backup }
    }

    /// A segment from the client of a connection passes the owner.
    fn send(&mut self, connection: usize, sequence: u32, payload_bytes: u32) {
        let segment = build::Tcp { flags: tcp_flags::ACK, sequence, ..build::Tcp::default() };
        let mut bytes = build::tcp(&tuple(connection as u16), segment, &[7; 2000][..payload_bytes as usize]);
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).expect("it fits");
        frame.checksum = Checksum::Valid;
        let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("it is a packet") };
        self.note(connection, Direction::Original, &mut frame, &mut headers);
    }

    fn note(&mut self, connection: usize, direction: Direction, frame: &mut Frame<'_>, headers: &mut Headers) {
        let packet = Packet { frame, headers };
        self.owner.note_packet(self.now, &self.table, (self.slots[connection], direction), &packet, false);
    }

    /// The server acknowledges.
    fn acknowledge(&mut self, connection: usize, number: u32) {
        let peer = &mut self.table.get_mut(self.slots[connection]).expect("it is there").protocol.peers[1];
        (peer.acknowledged_max, peer.flags) = (number, peer.flags | ACKNOWLEDGED);
        let segment = build::Tcp { flags: tcp_flags::ACK, acknowledgement: number, ..build::Tcp::default() };
        let mut bytes = build::tcp(&tuple(connection as u16).inverse(), segment, b"");
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(1)).expect("it fits");
        let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("it is a packet") };
        self.note(connection, Direction::Reply, &mut frame, &mut headers);
    }

    /// Sends what is to be sent; it arrives unless it `is_lost`. Returns bytes.
    fn replicate(&mut self, is_lost: bool) -> usize {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while {
            messages.clear();
            self.owner.poll_messages(self.now, &self.table, OWNER, ROOM_BYTES, &mut messages)
        } {
            assert!(messages.len() <= ROOM_BYTES);
            bytes += messages.len();
            for message in tlv::read(&messages).filter(|_| !is_lost) {
                let (kind, body) = message.expect("it is whole");
                let message = SegmentMessage::parse(kind, body).expect("it is about segments");
                self.backup.note_message(self.now, &self.table, OWNER, &message);
            }
        }
        bytes
    }

    /// The port and the first number of each segment that the backup resends, and its length.
    fn take_over(&mut self) -> Vec<(usize, u32, u32)> {
        self.backup.begin_resending(self.now);
        let mut resent = Vec::new();
        while self.backup.resends_at().is_some() {
            self.now = self.now + Duration::from_millis(1);
            while let Some(mut due) = self.backup.poll_due(self.now, |_| false) {
                let length_bytes = due.frame.len();
                let frame = Frame::new(&mut due.frame, 0, length_bytes, PortId(0)).expect("it fits");
                let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("its checksums are right") };
                let Transport::Tcp(segment) = headers.transport else { panic!("it is TCP") };
                assert_eq!(headers.tuple, due.tuple);
                resent.push(((due.tuple.source_port - FIRST_PORT).into(), segment.sequence, segment.payload_bytes));
            }
        }
        resent
    }
}

#[test]
fn the_segment_that_was_held_first_is_the_victim() {
    let slot_bytes = flow::held::HeldPackets::<{ flow::held::SEGMENT_FRAME_BYTES_MAX }>::SLOT_BYTES;
    let config = SegmentsConfig { memory_bytes_max: 2 * 3 * slot_bytes, ..SegmentsConfig::default() };
    let mut pair = Pair::new(5, &config);
    for connection in 0..5 {
        pair.send(connection, 1000, SEGMENT_BYTES);
        pair.replicate(false);
    }
    assert_eq!((pair.owner.status().own, pair.backup.status().of_peers), (3, 3));
    assert_eq!((pair.owner.status().counters.evicted, pair.backup.status().counters.evicted), (2, 2));
    let resent: Vec<_> = pair.take_over().iter().map(|(connection, ..)| *connection).collect();
    assert_eq!(resent, [2, 3, 4]);
}

#[test]
fn the_rate_limits_bytes_and_the_newest_segment_is_sent() {
    let config = SegmentsConfig { bytes_per_s_max: 10_000, ..SegmentsConfig::default() };
    let mut pair = Pair::new(1, &config);
    let (mut sequence, mut bytes) = (1000, 0);
    for _ in 0..10_000 {
        pair.send(0, sequence, 1000);
        bytes += pair.replicate(false);
        pair.now = pair.now + Duration::from_millis(1);
        sequence += 1000;
        pair.acknowledge(0, sequence);
    }
    assert!(bytes <= 100_000 + (1 << 16) + 2000, "{bytes} bytes in ten seconds, after a burst");
    pair.send(0, sequence, 1000);
    pair.now = pair.now + Duration::from_secs(60);
    pair.replicate(false);
    assert_eq!(pair.take_over(), [(0, sequence, 1000)], "what was not sent in time is not sent any more");
}

#[test]
fn a_long_packet_is_shortened_to_fit_a_datagram() {
    let mut pair = Pair::new(1, &SegmentsConfig::default());
    pair.send(0, 1000, 2000);
    pair.replicate(false);
    let resent = pair.take_over();
    assert!(matches!(resent[..], [(0, 1000, 1..1448)]), "{resent:?}");
}

#[test]
fn a_segment_that_was_not_renewed_for_a_minute_is_not_resent() {
    let mut pair = Pair::new(1, &SegmentsConfig::default());
    pair.send(0, 1000, SEGMENT_BYTES);
    pair.replicate(false);
    pair.now = pair.now + Duration::from_secs(61);
    assert_eq!(pair.take_over(), []);
    assert_eq!(pair.backup.poll_finished(), Some(SegmentsResent { dropped: 1, ..SegmentsResent::default() }));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send { connection: usize },
    Retransmit { connection: usize },
    Acknowledge { connection: usize, segments: u32 },
    Replicate { is_lost: bool },
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let connection = 0usize..3;
    prop::collection::vec(
        prop_oneof![
            3 => connection.clone().prop_map(|connection| Step::Send { connection }),
            1 => connection.clone().prop_map(|connection| Step::Retransmit { connection }),
            3 => (connection, 1u32..4).prop_map(|(connection, segments)| Step::Acknowledge { connection, segments }),
            3 => any::<bool>().prop_map(|is_lost| Step::Replicate { is_lost }),
            1 => Just(Step::Wait),
        ],
        0..80,
    )
}

proptest! {
    #[test]
    fn at_most_one_segment_that_was_sent_is_resent_and_none_that_is_known_to_be_acknowledged(steps in steps()) {
        // Memory for two segments of each node.
        let slot_bytes = flow::held::HeldPackets::<{ flow::held::SEGMENT_FRAME_BYTES_MAX }>::SLOT_BYTES;
        let config = SegmentsConfig { memory_bytes_max: 2 * 2 * slot_bytes, ..SegmentsConfig::default() };
        let mut pair = Pair::new(3, &config);
        // Of each connection: what was acknowledged, and what was sent.
        let is_any_lost = steps.iter().any(|step| matches!(step, Step::Replicate { is_lost: true }));
        let mut numbers = [(1000u32, 1000u32); 3];
        for step in steps {
            match step {
                Step::Send { connection } => {
                    pair.send(connection, numbers[connection].1, SEGMENT_BYTES);
                    numbers[connection].1 += SEGMENT_BYTES;
                }
                Step::Retransmit { connection } => {
                    let (acknowledged, sent) = numbers[connection];
                    if acknowledged < sent {
                        pair.send(connection, acknowledged, SEGMENT_BYTES);
                    }
                }
                Step::Acknowledge { connection, segments } => {
                    let (acknowledged, sent) = numbers[connection];
                    numbers[connection].0 = sent.min(acknowledged + segments * SEGMENT_BYTES);
                    pair.acknowledge(connection, numbers[connection].0);
                }
                Step::Replicate { is_lost } => drop(pair.replicate(is_lost)),
                Step::Wait => pair.now = pair.now + Duration::from_millis(3),
            }
            for status in [pair.owner.status(), pair.backup.status()] {
                prop_assert!(status.memory_bytes <= config.memory_bytes_max);
            }
        }
        // Messages that arrive in the end make the backup know what is acknowledged.
        pair.now = pair.now + Duration::from_millis(10);
        pair.replicate(false);
        let resent = pair.take_over();
        for (index, (connection, sequence, payload_bytes)) in resent.iter().enumerate() {
            let (acknowledged, sent) = numbers[*connection];
            prop_assert!(sequence + payload_bytes <= sent, "the end point has not sent it");
            prop_assert!(is_any_lost || sequence + payload_bytes > acknowledged, "it is acknowledged");
            prop_assert!(resent[..index].iter().all(|(other, ..)| other != connection), "once each");
        }
    }

    #[test]
    fn arbitrary_messages_take_no_more_memory_than_permitted(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..40),
        (ports, changes) in (prop::collection::vec(0u16..64, 0..40), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40)),
    ) {
        let slot_bytes = flow::held::HeldPackets::<{ flow::held::SEGMENT_FRAME_BYTES_MAX }>::SLOT_BYTES;
        let config = SegmentsConfig { memory_bytes_max: 2 * 4 * slot_bytes, ..SegmentsConfig::default() };
        let mut pair = Pair::new(1, &config);
        let segment = build::Tcp { flags: tcp_flags::ACK, ..build::Tcp::default() };
        let mut forged: Vec<Vec<u8>> =
            ports.iter().map(|port| build::tcp(&tuple(*port), segment, b"forged")[14..].to_vec()).collect();
        for (packet, (at, byte)) in forged.iter_mut().skip(1).zip(&changes) {
            let at = at.index(packet.len());
            packet[at] = *byte;
        }
        for packet in packets.iter().chain(&forged) {
            pair.backup.note_message(pair.now, &pair.table, OWNER, &SegmentMessage::Held(packet));
            prop_assert!(pair.backup.status().of_peers <= 4);
        }
        let counters = pair.backup.status().counters;
        prop_assert_eq!(counters.received + counters.refused, (packets.len() + forged.len()) as u64);
        prop_assert!(pair.take_over().len() <= 4);
    }
}
