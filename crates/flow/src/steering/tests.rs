//! Both directions reach one worker, and the kernel's program computes the same.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::program::{ETHER_TYPE, NETWORK, code};
use super::*;
use crate::wire::build::{self, Envelope};
use crate::wire::ipv6::FragmentHeader;
use crate::wire::{Parsed, ethernet, parse};
use crate::{Frame, PortId};

/// Runs a program as the kernel does: the outermost tag is out of the frame, and loads beyond the frame end it with 0.
fn run(program: &[Instruction], frame: &[u8]) -> u32 {
    let (ether_type, network) = seen_by_the_kernel(frame);
    let (mut accumulator, mut index, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    let load = |address: u32, bytes: usize| {
        if address == ETHER_TYPE {
            return Some(u32::from(ether_type));
        }
        let start = address.wrapping_sub(NETWORK) as usize;
        let loaded = network.get(start..start.checked_add(bytes)?)?;
        Some(loaded.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    };
    loop {
        let Instruction { code, jump_true, jump_false, operand } = program[at];
        at += 1;
        let mut branch = |holds: bool| at += usize::from(if holds { jump_true } else { jump_false });
        let mut loaded = None;
        match code {
            code::LOAD_WORD => loaded = Some(load(operand, 4)),
            code::LOAD_HALF => loaded = Some(load(operand, 2)),
            code::LOAD_WORD_INDEXED => loaded = Some(load(operand.wrapping_add(index), 4)),
            code::LOAD_HALF_INDEXED => loaded = Some(load(operand.wrapping_add(index), 2)),
            code::LOAD_BYTE_INDEXED => loaded = Some(load(operand.wrapping_add(index), 1)),
            code::LOAD_MEMORY => accumulator = memory[operand as usize],
            code::LOAD_INDEX => index = operand,
            code::LOAD_INDEX_MEMORY => index = memory[operand as usize],
            code::STORE => memory[operand as usize] = accumulator,
            code::STORE_INDEX => memory[operand as usize] = index,
            code::ADD => accumulator = accumulator.wrapping_add(operand),
            code::ADD_INDEX => accumulator = accumulator.wrapping_add(index),
            code::MULTIPLY => accumulator = accumulator.wrapping_mul(operand),
            code::AND => accumulator &= operand,
            code::SHIFT_LEFT => accumulator <<= operand,
            code::SHIFT_RIGHT => accumulator >>= operand,
            code::MODULO => accumulator %= operand,
            code::XOR_INDEX => accumulator ^= index,
            code::TO_INDEX => index = accumulator,
            code::FROM_INDEX => accumulator = index,
            code::JUMP => at += operand as usize,
            code::JUMP_EQUAL => branch(accumulator == operand),
            code::JUMP_GREATER => branch(accumulator > operand),
            code::JUMP_SET => branch(accumulator & operand != 0),
            code::RETURN => return operand,
            code::RETURN_ACCUMULATOR => return accumulator,
            other => panic!("instruction {other:#x} is not one of the program's"),
        }
        match loaded {
            Some(Some(word)) => accumulator = word,
            Some(None) => return 0,
            None => {}
        }
    }
}

/// The ether type, and the bytes behind the link header, after removal of the outermost tag.
fn seen_by_the_kernel(frame: &[u8]) -> (u16, &[u8]) {
    let half = |at: usize| frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let is_tagged = matches!(half(12), ethernet::ether_type::VLAN | ethernet::ether_type::SERVICE_VLAN);
    let at = if is_tagged { 16 } else { 12 };
    (half(at), frame.get(at + 2..).unwrap_or_default())
}

fn headers_of(frame: &[u8]) -> Option<Headers> {
    let mut bytes = frame.to_vec();
    let length_bytes = bytes.len();
    match parse(&Frame::new(&mut bytes, 0, length_bytes, PortId(0))?) {
        Ok(Parsed::Ip(headers)) => Some(headers),
        _ => None,
    }
}

/// The worker of a valid frame, which must be equal for the program and the function.
#[track_caller]
fn worker(steering: Steering, frame: &[u8]) -> WorkerId {
    let expected = steering.worker_of(&headers_of(frame).expect("the frame is sound"));
    assert_eq!(run(&program(steering), frame), u32::from(expected.0));
    expected
}

fn addresses_of_one_family() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 =
        || any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits & 0x0fff_ffff | 0x6000_0000)).prop_map(IpAddr::V4);
    let v6 = || any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits >> 3 | 1 << 125)).prop_map(IpAddr::V6);
    prop_oneof![(v4(), v4()), (v6(), v6())]
}

