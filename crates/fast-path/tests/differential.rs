//! The programs for both hooks beside a model made of the parser, the tracker and the checksums of `flow`: the same decision for each packet, the
//! same bytes, and the same windows afterwards.

mod common;

use common::LOOPBACK;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fast_path::{Config, ConnectionIndex, FastPath, Hook, NextHop, Outcome, Plan, TestContext};
use flow::connection::flags::{ASSURED, REPLIED};
use flow::conntrack::{ProtocolState, TcpPeer, TcpState, Tracker, UdpState, peer_flags};
use flow::serial::{is_after, later};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{self, Headers, MacAddress, Packet, Parsed, Transport, build, checksum, ip_protocol, tcp_flags};
use flow::{Checksum, Connection, Direction, Frame, Instant, NodeId, PortId, Tuple};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SEEDS: u64 = 400;
const PACKETS: usize = 100;
/// Less than the machine has been up.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(60);
const NEXT_HOPS: u32 = 3;

/// A connection as the model knows it.
struct Known {
    index: ConnectionIndex,
    connection: Connection,
    /// The state as user space follows it by the windows that it reads.
    followed: ProtocolState,
    next_hops: [u32; 2],
    is_liberal: bool,
    generation: u32,
    packets: [u32; 2],
    bytes: [u64; 2],
}

/// What the model expects.
#[derive(Debug)]
enum Expected {
    Forwarded(Vec<u8>),
    /// Left; the outcome where the model knows one.
    Left(Option<Outcome>),
}

struct World {
    hook: Hook,
    random: SmallRng,
    tracker: Tracker,
    known: Vec<Known>,
    hops: [Option<NextHop>; NEXT_HOPS as usize],
    is_enabled: bool,
    has_heartbeat: bool,
    generation: u32,
}

impl World {
    fn new(hook: Hook, seed: u64) -> Self {
        Self {
            hook,
            random: SmallRng::seed_from_u64(seed),
            tracker: Tracker::default(),
            known: Vec::new(),
            hops: [None; NEXT_HOPS as usize],
            is_enabled: true,
            has_heartbeat: true,
            generation: 0,
        }
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    /// An end point of one of few addresses, so that tuples share parts.
    fn end_point(&mut self, version: u8) -> ([u8; 16], u16) {
        let host: u8 = self.random.random_range(1..5);
        let address = match version {
            4 => Tuple::v4(6, (Ipv4Addr::new(10, 0, 0, host), 0), (Ipv4Addr::UNSPECIFIED, 0)).source,
            _ => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, self.random.random(), host.into()).octets(),
        };
        (address, self.random.random_range(1000..1004))
    }

    fn state(&mut self, protocol: u8) -> ProtocolState {
        if protocol == ip_protocol::UDP {
            return ProtocolState { state: UdpState::Replied as u8, ..ProtocolState::default() };
        }
        let mut peers = [TcpPeer::default(); 2];
        for peer in &mut peers {
            let near_wrap = self.one_in(3);
            peer.end =
                if near_wrap { 0_u32.wrapping_sub(self.random.random_range(0..4000)) } else { self.random.random() };
            peer.window_scale = self.random.random_range(0..15);
            peer.window_max =
                self.random.random_range(1_u32..65_535) << self.random.random_range(0..peer.window_scale + 1);
            let sack = if self.one_in(3) { 0 } else { peer_flags::SACK_PERMITTED };
            peer.flags = peer_flags::ACKNOWLEDGED | sack;
        }
        let ends = peers.map(|peer| peer.end);
        let windows = peers.map(|peer| peer.window_max);
        for (side, peer) in peers.iter_mut().enumerate() {
            peer.end_max = peer.end.wrapping_add(self.random.random_range(0..=windows[1 - side]));
            let behind = if self.one_in(2) { 0 } else { self.random.random_range(0..3000) };
            peer.acknowledged_max = ends[1 - side].wrapping_sub(behind);
        }
        for side in 0..2 {
            if self.one_in(4) {
                // As after a take-over.
                let limit = peers[side].end_max.wrapping_add(windows[1 - side].max(66_000));
                peers[side].relearnt_at = ((limit >> 16) as u16).wrapping_add(1);
                peers[side].flags |= peer_flags::RELEARNING;
            }
            if peers[1 - side].acknowledged_max != ends[side] {
                peers[side].flags |= peer_flags::UNACKNOWLEDGED;
            }
        }
        ProtocolState { state: TcpState::Established as u8, peers, ..ProtocolState::default() }
    }

