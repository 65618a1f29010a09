//! The cost of parsing, hashing and rewriting: nanoseconds a packet, the best of several rounds.
//!
//! `cargo run --release -p flow --example parse_speed`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use flow::wire::{Packet, Parsed, build, ip_protocol, parse, tcp_flags};
use flow::{BATCH_FRAMES_MAX, Checksum, Frame, HashKey, PortId, Tuple};

const ROUNDS: usize = 15;
const PASSES_PER_ROUND: usize = 1000;
/// One batch, repeated: the cost of the work, not of fetching frames from memory.
const FRAMES: usize = BATCH_FRAMES_MAX;

fn main() {
    let key = HashKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
    println!("{:<34} {:>8} {:>8} {:>8} {:>8}", "ns per packet", "parse", "+ hash", "rewrite", "ttl");
    for (name, payload_bytes) in [("64-byte", 10), ("1514-byte", 1460)] {
        for is_v4 in [true, false] {
            for checksum in [Checksum::Unverified, Checksum::Valid] {
                let label = format!("{name} TCP/IPv{} {checksum:?}", if is_v4 { 4 } else { 6 });
                measure(&label, key, is_v4, payload_bytes, checksum);
            }
        }
    }
}

fn measure(label: &str, key: HashKey, is_v4: bool, payload_bytes: usize, checksum: Checksum) {
    let mut buffers: Vec<Vec<u8>> = (0..FRAMES).map(|index| segment(is_v4, index as u16, payload_bytes)).collect();
    let mut frames: Vec<Frame<'_>> = buffers
        .iter_mut()
        .map(|buffer| {
            let length = buffer.len();
            let mut frame = Frame::new(buffer, 0, length, PortId(0)).expect("the frame is its buffer");
            frame.checksum = checksum;
            frame
        })
        .collect();

    let parsing = best(&mut frames, |frame| {
        black_box(parse(black_box(frame)).is_ok());
    });
    let hashing = best(&mut frames, |frame| {
        if let Ok(Parsed::Ip(headers)) = parse(black_box(frame)) {
            black_box(key.hash(&headers.tuple));
        }
    });
    let headers: Vec<_> = frames
        .iter()
        .map(|frame| match parse(frame) {
            Ok(Parsed::Ip(headers)) => headers,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut index = 0;
    let rewriting = best(&mut frames, |frame| {
        let mut packet = Packet { frame, headers: &mut headers[index % FRAMES].clone() };
        index += 1;
        packet.rewrite(black_box(&headers[index % FRAMES].tuple));
    });
    let mut index = 0;
    let decrementing = best(&mut frames, |frame| {
        let mut packet = Packet { frame, headers: &mut headers[index % FRAMES].clone() };
        index += 1;
        black_box(packet.decrement_ttl().is_ok());
    });
    println!("{label:<34} {parsing:>8.1} {hashing:>8.1} {rewriting:>8.1} {decrementing:>8.1}");
}

fn segment(is_v4: bool, port: u16, payload_bytes: usize) -> Vec<u8> {
    let tuple = if is_v4 {
        Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(10, 0, 0, 2), port), (Ipv4Addr::new(192, 0, 2, 1), 80))
    } else {
        let host = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
        Tuple::v6(ip_protocol::TCP, (host(2), port), (host(1), 80))
    };
    let segment = build::Tcp { flags: tcp_flags::ACK, sequence: 1, acknowledgement: 1, ..Default::default() };
    build::tcp(&tuple, segment, &vec![0x5a; payload_bytes])
}

fn best(frames: &mut [Frame<'_>], mut work: impl FnMut(&mut Frame<'_>)) -> f64 {
    let mut nanos_min = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PASSES_PER_ROUND {
            for frame in frames.iter_mut() {
                work(frame);
            }
        }
        let nanos = start.elapsed().as_secs_f64() * 1e9 / (PASSES_PER_ROUND * frames.len()) as f64;
        nanos_min = nanos_min.min(nanos);
    }
    nanos_min
}
