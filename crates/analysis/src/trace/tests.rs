//! Captures made by hand, whole and damaged.

use std::io::{Cursor, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use flow::Tuple;
use flow::wire::build::{self, Envelope};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{Transport, ip_protocol, tcp_flags};
use packet_io::pcap::{PcapWriter, PcapngWriter};
use proptest::prelude::*;

use super::*;

const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 4000);
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 80);

pub(super) fn tcp() -> Tuple {
    Tuple::v4(ip_protocol::TCP, CLIENT, SERVER)
}

pub(super) fn ms(ms: u64) -> Instant {
    Instant::from_millis(1_700_000_000_000 + ms)
}

pub(super) fn segment(payload: &[u8]) -> Vec<u8> {
    build::tcp(&tcp(), build::Tcp { flags: tcp_flags::ACK, sequence: 1, ..Default::default() }, payload)
}

/// A capture of these frames.
pub(super) fn pcap<F: AsRef<[u8]>>(frames: impl IntoIterator<Item = (Instant, F)>) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    frames.into_iter().for_each(|(at, frame)| writer.write(at, frame.as_ref()).unwrap());
    writer.finish().unwrap()
}

/// As [`pcap`], of a link type and with frames' lengths on the wire.
fn pcap_of(link_type: u32, frames: &[(Instant, Vec<u8>, u32)]) -> Vec<u8> {
    let mut bytes = pcap(frames.iter().map(|(at, frame, _)| (*at, frame)));
    bytes[20..24].copy_from_slice(&link_type.to_le_bytes());
    let mut at = 24;
    for (_, frame, wire_bytes) in frames {
        bytes[at + 12..at + 16].copy_from_slice(&wire_bytes.to_le_bytes());
        at += 16 + frame.len();
    }
    bytes
}

pub(super) fn merge(captures: Vec<Vec<u8>>) -> Result<Trace, TraceError> {
    let source = |(index, bytes): (usize, Vec<u8>)| {
        let length = bytes.len() as u64;
        (PathBuf::from(format!("capture-{index}")), Box::new(Cursor::new(bytes)) as Box<dyn Read + Send>, Some(length))
    };
    Trace::merge(captures.into_iter().enumerate().map(source).collect())
}

/// What a packet is, owned.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    at: Instant,
    capture: usize,
    number: u64,
    tuple: Tuple,
    payload: Vec<u8>,
    payload_bytes: u32,
    wire_bytes: u32,
}

fn all(trace: &mut Trace) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(packet) = trace.next() {
        seen.push(Seen {
            at: packet.at,
            capture: packet.capture_index,
            number: packet.frame_number,
            tuple: *packet.tuple(),
            payload: packet.payload.to_vec(),
            payload_bytes: packet.payload_bytes,
            wire_bytes: packet.wire_bytes,
        });
    }
    seen
}

fn skipped(trace: &Trace) -> Vec<(Skip, u64)> {
    trace.skips().iter().map(|(skip, frames, _)| (skip, frames)).collect()
}

#[test]
fn captures_are_merged_by_time_and_each_packet_has_its_capture() {
    let first = pcap([(ms(0), segment(b"a")), (ms(20), segment(b"c")), (ms(20), segment(b"d"))]);
    let mut second = PcapngWriter::new(Vec::new(), ["uplink"]).unwrap();
    for (at, payload) in [(ms(10), b"b"), (ms(30), b"e")] {
        second.write(0, at, &segment(payload), 55).unwrap();
    }
    let mut trace = merge(vec![first, second.finish().unwrap()]).unwrap();
    let seen = all(&mut trace);
    let payloads: Vec<_> = seen.iter().map(|seen| seen.payload.as_slice()).collect();
    assert_eq!(payloads, [b"a", b"b", b"c", b"d", b"e"]);
    let from: Vec<_> = seen.iter().map(|seen| (seen.capture, seen.number)).collect();
    assert_eq!(from, [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2)]);
    let progress = trace.progress();
    assert_eq!(Some(progress.read_bytes), progress.total_bytes, "all is read");
    assert!(trace.damages().is_empty());
}

