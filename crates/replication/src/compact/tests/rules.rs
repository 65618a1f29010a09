//! When changes are sent, and how much of them.

use core::time::Duration;

use flow::conntrack::TcpState;

use super::harness::{FAIR, Pair, config, tcp};
use crate::compact::{CompactConfig, Representation, UpdateRule};

const SECOND: Duration = Duration::from_secs(1);
const MULTI_LEVEL: Representation = Representation::ALL[2];

fn replicating(update: UpdateRule, representation: Representation) -> Pair {
    let config = CompactConfig { update, ..config(representation, 4000) };
    let mut pair = Pair::new(config, FAIR);
    (0..1000).for_each(|number| pair.set(number, tcp(TcpState::Established)));
    pair.until_equal(SECOND);
    // The sender learns of it, too.
    pair.run(Duration::from_millis(10));
    pair
}

#[test]
fn an_update_fills_its_datagrams_wherever_the_one_before_ended() {
    for representation in Representation::ALL {
        let period = UpdateRule::Periodic(SECOND);
        let mut pair = Pair::new(CompactConfig { update: period, ..config(representation, 40_000) }, FAIR);
        (0..20_000).for_each(|number| pair.set(number, tcp(TcpState::Established)));
        pair.until_equal(3 * SECOND);
        pair.run(Duration::from_millis(10));
        for round in 1..=5 {
            let before = pair.sender.status();
            (0..800).for_each(|number| pair.set(round * 100_000 + number, tcp(TcpState::Established)));
            pair.until_equal(3 * SECOND);
            let after = pair.sender.status();
            let (bytes, datagrams) = (after.bytes - before.bytes, after.datagrams - before.datagrams);
            assert!(datagrams <= bytes / 1000 + 2, "{}: {bytes} bytes in {datagrams} datagrams", representation.name());
        }
    }
}

#[test]
fn a_periodic_update_sends_all_changes_together() {
    let mut pair = replicating(UpdateRule::Periodic(5 * SECOND), MULTI_LEVEL);
    // The first period begins with the first change.
    pair.set(2000, tcp(TcpState::SynSent));
    pair.until_equal(6 * SECOND);
    let before = pair.sender.status();
    for number in 3000..3300 {
        pair.set(number, tcp(TcpState::SynSent));
        pair.set(number, tcp(TcpState::Established));
        pair.run(Duration::from_millis(10));
        if number % 3 > 0 {
            pair.end(number);
        }
    }
    assert_eq!(pair.sender.status().words, before.words, "three seconds of five");
    let waited = pair.until_equal(3 * SECOND);
    assert!(waited > SECOND, "{waited:?}");
    let after = pair.sender.status();
    // Of those that came and went meanwhile nothing is sent.
    assert!(after.words - before.words <= 110, "{}", after.words - before.words);
}

#[test]
fn a_threshold_waits_for_as_many_changes_as_configured() {
    let rule = UpdateRule::Threshold { changes_per_mille: 100, at_most_every: SECOND };
    let mut pair = replicating(rule, MULTI_LEVEL);
    (1000..1050).for_each(|number| pair.set(number, tcp(TcpState::SynSent)));
    pair.run(3 * SECOND);
    assert!(!pair.is_equal(), "50 of 1000 are less than a tenth");
    (1050..1120).for_each(|number| pair.set(number, tcp(TcpState::SynSent)));
    pair.until_equal(SECOND / 10);
    (0..200).for_each(|number| pair.set(number, tcp(TcpState::FinWait)));
    let waited = pair.until_equal(2 * SECOND);
    assert!(waited > SECOND / 2, "no sooner than a second after the last time: {waited:?}");
    pair.set(7, tcp(TcpState::TimeWait));
    pair.run(2 * SECOND);
    assert!(!pair.is_equal());
    pair.sender.flush(pair.now);
    pair.until_equal(SECOND / 10);
}

#[test]
fn the_whole_filter_is_sent_where_that_is_less() {
    // As many as make what changed more than the whole.
    for (representation, connections) in [(Representation::FlowDigest, 1000), (MULTI_LEVEL, 1200)] {
        let config =
            CompactConfig { update: UpdateRule::Periodic(SECOND), symbols: false, ..config(representation, 1000) };
        let mut pair = Pair::new(config, FAIR);
        pair.set(0, tcp(TcpState::Established));
        pair.until_equal(SECOND);
        let few = pair.sender.status();
        (1..connections).for_each(|number| pair.set(number, tcp(TcpState::Established)));
        pair.until_equal(3 * SECOND);
        let many = pair.sender.status();
        assert_eq!((many.whole_updates - few.whole_updates, many.incremental_updates), (1, few.incremental_updates));
        let (bytes, filter) = (many.bytes - few.bytes, config.filter_bytes().expect("sound") as u64);
        assert!((filter..filter + filter / 10 + 200).contains(&bytes), "{representation:?}: {bytes} for {filter}");
        pair.end(5);
        pair.until_equal(3 * SECOND);
        assert_eq!(pair.sender.status().incremental_updates, many.incremental_updates + 1);
    }
}

#[test]
fn what_exceeds_the_budget_waits_and_is_sent_in_its_newest_form() {
    let budget = 20_000;
    let unlimited = config(MULTI_LEVEL, 4000);
    let limited = CompactConfig { budget_bytes_per_second: Some(budget), ..unlimited };
    let [words, limited_words] = [unlimited, limited].map(|config| {
        let mut pair = Pair::new(config, FAIR);
        (0..2000).for_each(|number| pair.set(number, tcp(TcpState::Established)));
        pair.until_equal(10 * SECOND);
        let before = pair.sender.status();
        for round in 0..200_u32 {
            for number in 0..1000 {
                // Forty thousand changes of state a second, four times what the budget can carry.
                pair.set((number + round * 7) % 2000, tcp(TcpState::ALL[3 + (round % 5) as usize]));
            }
            pair.run(Duration::from_millis(25));
        }
        let after = pair.sender.status();
        let bytes = after.bytes - before.bytes;
        let is_within = bytes < 5 * budget + budget / 10 + 3 * 1472;
        assert_eq!(is_within, config.budget_bytes_per_second.is_some(), "{bytes}");
        pair.until_equal(2 * SECOND);
        pair.assert_no_errors();
        after.words - before.words
    });
    assert!(limited_words < words / 2, "{limited_words} of {words}");
}
