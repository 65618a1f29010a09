//! Objects as conntrackd 1.4.7 was seen to send them, and whatever else can be said.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flow::netfilter::*;
use proptest::prelude::*;

use super::*;

/// Reads the notation of the observations: `type:value` in hexadecimal.
fn attributes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for attribute in text.split_ascii_whitespace() {
        let (kind, value) = attribute.split_once(':').unwrap();
        let nibbles: Vec<u8> = value.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
        let bytes: Vec<u8> = nibbles.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        attribute::put(&mut out, kind.parse().unwrap(), &bytes);
    }
    out
}

fn tuple(protocol: u8, source: &str, destination: &str, ports: (u16, u16)) -> Tuple {
    let discriminator = Discriminator::Ports { source: ports.0, destination: ports.1 };
    Tuple { source: source.parse().unwrap(), destination: destination.parse().unwrap(), protocol, discriminator }
}

/// What is read is `expected`, and what is written of it is read the same.
#[track_caller]
fn check(observed: &str, expected: &Entry) {
    assert_eq!(decode(&attributes(observed)).as_ref(), Ok(expected));
    let mut written = Vec::new();
    encode(expected, true, &mut written).unwrap();
    assert_eq!(decode(&written).as_ref(), Ok(expected));
}

fn established(original: Tuple, reply: Tuple, status: u32, timeout_s: u32) -> Entry {
    let side = |window_scale| TcpSide { window_scale, flags: TcpFlags::WINDOW_SCALE.union(TcpFlags::BE_LIBERAL) };
    Entry {
        status: Some(Status(status)),
        timeout_s: Some(timeout_s),
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo {
            state: TcpState::Established,
            sides: Some([side(10), side(7)]),
        })),
        ..Entry::new(original, reply)
    }
}

#[test]
fn a_connection_through_a_firewall() {
    let original = tuple(6, "10.1.0.10", "198.51.100.10", (4000, 80));
    let mut entry = established(original, original.inverse(), 0xe, 100);
    entry.mark = Some(7);
    let proxy = " 31:000000000000000000000000";
    let observed = "0:0a01000ac633640a 5:0000000e 2:06 3:0fa00050 4:03 25:0a 26:07 6:00000064 7:00000007";
    check(observed, &entry);
    // No SYN proxy.
    check(&std::format!("{observed}{proxy}"), &entry);
}

#[test]
fn without_tcp_window_tracking_only_the_state_is_replicated() {
    let original = tuple(6, "10.1.0.10", "198.51.100.10", (4000, 80));
    let entry = established(original, original.inverse(), 0xe, 100);
    let mut written = Vec::new();
    encode(&entry, false, &mut written).unwrap();
    let mut read = decode(&written).unwrap();
    assert_eq!(read.tcp().unwrap().sides, None);
    read.protocol_info = entry.protocol_info;
    assert_eq!(read, entry);
}

#[test]
fn translated_ports_and_identifiers_are_as_a_little_endian_host_has_them() {
    let original = tuple(6, "10.1.0.12", "198.51.100.10", (4002, 80));
    let source = tuple(6, "198.51.100.10", "198.51.100.1", (80, 6000));
    check(
        "0:0a01000cc633640a 5:0000019e 2:06 3:0fa20050 4:03 25:0a 26:07 6:00000064 12:c6336401 14:7017",
        &established(original, source, 0x19e, 100),
    );
    let destination = tuple(6, "10.7.7.7", "10.1.0.12", (8080, 4002));
    check(
        "0:0a01000cc633640a 5:000001ae 2:06 3:0fa20050 4:03 25:0a 26:07 6:00000064 13:0a070707 15:901f",
        &established(original, destination, 0x1ae, 100),
    );
    let ping = Tuple { discriminator: Discriminator::Icmp { kind: 8, code: 0, id: 77 }, protocol: 1, ..original };
    let ping =
        Entry { status: Some(Status(8)), timeout_s: Some(100), mark: Some(0), ..Entry::new(ping, ping.inverse()) };
    check("0:0a01000cc633640a 5:00000008 2:01 22:08 23:00 24:4d00 6:00000064 7:00000000", &ping);
}

