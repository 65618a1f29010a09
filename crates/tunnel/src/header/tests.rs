//! Headers come out as they went in, whatever they are and whatever is lost; and they are small.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::VecDeque;

use flow::wire::{build, ip_protocol};
use flow::{SegmentationKind, Tuple};
use proptest::prelude::*;

use super::*;

/// Ethernet's header, which no packet of the tunnel has.
const LINK_BYTES: usize = 14;

/// A packet's headers, how it is segmented, and bytes of its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Headers {
    bytes: Vec<u8>,
    segmentation: Segmentation,
    payload_bytes: usize,
}

impl Headers {
    fn new(frame: Vec<u8>, payload_bytes: usize) -> Self {
        let bytes = frame[LINK_BYTES..frame.len() - payload_bytes].to_vec();
        Self { bytes, segmentation: Segmentation::default(), payload_bytes }
    }

    fn v4(port: u16, tcp: build::Tcp<'_>, payload_bytes: usize) -> Self {
        let tuple = Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(10, 1, 0, 1), port), (Ipv4Addr::new(10, 2, 0, 1), 80));
        Self::new(build::Envelope::default().tcp(&tuple, tcp, &vec![7; payload_bytes]), payload_bytes)
    }

    fn v6(port: u16, tcp: build::Tcp<'_>, payload_bytes: usize) -> Self {
        let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
        let tuple = Tuple::v6(ip_protocol::TCP, (address(1), port), (address(2), 80));
        Self::new(build::Envelope::default().tcp(&tuple, tcp, &vec![7; payload_bytes]), payload_bytes)
    }
}

/// What travels between the two ends.
enum Sent {
    Whole(Option<Remembered>),
    Small(Vec<u8>, Option<Remembered>),
}

struct Pair {
    compressor: Compressor,
    decompressor: Decompressor,
    /// What was not settled yet.
    unsettled: VecDeque<(Remembered, bool)>,
    small: usize,
}

impl Pair {
    fn new() -> Self {
        let (compressor, decompressor) = (Compressor::new(5), Decompressor::new());
        Self { compressor, decompressor, unsettled: VecDeque::new(), small: 0 }
    }

    /// Sends headers; returns how many bytes they were. What arrives is what was sent.
    fn send(&mut self, headers: &Headers, is_lost: bool) -> usize {
        let mut out = Vec::new();
        let form = self.compressor.compress(&headers.bytes, &headers.segmentation, headers.payload_bytes, &mut out);
        let sent = match form {
            HeaderForm::Whole => Sent::Whole(None),
            HeaderForm::First(remembered) => Sent::Whole(Some(remembered)),
            HeaderForm::Small(remembered) => Sent::Small(out, remembered),
        };
        let (remembered, bytes) = match &sent {
            Sent::Whole(remembered) => (remembered, headers.bytes.len()),
            Sent::Small(small, remembered) => (remembered, small.len()),
        };
        self.unsettled.extend(remembered.map(|remembered| (remembered, !is_lost)));
        if !is_lost {
            self.take(headers, sent);
        }
        bytes
    }

    fn take(&mut self, headers: &Headers, sent: Sent) {
        match sent {
            Sent::Whole(None) => {}
            Sent::Whole(Some(remembered)) => {
                self.decompressor.remember(remembered, &headers.bytes, &headers.segmentation).expect("it can be");
            }
            Sent::Small(mut small, _) => {
                self.small += 1;
                small.extend_from_slice(b"payload");
                let read = self.decompressor.decompress(&small).expect("whatever is pointed to is remembered");
                assert_eq!((read.payload, read.segmentation), (&b"payload"[..], headers.segmentation));
                let header_bytes = read.header.len();
                let mut packet = read.header;
                packet.resize(header_bytes + headers.payload_bytes, 0);
                complete(&mut packet, header_bytes);
                assert_eq!(packet[..header_bytes], headers.bytes);
            }
        }
    }

    fn settle(&mut self, count: usize) {
        for _ in 0..count {
            let Some((remembered, has_arrived)) = self.unsettled.pop_front() else { return };
            self.compressor.settle(remembered, has_arrived);
        }
    }
}

#[test]
fn the_headers_of_a_download_take_a_fourth_of_what_they_were() {
    for is_v6 in [false, true] {
        let mut pair = Pair::new();
        let (mut bytes, mut small_bytes) = (0, 0);
        for number in 0..1000_u32 {
            let tcp = build::Tcp {
                sequence: 77 + 1448 * number,
                acknowledgement: 500,
                timestamps: Some((1_000_000 + number / 3, 5_000_000 + number / 4)),
                ..build::Tcp::default()
            };
            let headers = if is_v6 { Headers::v6(4000, tcp, 1448) } else { Headers::v4(4000, tcp, 1448) };
            bytes += headers.bytes.len();
            small_bytes += pair.send(&headers, false);
            if number % 50 == 49 {
                pair.settle(10);
            }
        }
        assert!(pair.small > 900);
        assert!(small_bytes * 4 < bytes, "{small_bytes} of {bytes}");
    }
}