    fn install(&mut self, fast_path: &mut FastPath) {
        let version = if self.one_in(2) { 4 } else { 6 };
        let protocol = if self.one_in(3) { ip_protocol::UDP } else { ip_protocol::TCP };
        let state = self.state(protocol);
        let ((source, source_port), (destination, destination_port)) =
            (self.end_point(version), self.end_point(version));
        let original =
            Tuple { source, destination, source_port, destination_port, protocol, version, discriminator: 0 };
        let mut connection = Connection::new(original, NodeId(0), state, Instant::FAR_FUTURE);
        connection.flags = REPLIED | ASSURED;
        let reply = &mut connection.reply;
        if self.one_in(2) {
            reply.destination = self.end_point(version).0;
        }
        if self.one_in(2) {
            reply.source = self.end_point(version).0;
        }
        if self.one_in(2) {
            reply.destination_port = self.random.random();
        }
        if self.one_in(3) {
            reply.source_port = self.random.random();
        }
        let next_hops = [self.random.random_range(0..NEXT_HOPS), self.random.random_range(0..NEXT_HOPS)];
        let is_liberal = self.one_in(6);
        let plan = Plan::of(&connection, [LOOPBACK; 2], next_hops).expect("the connection is settled");
        let plan = Plan { is_liberal, ..plan };
        match fast_path.install(&plan) {
            Ok(index) => {
                let generation = self.generation;
                let (packets, bytes) = ([0; 2], [0; 2]);
                let followed = state;
                self.known.push(Known {
                    index,
                    connection,
                    followed,
                    next_hops,
                    is_liberal,
                    generation,
                    packets,
                    bytes,
                });
            }
            // Few addresses and ports: some tuples are there already, or both directions are one.
            Err(error) => assert!(
                self.find(&original).is_some()
                    || self.find(&connection.reply).is_some()
                    || original == connection.reply,
                "{error}"
            ),
        }
    }

    fn find(&self, tuple: &Tuple) -> Option<(usize, Direction)> {
        self.known.iter().enumerate().find_map(|(number, known)| {
            let directions = [Direction::Original, Direction::Reply];
            directions.into_iter().find(|d| known.connection.tuple(*d) == tuple).map(|direction| (number, direction))
        })
    }

    fn change_environment(&mut self, fast_path: &mut FastPath) {
        if self.one_in(3) {
            self.is_enabled = !self.one_in(15);
            fast_path.set_enabled(self.is_enabled);
            self.has_heartbeat = !self.one_in(15);
        }
        let age = if self.has_heartbeat { Duration::ZERO } else { HEARTBEAT_AGE_MAX + Duration::from_secs(1) };
        let beat = fast_path::now().as_nanos().saturating_sub(age.as_nanos() as u64);
        fast_path.beat(Instant::from_nanos(beat));
        if self.one_in(150) {
            self.generation += 1;
            fast_path.set_generation(self.generation);
        }
        if self.one_in(10) {
            let index = self.random.random_range(0..NEXT_HOPS);
            let mtu_bytes = if self.one_in(3) { self.random.random_range(40..400) } else { 1500 };
            let hop = NextHop::new(self.random.random(), self.random.random(), self.random.random(), mtu_bytes);
            self.hops[index as usize] = (!self.one_in(4)).then_some(hop);
            fast_path.set_next_hop(index, self.hops[index as usize].as_ref()).unwrap();
        }
        if self.known.is_empty() || self.one_in(12) {
            self.install(fast_path);
        }
        if self.known.len() > 1 && self.one_in(30) {
            let number = self.random.random_range(0..self.known.len());
            let removed = self.known.swap_remove(number);
            assert!(fast_path.remove(removed.index).unwrap().is_some());
            assert!(fast_path.read(removed.index).is_none());
        }
    }

