//! What depends on wall clocks beside the nodes of the world: members that find each other by [a store](members) or by [gossip], and
//! [quotas]. The clocks are those of the run's nodes, with the same steps.

mod gateway;
mod gossip;
mod members;
mod quotas;

use std::time::Duration;

use flow::Instant;

use crate::Sabotage;
use crate::report::Outcome;
use crate::scenario::{Fault, Scenario, Who};

/// The true time since 1970 at the beginning of a run.
const BEGINNING: Duration = Duration::from_secs(1_800_000_000);

/// One seed in so many has members that gossip, which takes longer.
const GOSSIP_EVERY: u64 = 4;

/// A machine's wall clock: the true time since 1970, and its error.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    error_s: i64,
}

impl WallClock {
    /// The clock is set by so much.
    pub(crate) const fn step(&mut self, by_s: i64) {
        self.error_s = self.error_s.saturating_add(by_s);
    }

    /// What it shows at the true time `now`.
    pub(crate) fn unix_time(self, now: Instant) -> Duration {
        let right = BEGINNING + now.saturating_since(Instant::ZERO);
        let seconds = right.as_secs().saturating_add_signed(self.error_s);
        Duration::new(seconds, right.subsec_nanos())
    }
}

/// The wall clocks of a run's two nodes, and a third one that is right.
struct WallClocks {
    steps: Vec<(Instant, Who, i64)>,
}

impl WallClocks {
    fn of(scenario: &Scenario) -> Self {
        let steps = scenario.schedule().into_iter().filter_map(|(at, fault)| match fault {
            Fault::WallClock { who, by_s } => Some((at, who, by_s)),
            _ => None,
        });
        Self { steps: steps.collect() }
    }

    fn unix_time(&self, node: usize, now: Instant) -> Duration {
        let is_meant = |who: Who| who == Who::Both && node < 2 || who == [Who::Node0, Who::Node1, Who::Active][node];
        let mut clock = WallClock::default();
        let until_now = self.steps.iter().filter(|(at, who, _)| *at <= now && is_meant(*who));
        until_now.for_each(|(_, _, by_s)| clock.step(*by_s));
        clock.unix_time(now)
    }

    /// How often the clock of a node has been set until `now`.
    fn steps_of(&self, node: usize, now: Instant) -> u64 {
        let of_node = |at| self.unix_time(node, at).saturating_sub(at.saturating_since(Instant::ZERO));
        let times = self.steps.iter().map(|(at, ..)| *at).filter(|at| *at <= now);
        let mut shown = BEGINNING;
        times.filter(|at| std::mem::replace(&mut shown, of_node(*at)) != of_node(*at)).count() as u64
    }
}

/// Checks the guarantees of membership and quotas under the wall clocks of the scenario, if it has some that are wrong.
pub(crate) fn check(scenario: &Scenario, sabotage: Option<Sabotage>, outcome: &mut Outcome) {
    let clocks = WallClocks::of(scenario);
    if clocks.steps.is_empty() {
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