/// Any packet that a connection can have, with its tuple.
fn tuple_of(kind: u8, addresses: (IpAddr, IpAddr), ports: (u16, u16)) -> Tuple {
    let (source, destination) = (SocketAddr::new(addresses.0, ports.0), SocketAddr::new(addresses.1, ports.1));
    match kind {
        0 => Tuple::new(ip_protocol::TCP, source, destination),
        1 => Tuple::new(ip_protocol::UDP, source, destination),
        3 => Tuple::new(ip_protocol::SCTP, source, destination),
        2 => Tuple::echo(addresses.0, addresses.1, ports.0),
        _ => Tuple { source_port: 0, destination_port: 0, ..Tuple::new(47, source, destination) },
    }
}

fn frame_of(envelope: &Envelope<'_>, tuple: &Tuple) -> Vec<u8> {
    match tuple.protocol {
        ip_protocol::TCP => envelope.tcp(tuple, build::Tcp::default(), b"some payload"),
        ip_protocol::UDP => envelope.udp(tuple, b"some payload"),
        ip_protocol::SCTP => envelope.sctp(tuple, 7, &[3, 0, 0, 4]),
        ip_protocol::ICMP | ip_protocol::ICMPV6 => envelope.echo(tuple, build::Echo::default(), b"some data"),
        _ => envelope.raw(tuple, &[0x5a; 24]),
    }
}

fn inverse_frame_of(envelope: &Envelope<'_>, tuple: &Tuple) -> Vec<u8> {
    match tuple.protocol {
        ip_protocol::ICMP | ip_protocol::ICMPV6 => {
            envelope.echo(&tuple.inverse(), build::Echo { is_reply: true, ..build::Echo::default() }, b"some data")
        }
        _ => frame_of(envelope, &tuple.inverse()),
    }
}