    /// A segment whose numbers are mostly right, sometimes at a bound, sometimes far away.
    fn segment(&mut self, peers: &[TcpPeer; 2], direction: Direction) -> build::Tcp<'static> {
        let (sender, receiver) = (&peers[direction.index()], &peers[direction.reverse().index()]);
        let near = |random: &mut SmallRng, number: u32| match random.random_range(0..8) {
            0..5 => number,
            5 => number.wrapping_add(random.random_range(0..4)).wrapping_sub(2),
            6 => number.wrapping_add(random.random_range(0..6000)).wrapping_sub(3000),
            _ => random.random(),
        };
        let sequences = [sender.end, sender.end, sender.end, sender.end_max, receiver.acknowledged_max];
        let sequence = sequences[self.random.random_range(0..sequences.len())];
        let acknowledgements = [receiver.end, receiver.end, sender.acknowledged_max, receiver.end.wrapping_sub(66_000)];
        let acknowledgement = acknowledgements[self.random.random_range(0..acknowledgements.len())];
        let flags = match self.random.random_range(0..12) {
            0 => self.random.random(),
            1..5 => tcp_flags::ACK | tcp_flags::PSH,
            _ => tcp_flags::ACK,
        };
        let timestamps = self.one_in(2).then(|| (self.random.random(), self.random.random()));
        let mut segment = build::Tcp {
            flags,
            sequence: near(&mut self.random, sequence),
            acknowledgement: near(&mut self.random, acknowledgement),
            window: if self.one_in(12) { 0 } else { self.random.random() },
            timestamps,
            ..build::Tcp::default()
        };
        if self.one_in(20) {
            segment.maximum_segment_bytes = Some(1460);
        }
        if self.one_in(4) {
            let room = 36
                - if timestamps.is_some() { 12 } else { 0 }
                - if segment.maximum_segment_bytes.is_some() { 4 } else { 0 };
            let count = self.random.random_range(1..=room / 8);
            let mut edge = |_| (self.random.random(), near(&mut self.random, receiver.end));
            segment.sack_blocks = (0..count).map(&mut edge).collect::<Vec<_>>().leak();
        }
        segment
    }

    fn packet(&mut self) -> (Vec<u8>, TestContext) {
        let number = self.random.random_range(0..self.known.len());
        let direction = if self.one_in(2) { Direction::Original } else { Direction::Reply };
        let mut tuple = *self.known[number].connection.tuple(direction);
        let peers = self.known[number].connection.protocol.peers;
        if self.one_in(12) {
            tuple.source_port = self.random.random();
        }
        if self.one_in(25) {
            tuple.protocol = [ip_protocol::TCP, ip_protocol::UDP, 47][self.random.random_range(0..3)];
        }
        let payload_bytes = if self.one_in(3) { 0 } else { self.random.random_range(0..300) };
        let payload: Vec<u8> = (0..payload_bytes).map(|_| self.random.random()).collect();
        let fragment = FragmentHeader {
            offset_bytes: self.random.random_range(0..3) * 8,
            more: self.one_in(2),
            identification: 7,
        };
        let (fragment, options, extension) = (self.one_in(25).then_some(fragment), self.one_in(25), self.one_in(25));
        let (vlan, is_for_another) = (self.one_in(25), self.one_in(25));
        let envelope = build::Envelope {
            source: MacAddress([2, 0, 0, 0, 0, 9]),
            destination: MacAddress([if is_for_another { 2 } else { 0 }, 0, 0, 0, 0, 0]),
            ttl: if self.one_in(12) { self.random.random_range(0..4) } else { 64 },
            traffic_class: 0,
            vlans: if vlan { &[5] } else { &[] },
            ipv4_options: if options { &[1, 1, 1, 0] } else { &[] },
            ipv6_extensions: if extension { &[(60, &[1, 4, 0, 0, 0, 0])] } else { &[] },
            fragment,
        };
        let mut frame = match tuple.protocol {
            ip_protocol::TCP => {
                let segment = self.segment(&peers, direction);
                envelope.tcp(&tuple, segment, &payload)
            }
            ip_protocol::UDP => envelope.udp(&tuple, &payload),
            _ => envelope.raw(&tuple, &payload),
        };
        let transport = 14 + if tuple.version == 4 { 20 } else { 40 };
        if tuple.protocol == ip_protocol::UDP && self.one_in(8) && frame.len() >= transport + 8 {
            frame[transport + 6..transport + 8].fill(0);
        }
        let is_plain = !vlan && fragment.is_none() && !options && !extension;
        let field = checksum_field(&tuple).filter(|_| self.hook == Hook::Xdp && is_plain && self.one_in(10));
        if let Some(field) = field {
            // As a virtual cable hands it over: somebody else is to complete it.
            let transport_bytes = (frame.len() - transport) as u32;
            let partial = checksum::pseudo_header(&tuple, transport_bytes).fold();
            frame[field..field + 2].copy_from_slice(&partial.to_be_bytes());
        }
        if self.one_in(15) {
            // Anything but the link addresses.
            let at = self.random.random_range(12..frame.len().min(80));
            frame[at] ^= 1 << self.random.random_range(0..8);
        }
        if self.one_in(15) {
            frame.extend((0..self.random.random_range(1..20)).map(|_| 0));
        }
        // The kernel runs programs of tc only on frames with a whole IP header.
        let least_bytes = if self.hook == Hook::Tc { transport } else { 14 };
        if self.one_in(25) && frame.len() > least_bytes {
            frame.truncate(self.random.random_range(least_bytes..frame.len()));
        }
        let gso_bytes = if self.hook == Hook::Tc && self.one_in(6) { self.random.random_range(1..2000) } else { 0 };
        (frame, TestContext { gso_bytes, ..TestContext::default() })
    }

    /// What should become of a frame. Changes the model's connection as the tracker does.
    fn expect(&mut self, bytes: &[u8], context: TestContext) -> (Expected, Option<(usize, Direction, u32)>) {
        let left = |outcome| (Expected::Left(Some(outcome)), None);
        if !self.is_enabled {
            return left(Outcome::Disabled);
        }
        if !self.has_heartbeat {
            return left(Outcome::Heartbeat);
        }
        if bytes[..6] != [0; 6] {
            return left(Outcome::Host);
        }
        if self.hook == Hook::Xdp && matches!(bytes[12..14], [0x81, 0] | [0x88, 0xa8]) {
            return left(Outcome::Tagged);
        }
        let mut buffer = bytes.to_vec();
        let length_bytes = buffer.len();
        let mut frame = Frame::new(&mut buffer, 0, length_bytes, PortId(0)).unwrap();
        // The program does not verify transport checksums: a wrong one stays wrong.
        frame.checksum = Checksum::Valid;
        let Ok(Parsed::Ip(mut headers)) = wire::parse(&frame) else { return (Expected::Left(None), None) };
        let plain_bytes = if headers.tuple.version == 4 { 20 } else { 40 };
        let is_plain = headers.l3_offset == 14
            && headers.l4_offset - headers.l3_offset == plain_bytes
            && !headers.is_fragment
            && matches!(headers.transport, Transport::Tcp(_) | Transport::Udp);
        if !is_plain {
            return (Expected::Left(None), None);
        }
        if headers.ttl <= 1 {
            return left(Outcome::Ttl);
        }
        let transport_bytes = headers.payload_offset - headers.l4_offset;
        if let Transport::Tcp(segment) = &headers.transport {
            const DECISIVE: u8 = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST | tcp_flags::URG | tcp_flags::ACK;
            if segment.flags & DECISIVE != tcp_flags::ACK || segment.window == 0 {
                return left(Outcome::Flags);
            }
            let options = &frame.bytes()[usize::from(headers.l4_offset) + 20..usize::from(headers.payload_offset)];
            let rest =
                if options.len() >= 12 && options.starts_with(&[1, 1, 8, 10]) { &options[12..] } else { options };
            let is_sack = rest.len() >= 12 && rest.len() % 8 == 4 && rest[..4] == [1, 1, 5, rest.len() as u8 - 2];
            if !rest.is_empty() && !is_sack {
                return left(Outcome::Options);
            }
        }
        let Some((number, direction)) = self.find(&headers.tuple) else { return left(Outcome::Miss) };
        let known = &mut self.known[number];
        if known.generation != self.generation {
            return left(Outcome::Generation);
        }
        let Some(hop) = self.hops[known.next_hops[direction.index()] as usize] else { return left(Outcome::NextHop) };
        let bytes_on_wire = match context.gso_bytes {
            0 => length_bytes as u32 - 14,
            gso_bytes => u32::from(plain_bytes) + u32::from(transport_bytes) + gso_bytes,
        };
        if bytes_on_wire > hop.mtu_bytes {
            return left(Outcome::Mtu);
        }
        if self.hook == Hook::Xdp {
            let field = checksum_field(&headers.tuple).unwrap();
            let transport_bytes = headers.l3_bytes - u32::from(plain_bytes);
            if bytes[field..field + 2] == checksum::pseudo_header(&headers.tuple, transport_bytes).fold().to_be_bytes()
            {
                return left(Outcome::Partial);
            }
        }
        if matches!(headers.transport, Transport::Tcp(_)) {
            let passed = passes(&self.tracker, &mut known.connection, direction, &headers);
            if !passed && !known.is_liberal {
                return left(Outcome::Window);
            }
        }
        let l3_bytes = headers.l3_bytes;
        let translated = known.connection.translated(direction);
        let mut packet = Packet { frame: &mut frame, headers: &mut headers };
        if translated != *known.connection.tuple(direction) {
            packet.rewrite(&translated);
        }
        packet.decrement_ttl().unwrap();
        buffer[..6].copy_from_slice(&hop.destination);
        buffer[6..12].copy_from_slice(&hop.source);
        (Expected::Forwarded(buffer), Some((number, direction, l3_bytes)))
    }

    /// The program's view of a connection is the model's.
    fn compare(&mut self, fast_path: &FastPath, number: usize) {
        let known = &mut self.known[number];
        let activity = fast_path.read(known.index).expect("it is installed");
        assert_eq!((activity.packets, activity.bytes), (known.packets, known.bytes));
        let Some(windows) = activity.windows else { return };
        windows.raise_state(&mut known.followed);
        assert_eq!(known.followed.peers, known.connection.protocol.peers);
    }
}

