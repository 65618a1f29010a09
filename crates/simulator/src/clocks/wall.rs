//! The wall clocks of a run.

use std::time::Duration;

use flow::Instant;

use crate::scenario::{Fault, Scenario, Who};

/// The true time since 1970 at the beginning of a run.
const BEGINNING: Duration = Duration::from_secs(1_800_000_000);

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
pub(super) struct WallClocks {
    steps: Vec<(Instant, Who, i64)>,
}

impl WallClocks {
    pub(super) fn of(scenario: &Scenario) -> Self {
        let steps = scenario.schedule().into_iter().filter_map(|(at, fault)| match fault {
            Fault::WallClock { who, by_s } => Some((at, who, by_s)),
            _ => None,
        });
        Self { steps: steps.collect() }
    }

    pub(super) fn unix_time(&self, node: usize, now: Instant) -> Duration {
        let is_meant = |who: Who| who == Who::Both && node < 2 || who == [Who::Node0, Who::Node1, Who::Active][node];
        let mut clock = WallClock::default();
        let until_now = self.steps.iter().filter(|(at, who, _)| *at <= now && is_meant(*who));
        until_now.for_each(|(_, _, by_s)| clock.step(*by_s));
        clock.unix_time(now)
    }

    /// Whether all are right.
    pub(super) fn are_right(&self) -> bool {
        self.steps.is_empty()
    }

    /// How often the clock of a node has been set until `now`.
    pub(super) fn steps_of(&self, node: usize, now: Instant) -> u64 {
        let of_node = |at| self.unix_time(node, at).saturating_sub(at.saturating_since(Instant::ZERO));
        let times = self.steps.iter().map(|(at, ..)| *at).filter(|at| *at <= now);
        let mut shown = BEGINNING;
        times.filter(|at| std::mem::replace(&mut shown, of_node(*at)) != of_node(*at)).count() as u64
    }
}
