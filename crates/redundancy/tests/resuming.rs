//! Caches that survive the channel between them: either end moves to another node with a replica of its cache, and
//! earlier data still yields savings.

use std::collections::VecDeque;

use flow::Instant;
use flow::random::SplitMix64;
use proptest::prelude::*;
use redundancy::wire::control::Control;
use redundancy::{Decoder, DecoderConfig, Encoder, EncoderConfig, Handled, Ticket};

const CACHE_BYTES: usize = 1 << 17;
/// Large enough to be cached, whatever the traffic.
const BLOCK_BYTES: usize = 1400;
/// The maximum number of granules that a replica receives in one step.
const GIVEN_MAX: u64 = 512;

struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next() >> 8
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn decoder() -> Decoder {
    Decoder::new(DecoderConfig { cache_bytes: CACHE_BYTES, id: 0 }).expect("the size is right")
}

fn encoder_config(epoch: u32) -> EncoderConfig {
    EncoderConfig { cache_bytes: CACHE_BYTES, epoch, ..EncoderConfig::default() }
}

/// Items in flight to the decoder, in order.
enum Parcel {
    Block(Vec<u8>, Vec<u8>),
    Message(Vec<u8>),
}

/// Both ends, a replica of either's cache on another node, and the channel between them.
struct World {
    random: Random,
    now: Instant,
    lost_per_mille: u64,
    encoder: Encoder,
    decoder: Decoder,
    replicas: [Decoder; 2],
    forward: VecDeque<Parcel>,
    epochs: u32,
    restored: u64,
}

impl World {
    fn new(seed: u64, lost_per_mille: u64) -> Self {
        let mut world = Self {
            random: Random(SplitMix64::new(seed)),
            now: Instant::from_millis(1),
            lost_per_mille,
            encoder: Encoder::new(encoder_config(1)).expect("the size is right"),
            decoder: decoder(),
            replicas: [decoder(), decoder()],
            forward: VecDeque::new(),
            epochs: 1,
            restored: 0,
        };
        world.begin_channel();
        world
    }

    /// Replaces the channel: items in flight are lost.
    fn begin_channel(&mut self) {
        self.forward.clear();
        self.encoder.resume();
        self.decoder.resume();
        self.step();
    }

    fn epoch(&mut self) -> u32 {
        self.epochs += 1 + self.random.next() as u32 % 100;
        self.epochs
    }

    /// The encoder fails; the node with the replica continues.
    fn fail_over_encoder(&mut self) {
        let replica = std::mem::replace(&mut self.replicas[0], decoder());
        let epoch = self.epoch();
        self.encoder = Encoder::take_over(encoder_config(epoch), replica).expect("the size is right");
        self.begin_channel();
    }

    fn fail_over_decoder(&mut self) {
        self.decoder = std::mem::replace(&mut self.replicas[1], decoder());
        self.begin_channel();
    }

    /// The replicas receive the streams, and some of their missing data.
    fn replica(&mut self) {
        if self.random.chance(self.lost_per_mille) {
            return;
        }
        let positions = [Some(self.encoder.stream_position()), self.decoder.stream_position()];
        for (replica, stream_position) in self.replicas.iter_mut().zip(positions) {
            let Some(stream_position) = stream_position else { continue };
            assert!(replica.join_stream(self.now, &stream_position));
        }
        let mut message = Vec::new();
        for side in 0..2 {
            let mut missing = Vec::new();
            let next = self.replicas[side].next_number();
            let _ = self.replicas[side].find_missing(next, [u64::MAX, GIVEN_MAX], &mut missing);
            for mut range in missing {
                while !range.is_empty() {
                    let count = match side {
                        0 => self.encoder.write_reply(&range, &mut message),
                        _ => self.decoder.write_reply(&range, &mut message),
                    };
                    if count == 0 {
                        break;
                    }
                    range.start += count;
                    self.replicas[side].handle_control(self.now, &message).expect("it is a message");
                }
            }
        }
    }