#[test]
fn headers_that_do_not_follow_from_themselves_travel_as_they_are() {
    let mut pair = Pair::new();
    let right = Headers::v4(4000, build::Tcp::default(), 100);
    let mut wrong_length = right.clone();
    wrong_length.payload_bytes = 90;
    let mut wrong_checksum = right.clone();
    wrong_checksum.bytes[10] ^= 1;
    let mut with_options = right.clone();
    with_options.bytes[0] = 0x46;
    for headers in [wrong_length, wrong_checksum, with_options] {
        assert_eq!(pair.send(&headers, false), headers.bytes.len());
        assert!(pair.unsettled.is_empty(), "nothing is to be remembered of it");
    }
}

#[test]
fn what_is_not_remembered_is_said_to_be_unknown_and_begins_anew() {
    let mut pair = Pair::new();
    let headers = Headers::v4(4000, build::Tcp::default(), 100);
    pair.send(&headers, false);
    pair.settle(1);
    pair.decompressor = Decompressor::new();
    let mut small = Vec::new();
    let form = pair.compressor.compress(&headers.bytes, &headers.segmentation, 100, &mut small);
    assert!(matches!(form, HeaderForm::Small(_)));
    let Err(HeaderError::Unknown(place)) = pair.decompressor.decompress(&small) else { panic!("it remembers nothing") };
    pair.compressor.forget(place);
    small.clear();
    let form = pair.compressor.compress(&headers.bytes, &headers.segmentation, 100, &mut small);
    assert_eq!((form, small.len()), (HeaderForm::Whole, 0), "one is to be remembered already");
}

/// What may differ from one packet of a flow to the next.
#[derive(Clone, Debug)]
struct Step {
    flow: u16,
    is_v6: bool,
    /// Bytes of the headers that become others, and what they become.
    changes: Vec<(usize, u8)>,
    blocks: usize,
    payload_bytes: usize,
    is_segmented: bool,
    is_lost: bool,
    settled: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let changes = prop::collection::vec((0..80_usize, any::<u8>()), 0..4);
    let shape = (0..6_u16, any::<bool>(), 0..3_usize, 0..2000_usize);
    (shape, changes, any::<bool>(), prop::bool::weighted(0.2), 0..3_usize).prop_map(
        |((flow, is_v6, blocks, payload_bytes), changes, is_segmented, is_lost, settled)| Step {
            flow,
            is_v6,
            changes,
            blocks,
            payload_bytes,
            is_segmented,
            is_lost,
            settled,
        },
    )
}

/// Headers of the step, some of them as no sender would write them.
fn headers_of(number: usize, step: &Step) -> Headers {
    let number_u32 = number as u32;
    let blocks: Vec<(u32, u32)> =
        (0..step.blocks as u32).map(|at| (at * 3000 + number_u32, at * 3000 + 1448)).collect();
    let timestamps = Some((number_u32 / 3, 9_000_000 - number_u32));
    let tcp = build::Tcp { sequence: number_u32 * 1448, timestamps, sack_blocks: &blocks, ..build::Tcp::default() };
    let make = if step.is_v6 { Headers::v6 } else { Headers::v4 };
    let mut headers = make(5000 + step.flow, tcp, step.payload_bytes);
    for (at, byte) in &step.changes {
        if let Some(place) = headers.bytes.get_mut(*at) {
            *place = *byte;
        }
    }
    if step.changes.len() > 1
        && let Some(layout) = layout::Layout::of(&headers.bytes)
    {
        // Others than the sender's, but whole.
        layout.complete(&mut headers.bytes, step.payload_bytes);
    }
    if step.is_segmented {
        let kind = SegmentationKind::TcpIpv4;
        headers.segmentation = Segmentation { kind, size_bytes: 1448, header_bytes: 66, ecn: number.is_multiple_of(7) };
    }
    headers
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_arrives_is_as_it_was_sent(steps in prop::collection::vec(step(), 1..80)) {
        let mut pair = Pair::new();
        for (number, step) in steps.iter().enumerate() {
            // Whatever can be pointed to was acknowledged: the pair asserts that it is there, and that all is equal.
            pair.send(&headers_of(number, step), step.is_lost);
            pair.settle(step.settled);
        }
    }

    #[test]
    fn bytes_that_are_no_headers_do_not_become_small(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        payload_bytes in 0..2000_usize,
    ) {
        let mut pair = Pair::new();
        let headers = Headers { bytes, segmentation: Segmentation::default(), payload_bytes };
        for _ in 0..3 {
            pair.send(&headers, false);
            pair.settle(1);
        }
    }

    #[test]
    fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), place in 0..2_u16) {
        let mut decompressor = Decompressor::new();
        let headers = Headers::v4(4000, build::Tcp::default(), 100);
        let remembered = Remembered { place, version: 0 };
        decompressor.remember(remembered, &headers.bytes, &headers.segmentation).unwrap();
        if let Ok(read) = decompressor.decompress(&bytes) {
            prop_assert_eq!(read.header.len(), headers.bytes.len());
        }
    }

    #[test]
    fn numbers_are_read_as_they_were_written(value in any::<u32>()) {
        let mut out = Vec::new();
        put_number(&mut out, value);
        let mut rest = &out[..];
        prop_assert_eq!((take_number(&mut rest), rest.len()), (Some(value), 0));
    }
}