#[test]
fn ipv6_and_its_translation() {
    let original = tuple(6, "fd00:1::10", "2001:db8:2::10", (4009, 80));
    let reply = tuple(6, "2001:db8:2::10", "2001:db8:2::1", (80, 700));
    check(
        "1:fd00000100000000000000000000001020010db8000200000000000000000010 5:0000019e 2:06 3:0fa90050 4:03 \
         25:0a 26:07 6:00000064 29:20010db8000200000000000000000001 14:bc02",
        &established(original, reply, 0x19e, 100),
    );
}

#[test]
fn zones_labels_helpers_and_masters() {
    let original = tuple(17, "10.1.0.12", "198.51.100.11", (4003, 53));
    let mut entry = Entry { zone: 3, status: Some(Status(8)), ..Entry::new(original, original.inverse()) };
    check("0:0a01000cc633640b 5:00000008 2:11 3:0fa30035 32:0003", &entry);
    let mut labels = [0; LABELS_BYTES];
    labels[0] = 1 << 3;
    let extra = entry.extra_mut();
    (extra.labels, extra.helper) = (Some(labels), HelperName::new(b"ftp"));
    extra.master = Some(tuple(6, "10.1.0.10", "198.51.100.10", (41292, 21)));
    check(
        "0:0a01000cc633640b 5:00000008 2:11 3:0fa30035 8:0a01000ac633640a 10:06 11:a14c0015 27:66747000 \
         28:00000008000000000000000000000000 32:0003",
        &entry,
    );
}

#[test]
fn gre_is_replicated_without_its_keys() {
    let original = tuple(47, "10.1.0.12", "198.51.100.11", (0, 0));
    check("0:0a01000cc633640b 2:2f", &Entry::new(original, original.inverse()));
}

#[test]
fn an_expectation_of_ftp() {
    let observed = "0:0a01000ac633640a 2:06 3:a14c0015 4:c633640ac6336401 6:06 7:00000801 8:ffffffffffffffff 10:06 \
                    11:0000ffff 12:0000012c 13:00000000 14:00000000 15:0000000000000000 17:06 16:08010000 18:00000001 \
                    19:66747000 20:6e61742d666f6c6c6f772d6d617374657200";
    let everything = tuple(6, "255.255.255.255", "255.255.255.255", (0, 65535));
    let expectation = Expectation {
        master: tuple(6, "10.1.0.10", "198.51.100.10", (41292, 21)),
        expected: tuple(6, "198.51.100.10", "198.51.100.1", (0, 2049)),
        mask: everything,
        zone: 0,
        timeout_s: Some(300),
        flags: 0,
        class: 0,
        helper: HelperName::new(b"ftp"),
        function: HelperName::new(b"nat-follow-master"),
        nat: Some(ExpectationNat { direction: 1, address: [0, 0, 0, 0].into(), protocol: 6, port: 2049 }),
    };
    assert_eq!(decode_expectation(&attributes(observed)).as_ref(), Ok(&expectation));
    let mut written = Vec::new();
    encode_expectation(&expectation, &mut written).unwrap();
    assert_eq!(decode_expectation(&written), Ok(expectation));
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let cases = [
        ("2:06 3:0fa00050", ObjectError::Missing(0)),
        ("0:0a01000ac633640a", ObjectError::Missing(2)),
        ("0:0a01000ac633640a 2:06", ObjectError::Missing(3)),
        ("0:0a01000ac633640a 2:01 22:08", ObjectError::Missing(23)),
        ("0:0a01000ac6 2:06 3:0fa00050", ObjectError::ValueSize(0)),
        ("0:0a01000ac633640a 2:06 3:0fa00050 4:0a", ObjectError::Value(4)),
        ("0:0a01000ac633640a 2:11 3:0fa00050 4:03", ObjectError::Value(4)),
        ("0:0a01000ac633640a 2:11 3:0fa00050 29:20010db8000200000000000000000001", ObjectError::Value(12)),
        ("0:0a01000ac633640a 2:11 3:0fa00050 27:66007000", ObjectError::Value(27)),
        ("0:0a01000ac633640a 2:11 3:0fa00050 28:000000", ObjectError::ValueSize(28)),
        ("0:0a01000ac633640a 2:11 3:0fa00050 99:00", ObjectError::Unknown(99)),
    ];
    for (observed, error) in cases {
        assert_eq!(decode(&attributes(observed)), Err(error), "{observed}");
    }
    assert_eq!(decode(&[0, 9, 0, 0, 1]), Err(ObjectError::Length));
    assert_eq!(decode(&[0, 3, 0, 0]), Err(ObjectError::Length));
}

