//! Packets that pass by a plan, and the same packets on the general path: the frames, dispositions, records and counters are equal.

use std::format;
use std::string::String;

use flow::wire::MacAddress;
use flow::{Checksum, Segmentation, SegmentationKind};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::GroupSet;
use crate::forwarding::{AsReceived, Config, Forwarder, PlannedLink, Port, Prefix, Route};

const MACS: [MacAddress; 2] = [MacAddress([2, 0xaa, 0, 0, 0, 1]), MacAddress([2, 0xaa, 0, 0, 0, 2])];
const OWN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), SHARED];
/// Hosts inside are on the link; those outside are behind one of two gateways.
const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 254), Ipv4Addr::new(198, 51, 100, 253)];
const SERVER_BEYOND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const CONNECTIONS: usize = 3;

/// A forwarder, by whose plans packets may pass or may not.
struct Outside {
    forwarder: Forwarder,
    has_plans: bool,
}

impl Edge for Outside {
    fn handle_arp(&mut self, now: Instant, frame: &mut Frame<'_>, offset: u16) -> Disposition {
        self.forwarder.handle_arp(now, frame, offset)
    }

    fn admit(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Admission {
        self.forwarder.admit(now, packet)
    }

    fn handle_local(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        self.forwarder.handle_local(now, packet)
    }

    fn forward(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        self.forwarder.forward(now, packet)
    }

    fn note_not_sent(&mut self, now: Instant, packet: &mut Packet<'_, '_>, as_received: &AsReceived) {
        self.forwarder.note_not_sent(now, packet, as_received);
    }

    fn plan_revision(&self) -> Option<u32> {
        self.forwarder.plan_revision().filter(|_| self.has_plans)
    }

    fn planned_hop(&self, outgoing: &Tuple) -> Option<u16> {
        self.forwarder.planned_hop(outgoing.destination_ip())
    }

    fn planned_link(&mut self, now: Instant, hop: u16, packet: &Packet<'_, '_>) -> Option<PlannedLink> {
        self.forwarder.planned_link(now, hop, packet)
    }
}

fn config(gateway: Ipv4Addr, mtu_bytes: u32) -> Config {
    let port = |number: usize| Port {
        mac: MACS[number],
        mtu_bytes,
        own: std::vec![],
        shared: std::vec![Prefix::new(OWN[number].into(), 16).into()],
        mss_clamp: None,
    };
    let destination = Prefix::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let routes = std::vec![Route { destination, gateway: gateway.into(), port: OUTSIDE }];
    Config { ports: std::vec![port(0), port(1)], routes, seed: 1 }
}

fn chain(translates: bool) -> Chain {
    let everything =
        Rule { name: "everything".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let firewall = Firewall::new(FirewallConfig { rules: std::vec![everything], ..FirewallConfig::default() });
    let chain = ChainBuilder::new().push(firewall.unwrap());
    if translates { chain.push(nat()) } else { chain }.build().unwrap()
}

/// A frame as it arrives, with its offload state.
#[derive(Clone)]
struct Arriving {
    port: PortId,
    bytes: Vec<u8>,
    checksum: Checksum,
    segmentation: Segmentation,
}

struct Gateway {
    now: Instant,
    pipeline: Pipeline,
    outside: Outside,
    translates: bool,
}

impl Gateway {
    fn new(has_plans: bool, translates: bool) -> Self {
        let tracker = Tracker::new(TrackerConfig::default());
        let now = Instant::from_millis(1_000_000);
        let mut forwarder = Forwarder::new(config(GATEWAYS[0], 1500)).unwrap();
        forwarder.set_held(now, GroupSet::ALL);
        let pipeline = Pipeline::new(NodeId(0), 16, HashKey([1, 2]), tracker, chain(translates));
        Self { now, pipeline, outside: Outside { forwarder, has_plans }, translates }
    }

    /// Everything that can be seen of what a batch did: bytes and dispositions, what is sent besides, connections, counters.
    fn feed(&mut self, frames: &[Arriving]) -> (Vec<Vec<u8>>, String) {
        let mut buffers: Vec<_> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        let mut batch: PacketBatch<'_> = buffers
            .iter_mut()
            .zip(frames)
            .map(|(bytes, arriving)| {
                let length_bytes = bytes.len();
                let mut frame = Frame::new(bytes, 0, length_bytes, arriving.port).unwrap();
                (frame.checksum, frame.segmentation) = (arriving.checksum, arriving.segmentation);
                frame
            })
            .collect();
        self.pipeline.handle_packets(self.now, &mut batch, &mut self.outside);
        let dispositions: Vec<_> = batch.iter().map(|frame| frame.disposition).collect();
        drop(batch);
        let changes = self.pipeline.take_changes();
        let changed = format!("{changes:?}");
        self.pipeline.return_changes(changes);
        let records: Vec<_> = self.pipeline.table().iter().map(|(slot, record)| (slot, record.as_bytes())).collect();
        let forwarder = &mut self.outside.forwarder;
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        while let Some(out) = forwarder.poll_transmit(self.now, &mut bytes) {
            sent.push((out, bytes.clone()));
        }
        let seen = format!(
            "{dispositions:?} {changed} {sent:?} {:?} {:?} {:?} {:?}",
            forwarder.counters(),
            self.pipeline.counters(),
            self.pipeline.chain_counters(),
            records
        );
        (buffers, seen)
    }
}

/// What may come between packets.
#[derive(Clone, Copy, Debug)]
enum Event {
    Time {
        millis: u64,
    },
    Role {
        is_active: bool,
    },
    /// The forwarder takes another configuration.
    Reload {
        gateway: usize,
        is_narrow: bool,
    },
    /// The pipeline takes a chain with the same functions, and connections are re-evaluated or are not.
    Renewal {
        reevaluates: bool,
    },
    /// A neighbour has another link address from now on.
    Neighbour {
        which: usize,
        mac: u8,
    },
}

/// How a segment differs from what is most common.
#[derive(Clone, Copy, Debug)]
enum Oddity {
    None,
    Flags(u8),
    Sequence(u32),
    Acknowledgement(u32),
    ZeroWindow,
    TimeToLive(u8),
    LinkAddress,
    Broadcast,
    Vlan,
    BadChecksum,
    Options,
    PartialChecksum,
    ValidChecksum,
    Segmented,
    Long,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Packet {
        connection: usize,
        direction: Direction,
        payload_bytes: usize,
        oddity: Oddity,
    },
    /// The packets before are a batch.
    EndOfBatch,
    Event(Event),
}

fn oddity() -> impl Strategy<Value = Oddity> {
    prop_oneof![
        20 => Just(Oddity::None),
        2 => any::<u8>().prop_map(Oddity::Flags),
        1 => any::<u32>().prop_map(Oddity::Sequence),
        1 => any::<u32>().prop_map(Oddity::Acknowledgement),
        1 => Just(Oddity::ZeroWindow),
        2 => (0u8..4).prop_map(Oddity::TimeToLive),
        1 => Just(Oddity::LinkAddress),
        1 => Just(Oddity::Broadcast),
        1 => Just(Oddity::Vlan),
        1 => Just(Oddity::BadChecksum),
        2 => Just(Oddity::Options),
        4 => Just(Oddity::PartialChecksum),
        4 => Just(Oddity::ValidChecksum),
        2 => Just(Oddity::Segmented),
        2 => Just(Oddity::Long),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let direction = prop_oneof![Just(Direction::Original), Just(Direction::Reply)];
    let packet =
        (0..CONNECTIONS, direction, 0usize..30, oddity()).prop_map(|(connection, direction, payload_bytes, oddity)| {
            Step::Packet { connection, direction, payload_bytes, oddity }
        });
    let event = prop_oneof![
        3 => prop_oneof![0u64..50, Just(31_000)].prop_map(|millis| Event::Time { millis }),
        1 => any::<bool>().prop_map(|is_active| Event::Role { is_active }),
        1 => (0..GATEWAYS.len(), any::<bool>()).prop_map(|(gateway, is_narrow)| Event::Reload { gateway, is_narrow }),
        1 => any::<bool>().prop_map(|reevaluates| Event::Renewal { reevaluates }),
        2 => (0..GATEWAYS.len() + CONNECTIONS, any::<u8>()).prop_map(|(which, mac)| Event::Neighbour { which, mac }),
    ];
    prop_oneof![12 => packet, 3 => Just(Step::EndOfBatch), 2 => event.prop_map(Step::Event)]
}

/// A connection as its end points know it.
struct Flow {
    incoming: [Tuple; 2],
    next: [u32; 2],
}

impl Flow {
    fn frame(&mut self, direction: Direction, flags: u8, payload_bytes: usize, oddity: Oddity) -> Arriving {
        let (own, other) = (direction.index(), direction.reverse().index());
        let payload_bytes = if matches!(oddity, Oddity::Long | Oddity::Segmented) { 1300 } else { payload_bytes };
        let mut segment = build::Tcp {
            flags,
            sequence: self.next[own],
            acknowledgement: if flags & tcp_flags::ACK != 0 { self.next[other] } else { 0 },
            ..build::Tcp::default()
        };
        let mut envelope = Envelope { destination: MACS[own], ..Envelope::default() };
        let (mut checksum, mut segmentation) = (Checksum::Unverified, Segmentation::default());
        match oddity {
            Oddity::Flags(flags) => segment.flags = flags,
            Oddity::Sequence(sequence) => segment.sequence = sequence,
            Oddity::Acknowledgement(acknowledgement) => segment.acknowledgement = acknowledgement,
            Oddity::ZeroWindow => segment.window = 0,
            Oddity::TimeToLive(ttl) => envelope.ttl = ttl,
            Oddity::LinkAddress => envelope.destination = MacAddress([2, 9, 9, 9, 9, 9]),
            Oddity::Broadcast => envelope.destination = MacAddress([0xff; 6]),
            Oddity::Vlan => envelope.vlans = &[7],
            Oddity::Options => envelope.ipv4_options = &[1, 1, 1, 0],
            Oddity::PartialChecksum => checksum = Checksum::Partial { start: 34, offset: 16 },
            Oddity::ValidChecksum => checksum = Checksum::Valid,
            Oddity::Segmented => {
                let kind = SegmentationKind::TcpIpv4;
                checksum = Checksum::Partial { start: 34, offset: 16 };
                segmentation = Segmentation { kind, size_bytes: 500, header_bytes: 54, ecn: false };
            }
            Oddity::None | Oddity::BadChecksum | Oddity::Long => {}
        }
        let mut bytes = envelope.tcp(&self.incoming[own], segment, &std::vec![0x5a; payload_bytes]);
        if matches!(oddity, Oddity::BadChecksum) {
            bytes[50] ^= 1;
        }
        let advances = !matches!(oddity, Oddity::Flags(_) | Oddity::Sequence(_) | Oddity::BadChecksum);
        if advances {
            let is_syn = u32::from(flags & tcp_flags::SYN != 0);
            self.next[own] = self.next[own].wrapping_add(payload_bytes as u32 + is_syn);
        }
        Arriving { port: PortId(own as u8), bytes, checksum, segmentation }
    }
}

fn arp(port: PortId, address: Ipv4Addr, mac: u8) -> Arriving {
    let bytes = build::arp_request(MacAddress([2, 1, 1, 1, 1, mac]), address, OWN[usize::from(port.0)]);
    Arriving { port, bytes, checksum: Checksum::Unverified, segmentation: Segmentation::default() }
}

fn host(connection: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 10 + connection as u8)
}

/// The same gateway with plans and without, and what its hosts know.
struct Pair {
    gateways: [Gateway; 2],
    flows: Vec<Flow>,
    batch: Vec<Arriving>,
}

impl Pair {
    /// With established connections.
    fn new(translates: bool) -> Self {
        let gateways = [true, false].map(|has_plans| Gateway::new(has_plans, translates));
        let flow = |number: usize| {
            let tuple = Tuple::v4(ip_protocol::TCP, (host(number), 4000), (SERVER_BEYOND, 443));
            Flow { incoming: [tuple, tuple.inverse()], next: [1000 * number as u32, 77_000] }
        };
        let mut pair = Self { gateways, flows: (0..CONNECTIONS).map(flow).collect(), batch: Vec::new() };
        pair.batch.extend(GATEWAYS.map(|gateway| arp(OUTSIDE, gateway, 1)));
        pair.batch.extend((0..CONNECTIONS).map(|number| arp(INSIDE, host(number), 2)));
        pair.end_batch();
        for number in 0..CONNECTIONS {
            pair.push(number, Direction::Original, tcp_flags::SYN);
            let forwarded = pair.end_batch().pop().unwrap();
            pair.flows[number].incoming[1] = headers(&forwarded).tuple.inverse();
            pair.push(number, Direction::Reply, tcp_flags::SYN | tcp_flags::ACK);
            pair.end_batch();
            pair.push(number, Direction::Original, tcp_flags::ACK);
            pair.end_batch();
        }
        pair
    }

    fn push(&mut self, number: usize, direction: Direction, flags: u8) {
        let frame = self.flows[number].frame(direction, flags, 0, Oddity::None);
        self.batch.push(frame);
    }

    /// Both gateways handle the batch, and do the same. Returns the frames afterwards.
    fn end_batch(&mut self) -> Vec<Vec<u8>> {
        let frames = core::mem::take(&mut self.batch);
        let mut after = Vec::new();
        for part in frames.chunks(BATCH_FRAMES_MAX) {
            let [(planned, planned_seen), (general, general_seen)] =
                self.gateways.each_mut().map(|gateway| gateway.feed(part));
            assert_eq!(planned, general, "the frames");
            assert_eq!(planned_seen, general_seen);
            after.extend(planned);
        }
        after
    }

    fn take(&mut self, event: Event) {
        self.end_batch();
        if let Event::Neighbour { which, mac } = event {
            let gateway = GATEWAYS.get(which).map(|gateway| arp(OUTSIDE, *gateway, mac));
            self.batch.push(gateway.unwrap_or_else(|| arp(INSIDE, host(which - GATEWAYS.len()), mac)));
        }
        for gateway in &mut self.gateways {
            match event {
                Event::Time { millis } => {
                    gateway.now = gateway.now + Duration::from_millis(millis);
                    gateway.outside.forwarder.handle_timeout(gateway.now);
                }
                Event::Role { is_active } => {
                    let held = if is_active { GroupSet::ALL } else { GroupSet::EMPTY };
                    gateway.outside.forwarder.set_held(gateway.now, held);
                }
                Event::Reload { gateway: which, is_narrow } => {
                    let config = config(GATEWAYS[which], if is_narrow { 1280 } else { 1500 });
                    gateway.outside.forwarder.reconfigure(gateway.now, config).unwrap();
                }
                Event::Renewal { reevaluates } => {
                    let tracker = Tracker::new(TrackerConfig::default());
                    gateway.pipeline.renew(tracker, chain(gateway.translates));
                    if reevaluates {
                        gateway.pipeline.begin_reevaluation(true);
                    } else {
                        gateway.pipeline.reevaluate_some(gateway.now, 16, true);
                    }
                }
                Event::Neighbour { .. } => {}
            }
        }
    }

    fn passed_by_plan(&self) -> u64 {
        self.gateways[0].pipeline.connections.plans.passed
    }
}

proptest! {
    #[test]
    fn planned_packets_do_what_packets_on_the_general_path_do(
        translates in any::<bool>(), steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(translates);
        for step in steps {
            match step {
                Step::Packet { connection, direction, payload_bytes, oddity } => {
                    let flags = tcp_flags::ACK | tcp_flags::PSH;
                    let frame = pair.flows[connection].frame(direction, flags, payload_bytes, oddity);
                    pair.batch.push(frame);
                }
                Step::EndOfBatch => drop(pair.end_batch()),
                Step::Event(event) => pair.take(event),
            }
        }
        pair.end_batch();
        prop_assert_eq!(pair.gateways[1].pipeline.connections.plans.passed, 0);
    }
}

/// A data packet of each direction of each connection.
fn exchange(pair: &mut Pair) {
    for number in 0..CONNECTIONS {
        for direction in [Direction::Original, Direction::Reply] {
            pair.push(number, direction, tcp_flags::ACK);
        }
    }
    pair.end_batch();
}

#[test]
fn the_second_packet_of_a_direction_passes_by_a_plan() {
    for translates in [false, true] {
        let mut pair = Pair::new(translates);
        exchange(&mut pair);
        let before = pair.passed_by_plan();
        exchange(&mut pair);
        assert_eq!(pair.passed_by_plan() - before, 2 * CONNECTIONS as u64, "translates: {translates}");
    }
}

#[test]
fn what_decides_the_way_voids_all_plans() {
    let events = [
        Event::Role { is_active: true },
        Event::Reload { gateway: 1, is_narrow: false },
        Event::Renewal { reevaluates: false },
        Event::Renewal { reevaluates: true },
    ];
    for event in events {
        let mut pair = Pair::new(true);
        exchange(&mut pair);
        exchange(&mut pair);
        let before = pair.passed_by_plan();
        pair.take(event);
        exchange(&mut pair);
        assert_eq!(pair.passed_by_plan(), before, "{event:?}");
    }
}

#[test]
fn a_new_connection_does_not_pass_by_the_plan_of_the_one_before_in_its_slot() {
    let mut pair = Pair::new(true);
    exchange(&mut pair);
    exchange(&mut pair);
    let before = pair.passed_by_plan();
    // The client resets all of them, and begins others with other ports.
    for number in 0..CONNECTIONS {
        pair.push(number, Direction::Original, tcp_flags::RST | tcp_flags::ACK);
    }
    pair.end_batch();
    for gateway in &mut pair.gateways {
        gateway.now = gateway.now + Duration::from_secs(60);
        gateway.pipeline.expire(gateway.now, 16, |_| ReplicaExpiry::Recheck(Duration::ZERO));
        assert!(gateway.pipeline.table().is_empty());
    }
    for number in 0..CONNECTIONS {
        let tuple = Tuple::v4(ip_protocol::TCP, (host(CONNECTIONS - 1 - number), 5000), (SERVER_BEYOND, 443));
        pair.flows[number] = Flow { incoming: [tuple, tuple.inverse()], next: [5, 6] };
        pair.push(number, Direction::Original, tcp_flags::SYN);
        let forwarded = pair.end_batch().pop().unwrap();
        pair.flows[number].incoming[1] = headers(&forwarded).tuple.inverse();
        pair.push(number, Direction::Reply, tcp_flags::SYN | tcp_flags::ACK);
        pair.push(number, Direction::Original, tcp_flags::ACK);
        pair.end_batch();
    }
    assert_eq!(pair.passed_by_plan(), before);
    exchange(&mut pair);
}

#[test]
fn packets_do_not_pass_by_plans_to_a_neighbour_evicted_in_the_same_batch() {
    let mut pair = Pair::new(true);
    exchange(&mut pair);
    exchange(&mut pair);
    let revision = |pair: &Pair| pair.gateways[0].outside.forwarder.plan_revision();
    let (revision_before, passed_before) = (revision(&pair), pair.passed_by_plan());
    // The hosts inside never confirm their link addresses, so others that come displace them.
    for round in 0..300_u32 {
        for number in 0..24 {
            let host = round * 24 + number;
            pair.batch.push(arp(INSIDE, Ipv4Addr::from_bits(0x0a01_0100 + host), host as u8));
            let connection = number as usize % CONNECTIONS;
            let direction = if number % 2 == 0 { Direction::Original } else { Direction::Reply };
            pair.push(connection, direction, tcp_flags::ACK);
        }
        pair.take(Event::Time { millis: 100 });
    }
    assert_ne!(revision(&pair), revision_before, "neighbours were evicted");
    assert!(pair.passed_by_plan() > passed_before);
}