    fn hand_to_replica(&mut self, side: usize, wire: &[u8], block: &[u8]) {
        let mut out = Vec::new();
        let replica = &mut self.replicas[side];
        if !self.random.chance(self.lost_per_mille)
            && replica.handle_block(self.now, Ticket(0), wire, &mut out) == Ok(Handled::Decoded)
        {
            assert_eq!(out, block, "a replica is as exact as what it is a replica of");
        }
        while replica.poll_event(self.now, &mut out).is_some() {}
    }

    /// Sends a block. Returns the number of bytes on the wire.
    fn send(&mut self, block: &[u8]) -> usize {
        let mut wire = Vec::new();
        let encoding = self.encoder.encode_block(block, &mut wire);
        if !encoding.has_shim() {
            return block.len();
        }
        self.hand_to_replica(0, &wire, block);
        let bytes = wire.len();
        if !self.random.chance(self.lost_per_mille) {
            self.forward.push_back(Parcel::Block(wire, block.to_vec()));
        }
        bytes
    }

    /// Items in flight arrive, and so do the replies.
    fn step(&mut self) {
        self.now = self.now + std::time::Duration::from_millis(30);
        for _ in 0..6 {
            let mut out = Vec::new();
            self.encoder.handle_timeout(self.now);
            self.decoder.handle_timeout(self.now);
            while self.encoder.poll_transmit(self.now, &mut out) {
                // The encoder's message precedes its blocks.
                self.forward.push_front(Parcel::Message(out.clone()));
            }
            while let Some(parcel) = self.forward.pop_front() {
                match parcel {
                    Parcel::Message(message) => {
                        self.decoder.handle_control(self.now, &message).expect("the encoder is well");
                    }
                    Parcel::Block(wire, block) => self.arrive(&wire, &block),
                }
                while self.decoder.poll_event(self.now, &mut out).is_some() {}
            }
            while self.decoder.poll_transmit(self.now, &mut out) {
                self.encoder.handle_control(self.now, &out).expect("the decoder is well");
            }
        }
    }

    fn arrive(&mut self, wire: &[u8], block: &[u8]) {
        let mut out = Vec::new();
        if self.decoder.handle_block(self.now, Ticket(0), wire, &mut out) == Ok(Handled::Decoded) {
            assert_eq!(out, block, "byte by byte");
            self.restored += 1;
            self.hand_to_replica(1, wire, block);
        }
    }

    /// Sends an object in blocks. Returns the share of its bytes that was saved.
    fn transfer(&mut self, object: &[u8]) -> f64 {
        let mut bytes = 0;
        for (number, block) in object.chunks(BLOCK_BYTES).enumerate() {
            bytes += self.send(block);
            if number % 4 == 3 {
                self.step();
            }
        }
        self.step();
        1.0 - bytes as f64 / object.len() as f64
    }
}

#[test]
fn savings_continue_after_a_failover_of_either_end() {
    for end in 0..2 {
        let mut world = World::new(3, 0);
        let object = world.random.bytes(60_000);
        world.transfer(&object);
        let before = world.transfer(&object);
        (0..5).for_each(|_| world.replica());
        if end == 0 {
            world.fail_over_encoder()
        } else {
            world.fail_over_decoder()
        }
        let after = world.transfer(&object);
        assert!(before > 0.97 && after > 0.97, "end {end}: {before} before, {after} after");
    }
}

#[test]
fn without_a_replica_savings_resume_after_retransmission() {
    for end in 0..2 {
        let mut world = World::new(4, 0);
        let object = world.random.bytes(60_000);
        world.transfer(&object);
        world.replicas = [decoder(), decoder()];
        if end == 0 {
            world.fail_over_encoder()
        } else {
            world.fail_over_decoder()
        }
        assert!(world.transfer(&object) < 0.01);
        assert!(world.transfer(&object) > 0.97);
    }
}

#[test]
fn replacing_the_channel_keeps_both_caches() {
    let mut world = World::new(5, 0);
    let object = world.random.bytes(60_000);
    world.transfer(&object);
    world.begin_channel();
    assert!(world.transfer(&object) > 0.97);
}

