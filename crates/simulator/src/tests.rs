use super::*;

fn first_seeds(count: u64) -> impl Iterator<Item = Outcome> {
    (1..=count).map(|seed| run(seed, Options::default()))
}

#[test]
fn every_promise_is_kept() {
    for outcome in first_seeds(8) {
        assert!(outcome.is_sound(), "seed {}: {:#?}", outcome.seed, outcome.problems);
    }
}
