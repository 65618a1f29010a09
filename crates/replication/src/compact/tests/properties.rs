//! Whatever happens on the way, both come to the same.

use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::harness::{FAIR, FOUL, PEER, Pair, Weather, config};
use crate::compact::{COMPARE_INTERVAL, CellState, CompactConfig, Representation, UpdateRule};

#[derive(Clone, Copy, Debug)]
enum Event {
    Set(u32, u8),
    End(u32),
    Wait(u64),
    /// What the network does from now on: nothing bad, much, or it takes nothing.
    Weather(u8),
    RestartSender,
    RestartReceiver,
    Lost,
    Back,
    Flush,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => (0_u32..300, 1_u8..9).prop_map(|(number, state)| Event::Set(number, 0x30 | state)),
        15 => (0_u32..300).prop_map(Event::End),
        15 => (1_u64..60).prop_map(Event::Wait),
        1 => (200_u64..3000).prop_map(Event::Wait),
        2 => (0_u8..3).prop_map(Event::Weather),
        1 => Just(Event::RestartSender),
        1 => Just(Event::RestartReceiver),
        1 => Just(Event::Lost),
        2 => Just(Event::Back),
        1 => Just(Event::Flush),
    ]
}

fn weather(number: u8) -> Weather {
    match number {
        0 => FAIR,
        1 => FOUL,
        _ => Weather { lost: 1000, ..FAIR },
    }
}

fn happen(pair: &mut Pair, event: Event) {
    match event {
        Event::Set(number, state) => pair.set(number, CellState::from_number(state)),
        Event::End(number) => pair.end(number),
        Event::Wait(millis) => pair.run(Duration::from_millis(millis)),
        Event::Weather(number) => pair.weather = weather(number),
        Event::RestartSender => pair.restart_sender(),
        Event::RestartReceiver => pair.restart_receiver(),
        Event::Lost => pair.sender.peer_lost(PEER),
        Event::Back => pair.sender.peer_back(pair.now, PEER),
        Event::Flush => pair.sender.flush(pair.now),
    }
}

fn rule(number: u8) -> UpdateRule {
    match number {
        0 => UpdateRule::Immediate { batch: Duration::ZERO, establishment_at_once: true },
        1 => UpdateRule::Immediate { batch: Duration::from_millis(10), establishment_at_once: true },
        2 => UpdateRule::Periodic(Duration::from_millis(300)),
        _ => UpdateRule::Threshold { changes_per_mille: 100, at_most_every: Duration::from_millis(100) },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn once_quiet_the_receiver_has_what_the_sender_has(
        events in proptest::collection::vec(event(), 1..150),
        (representation, update, first) in (proptest::sample::select(&Representation::ALL[..]), 0_u8..4, 0_u8..2),
        symbols: bool,
        budget in proptest::option::of(5000_u64..50_000),
    ) {
        let config = CompactConfig {
            update: rule(update),
            symbols,
            budget_bytes_per_second: budget,
            ..config(representation, 400)
        };
        let mut pair = Pair::new(config, weather(first));
        events.into_iter().for_each(|event| happen(&mut pair, event));
        pair.weather = FAIR;
        pair.sender.peer_back(pair.now, PEER);
        pair.run(COMPARE_INTERVAL + Duration::from_secs(2));
        // A threshold may wait for ever.
        pair.sender.flush(pair.now);
        pair.until_equal(Duration::from_secs(2));
        pair.assert_no_errors();
        let status = pair.sender.status();
        prop_assert_eq!((status.drifts, pair.receiver.status().drifts), (0, 0));
        let words = pair.sender.source.memory().words().len();
        let whole = pair.sender.source.memory().digest(0..words);
        // What the sender itself holds is what one holds that never sent anything.
        let mut other = Pair::new(config, FAIR);
        other.connections = pair.connections.clone();
        other.restart_sender();
        let is_same = other.connections.iter().all(|(tuple, _)| pair.receiver.lookup(tuple).is_some()
            || !representation_holds(representation, pair.connections[tuple], tuple.protocol));
        prop_assert!(is_same && (whole == 0) == (status.entries == 0));
    }

    #[test]
    fn a_difference_is_found_and_repaired_within_the_interval(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0_u32..32), 1..6),
        representation in proptest::sample::select(&Representation::ALL[..]), symbols: bool, churns: bool,
    ) {
        let config = CompactConfig { symbols, ..config(representation, 4000) };
        let mut pair = Pair::new(config, FAIR);
        (0..3000).for_each(|number| pair.set(number, CellState::from_number(0x33)));
        pair.until_equal(Duration::from_secs(2));
        let held = &mut pair.receiver.current.as_mut().expect("they are equal").held;
        let words: Vec<u32> = held.memory().words().to_vec();
        let mut damaged = words.clone();
        for (index, bit) in flips {
            damaged[index.index(words.len())] ^= 1 << bit;
        }
        prop_assume!(damaged != words);
        (0..).zip(&damaged).for_each(|(index, word)| held.put(index, *word));
        // One round of comparisons, its round trip, and the one that the update takes.
        let end = pair.now + COMPARE_INTERVAL + Duration::from_millis(100);
        let mut number = 0;
        while pair.now < end {
            if churns {
                pair.set(number % 3000, CellState::from_number(0x30 | (1 + number % 8) as u8));
                number += 37;
            }
            pair.step();
        }
        pair.run(Duration::from_millis(100));
        prop_assert!(pair.is_equal(), "{:?}", pair.receiver.status());
        prop_assert!(pair.receiver.status().drifts > 0 || churns);
        let drifts = pair.sender.status().drifts;
        pair.run(2 * COMPARE_INTERVAL);
        prop_assert_eq!(pair.sender.status().drifts, drifts, "repaired once and for all");
        pair.assert_no_errors();
    }
}

fn representation_holds(representation: Representation, state: CellState, protocol: u8) -> bool {
    representation.has_states() || state.is_established(protocol)
}
