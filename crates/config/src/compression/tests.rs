//! Libraries by themselves, and what they save of what a tunnel sends.

use std::time::Duration;

use flow::wire::{build, ip_protocol};
use flow::{Instant, Segmentation, Tuple};
use redundancy::FlowPosition;
use tunnel::{Outgoing, SecondStage, Tunnel, TunnelConfig};

use super::*;

/// Bytes of Ethernet's header, and of those of IPv4 and TCP.
const LINK_BYTES: usize = 14;
const HEADER_BYTES: usize = 40;
const SEGMENT_BYTES: usize = 1448;
const OBJECT_BYTES: usize = 400_000;

#[test]
fn either_library_restores_what_it_compressed_and_refuses_what_it_did_not() {
    let text = b"one and one and one and another ".repeat(40);
    for stage in [1, 2] {
        let mut library = library(stage).expect("it is there");
        assert_eq!(library.stage(), stage);
        let (mut small, mut whole) = (Vec::new(), Vec::new());
        assert!(library.compress(&text, &mut small) && small.len() * 5 < text.len());
        assert!(library.expand(&small, text.len(), &mut whole));
        assert_eq!(whole, text);
        assert!(!library.expand(&small[..small.len() / 2], text.len(), &mut Vec::new()));
    }
    assert!(library(3).is_none());
}

/// Lines of a log: words and numbers, none of them twice.
fn text() -> Vec<u8> {
    let words = ["accept", "drop", "forward", "translate", "reply", "reset"];
    let mut state = 1_u32;
    let mut text = Vec::new();
    while text.len() < OBJECT_BYTES {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = words[(state >> 28) as usize % words.len()];
        text.extend_from_slice(
            format!("{word} 10.{}.{} id={:08x}\n", state >> 24, state >> 16 & 0xff, state).as_bytes(),
        );
    }
    text.truncate(OBJECT_BYTES);
    text
}

/// Bytes of datagrams that it takes to send the object for the first time and once more. Asserts that it arrives.
fn sent_bytes(stage: Option<u8>, object: &[u8]) -> [u64; 2] {
    let second_stage = SecondStage { stage, gather: Duration::from_millis(10), library };
    // The other end does not need to be configured alike.
    let config = |second_stage| TunnelConfig { cache_bytes: 1 << 20, second_stage, ..TunnelConfig::default() };
    let other = SecondStage { stage: None, ..second_stage };
    let mut ends = [Tunnel::new(config(second_stage), 1), Tunnel::new(config(other), 2)];
    let mut now = Instant::from_millis(1);
    ends.iter_mut().for_each(|end| end.set_active(now, true));
    let mut arrived = Vec::new();
    let pass = |ends: &mut [Tunnel; 2], now: Instant, arrived: &mut Vec<u8>| {
        for from in 0..2 {
            if ends[from].poll_timeout().is_some_and(|due| due <= now) {
                ends[from].handle_timeout(now);
            }
            let mut datagram = Vec::new();
            while ends[from].poll_transmit(now, &mut datagram) {
                ends[1 - from].handle_datagram(now, &datagram).expect("the other end understands it");
            }
        }
        while let Some(packet) = ends[1].poll_packet() {
            arrived.extend_from_slice(&packet.bytes[HEADER_BYTES..]);
        }
    };
    while ends.iter().any(|end| end.bypass(now).is_some()) {
        now = now + Duration::from_millis(1);
        pass(&mut ends, now, &mut arrived);
        assert!(now < Instant::from_millis(10_000), "they find each other");
    }
    [1_u16, 2].map(|flow| {
        let before = ends[0].status(now).counters.bytes_out;
        arrived.clear();
        let tuple = Tuple::v4(ip_protocol::TCP, ([10, 1, 0, 1].into(), 80), ([10, 2, 0, 1].into(), 4000 + flow));
        for (place, part) in object.chunks(SEGMENT_BYTES).enumerate() {
            let sequence = (place * SEGMENT_BYTES) as u32;
            let frame = build::Envelope::default().tcp(&tuple, build::Tcp { sequence, ..build::Tcp::default() }, part);
            let at = Some(FlowPosition { flow: flow.into(), sequence });
            let segmentation = Segmentation::default();
            let packet = Outgoing { bytes: &frame[LINK_BYTES..], header_bytes: HEADER_BYTES, at, segmentation };
            assert!(ends[0].handle_packet(now, &packet));
            now = now + Duration::from_millis(1);
            pass(&mut ends, now, &mut arrived);
        }
        for _ in 0..100 {
            now = now + Duration::from_millis(1);
            pass(&mut ends, now, &mut arrived);
        }
        assert!(arrived == object, "whatever the stage, it arrives as it was");
        ends[0].status(now).counters.bytes_out - before
    })
}

#[test]
fn what_encoding_leaves_of_text_a_library_makes_less() {
    let text = text();
    let [none, lz4, zstd] = [None, Some(2), Some(1)].map(|stage| sent_bytes(stage, &text));
    println!("of {OBJECT_BYTES} bytes: none {none:?}, lz4 {lz4:?}, zstd {zstd:?} (first and second time)");
    assert!(lz4[0] * 10 < none[0] * 9, "{lz4:?} of {none:?}");
    assert!(zstd[0] * 10 < lz4[0] * 9, "{zstd:?} of {lz4:?}");
    assert!(zstd[1] < none[1], "{zstd:?} of {none:?}");
    assert!(none[1] * 15 < OBJECT_BYTES as u64, "{none:?}");
}