#[test]
fn frames_of_every_link_type_are_read() {
    let plain = segment(b"hello");
    let ip = plain[14..].to_vec();
    let tagged = Envelope { vlans: &[7, 9], ..Envelope::default() }.tcp(
        &tcp(),
        build::Tcp { flags: 0x10, ..Default::default() },
        b"hello",
    );
    let cooked = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &ip].concat();
    let mut cooked_2 = vec![0_u8; 20];
    cooked_2[..2].copy_from_slice(&[8, 0]);
    cooked_2.extend_from_slice(&ip);
    let loopback = [&[2, 0, 0, 0][..], &ip].concat();
    for (link_type, frame) in [(1, plain), (1, tagged), (101, ip), (113, cooked), (276, cooked_2), (0, loopback)] {
        let length = frame.len() as u32;
        let mut trace = merge(vec![pcap_of(link_type, &[(ms(0), frame, length)])]).unwrap();
        let seen = all(&mut trace);
        assert_eq!(seen.len(), 1, "link type {link_type}: {:?}", skipped(&trace));
        assert_eq!((seen[0].tuple, seen[0].payload.as_slice()), (tcp(), &b"hello"[..]), "link type {link_type}");
        assert_eq!(seen[0].wire_bytes, length);
    }
    let mut trace = merge(vec![pcap_of(195, &[(ms(0), segment(b""), 54)])]).unwrap();
    assert!(all(&mut trace).is_empty());
    assert_eq!(skipped(&trace), [(Skip::LinkType, 1)]);
}

#[test]
fn whatever_is_no_packet_is_counted_by_its_reason() {
    let arp = build::arp_request(flow::wire::MacAddress([2; 6]), CLIENT.0, SERVER.0);
    let change = |at: usize| {
        let mut frame = segment(b"payload");
        frame[at] ^= 0x55;
        frame
    };
    let from_loopback = build::udp(&Tuple::v4(ip_protocol::UDP, (Ipv4Addr::LOCALHOST, 1), SERVER), b"");
    let frames = [arp, change(22), change(56), change(14), from_loopback, segment(b"right")];
    let mut trace = merge(vec![pcap(frames.into_iter().map(|frame| (ms(0), frame)))]).unwrap();
    assert_eq!(all(&mut trace).len(), 1);
    let expected = [
        (Skip::NotIp, 1),
        (Skip::Malformed, 1),
        (Skip::IpChecksum, 1),
        (Skip::TransportChecksum, 1),
        (Skip::Address, 1),
    ];
    assert_eq!(skipped(&trace), expected);
    let counts = trace.counts();
    assert_eq!((counts.frames, counts.packets, trace.skips().total()), (6, 1, 5));
}

#[test]
fn truncated_frames_are_packets_as_long_as_their_headers_are_there() {
    let frame = segment(&[7; 1000]);
    let length = frame.len() as u32;
    let frames: Vec<_> = [54, 60, 53, 30].map(|kept: usize| (ms(0), frame[..kept].to_vec(), length)).into();
    let mut trace = merge(vec![pcap_of(1, &frames)]).unwrap();
    let seen = all(&mut trace);
    let kept: Vec<_> = seen.iter().map(|seen| (seen.payload.len(), seen.payload_bytes, seen.wire_bytes)).collect();
    assert_eq!(kept, [(0, 1000, length), (6, 1000, length)]);
    assert_eq!(skipped(&trace), [(Skip::TruncatedInHeaders, 2)]);
    assert_eq!(trace.counts().truncated, 2);
}

#[test]
fn what_a_sending_host_left_to_its_hardware_is_put_up_with() {
    let mut offloaded = segment(b"to be finished");
    let state = build::offload_checksum(&mut offloaded);
    assert_ne!(state, flow::Checksum::Unverified);
    let mut without_ip_checksum = segment(b"to be finished");
    without_ip_checksum[24..26].fill(0);
    let mut without_length = segment(&[1; 9000]);
    without_length[16..18].fill(0);
    without_length[24..26].fill(0);
    let frames = [offloaded, without_ip_checksum, without_length];
    let mut trace = merge(vec![pcap(frames.into_iter().map(|frame| (ms(0), frame)))]).unwrap();
    let payloads: Vec<_> = all(&mut trace).iter().map(|seen| seen.payload_bytes).collect();
    assert_eq!(payloads, [14, 14, 9000], "{:?}", skipped(&trace));
    assert_eq!(trace.counts().unfinished, 3);
}

#[test]
fn wrong_checksums_are_believed_if_that_is_asked_for() {
    let (mut transport, mut network) = (segment(b"changed on its path"), segment(b"with another address"));
    transport[56] ^= 0x55;
    network[30] ^= 1;
    let capture = pcap([transport, network].into_iter().map(|frame| (ms(0), frame)));
    let mut trace = merge(vec![capture.clone()]).unwrap();
    assert!(all(&mut trace).is_empty());
    assert_eq!(skipped(&trace), [(Skip::IpChecksum, 1), (Skip::TransportChecksum, 1)]);
    let admission = Admission { believes_checksums: true, ..Admission::default() };
    let mut trace = merge(vec![capture]).unwrap().admitting(admission);
    let seen = all(&mut trace);
    assert_eq!((seen.len(), trace.skips().total()), (2, 0), "{:?}", skipped(&trace));
    assert_eq!((seen[0].tuple, seen[1].payload.as_slice()), (tcp(), &b"with another address"[..]));
}

