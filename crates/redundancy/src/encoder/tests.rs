//! An encoder alone.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::fingerprint::Method;

/// Blocks of many lengths, with repeated parts.
fn blocks(count: usize) -> Vec<Vec<u8>> {
    let mut state = 9_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for number in 0..count {
        let mut block: Vec<u8> = (0..next() % 1500).map(|_| next() as u8).collect();
        if number > 0 {
            let other = &blocks[number - 1 - next() % number.min(20)];
            block.extend_from_slice(&other[next() % (other.len() + 1)..]);
        }
        block.truncate(9000);
        blocks.push(block);
    }
    blocks
}

fn encoder(method: Method, matcher: Matcher) -> Encoder {
    let sampling = Sampling { method, ..Sampling::default() };
    Encoder::open_at_once(EncoderConfig { cache_bytes: 1 << 17, sampling, matcher, ..EncoderConfig::default() })
        .expect("the size is right")
}

#[test]
fn a_batch_equals_single_blocks() {
    let blocks = blocks(400);
    for matcher in [Matcher::MaxMatch, Matcher::ChunkMatch] {
        for method in Method::ALL {
            let [mut one_by_one, mut together] = [encoder(method, matcher), encoder(method, matcher)];
            let (mut out, mut outs, mut encodings) = (Vec::new(), vec![Vec::new(); 21], Vec::new());
            for group in blocks.chunks(21) {
                let segments: Vec<_> = group.iter().map(|bytes| Segment { bytes, at: None }).collect();
                together.encode_batch(&segments, &mut outs, &mut encodings);
                for ((block, encoding), written) in group.iter().zip(&encodings).zip(&outs) {
                    assert_eq!(one_by_one.encode_block(block, &mut out), *encoding);
                    assert_eq!(&out, written);
                }
            }
            assert_eq!(one_by_one.counters(), together.counters());
            assert!(together.counters().blocks_encoded > 0 || method == Method::Fixed, "{method:?} {matcher:?}");
        }
    }
}

#[test]
fn every_instruction_set_writes_the_same() {
    let blocks = blocks(300);
    for method in [Method::SampleByte, Method::Maxp] {
        let mut encoders: Vec<_> = Scan::all().map(|scan| encoder(method, Matcher::MaxMatch).with_scan(scan)).collect();
        let mut out = Vec::new();
        for block in &blocks {
            let mut written = encoders.iter_mut().map(|encoder| {
                let encoding = encoder.encode_block(block, &mut out);
                (encoding, out.clone())
            });
            let portable = written.next().expect("one is always available");
            assert!(written.all(|other| other == portable), "{method:?}");
        }
        assert!(encoders.iter().all(|encoder| encoder.counters().blocks_encoded > 0));
    }
}

#[test]
fn incompressible_blocks_grow_by_at_most_the_bound() {
    for length in [40, 100, 700, 1460, 16_384] {
        let mut encoder = encoder(Method::SampleByte, Matcher::MaxMatch);
        let (mut out, mut state) = (Vec::new(), 3_u64);
        for _ in 0..500 {
            let next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            };
            let block: Vec<u8> = core::iter::repeat_with(next).take(length).collect();
            encoder.encode_block(&block, &mut out);
            let EncoderCounters { bytes_in, bytes_out, .. } = encoder.counters();
            assert!(bytes_out * 1000 <= bytes_in * 1003, "{length}: {bytes_in} bytes encoded as {bytes_out}");
        }
        assert!(encoder.counters().blocks_literal > 0, "some of it is cached all the same");
    }
}

#[test]
fn memory_is_within_the_shares_of_the_cache_in_the_paper() {
    let cache_bytes = 16 << 20;
    let share = |matcher, period| {
        let period = Period::new(period).expect("a period that can be");
        let sampling = Sampling { period, ..Sampling::default() };
        let config = EncoderConfig { cache_bytes, sampling, matcher, ..EncoderConfig::default() };
        let [payload, index, rest] = Encoder::new(config).expect("the size is right").memory_bytes();
        [payload, index, rest].map(|bytes| bytes as f64 * 100.0 / cache_bytes as f64)
    };
    assert_eq!(share(Matcher::MaxMatch, 64)[..2], [100.0, 6.25]);
    assert_eq!(share(Matcher::MaxMatch, 32)[..2], [100.0, 12.5]);
    assert_eq!(share(Matcher::ChunkMatch, 64)[..2], [0.0, 37.5]);
    assert!(share(Matcher::MaxMatch, 32)[2] < 1.0);
}