/// Whether the tracker finds the segment within the windows, to which it then belongs.
fn passes(tracker: &Tracker, connection: &mut Connection, direction: Direction, headers: &Headers) -> bool {
    let Transport::Tcp(segment) = &headers.transport else { return false };
    let (state, mut flags) = (&mut connection.protocol, connection.flags);
    let is_relearning = state.peers.iter().any(|peer| peer.flags & peer_flags::RELEARNING != 0);
    if segment.sack_end == segment.acknowledgement && !is_relearning {
        return tracker.advance_plain(state, flags, direction, headers).is_some();
    }
    // The general way also passes segments that it does not use; those that it uses it records. The program leaves those that go beyond
    // the window, or acknowledge unsent data, beside a selective acknowledgement of sent data or after a take-over.
    let receiver = &state.peers[direction.reverse().index()];
    let [limit, sent] = [state.peers[direction.index()].end_max, receiver.end];
    let permits_sack = receiver.flags & peer_flags::SACK_PERMITTED != 0;
    let selective =
        if permits_sack { later(segment.acknowledgement, segment.sack_end) } else { segment.acknowledgement };
    let mut after = ProtocolState { last_end: !segment.end(), ..*state };
    let advance = tracker.advance(Instant::ZERO, &mut after, &mut flags, direction, headers);
    let is_used = advance.verdict.is_ok()
        && after.last_end == segment.end()
        && !is_after(segment.end(), limit)
        && !is_after(segment.acknowledgement, sent)
        && !is_after(selective, sent);
    if is_used {
        *state = after;
    }
    is_used
}

