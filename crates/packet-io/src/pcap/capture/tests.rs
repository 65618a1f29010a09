//! Captures of all kinds, valid and damaged.

use flow::Instant;
use proptest::prelude::*;

use super::*;
use crate::pcap::{LinkType, PcapWriter, PcapngWriter};

/// Options of an interface: their numbers and values.
type Options<'a> = &'a [(u16, &'a [u8])];

/// Writes pcapng blocks in either byte order, valid or not.
struct Blocks {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl Blocks {
    fn section(big_endian: bool) -> Self {
        let mut blocks = Self { bytes: Vec::new(), big_endian };
        let mut body = blocks.u32s(&[0x1a2b_3c4d]);
        body.extend(blocks.u16s(&[1, 0]));
        body.extend([0xff; 8]);
        blocks.block(0x0a0d_0d0a, &body);
        blocks
    }

    fn u32s(&self, numbers: &[u32]) -> Vec<u8> {
        let bytes = |number: &u32| if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
        numbers.iter().flat_map(bytes).collect()
    }

    fn u16s(&self, numbers: &[u16]) -> Vec<u8> {
        let bytes = |number: &u16| if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
        numbers.iter().flat_map(bytes).collect()
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let total = u32::try_from(body.len() + 12).unwrap();
        self.bytes.extend(self.u32s(&[kind, total]));
        self.bytes.extend(body);
        self.bytes.extend(self.u32s(&[total]));
    }

    fn interface(&mut self, link_type: u16, snapshot_bytes: u32, options: Options<'_>) {
        let mut body = self.u16s(&[link_type, 0]);
        body.extend(self.u32s(&[snapshot_bytes]));
        for (kind, value) in options {
            body.extend(self.u16s(&[*kind, u16::try_from(value.len()).unwrap()]));
            body.extend_from_slice(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body);
    }

    fn packet(&mut self, interface: u32, units: u64, frame: &[u8], wire_bytes: u32) {
        let length = u32::try_from(frame.len()).unwrap();
        let mut body = self.u32s(&[interface, (units >> 32) as u32, units as u32, length, wire_bytes]);
        body.extend_from_slice(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        // An unused option behind the frame.
        body.extend(self.u16s(&[1, 3]));
        body.extend(b"tag\0");
        self.block(6, &body);
    }
}

fn records(bytes: &[u8]) -> Result<Vec<(CaptureRecord, Vec<u8>)>, PcapError> {
    let mut reader = CaptureReader::new(bytes)?;
    let mut records = Vec::new();
    let mut frame = Vec::new();
    while let Some(record) = reader.read(&mut frame)? {
        records.push((record, frame.clone()));
    }
    Ok(records)
}

fn millis_of(bytes: &[u8]) -> Vec<u64> {
    records(bytes).unwrap().iter().map(|(record, _)| record.timestamp.as_nanos() / 1_000_000).collect()
}

#[test]
fn packets_of_several_interfaces_are_read_in_both_byte_orders() {
    for big_endian in [false, true] {
        let mut blocks = Blocks::section(big_endian);
        blocks.interface(1, 0, &[(2, b"eth0"), (0, b"")]);
        blocks.block(4, b"unused name records");
        blocks.interface(101, 0, &[(9, &[9]), (2, b"tun0")]);
        blocks.packet(0, 5_250_000, b"abc", 60);
        blocks.packet(1, 6_000_000_000, b"d", 1);
        let mut reader = CaptureReader::new(&*blocks.bytes).unwrap();
        let mut frame = Vec::new();
        let first = reader.read(&mut frame).unwrap().unwrap();
        assert_eq!(first, CaptureRecord { timestamp: Instant::from_millis(5250), wire_bytes: 60, interface: 0 });
        assert_eq!(frame, b"abc");
        let names: Vec<_> = reader.interfaces().iter().map(|one| (one.name.as_deref(), one.link_type)).collect();
        assert_eq!(names, [(Some("eth0"), LinkType::Ethernet), (Some("tun0"), LinkType::RawIp)]);
        let second = reader.read(&mut frame).unwrap().unwrap();
        assert_eq!((second.timestamp, second.interface, &*frame), (Instant::from_millis(6000), 1, &b"d"[..]));
        assert_eq!(reader.read(&mut frame).unwrap(), None);
    }
}

#[test]
fn timestamps_have_the_resolution_and_the_offset_of_their_interface() {
    let offset = 100_u64.to_le_bytes();
    let cases: [(Options<'_>, u64, u64); 5] = [
        (&[], 1_500_000, 1500),
        (&[(9, &[3])], 1500, 1500),
        (&[(9, &[0x80 | 10])], 1536, 1500),
        (&[(9, &[0])], 7, 7000),
        (&[(9, &[3]), (14, &offset)], 1500, 101_500),
    ];
    for (options, units, millis) in cases {
        let mut blocks = Blocks::section(false);
        blocks.interface(1, 0, options);
        blocks.packet(0, units, b"a", 1);
        assert_eq!(millis_of(&blocks.bytes), [millis], "{options:?}");
    }
    for impossible in [20, 0xff] {
        let mut blocks = Blocks::section(false);
        blocks.interface(1, 0, &[(9, &[impossible])]);
        assert!(matches!(records(&blocks.bytes), Err(PcapError::DamagedBlock(_))));
    }
}

#[test]
fn simple_packets_have_the_interfaces_snapshot_length_and_the_previous_timestamp() {
    let mut blocks = Blocks::section(false);
    blocks.interface(1, 3, &[]);
    blocks.packet(0, 2_000_000, b"abc", 3);
    let body = [&blocks.u32s(&[60])[..], b"xyz"].concat();
    blocks.block(3, &body);
    let read = records(&blocks.bytes).unwrap();
    let (record, frame) = &read[1];
    assert_eq!((record.timestamp, record.wire_bytes, &**frame), (Instant::from_millis(2000), 60, &b"xyz"[..]));
}

#[test]
fn a_second_section_resets_the_interfaces() {
    let mut first = Blocks::section(false);
    first.interface(1, 0, &[]);
    first.interface(1, 0, &[]);
    first.packet(1, 1_000_000, b"a", 1);
    let mut second = Blocks::section(true);
    second.interface(113, 0, &[(9, &[3])]);
    second.packet(0, 2000, b"b", 1);
    assert_eq!(millis_of(&[first.bytes.clone(), second.bytes].concat()), [1000, 2000]);
    let mut stray = Blocks::section(true);
    stray.packet(0, 2000, b"b", 1);
    assert!(matches!(records(&[first.bytes, stray.bytes].concat()), Err(PcapError::DamagedBlock(_))));
}

#[test]
fn damage_is_distinguished_from_an_early_end() {
    let mut good = Blocks::section(false);
    good.interface(1, 0, &[]);
    let packet_at = good.bytes.len();
    good.packet(0, 1, b"abcd", 4);
    let whole = records(&good.bytes).unwrap();
    assert_eq!(whole.len(), 1);
    for length in packet_at + 1..good.bytes.len() {
        assert!(matches!(records(&good.bytes[..length]), Err(PcapError::Truncated)), "{length} bytes");
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = good.bytes.clone();
        bytes[at] = byte;
        records(&bytes).unwrap_err()
    };
    assert!(matches!(with(packet_at + 4, 1), PcapError::DamagedBlock(_)), "a length that is no multiple of 4");
    assert!(matches!(with(packet_at + 8, 7), PcapError::DamagedBlock(_)), "an unknown interface");
    assert!(matches!(with(packet_at + 20, 99), PcapError::DamagedBlock(_)), "a frame longer than its block");
    assert!(matches!(with(packet_at + 23, 99), PcapError::OversizedRecord(_)));
    assert!(matches!(with(good.bytes.len() - 4, 0), PcapError::DamagedBlock(_)), "two lengths that differ");
    assert!(matches!(with(12, 2), PcapError::BadVersion(2)));
    assert!(matches!(records(b"GIF89a and what follows it"), Err(PcapError::BadMagic(_))));
    assert!(matches!(records(b"GI"), Err(PcapError::Truncated)));
}

#[test]
fn classic_captures_are_read_alike() {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    writer.write(Instant::from_millis(7), b"abc").unwrap();
    let bytes = writer.finish().unwrap();
    let expected = CaptureRecord { timestamp: Instant::from_millis(7), wire_bytes: 3, interface: 0 };
    assert_eq!(records(&bytes).unwrap(), [(expected, b"abc".to_vec())]);
    let reader = CaptureReader::new(&*bytes).unwrap();
    assert_eq!(reader.interfaces()[0].link_type, LinkType::Ethernet);
}

#[test]
fn other_link_types_become_ethernet() {
    let ethernet = |destination: [u8; 6], source: [u8; 6], ether_type: u16, packet: &[u8]| {
        [&destination[..], &source, &ether_type.to_be_bytes(), packet].concat()
    };
    let mac = [2, 3, 4, 5, 6, 7];
    let cooked = [&[0, 1, 0, 1, 0, 6][..], &mac, &[0, 0, 0x08, 0x06], b"arp"].concat();
    let cooked_2 = [&[0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 2, 6][..], &mac, &[0, 0], b"\x60six"].concat();
    let cases = [
        (LinkType::RawIp, b"\x45four".to_vec(), ethernet([0; 6], [0; 6], 0x0800, b"\x45four")),
        (LinkType::RawIp, b"\x60six".to_vec(), ethernet([0; 6], [0; 6], 0x86dd, b"\x60six")),
        (LinkType::Loopback, b"\0\0\0\x02\x45four".to_vec(), ethernet([0; 6], [0; 6], 0x0800, b"\x45four")),
        (LinkType::LinuxCooked, cooked, ethernet([0xff; 6], mac, 0x0806, b"arp")),
        (LinkType::LinuxCooked2, cooked_2, ethernet([1, 0, 0x5e, 0, 0, 0], mac, 0x86dd, b"\x60six")),
    ];
    for (link_type, mut frame, expected) in cases {
        let added = i32::try_from(expected.len()).unwrap() - i32::try_from(frame.len()).unwrap();
        assert_eq!(link_type.added_bytes(), added, "{link_type:?}");
        assert!(link_type.make_ethernet(&mut frame), "{link_type:?}");
        assert_eq!(frame, expected, "{link_type:?}");
    }
    for (link_type, frame) in [
        (LinkType::RawIp, &b""[..]),
        (LinkType::RawIp, b"\x10"),
        (LinkType::LinuxCooked, b"short"),
        (LinkType::Other(105), b"802.11"),
    ] {
        let mut unchanged = frame.to_vec();
        assert!(!link_type.make_ethernet(&mut unchanged));
        assert_eq!(unchanged, frame);
    }
    assert_eq!([1, 228, 113, 276, 105].map(LinkType::from_number)[4], LinkType::Other(105));
}

#[test]
fn a_comment_follows_its_frame_without_effect_on_others() {
    let mut writer = PcapngWriter::new(Vec::new(), ["inside"]).unwrap();
    for frame in [&b"odd"[..], b"even", b""] {
        writer.write_commented(0, Instant::from_millis(1), frame, 60, Some("dropped: no_route")).unwrap();
    }
    writer.write(0, Instant::from_millis(2), b"plain", 60).unwrap();
    let bytes = writer.finish().unwrap();
    let frames: Vec<_> = records(&bytes).unwrap().into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(frames, [&b"odd"[..], b"even", b"", b"plain"]);
    // Option 1 of a block, its length, its text: at a boundary of four bytes.
    let option = b"\x01\x00\x11\x00dropped: no_route";
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(option)).collect();
    assert_eq!(places.len(), 3);
    assert!(places.iter().all(|at| at % 4 == 0), "{places:?}");
}

proptest! {
    #[test]
    fn written_captures_are_read_back(
        frames in prop::collection::vec((0..3_usize, any::<u64>(), prop::collection::vec(any::<u8>(), 0..200)), 0..20)
    ) {
        let mut writer = PcapngWriter::new(Vec::new(), ["inside", "outside", "third"]).unwrap();
        for (interface, nanos, frame) in &frames {
            writer.write(*interface, Instant::from_nanos(*nanos), frame, 9000).unwrap();
        }
        let read = records(&writer.finish().unwrap()).unwrap();
        let read: Vec<_> = read
            .into_iter()
            .map(|(record, frame)| (record.interface, record.timestamp.as_nanos(), frame))
            .collect();
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        rest in prop::collection::vec(any::<u8>(), 0..300),
        at in 0..200_usize,
        byte: u8,
        big_endian: bool,
    ) {
        let mut blocks = Blocks::section(big_endian);
        drop(records(&[&blocks.bytes[..], &rest].concat()));
        blocks.interface(1, 0, &[(2, b"eth0"), (9, &[9])]);
        blocks.packet(0, 5, b"abcdefg", 60);
        blocks.packet(0, 6, b"abcdefg", 60);
        let length = blocks.bytes.len();
        blocks.bytes[at % length] = byte;
        drop(records(&blocks.bytes));
        for number in [0, 1, 101, 113, 276] {
            let mut frame = rest.clone();
            let _ = LinkType::from_number(number).make_ethernet(&mut frame);
        }
    }
}