#[test]
fn what_conntrackds_format_cannot_express_is_not_replicated() {
    let original = tuple(6, "10.1.0.10", "198.51.100.10", (4000, 80));
    let mixed = Tuple { source: IpAddr::V6(Ipv6Addr::LOCALHOST), ..original };
    let ping = Tuple { discriminator: Discriminator::Icmp { kind: 8, code: 0, id: 77 }, protocol: 1, ..original };
    let other = Tuple { discriminator: Discriminator::Icmp { kind: 0, code: 0, id: 78 }, ..ping.inverse() };
    let other_state = Entry {
        protocol_info: Some(ProtocolInfo::Dccp { state: 1, role: 0 }),
        ..Entry::new(original, original.inverse())
    };
    let cases = [
        (Entry::new(mixed, mixed.inverse()), EncodeError::Families),
        (Entry::new(ping, other), EncodeError::Reply),
        (other_state, EncodeError::ProtocolInfo),
    ];
    for (entry, error) in cases {
        let mut out = std::vec![7];
        assert_eq!(encode(&entry, true, &mut out), Err(error));
        assert_eq!(out, [7]);
    }
}

fn address(is_v6: bool) -> impl Strategy<Value = IpAddr> {
    any::<u128>().prop_map(
        move |bits| {
            if is_v6 { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() }
        },
    )
}

fn ports() -> impl Strategy<Value = Discriminator> {
    any::<(u16, u16)>().prop_map(|(source, destination)| Discriminator::Ports { source, destination })
}

fn tuple_of(is_v6: bool) -> impl Strategy<Value = Tuple> {
    let icmp = any::<(u8, u8, u16)>().prop_map(|(kind, code, id)| Discriminator::Icmp { kind, code, id });
    let kind = prop_oneof![
        (prop_oneof![Just(6), Just(17), Just(33), Just(47), Just(132), Just(136)], ports()),
        (Just(if is_v6 { 58 } else { 1 }), icmp),
        (Just(50), Just(Discriminator::Nothing)),
    ];
    (address(is_v6), address(is_v6), kind).prop_map(|(source, destination, (protocol, discriminator))| Tuple {
        source,
        destination,
        protocol,
        discriminator,
    })
}

fn name() -> impl Strategy<Value = HelperName> {
    "[a-zA-Z0-9-]{1,31}".prop_map(|name| HelperName::new(name.as_bytes()).unwrap())
}

fn adjustment() -> impl Strategy<Value = SequenceAdjustment> {
    any::<[u32; 3]>().prop_map(|[correction_position, offset_before, offset_after]| SequenceAdjustment {
        correction_position,
        offset_before,
        offset_after,
    })
}

