//! What depends on wall clocks beside the nodes of the world: members that find each other by [a store](members) or by [gossip], and
//! [quotas]. The clocks are those of the run's nodes, with the same steps.

mod gateway;
mod gossip;
mod members;
mod quotas;
mod wall;

use crate::Sabotage;
use crate::report::Outcome;
use crate::scenario::Scenario;
pub(crate) use wall::WallClock;
use wall::WallClocks;

/// One seed in so many has members that gossip, which takes longer.
const GOSSIP_EVERY: u64 = 4;

/// Checks the guarantees of membership and quotas under the wall clocks of the scenario, if it has some that are wrong.
pub(crate) fn check(scenario: &Scenario, sabotage: Option<Sabotage>, outcome: &mut Outcome) {
    let clocks = WallClocks::of(scenario);
    if clocks.are_right() {
        return;
    }
    if scenario.seed.is_multiple_of(GOSSIP_EVERY) {
        gossip::check(scenario, &clocks, sabotage, outcome);
    }
    members::check(scenario, &clocks, sabotage, outcome);
    quotas::check(scenario, &clocks, sabotage, outcome);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Family, FaultSet};

    /// Seeds whose members and quotas are checked without a world, which takes most of a run's time.
    const SEEDS: u64 = 1_000;

    #[test]
    fn members_settings_and_quotas_survive_whatever_wall_clocks_show() {
        let mut broken = Vec::new();
        let mut counted = crate::report::Totals::default();
        for seed in 0..SEEDS {
            let scenario = Scenario::generate(seed, FaultSet::only(Family::WallClock));
            let mut outcome = Outcome::new(&scenario);
            check(&scenario, None, &mut outcome);
            broken.extend(outcome.problems.iter().map(|failure| (seed, failure.clone())));
            counted.add(&outcome);
        }
        let number = broken.len();
        broken.truncate(4);
        assert!(broken.is_empty(), "{number} of {SEEDS}: {broken:#?}");
        assert!(counted.clocks.gateways_started > 4 * SEEDS, "{counted:?}");
    }
}
