//! A handful of seeds, and proof that the checkers see what they are there for.

use std::time::Duration;

use replication::compact::Representation;

use super::*;
use crate::scenario::{Family, FaultSet};

/// Seeds that the tests play: few enough to be quick.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=12;

/// Seeds that they play of everything that can go wrong, with each filter.
const SEEDS_OF_EACH_FILTER: u64 = 16;

/// Seeds that the tests play of everything that can go wrong.
const SEEDS_OF_ALL_FAULTS: u64 = 60;

fn broken(sabotage: Sabotage) -> Vec<Problem> {
    broken_under(sabotage, FaultSet::DEFAULT)
}

fn broken_under(sabotage: Sabotage, faults: FaultSet) -> Vec<Problem> {
    let options = Options { sabotage: Some(sabotage), faults, ..Options::default() };
    let mut problems: Vec<_> =
        SEEDS.flat_map(|seed| run(seed, options).problems).map(|failure| failure.problem).collect();
    problems.sort();
    problems.dedup();
    problems
}

#[test]
fn every_promise_is_kept() {
    let mut totals = report::Totals::default();
    for seed in SEEDS {
        let outcome = run(seed, Options::default());
        assert!(outcome.is_sound(), "seed {seed}: {:#?}", outcome.problems);
        assert_eq!(outcome.copies_differing, 0, "seed {seed}: nothing is suspected that was only on its way");
        totals.add(&outcome);
    }
    assert!(totals.connections > 20 && totals.kills > 10, "the seeds must put connections at risk: {totals:?}");
    assert!(totals.failovers > totals.kills, "each seed has a first take-over, most have more: {totals:?}");
}

#[test]
fn every_promise_is_kept_whatever_goes_wrong() {
    let mut totals = report::Totals::default();
    let options = Options { faults: FaultSet::ALL, ..Options::default() };
    run_many(1, SEEDS_OF_ALL_FAULTS, std::num::NonZeroUsize::new(2).unwrap(), options, |outcome| {
        assert!(outcome.is_sound(), "seed {}: {:#?}", outcome.seed, outcome.problems);
        totals.add(&outcome);
    });
    assert!(totals.connections > 100 && totals.pauses > 5 && totals.kills > 50, "much must be at risk: {totals:?}");
}

/// Runs that broke a promise once. Of heartbeats that waited to be read through a pause: 747, 1641, 2092, 3037, and 1385, whose
/// paused node is not received afterwards. Of a node that starts empty before a standby has found its death: 3763. Of addresses
/// that a dead peer had defended: 1101. Of checkers that asked for too much: 3100 (a conversation with a translation of each
/// active node) and 3165 (a handshake under a filter without states).
#[test]
fn runs_that_broke_a_promise_once_keep_it() {
    let options = Options { faults: FaultSet::ALL, ..Options::default() };
    for seed in [747, 1101, 1385, 1641, 2092, 3037, 3100, 3165, 3763] {
        let outcome = run(seed, options);
        assert!(outcome.is_sound(), "seed {seed}: {:#?}", outcome.problems);
    }
}