/// Where the transport checksum of a frame without tags, options and extensions is.
fn checksum_field(tuple: &Tuple) -> Option<usize> {
    let transport = 14 + if tuple.version == 4 { 20 } else { 40 };
    match tuple.protocol {
        ip_protocol::TCP => Some(transport + 16),
        ip_protocol::UDP => Some(transport + 6),
        _ => None,
    }
}

fn outcome_between(before: fast_path::Counters, after: fast_path::Counters) -> Outcome {
    let changed: Vec<_> = (after - before).iter().filter(|(_, packets)| *packets > 0).collect();
    assert!(matches!(changed[..], [(_, 1)]), "each packet has one outcome: {changed:?}");
    changed[0].0
}

#[test]
fn the_program_for_tc_decides_and_changes_packets_as_the_model_does() {
    compare(Hook::Tc, &[Outcome::Tagged, Outcome::Torn, Outcome::Contended, Outcome::Partial, Outcome::Failed]);
}

#[test]
fn the_program_for_xdp_decides_and_changes_packets_as_the_model_does() {
    compare(Hook::Xdp, &[Outcome::Torn, Outcome::Contended, Outcome::Failed]);
}

/// Compares a program with the model. Some outcomes cannot be reached here.
fn compare(hook: Hook, unreachable: &[Outcome]) {
    let config = Config {
        hook,
        connections_max: 4096,
        next_hops_max: NEXT_HOPS,
        heartbeat_age_max: HEARTBEAT_AGE_MAX,
        ..Config::default()
    };
    let Some(mut fast_path) = common::load(&config) else { return };
    let mut seen = std::collections::BTreeMap::<Outcome, u32>::new();
    for seed in 0..SEEDS {
        let mut world = World::new(hook, seed);
        world.generation = fast_path.generation() + 1;
        fast_path.set_generation(world.generation);
        fast_path.set_enabled(true);
        for index in 0..NEXT_HOPS {
            let hop = NextHop::new(9, [2, 0, 0, 0, 1, index as u8], [2, 0, 0, 0, 2, index as u8], 1500);
            world.hops[index as usize] = Some(hop);
            fast_path.set_next_hop(index, Some(&hop)).unwrap();
        }
        (0..4).for_each(|_| world.install(&mut fast_path));
        for step in 0..PACKETS {
            world.change_environment(&mut fast_path);
            if world.known.is_empty() {
                continue;
            }
            let (frame, context) = world.packet();
            let before = fast_path.counters().unwrap();
            let run = fast_path.test_run(&frame, context).unwrap();
            let outcome = outcome_between(before, fast_path.counters().unwrap());
            *seen.entry(outcome).or_default() += 1;
            let place = format!("seed {seed}, packet {step}: {outcome:?}, {frame:02x?}");
            match world.expect(&frame, context) {
                (Expected::Forwarded(bytes), Some((number, direction, l3_bytes))) => {
                    assert_eq!(outcome, Outcome::Forwarded, "{place}");
                    assert!(run.is_redirected, "{place}");
                    assert_eq!(run.bytes, bytes, "{place}");
                    let known = &mut world.known[number];
                    known.packets[direction.index()] += 1;
                    known.bytes[direction.index()] += u64::from(l3_bytes);
                }
                (Expected::Left(expected), _) => {
                    assert!(!run.is_redirected && outcome != Outcome::Forwarded, "{place}");
                    assert_eq!(run.bytes, frame, "{place}");
                    assert!(expected.is_none_or(|expected| expected == outcome), "{place}: {expected:?}");
                }
                (expected, None) => panic!("{place}: {expected:?}"),
            }
            (0..world.known.len()).for_each(|number| world.compare(&fast_path, number));
        }
        for known in world.known {
            fast_path.remove(known.index).unwrap();
        }
    }
    println!("{seen:?}");
    for outcome in Outcome::ALL.into_iter().filter(|outcome| !unreachable.contains(outcome)) {
        assert!(seen.get(&outcome).is_some_and(|times| *times >= 5), "{outcome:?} was hardly seen: {seen:?}");
    }
}
