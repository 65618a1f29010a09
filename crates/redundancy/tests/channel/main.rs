//! Decoded blocks equal the originals byte by byte under any faults of the network and of both ends; afterwards
//! redundancy is found again.

mod world;

use proptest::prelude::*;
use redundancy::{Encoding, Matcher, Method, Trust};

use self::world::{CACHE_BYTES, Setting, Weather, World};

const FAIR: Weather = Weather { lost: 0, repeated: 0, late: 0 };
const STORM: Weather = Weather { lost: 100, repeated: 50, late: 200 };

fn setting(seed: u64, weather: Weather) -> Setting {
    let (method, matcher, trust) = (Method::SampleByte, Matcher::MaxMatch, Trust::Sent);
    Setting { seed, weather, cache_bytes: CACHE_BYTES, method, matcher, trust, caches_plain: false }
}

fn open(setting: Setting) -> World {
    let mut world = World::new(setting);
    world.run(3000);
    assert!(world.encoder.is_open(), "{setting:?}");
    world
}

/// Sends new blocks, one a millisecond.
fn talk(world: &mut World, blocks: usize) {
    for _ in 0..blocks {
        let block = world.fresh_block();
        world.send(block);
        world.run(1);
    }
}

/// The share saved of the blocks sent from now on, without faults.
fn saving(world: &mut World) -> f64 {
    world.set_weather(FAIR);
    world.run(1000);
    talk(world, 100);
    world.run(100);
    let before = world.encoder.counters();
    talk(world, 200);
    let after = world.encoder.counters();
    1.0 - (after.bytes_out - before.bytes_out) as f64 / (after.bytes_in - before.bytes_in) as f64
}

#[test]
fn without_faults_every_block_is_decoded_at_once_and_half_of_it_is_saved() {
    for method in [Method::Maxp, Method::SampleByte, Method::Modp] {
        for trust in [Trust::Sent, Trust::Held] {
            let mut world = open(Setting { method, trust, ..setting(1, FAIR) });
            let saved = saving(&mut world);
            // Most repetitions come within a round trip.
            let least = if trust == Trust::Sent { 0.25 } else { 0.1 };
            assert!(saved > least, "{method:?} {trust:?}: {saved}");
            world.run(100);
            assert_eq!(world.delivered.len(), world.blocks.len());
            assert_eq!(world.decoder.counters().blocks_waited, 0, "{method:?} {trust:?}");
        }
    }
}

#[test]
fn chunks_without_payload_work_except_for_repair() {
    let mut world = open(Setting { matcher: Matcher::ChunkMatch, ..setting(3, STORM) });
    talk(&mut world, 400);
    world.settle(20);
    assert!(world.encoder.counters().granules_gone > 0, "it keeps no payload to give");
    assert!(world.abandoned > 0, "so blocks were lost with what they pointed to");
    let saved = saving(&mut world);
    assert!(saved > 0.1, "{saved}");
}

#[test]
fn lost_data_that_is_referenced_is_requested_and_sent() {
    let mut world = open(setting(4, FAIR));
    talk(&mut world, 50);
    world.run(50);
    let fresh: Vec<u8> = (0..1460).map(|_| world.random.next() as u8).collect();
    world.set_weather(Weather { lost: 1000, ..FAIR });
    let (first, _) = world.send(fresh.clone());
    world.run(20);
    world.set_weather(FAIR);
    // Another flow's bytes, so that they may point to sent data.
    let mut out = Vec::new();
    let encoding = world.encoder.encode_block(&fresh, &mut out);
    assert_eq!(encoding, Encoding::Encoded);
    let mut restored = Vec::new();
    let ticket = redundancy::Ticket(first as u64);
    let handled = world.decoder.handle_block(world.now, ticket, &out, &mut restored);
    assert_eq!(handled, Ok(redundancy::Handled::Waiting));
    world.run(14);
    assert!(world.delivered.contains(&first), "it took little more than one round trip");
    assert!(world.decoder.counters().granules_filled >= 23);
}