#[test]
fn a_late_replica_receives_missing_data_newest_first() {
    let mut world = World::new(6, 0);
    let object = world.random.bytes(90_000);
    world.transfer(&object);
    world.replicas = [decoder(), decoder()];
    world.replica();
    let of_use = world.replicas[0].numbers_of_use();
    assert_eq!(world.replicas[0].count(&of_use).confirmed, GIVEN_MAX, "so much in one step");
    let newest = of_use.end - GIVEN_MAX..of_use.end;
    assert_eq!(world.replicas[0].count(&newest).confirmed, GIVEN_MAX, "and that is the newest");
    (0..5).for_each(|_| world.replica());
    world.fail_over_encoder();
    assert!(world.transfer(&object) > 0.97);
}

#[test]
fn a_replica_requests_missing_data_to_restore_blocks() {
    let mut world = World::new(7, 0);
    let object = world.random.bytes(20_000);
    world.transfer(&object);
    world.replicas = [decoder(), decoder()];
    let stream_position = world.encoder.stream_position();
    assert!(world.replicas[0].join_stream(world.now, &stream_position));
    let mut wire = Vec::new();
    world.encoder.encode_block(&object[..BLOCK_BYTES], &mut wire);
    let mut out = Vec::new();
    let handled = world.replicas[0].handle_block(world.now, Ticket(9), &wire, &mut out);
    assert_eq!(handled, Ok(Handled::Waiting));
    let mut asked = Vec::new();
    while world.replicas[0].poll_transmit(world.now, &mut out) {
        if let Ok(Control::Missing { ranges, .. }) = Control::parse(&out) {
            asked.extend(ranges);
        }
    }
    assert!(!asked.is_empty());
    for mut range in asked {
        while !range.is_empty() {
            range.start += world.encoder.write_reply(&range, &mut out);
            world.replicas[0].handle_control(world.now, &out).expect("it is a message");
        }
    }
    assert_eq!(world.replicas[0].poll_event(world.now, &mut out), Some(redundancy::Event::Decoded(Ticket(9))));
    assert_eq!(out, object[..BLOCK_BYTES]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Decoded blocks equal the originals (the world checks each one), whichever end moves when, however old and
    /// incomplete its replica is; and in the end all data is complete.
    #[test]
    fn ends_that_move_to_incomplete_replicas_stay_exact(
        seed in any::<u32>(),
        lost in 0..300_u64,
        troubles in prop::collection::vec((1..60_usize, 0..6_usize), 0..12),
    ) {
        let mut world = World::new(seed.into(), lost);
        let object = world.random.bytes(50_000);
        for (blocks, trouble) in troubles {
            let start = world.random.next() as usize % 40_000;
            world.transfer(&object[start..][..(blocks * 700).min(10_000)]);
            let fresh = world.random.bytes(blocks * 50);
            world.transfer(&fresh);
            match trouble {
                0 => world.fail_over_encoder(),
                1 => world.fail_over_decoder(),
                2 => world.begin_channel(),
                3 => {
                    world.fail_over_decoder();
                    world.fail_over_encoder();
                }
                4 => world.replicas[seed as usize % 2] = decoder(),
                _ => world.replica(),
            }
        }
        world.lost_per_mille = 0;
        world.transfer(&object);
        world.replica();
        let before = world.restored;
        let saved = world.transfer(&object);
        prop_assert!(saved > 0.9, "{}", saved);
        prop_assert_eq!(world.restored - before, object.len().div_ceil(BLOCK_BYTES) as u64);
    }
}

/// An encoder that caches plain blocks without numbers, and its decoder, at the beginning of a channel.
fn pair_that_caches_plain_blocks() -> (Encoder, Decoder) {
    let config = EncoderConfig { caches_plain: true, ..encoder_config(7) };
    let (mut encoder, mut decoder) = (Encoder::new(config).expect("the size is right"), decoder());
    encoder.resume();
    decoder.resume();
    let mut message = Vec::new();
    assert!(encoder.poll_transmit(Instant::ZERO, &mut message), "the Open");
    decoder.handle_control(Instant::ZERO, &message).expect("it is a message");
    (encoder, decoder)
}

#[test]
fn a_repeated_open_confirms_plain_blocks_unless_one_was_lost() {
    const BLOCKS: usize = 5;
    for lost in [None, Some(0), Some(2), Some(BLOCKS - 1)] {
        let (mut encoder, mut decoder) = pair_that_caches_plain_blocks();
        let (mut random, mut wire) = (Random(SplitMix64::new(1)), Vec::new());
        for number in 0..BLOCKS {
            let block = random.bytes(BLOCK_BYTES);
            assert_eq!(encoder.encode_block(&block, &mut wire), redundancy::Encoding::PlainCached);
            if lost != Some(number) {
                decoder.handle_plain(&block);
            }
        }
        let of_use = decoder.numbers_of_use();
        assert_eq!(decoder.count(&of_use).confirmed, 0, "no number came");
        assert!(encoder.is_unconfirmed());
        encoder.confirm();
        assert!(encoder.poll_transmit(Instant::ZERO, &mut wire) && !encoder.is_unconfirmed());
        decoder.handle_control(Instant::ZERO, &wire).expect("it is a message");
        let count = decoder.count(&(0..encoder.next_number()));
        let all = BLOCKS as u64 * BLOCK_BYTES.div_ceil(64) as u64;
        let [confirmed, missing] = if lost.is_none() { [all, 0] } else { [0, all] };
        assert_eq!((count.confirmed, count.unconfirmed, count.missing), (confirmed, 0, missing), "{lost:?}");
        // The next block carries its number.
        decoder.handle_plain(&random.bytes(BLOCK_BYTES));
        assert_eq!(decoder.next_number(), encoder.next_number() + BLOCK_BYTES.div_ceil(64) as u64);
        encoder.confirm();
        assert!(!encoder.poll_transmit(Instant::ZERO, &mut wire), "there is nothing to confirm");
    }
}

#[test]
fn an_encoder_with_gaps_sends_the_data_around_them() {
    let mut world = World::new(8, 0);
    let object = world.random.bytes(20_000);
    world.transfer(&object);
    (0..5).for_each(|_| world.replica());
    // One granule of the replica is missing.
    let (hole, mut message) = (37, Vec::new());
    let mut partial = decoder();
    assert!(partial.join_stream(world.now, &world.encoder.stream_position()));
    for number in (0..world.encoder.next_number()).filter(|number| *number != hole) {
        assert_eq!(world.replicas[0].write_reply(&(number..number + 1), &mut message), 1);
        partial.handle_control(world.now, &message).expect("it is a message");
    }
    world.replicas[0] = partial;
    world.fail_over_encoder();
    (0..5).for_each(|_| world.replica());
    let count = world.replicas[0].count(&world.replicas[0].numbers_of_use());
    assert_eq!((count.missing, count.unconfirmed), (1, 0), "the granule, and none of its neighbours");
}

#[test]
fn unconfirmed_data_is_neither_sent_nor_reported_as_gone() {
    let (mut encoder, mut decoder) = pair_that_caches_plain_blocks();
    let (mut random, mut wire) = (Random(SplitMix64::new(2)), Vec::new());
    let block = random.bytes(BLOCK_BYTES);
    let _ = encoder.encode_block(&block, &mut wire);
    decoder.handle_plain(&block);
    assert_eq!(decoder.write_reply(&(0..16), &mut wire), 0);
    encoder.confirm();
    assert!(encoder.poll_transmit(Instant::ZERO, &mut wire));
    decoder.handle_control(Instant::ZERO, &wire).expect("it is a message");
    assert_eq!(decoder.write_reply(&(0..16), &mut wire), 16);
    assert!(matches!(Control::parse(&wire), Ok(Control::Fill { number: 0, .. })));
}