#[test]
fn every_promise_is_kept_whatever_filter_tells_of_connections() {
    let mut broken = Vec::new();
    for representation in Representation::ALL {
        let mut totals = report::Totals::default();
        let options = Options { representation: Some(representation), ..Options::default() };
        for seed in SEEDS {
            let outcome = run(seed, options);
            broken.extend(outcome.problems.iter().map(|failure| (representation.name(), seed, failure.clone())));
            totals.add(&outcome);
        }
        let filtered = totals.filtered;
        assert!(totals.connections > 20 && filtered.asked > 50, "much must be at risk: {totals:?}");
        // What began a moment before its node died, and nothing else.
        assert!(filtered.unknown * 20 < filtered.asked, "{}: {filtered:?}", representation.name());
        // Filters with fingerprints err once in thousands, Bloom filters once in a hundred.
        assert!(filtered.false_hits * 40 <= filtered.strangers_asked, "{}: {filtered:?}", representation.name());
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_promise_is_kept_whatever_goes_wrong_and_whatever_filter_tells_of_connections() {
    for representation in Representation::ALL {
        let mut totals = report::Totals::default();
        let options = Options { faults: FaultSet::ALL, representation: Some(representation), ..Options::default() };
        run_many(100, SEEDS_OF_EACH_FILTER, std::num::NonZeroUsize::new(2).unwrap(), options, |outcome| {
            assert!(outcome.is_sound(), "{}, seed {}: {:#?}", representation.name(), outcome.seed, outcome.problems);
            totals.add(&outcome);
        });
        assert!(totals.connections > 50 && totals.kills > 10, "much must be at risk: {totals:?}");
    }
}

#[test]
fn among_all_faults_some_seeds_tell_of_connections_by_each_of_the_filters() {
    let drawn = |faults| {
        let of = |seed| Scenario::generate(seed, faults).representation.map(Representation::name);
        (0..300).filter_map(of).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((drawn(FaultSet::ALL).len(), drawn(FaultSet::DEFAULT).len()), (Representation::ALL.len(), 0));
}

#[test]
fn every_kind_of_trouble_is_played_and_survived() {
    for family in Family::ALL {
        let options = Options { faults: FaultSet::only(family), ..Options::default() };
        let outcome = run(7, options);
        assert!(outcome.is_sound(), "{}: {:#?}", family.name(), outcome.problems);
        assert!(outcome.families.contains(&family), "{}", family.name());
        assert_ne!(outcome.digest, run(8, options).digest, "{}", family.name());
    }
}

#[test]
fn a_seed_plays_the_same_run_again_and_another_seed_another() {
    let digests = |options| [3, 4].map(|seed| run(seed, options).digest);
    let once = digests(Options::default());
    assert_eq!(once, digests(Options { trace: true, ..Options::default() }));
    assert_ne!(once[0], once[1]);
}

#[test]
fn several_threads_play_the_same_runs_as_one() {
    let digests = |jobs| {
        let mut all = Vec::new();
        run_many(1, 4, std::num::NonZeroUsize::new(jobs).unwrap(), Options::default(), |outcome| {
            all.push((outcome.seed, outcome.digest));
        });
        all.sort_unstable();
        all
    };
    assert_eq!(digests(1), digests(3));
}

#[test]
fn connections_that_nobody_replicated_are_missed() {
    assert!(broken(Sabotage::NoReplication).contains(&Problem::Untold));
}

#[test]
fn stale_word_that_is_applied_is_noticed() {
    assert!(broken(Sabotage::StaleUpdates).contains(&Problem::Backwards));
}

#[test]
fn copies_that_a_node_forgets_are_missed() {
    assert!(broken(Sabotage::ForgottenCopies).contains(&Problem::ReplicasDiffer));
}

#[test]
fn bytes_out_of_their_place_are_noticed() {
    assert!(broken(Sabotage::SwappedBytes).contains(&Problem::WrongContent));
}

#[test]
fn nodes_that_both_hold_the_addresses_are_noticed() {
    assert!(broken(Sabotage::DeafNodes).contains(&Problem::TwoActive));
}

#[test]
fn a_node_that_stood_still_and_takes_the_addresses_back_is_noticed() {
    let problems = broken_under(Sabotage::ForgottenTakeOvers, FaultSet::only(Family::PauseActive));
    assert!(problems.contains(&Problem::Usurped) || problems.contains(&Problem::TwoActive), "{problems:?}");
}

#[test]
fn a_node_that_takes_the_addresses_from_one_that_it_hears_is_noticed() {
    let problems = broken_under(Sabotage::ImpatientNodes, FaultSet::only(Family::PauseStandby));
    assert!(problems.contains(&Problem::Hasty), "{problems:?}");
}

#[test]
fn word_of_another_version_that_is_taken_is_noticed() {
    let problems = broken_under(Sabotage::CredulousNodes, FaultSet::only(Family::OtherVersion));
    assert!(problems.contains(&Problem::Misunderstood), "{problems:?}");
}

#[test]
fn a_node_that_says_again_what_it_has_said_is_noticed() {
    let problems = broken_under(Sabotage::TalkativeNodes, FaultSet::only(Family::OtherVersion));
    assert!(problems.contains(&Problem::SaidAgain), "{problems:?}");
}

#[test]
fn connections_that_are_held_for_open_after_their_end_are_noticed() {
    let broken = SEEDS.flat_map(|seed| {
        let options = Options { expects_no_zombies: true, sabotage: Some(Sabotage::Zombies), ..Options::default() };
        run(seed, options).problems
    });
    assert!(broken.into_iter().any(|failure| failure.problem == Problem::Zombie));
    let sound = run(1, Options { expects_no_zombies: true, ..Options::default() });
    assert!(sound.is_sound(), "{:?}", sound.problems);
}

#[test]
fn damaged_datagrams_cost_connections_at_worst() {
    for seed in SEEDS {
        let mut scenario = Scenario::generate(seed, FaultSet::DEFAULT);
        scenario.damaged_datagrams_pass = true;
        scenario.replication_link.corrupt_per_mille = 100;
        for failure in run_scenario(&scenario, Options::default()).problems {
            let is_of_the_node = matches!(
                failure.problem,
                Problem::Panic | Problem::Spinning | Problem::Limit | Problem::MalformedFrame | Problem::Undecided
            );
            assert!(!is_of_the_node, "seed {seed}: {failure:?}");
        }
    }
}

#[test]
fn connections_that_were_put_off_and_came_of_age_survive_whatever_a_node_dies_of() {
    let mut totals = report::Totals::default();
    for seed in SEEDS {
        let mut scenario = Scenario::generate(seed, FaultSet::DEFAULT);
        (scenario.put_off, scenario.hold_first_reply) = (Duration::from_millis(400), Duration::ZERO);
        let outcome = run_scenario(&scenario, Options::default());
        assert!(outcome.is_sound(), "seed {seed}: {:#?}", outcome.problems);
        totals.add(&outcome);
    }
    assert!(totals.survived > 20 && totals.kills > 10, "connections must be at risk: {totals:?}");
}

#[test]
fn connections_that_are_put_off_for_ever_are_missed() {
    // The checkers believe that connections are told at 400 ms; the nodes put them off for the whole run.
    let broken = SEEDS.flat_map(|seed| {
        let mut scenario = Scenario::generate(seed, FaultSet::DEFAULT);
        (scenario.put_off, scenario.hold_first_reply) = (Duration::from_millis(400), Duration::ZERO);
        run_scenario(&scenario, Options { sabotage: Some(Sabotage::LazyNodes), ..Options::default() }).problems
    });
    assert!(broken.into_iter().any(|failure| failure.problem == Problem::Untold));
}

#[test]
fn a_panic_is_a_broken_promise_like_others() {
    let mut scenario = Scenario::generate(1, FaultSet::DEFAULT);
    scenario.conversations[0].client = usize::MAX;
    let outcome = run_scenario(&scenario, Options::default());
    assert_eq!(outcome.problems[0].problem, Problem::Panic);
}

#[test]
fn copies_broken_behind_the_nodes_backs_are_found_and_put_right() {
    for sabotage in [Sabotage::LostCopies, Sabotage::AlteredCopies, Sabotage::GhostCopies] {
        let options = Options { sabotage: Some(sabotage), ..Options::default() };
        let (mut broken, mut repaired) = (0, 0);
        for seed in SEEDS {
            let outcome = run(seed, options);
            assert!(outcome.is_sound(), "{sabotage:?}, seed {seed}: {:#?}", outcome.problems);
            broken += outcome.copies_broken;
            repaired += outcome.copies_repaired;
        }
        assert!(broken > 20, "{sabotage:?}: there must be something to repair: {broken}");
        // What ended by itself in the meantime needs no repair.
        assert!(repaired > broken / 2, "{sabotage:?}: {repaired} of {broken} repaired");
    }
}
