//! A decoder alone.

use alloc::vec::Vec;

use super::*;
use crate::encoder::{Encoder, EncoderConfig};

const CACHE_BYTES: usize = 1 << 16;

fn pair() -> (Encoder, Decoder) {
    let config = EncoderConfig { cache_bytes: CACHE_BYTES, ..EncoderConfig::default() };
    let decoder = Decoder::open_at_once(DecoderConfig { cache_bytes: CACHE_BYTES, id: 0 }, config.epoch);
    (Encoder::open_at_once(config).expect("the size is right"), decoder.expect("the size is right"))
}

fn block(seed: usize) -> Vec<u8> {
    let mix = |at: usize| {
        let mixed = ((seed * 1460 + at) as u32).wrapping_mul(0x9e37_79b9);
        ((mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b) >> 24) as u8
    };
    (0..1460).map(mix).collect()
}

#[test]
fn wrong_bytes_in_the_cache_are_detected_and_requested() {
    let (mut encoder, mut decoder) = pair();
    let (mut wire, mut out, now) = (Vec::new(), Vec::new(), Instant::ZERO);
    encoder.encode_block(&block(1), &mut wire);
    // A bit flips in memory, undetected by any checksum.
    wire[700] ^= 1;
    assert_eq!(decoder.handle_block(now, Ticket(1), &wire, &mut out), Ok(Handled::Decoded));
    encoder.encode_block(&block(1), &mut wire);
    assert_eq!(decoder.handle_block(now, Ticket(2), &wire, &mut out), Ok(Handled::Waiting));
    assert_eq!(decoder.counters().check_failures, 1);
    let mut message = Vec::new();
    while decoder.poll_transmit(now, &mut message) {
        encoder.handle_control(now, &message).expect("the decoder works");
    }
    while encoder.poll_transmit(now, &mut message) {
        decoder.handle_control(now, &message).expect("the encoder works");
    }
    assert_eq!(decoder.poll_event(now, &mut out), Some(Event::Decoded(Ticket(2))));
    assert_eq!(out, block(1));
}

#[test]
fn unavailable_data_is_abandoned_and_waiting_blocks_are_bounded() {
    let (mut encoder, mut decoder) = pair();
    let (mut wire, mut out, mut now) = (Vec::new(), Vec::new(), Instant::ZERO);
    encoder.encode_block(&block(1), &mut wire);
    for ticket in 0..300 {
        encoder.encode_block(&block(1)[..1000], &mut wire);
        assert_eq!(decoder.handle_block(now, Ticket(ticket), &wire, &mut out), Ok(Handled::Waiting));
    }
    let early = core::iter::from_fn(|| decoder.poll_event(now, &mut out)).count();
    assert_eq!(early, 300 - crate::limits::WAITING_BLOCKS_MAX);
    while let Some(at) = decoder.poll_timeout() {
        now = at;
        decoder.handle_timeout(now);
        assert!(now < Instant::from_millis(1000));
    }
    let late = core::iter::from_fn(|| decoder.poll_event(now, &mut out)).count();
    assert_eq!(late, crate::limits::WAITING_BLOCKS_MAX);
}

#[test]
fn a_decoder_with_a_wrong_position_restarts() {
    let (mut encoder, mut decoder) = pair();
    let (mut wire, mut out, now) = (Vec::new(), Vec::new(), Instant::ZERO);
    // A stray block, far ahead.
    crate::wire::shim::put_literal(&mut wire, 0, 1 << 20);
    wire.extend_from_slice(&block(9));
    decoder.handle_block(now, Ticket(0), &wire, &mut out).expect("it is well-formed");
    for number in 0..=u64::from(STALE_BLOCKS_MAX) {
        encoder.encode_block(&block(number as usize), &mut wire);
        assert_eq!(decoder.handle_block(now, Ticket(number), &wire, &mut out), Ok(Handled::Decoded));
        assert_eq!(out, block(number as usize), "it is intact");
    }
    assert!(decoder.stream.is_none());
    decoder.handle_block(now, Ticket(99), &wire, &mut out).expect("it is well-formed");
    let mut message = Vec::new();
    assert!(decoder.poll_transmit(now, &mut message));
    encoder.handle_control(now, &message).expect("the decoder works");
    assert!(!encoder.is_open(), "it sends the decoder a Hello");
}