#[test]
fn packets_between_loopback_addresses_are_studied_if_that_is_asked_for() {
    let v4 = Tuple::v4(ip_protocol::TCP, (Ipv4Addr::LOCALHOST, 4000), (Ipv4Addr::new(127, 3, 2, 1), 80));
    let v6 = Tuple::v6(ip_protocol::UDP, (Ipv6Addr::LOCALHOST, 4000), (Ipv6Addr::LOCALHOST, 53));
    let reply = build::Tcp { flags: tcp_flags::ACK, ..Default::default() };
    let mut unfinished = build::tcp(&v4, reply, b"hello");
    let _ = build::offload_checksum(&mut unfinished);
    let mut wrong = build::tcp(&v4, reply, b"hello");
    wrong[56] ^= 0x55;
    let nobody = build::udp(&Tuple::v4(ip_protocol::UDP, (Ipv4Addr::UNSPECIFIED, 68), SERVER), b"");
    let frames = [build::tcp(&v4, reply, b"hello"), unfinished, wrong, build::udp(&v6, b"hello"), nobody];
    let capture = pcap(frames.into_iter().map(|frame| (ms(0), frame)));
    let mut trace = merge(vec![capture.clone()]).unwrap();
    assert!(all(&mut trace).is_empty());
    let admission = Admission { admits_loopback: true, ..Admission::default() };
    let mut trace = merge(vec![capture.clone()]).unwrap().admitting(admission);
    let tuples: Vec<_> = all(&mut trace).iter().map(|seen| (seen.tuple, seen.payload.clone())).collect();
    assert_eq!(tuples, [v4, v4, v6].map(|tuple| (tuple, b"hello".to_vec())));
    assert_eq!(skipped(&trace), [(Skip::TransportChecksum, 1), (Skip::Address, 1)]);
    let all_of_it = Admission { believes_checksums: true, admits_loopback: true };
    assert_eq!(all(&mut merge(vec![capture]).unwrap().admitting(all_of_it)).len(), 4);
}

#[test]
fn fragments_are_packets_and_those_behind_the_first_have_no_ports() {
    let udp = Tuple::v4(ip_protocol::UDP, CLIENT, SERVER);
    let whole = build::udp(&udp, &[9; 2000]);
    let mut trace = {
        let parts = [(0, true, &whole[34..34 + 1480]), (1480, false, &whole[34 + 1480..])];
        let frames = parts.map(|(offset_bytes, more, part)| {
            let fragment = FragmentHeader { identification: 7, offset_bytes, more };
            Envelope { fragment: Some(fragment), ..Envelope::default() }.raw(&udp, part)
        });
        merge(vec![pcap(frames.map(|frame| (ms(0), frame)))]).unwrap()
    };
    let seen = all(&mut trace);
    assert_eq!(seen.iter().map(|seen| seen.tuple.source_port).collect::<Vec<_>>(), [4000, 0]);
    assert_eq!(seen.iter().map(|seen| seen.payload.len()).sum::<usize>(), 2000);
    assert_eq!(trace.counts().fragments, 2);
}

#[test]
fn time_never_falls_whatever_the_clock_of_the_capture_did() {
    // A little disorder, then the clock is set back by an hour and goes on from there.
    let hour = 3_600_000;
    let times = [hour, hour + 10, hour + 5, hour + 12, 100, 130];
    let mut trace = merge(vec![pcap(times.map(|at| (ms(at), segment(b""))))]).unwrap();
    let seen: Vec<u64> =
        all(&mut trace).iter().map(|seen| seen.at.saturating_since(ms(hour)).as_millis() as u64).collect();
    assert_eq!(seen, [0, 10, 10, 12, 12, 42]);
    assert_eq!(trace.counts().steps_back, 2);
}