#[test]
fn a_retransmission_never_points_to_its_own_lost_copy() {
    let mut world = open(setting(5, FAIR));
    talk(&mut world, 50);
    world.run(100);
    let fresh: Vec<u8> = (0..1460).map(|_| world.random.next() as u8).collect();
    world.set_weather(Weather { lost: 1000, ..FAIR });
    let (number, first) = world.send(fresh);
    assert_eq!(first, Encoding::Literal);
    for _ in 0..3 {
        assert_ne!(world.resend(number), Encoding::Encoded, "the decoder has not reported it as held");
        world.run(10);
    }
    world.set_weather(FAIR);
    world.resend(number);
    world.run(10);
    assert!(world.delivered.contains(&number));
    world.run(100);
    assert_eq!(world.resend(number), Encoding::Encoded, "now it is known to be there");
    world.run(10);
    assert_eq!(world.decoder.counters().blocks_waited, 0);
}

/// Random blocks, shorter than those that may have a shim within the bound on growth.
fn short_and_new(world: &mut World, blocks: usize) -> Vec<Vec<u8>> {
    let random: Vec<Vec<u8>> = (0..blocks)
        .map(|_| {
            let length = 40 + world.random.below(300);
            (0..length).map(|_| world.random.next() as u8).collect()
        })
        .collect();
    for block in &random {
        world.send(block.clone());
        world.run(1);
    }
    random
}

#[test]
fn plain_blocks_are_cached_without_overhead_on_an_ordered_channel() {
    let mut world = open(Setting { caches_plain: true, ..setting(9, FAIR) });
    let sent = short_and_new(&mut world, 200);
    world.run(20);
    let counters = world.encoder.counters();
    assert!(counters.blocks_plain_cached > 190 && counters.blocks_plain == 0, "{counters:?}");
    assert!((counters.bytes_out - counters.bytes_in) * 4000 <= counters.bytes_in, "four bytes in 16 KB: {counters:?}");
    for block in sent {
        world.send(block);
        world.run(1);
    }
    world.run(20);
    // A short block has few markers, and others may have taken their slots.
    let encoded = world.encoder.counters().blocks_encoded;
    assert!(encoded > 150, "{encoded} of 200 were found again");
    let decoder = world.decoder.counters();
    assert_eq!(
        (decoder.blocks_waited, decoder.check_failures),
        (0, 0),
        "both cached the same data under the same numbers"
    );
    assert_eq!(world.delivered.len(), 400);
}

#[test]
fn a_lost_plain_block_is_detected_by_the_next_number() {
    let mut world = open(Setting { caches_plain: true, ..setting(10, FAIR) });
    let sent = short_and_new(&mut world, 20);
    // It carries its number, and all before it is confirmed from then on.
    let (_, encoding) = world.send(sent[0].repeat(20));
    assert_eq!(encoding, Encoding::Encoded);
    world.set_weather(Weather { lost: 1000, ..FAIR });
    let lost = short_and_new(&mut world, 1);
    world.set_weather(FAIR);
    let after = short_and_new(&mut world, 20);
    let before = world.encoder.counters().blocks_encoded;
    for block in lost.iter().chain(&after).chain(&sent) {
        let (number, _) = world.send(block.clone());
        world.run(40);
        assert!(world.delivered.contains(&number), "discarded data is sent again");
    }
    let encoded = world.encoder.counters().blocks_encoded - before;
    assert!(encoded > 15, "{encoded} of the 20 before the loss, and some after it, were found again");
    let counters = world.decoder.counters();
    assert_eq!((counters.check_failures, counters.blocks_abandoned), (0, 0), "numbers alone are enough: {counters:?}");
    assert!(counters.granules_filled > 0);
}

#[test]
fn repetitions_within_a_block_need_no_cache() {
    for matcher in [Matcher::MaxMatch, Matcher::ChunkMatch] {
        let mut world = open(Setting { matcher, ..setting(11, FAIR) });
        let line: Vec<u8> = (0..97).map(|_| world.random.next() as u8).collect();
        let (_, encoding) = world.send(line.repeat(15));
        assert_eq!(encoding, Encoding::Encoded, "{matcher:?}");
        let bytes = world.encoder.counters().bytes_out;
        // Max-Match: the line and one pointer that overlaps itself. Chunks are found one by one, and joined.
        let most = if matcher == Matcher::MaxMatch { 97 + 64 + 18 } else { 97 + 200 };
        assert!(bytes <= most, "{matcher:?}: {bytes} bytes");
        let (_, encoding) = world.send(vec![0; 1400]);
        assert_eq!(encoding, Encoding::Encoded, "{matcher:?}: a byte over and over");
        world.run(20);
        assert_eq!(world.delivered.len(), 2);
    }
}

