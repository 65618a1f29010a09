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
fn bytes_that_are_not_those_that_were_meant_are_noticed_and_asked_for() {
    let (mut encoder, mut decoder) = pair();
    let (mut wire, mut out, now) = (Vec::new(), Vec::new(), Instant::ZERO);
    encoder.encode_block(&block(1), &mut wire);
    // A bit turns over where no checksum sees it.
    wire[700] ^= 1;
    assert_eq!(decoder.handle_block(now, Ticket(1), &wire, &mut out), Ok(Handled::Decoded));
    encoder.encode_block(&block(1), &mut wire);
    assert_eq!(decoder.handle_block(now, Ticket(2), &wire, &mut out), Ok(Handled::Waiting));
    assert_eq!(decoder.counters().check_failures, 1);
    let mut message = Vec::new();
    while decoder.poll_transmit(now, &mut message) {
        encoder.handle_control(now, &message).expect("the decoder is well");
    }
    while encoder.poll_transmit(now, &mut message) {
        decoder.handle_control(now, &message).expect("the encoder is well");
    }
    assert_eq!(decoder.poll_event(now, &mut out), Some(Event::Decoded(Ticket(2))));
    assert_eq!(out, block(1));
}

#[test]
fn what_nobody_gives_is_abandoned_in_the_end_and_no_more_waits_than_may() {
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
fn a_decoder_that_lost_count_begins_anew() {
    let (mut encoder, mut decoder) = pair();
    let (mut wire, mut out, now) = (Vec::new(), Vec::new(), Instant::ZERO);
    // A block from another time, far ahead.
    crate::wire::shim::put_literal(&mut wire, 0, 1 << 20);
    wire.extend_from_slice(&block(9));
    decoder.handle_block(now, Ticket(0), &wire, &mut out).expect("it is well-formed");
    for number in 0..=u64::from(STALE_BLOCKS_MAX) {
        encoder.encode_block(&block(number as usize), &mut wire);
        assert_eq!(decoder.handle_block(now, Ticket(number), &wire, &mut out), Ok(Handled::Decoded));
        assert_eq!(out, block(number as usize), "it is whole all the same");
    }
    assert!(decoder.stream.is_none());
    decoder.handle_block(now, Ticket(99), &wire, &mut out).expect("it is well-formed");
    let mut message = Vec::new();
    assert!(decoder.poll_transmit(now, &mut message));
    encoder.handle_control(now, &message).expect("the decoder is well");
    assert!(!encoder.is_open(), "it greets the decoder again");
}