proptest! {
    #[test]
    fn both_directions_and_errors_about_either_come_to_one_worker(
        workers in 1..=WORKERS_MAX,
        kind in 0u8..5,
        addresses in addresses_of_one_family(),
        ports: (u16, u16),
        vlans in prop::collection::vec(0u16..4096, 0..=2),
        ipv4_options in prop_oneof![Just(&[][..]), Just(&[1, 1, 1, 1][..]), Just(&[1; 40][..])],
    ) {
        let steering = Steering::new(workers).unwrap();
        let tuple = tuple_of(kind, addresses, ports);
        let envelope = Envelope { vlans: &vlans, ipv4_options, ..Envelope::default() };
        let there = frame_of(&envelope, &tuple);
        let expected = worker(steering, &there);
        prop_assert!(expected.0 < workers);
        prop_assert_eq!(expected, steering.worker_of_tuple(&tuple));
        prop_assert_eq!(expected, worker(steering, &inverse_frame_of(&envelope, &tuple)));

        let header = build::IcmpHeader { kind: if tuple.version == 4 { 3 } else { 1 }, code: 3, parameter: 0 };
        let about = &there[14 + 4 * vlans.len()..];
        let router = if tuple.version == 4 { IpAddr::from([198, 18, 0, 1]) } else { "2001:db8::1".parse().unwrap() };
        let error = envelope.icmp_error(router, header, about).unwrap();
        prop_assert_eq!(expected, worker(steering, &error));
    }

    #[test]
    fn all_fragments_of_a_datagram_come_to_one_worker(
        workers in 2..=WORKERS_MAX, addresses in addresses_of_one_family(), ports: (u16, u16), kind in 1u8..5,
    ) {
        let steering = Steering::new(workers).unwrap();
        let tuple = tuple_of(kind, addresses, ports);
        let fragment = |offset_bytes, more| {
            let fragment = Some(FragmentHeader { identification: 7, offset_bytes, more });
            Envelope { fragment, ..Envelope::default() }
        };
        let first = frame_of(&fragment(0, true), &tuple);
        let later = fragment(32, false).raw(&tuple, &[0xa5; 16]);
        prop_assert_eq!(worker(steering, &first), worker(steering, &later));
        let answer = fragment(32, false).raw(&tuple.inverse(), &[0xa5; 16]);
        prop_assert_eq!(worker(steering, &first), worker(steering, &answer));
    }

    #[test]
    fn for_any_bytes_the_program_ends_with_a_valid_worker(
        workers in 1..=WORKERS_MAX, bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..4,
    ) {
        let mut frame = Envelope::default().raw(&Tuple::echo([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1), &bytes);
        frame[12..14].copy_from_slice(&[[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0x08, 0x06]][kind]);
        let named = run(&program(Steering::new(workers).unwrap()), &frame);
        prop_assert!(named < u32::from(workers));
    }
}

#[test]
fn link_protocols_reach_the_lead_worker() {
    let steering = Steering::new(7).unwrap();
    let mac = crate::wire::MacAddress([2, 0, 0, 0, 0, 9]);
    for host in 1..=50_u8 {
        let (own, target) = (Ipv4Addr::new(10, 0, 0, host), Ipv4Addr::new(10, 0, 0, 254));
        assert_eq!(run(&program(steering), &build::arp_request(mac, own, target)), 0);
        let own: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host.into());
        assert_eq!(worker(steering, &build::neighbour_solicitation(mac, own, own)), WorkerId::LEAD);
        assert_eq!(worker(steering, &build::unsolicited_neighbour_advertisement(mac, own, true)), WorkerId::LEAD);
    }
}

#[test]
fn connections_are_spread_evenly() {
    for workers in [2, 3, 8] {
        let steering = Steering::new(workers).unwrap();
        let mut counts = [0_u32; WORKERS_MAX as usize];
        // As they are in practice: a few clients, one server, ports one after the other.
        for client in 0..16 {
            for port in 0..1000 {
                let client = (Ipv4Addr::new(10, 1, 0, 10 + client), 32_768 + port);
                let tuple = Tuple::v4(ip_protocol::TCP, client, (Ipv4Addr::new(198, 51, 100, 10), 443));
                counts[steering.worker_of_tuple(&tuple).index()] += 1;
            }
        }
        let mean = 16_000 / u32::from(workers);
        for count in &counts[..usize::from(workers)] {
            assert!(count.abs_diff(mean) < mean / 10, "{workers} workers: {counts:?}");
        }
    }
}

#[test]
fn the_program_is_unchanged_for_one_version() {
    // Nodes of one version must steer alike: a change here requires a new STEERING_VERSION.
    let steering = Steering::new(32).unwrap();
    let tcp = Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 80));
    let udp = Tuple::v6(ip_protocol::UDP, ("2001:db8::2".parse().unwrap(), 4000), ("2001:db8::1".parse().unwrap(), 53));
    let echo = Tuple::echo([10, 0, 0, 2].into(), [192, 0, 2, 1].into(), 77);
    assert_eq!(STEERING_VERSION, 1);
    assert_eq!([tcp, udp, echo].map(|tuple| steering.worker_of_tuple(&tuple).0), [10, 6, 15]);
}

#[test]
fn only_a_valid_number_of_workers_is_accepted() {
    assert!(Steering::new(0).is_none() && Steering::new(WORKERS_MAX + 1).is_none());
    assert_eq!(Steering::new(1), Some(Steering::ALONE));
}