#[test]
fn an_encoder_that_takes_over_continues_with_data_held_by_the_decoder() {
    let mut world = open(setting(6, Weather { lost: 20, ..FAIR }));
    talk(&mut world, 300);
    world.settle(20);
    // Known to both, and old.
    let (_, known) = world.blocks.iter().rev().find(|(_, block)| block.len() == 1460).cloned().expect("there are many");
    world.set_weather(FAIR);
    let opened = world.encoder.counters().hellos_sent;
    world.fail_over_encoder();
    let (_, encoding) = world.send(known.clone());
    assert_eq!(encoding, Encoding::Plain, "the decoder has not answered yet");
    world.run(100);
    assert_eq!((world.encoder.is_open(), opened), (true, 1));
    let (_, encoding) = world.send(known);
    assert_eq!(encoding, Encoding::Encoded, "both hold it");
    world.settle(20);
    assert!(saving(&mut world) > 0.2);
}

#[test]
fn an_incomplete_mirror_takes_over_only_its_data() {
    let mut world = open(setting(7, Weather { lost: 200, late: 200, ..FAIR }));
    talk(&mut world, 300);
    world.fail_over_encoder();
    talk(&mut world, 300);
    world.settle(40);
    assert_eq!(world.decoder.counters().check_failures, 0, "numbers alone are enough");
    assert!(saving(&mut world) > 0.2);
}

#[test]
fn a_decoder_with_too_little_memory_gets_plain_blocks() {
    let mut world = World::new(setting(8, FAIR));
    world.decoder = redundancy::Decoder::new(redundancy::DecoderConfig { cache_bytes: CACHE_BYTES / 2, id: 9 })
        .expect("the size is right");
    world.run(1000);
    talk(&mut world, 20);
    world.run(100);
    assert!(!world.encoder.is_open());
    assert_eq!(world.delivered.len(), 20, "all of them plain");
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    RestartEncoder,
    RestartDecoder,
    FailOverEncoder,
    /// Both at nearly the same time.
    Both,
}

fn faults() -> impl Strategy<Value = Vec<(usize, Fault)>> {
    let fault =
        prop::sample::select(vec![Fault::RestartEncoder, Fault::RestartDecoder, Fault::FailOverEncoder, Fault::Both]);
    prop::collection::vec((1..150_usize, fault), 0..5)
}

fn settings() -> impl Strategy<Value = Setting> {
    let weather =
        (0..150_u32, 0..100_u32, 0..300_u32).prop_map(|(lost, repeated, late)| Weather { lost, repeated, late });
    let matcher = prop::sample::select(vec![Matcher::MaxMatch, Matcher::MaxMatch, Matcher::ChunkMatch]);
    let trust = prop::sample::select(vec![Trust::Sent, Trust::Held]);
    (any::<u32>(), weather, prop::sample::select(Method::ALL.to_vec()), matcher, trust, any::<bool>()).prop_map(
        |(seed, weather, method, matcher, trust, caches_plain)| {
            // Implied numbers need a network that keeps the order.
            let weather = if caches_plain { Weather { lost: weather.lost, ..FAIR } } else { weather };
            Setting { method, matcher, trust, caches_plain, ..setting(u64::from(seed), weather) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Decoded blocks equal the originals (the world checks each one), all of them arrive in the end, and both sides
    /// find redundancy again.
    #[test]
    fn both_sides_survive_loss_reordering_duplication_restarts_and_failover(setting in settings(), faults in faults()) {
        let mut world = open(setting);
        talk(&mut world, 50);
        for (blocks, fault) in &faults {
            talk(&mut world, *blocks);
            match fault {
                Fault::RestartEncoder => world.restart_encoder(),
                Fault::RestartDecoder => world.restart_decoder(),
                Fault::FailOverEncoder => world.fail_over_encoder(),
                Fault::Both => {
                    world.restart_decoder();
                    talk(&mut world, 3);
                    world.fail_over_encoder();
                }
            }
        }
        talk(&mut world, 150);
        world.settle(60);
        let saved = saving(&mut world);
        let least = match (setting.method, setting.matcher, setting.trust) {
            (Method::Fixed, ..) => 0.0,
            (_, Matcher::ChunkMatch, Trust::Held) => 0.01,
            (_, Matcher::ChunkMatch, _) | (.., Trust::Held) => 0.05,
            _ => 0.2,
        };
        prop_assert!(saved >= least - 0.003, "{} after {:?} with {:?}", saved, faults, setting);
    }
}