#[test]
fn a_damaged_capture_is_named_with_the_place_and_the_others_go_on() {
    let good = pcap((0..4).map(|at| (ms(at * 10), segment(b"good"))));
    let mut damaged = pcap((0..4).map(|at| (ms(at * 10 + 5), segment(b"part"))));
    let third = 24 + 2 * (16 + 58);
    damaged[third + 8..third + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut trace = merge(vec![damaged, good]).unwrap();
    assert_eq!(all(&mut trace).len(), 4 + 2);
    let [damage] = trace.damages() else { panic!("one is damaged: {:?}", trace.damages()) };
    assert_eq!((damage.frame_number, damage.offset_bytes), (3, third as u64));
    let text = damage.to_string();
    assert!(text.starts_with("capture-0: read up to frame 3 (byte 172): a record states"), "{text}");
}

#[test]
fn what_cannot_be_studied_is_refused_with_the_reason() {
    let error = |result: Result<Trace, TraceError>| result.map(|_| ()).expect_err("it is refused").to_string();
    assert!(error(Trace::open::<&str>(&[])).contains("no capture is named"));
    assert!(error(Trace::open(&["-", "-"])).contains("more than once"));
    assert!(error(Trace::open(&["/does/not/exist.pcap"])).starts_with("/does/not/exist.pcap: "));
    assert!(error(Trace::open(&[std::env::temp_dir()])).contains("is a folder"));
    assert!(error(merge(vec![Vec::new()])).contains("empty"));
    for (begins, remedy) in [(&b"\x1f\x8b\x08\0"[..], "zcat"), (b"\x28\xb5\x2f\xfd", "zstdcat"), (b"BZh9", "bzcat")] {
        let text = error(merge(vec![[begins, &[0; 40]].concat()]));
        assert!(text.contains("compressed by") && text.contains(remedy), "{text}");
    }
    assert!(error(merge(vec![b"#!/bin/sh\nexit 0\n and more".to_vec()])).contains("not a capture"));
    assert!(error(merge(vec![pcap([(ms(0), segment(b""))]); CAPTURES_MAX + 1])).contains("257 captures"));
}

#[test]
fn ipv6_and_icmp_are_packets_too() {
    let (client, server) =
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let echo = Tuple::echo(client.into(), server.into(), 7);
    let frame = Envelope::default().echo(&echo, build::Echo::default(), b"ping");
    let mut trace = merge(vec![pcap([(ms(0), frame)])]).unwrap();
    let packet = trace.next().expect("it is a packet");
    assert!(matches!(packet.headers.transport, Transport::IcmpQuery(_)) && !packet.is_truncated());
    assert_eq!((packet.tuple(), packet.payload), (&echo, &b"ping"[..]));
}

/// Frames of several kinds, so that damage finds something to change.
fn mixed() -> Vec<Vec<u8>> {
    let udp = build::udp(&Tuple::v4(ip_protocol::UDP, CLIENT, SERVER), b"question");
    let v6 = Tuple::v6(
        ip_protocol::UDP,
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2), 5),
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 53),
    );
    vec![segment(b"text"), udp, build::udp(&v6, b"question"), segment(&[0; 300])]
}

proptest! {
    #[test]
    fn a_truncated_capture_is_read_up_to_its_end(length in any::<prop::sample::Index>(), is_pcapng: bool) {
        let frames = mixed();
        let bytes = if is_pcapng {
            let mut writer = PcapngWriter::new(Vec::new(), ["any"]).unwrap();
            frames.iter().for_each(|frame| writer.write(0, ms(0), frame, frame.len() as u32).unwrap());
            writer.finish().unwrap()
        } else {
            pcap(frames.iter().map(|frame| (ms(0), frame)))
        };
        let length = length.index(bytes.len());
        match merge(vec![bytes[..length].to_vec()]) {
            Err(error) => prop_assert!(error.to_string().starts_with("capture-0: "), "{}", error),
            Ok(mut trace) => {
                let seen = all(&mut trace);
                prop_assert!(seen.len() < frames.len());
                for (seen, frame) in seen.iter().zip(&frames) {
                    prop_assert_eq!(seen.wire_bytes as usize, frame.len());
                }
                // An end between two records is a shorter capture; any other is named.
                if let [damage] = trace.damages() {
                    prop_assert_eq!(damage.frame_number as usize, seen.len() + 1);
                    prop_assert!(damage.offset_bytes as usize <= length);
                }
                prop_assert_eq!(trace.progress().read_bytes as usize, length);
            }
        }
    }

    #[test]
    fn flipped_bits_neither_stop_the_program_nor_the_other_captures(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..20),
    ) {
        let mut bytes = pcap(mixed().iter().map(|frame| (ms(0), frame)));
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let Ok(mut trace) = merge(vec![bytes, pcap(mixed().iter().map(|frame| (ms(1), frame)))]) else { return Ok(()) };
        let seen = all(&mut trace);
        prop_assert_eq!(seen.iter().filter(|seen| seen.capture == 1).count(), 4);
        let counts = trace.counts();
        prop_assert_eq!(counts.frames, counts.packets + trace.skips().total());
        let times = seen.windows(2).all(|pair| pair[0].at <= pair[1].at);
        prop_assert!(times, "time falls");
    }
}