fn extra(is_v6: bool) -> impl Strategy<Value = Option<alloc::boxed::Box<Extra>>> {
    let master = (address(is_v6), address(is_v6), ports()).prop_map(|(source, destination, discriminator)| Tuple {
        source,
        destination,
        protocol: 6,
        discriminator,
    });
    let proxy = any::<[u32; 3]>().prop_map(|[initial_sequence, server_initial_sequence, timestamp_offset]| SynProxy {
        initial_sequence,
        server_initial_sequence,
        timestamp_offset,
    });
    (
        any::<Option<[u8; LABELS_BYTES]>>(),
        proptest::option::of(name()),
        proptest::option::of(master),
        proptest::option::of([adjustment(), adjustment()]),
        proptest::option::of(proxy).prop_map(|proxy| proxy.filter(|proxy| *proxy != SynProxy::default())),
    )
        .prop_map(|(labels, helper, master, sequence_adjustment, syn_proxy)| {
            let extra = Extra { labels, helper, master, sequence_adjustment, syn_proxy, zone_direction: None };
            (extra != Extra::default()).then(|| extra.into())
        })
}

fn info(protocol: u8) -> BoxedStrategy<Option<ProtocolInfo>> {
    let flags = TcpFlags::WINDOW_SCALE.union(TcpFlags::BE_LIBERAL);
    let side = move |window_scale| TcpSide { window_scale, flags };
    match protocol {
        6 => (0u8..10, any::<Option<(u8, u8)>>())
            .prop_map(move |(state, scales)| {
                let state = TcpState::from_u8(state).unwrap();
                let sides = scales.map(|(original, reply)| [side(original), side(reply)]);
                Some(ProtocolInfo::Tcp(TcpInfo { state, sides }))
            })
            .boxed(),
        33 => any::<(u8, u8)>().prop_map(|(state, role)| Some(ProtocolInfo::Dccp { state, role })).boxed(),
        132 => any::<(u8, [u32; 2])>()
            .prop_map(|(state, verification_tags)| Some(ProtocolInfo::Sctp { state, verification_tags }))
            .boxed(),
        _ => Just(None).boxed(),
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    any::<bool>()
        .prop_flat_map(|is_v6| (tuple_of(is_v6), address(is_v6), address(is_v6), extra(is_v6)))
        .prop_flat_map(|(original, source, destination, extra)| {
            let translated = any::<(bool, bool, Option<u16>, Option<u16>)>();
            let numbers = any::<(Option<u32>, Option<u32>, Option<u32>, u16)>();
            (Just((original, source, destination, extra)), translated, numbers, info(original.protocol))
        })
        .prop_map(|((original, source, destination, extra), translated, numbers, protocol_info)| {
            let mut reply = original.inverse();
            let (is_source, is_destination, source_port, destination_port) = translated;
            if is_source {
                reply.destination = source;
            }
            if is_destination {
                reply.source = destination;
            }
            if let (Discriminator::Ports { source, destination }, true) =
                (&mut reply.discriminator, original.has_ports())
            {
                *destination = source_port.unwrap_or(*destination);
                *source = destination_port.unwrap_or(*source);
            }
            let (status, timeout_s, mark, zone) = numbers;
            let status = status.map(Status);
            Entry { zone, status, timeout_s, mark, protocol_info, extra, ..Entry::new(original, reply) }
        })
}

proptest! {
    #[test]
    fn a_connection_that_is_written_is_read_the_same(entry in entry()) {
        let mut written = Vec::new();
        encode(&entry, true, &mut written).unwrap();
        prop_assert!(written.len() <= OBJECT_BYTES_MAX);
        prop_assert_eq!(decode(&written), Ok(entry));
    }

    #[test]
    fn no_bytes_are_too_strange_to_be_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (decode(&bytes), decode_expectation(&bytes));
    }

    #[test]
    fn a_damaged_connection_is_refused_or_can_be_encoded(entry in entry(), at in any::<usize>(), byte in any::<u8>()) {
        let mut written = Vec::new();
        encode(&entry, true, &mut written).unwrap();
        let at = at % written.len();
        written[at] = byte;
        if let Ok(read) = decode(&written) {
            let mut rewritten = Vec::new();
            // A master of another family cannot come about: each has its own attribute.
            encode(&read, true, &mut rewritten).unwrap();
            prop_assert_eq!(decode(&rewritten), Ok(read));
        }
    }
}
