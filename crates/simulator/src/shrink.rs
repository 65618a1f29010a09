//! Minimises a schedule that violates a guarantee, to make it readable: removes everything that the violation does not
//! need.

use std::time::{Duration, Instant as WallInstant};

use crate::link::LinkConfig;
use crate::report::{Outcome, Problem};
use crate::scenario::{Episode, Scenario, Transfer};
use crate::{Options, run_scenario};

/// The maximum number of runs of a minimisation.
pub const RUNS_MAX: u32 = 400;
/// An episode's times are halved while they are above this.
const LENGTH_MS_MIN: u64 = 20;

/// A minimised schedule.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The remaining scenario.
    pub scenario: Scenario,
    /// Its outcome.
    pub outcome: Outcome,
    /// The number of runs of the minimisation.
    pub runs: u32,
}

/// Minimises a scenario that violates a guarantee, as long as it violates the same one, for at most `time_max`. `None`
/// if it violates none.
#[must_use]
pub fn shrink(scenario: &Scenario, options: Options, time_max: Duration) -> Option<Shrunk> {
    let outcome = run_scenario(scenario, options);
    let problem = outcome.problems.first()?.problem;
    let mut search =
        Search { options, problem, best: scenario.clone(), outcome, runs: 1, until: WallInstant::now() + time_max };
    while search.round() {}
    // One more run for its trace, which the search does not need.
    let outcome = run_scenario(&search.best, options);
    Some(Shrunk { scenario: search.best, outcome, runs: search.runs })
}

struct Search {
    options: Options,
    problem: Problem,
    best: Scenario,
    outcome: Outcome,
    runs: u32,
    until: WallInstant,
}

impl Search {
    /// Tries every reduction once; returns whether any succeeded.
    fn round(&mut self) -> bool {
        let before = size(&self.best);
        self.drop_parts(|scenario| &mut scenario.episodes);
        self.drop_parts::<Transfer>(|scenario| &mut scenario.transfers);
        for index in 0..self.best.episodes.len() {
            self.drop_parts(move |scenario| &mut scenario.episodes[index].steps);
            self.shorten(index);
        }
        self.quieten();
        size(&self.best) < before && self.has_budget()
    }

    fn has_budget(&self) -> bool {
        self.runs < RUNS_MAX && WallInstant::now() < self.until
    }

    /// Accepts a candidate that violates the same guarantee.
    fn attempt(&mut self, mut candidate: Scenario) -> bool {
        if !self.has_budget() {
            return false;
        }
        settle_end(&mut candidate, &self.best);
        self.runs += 1;
        let outcome = run_scenario(&candidate, Options { trace: false, ..self.options });
        let is_kept = outcome.problems.iter().any(|failure| failure.problem == self.problem);
        if is_kept {
            (self.best, self.outcome) = (candidate, outcome);
        }
        is_kept
    }

    /// Removes parts of a list: first halves, finally single ones.
    fn drop_parts<Part>(&mut self, list: impl Fn(&mut Scenario) -> &mut Vec<Part>) {
        let mut chunk = list(&mut self.best).len().div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            while at < list(&mut self.best).len() && self.has_budget() {
                let mut candidate = self.best.clone();
                let parts = list(&mut candidate);
                let end = (at + chunk).min(parts.len());
                parts.drain(at..end);
                if !self.attempt(candidate) {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
    }

    /// Halves an episode's times.
    fn shorten(&mut self, index: usize) {
        loop {
            let mut candidate = self.best.clone();
            let episode: &mut Episode = &mut candidate.episodes[index];
            if episode.steps.iter().all(|step| step.after_ms <= LENGTH_MS_MIN) {
                return;
            }
            episode.steps.iter_mut().for_each(|step| step.after_ms /= 2);
            if !self.attempt(candidate) {
                return;
            }
        }
    }

    /// Makes links reliable and connections small, and removes optional features.
    fn quieten(&mut self) {
        let changes: [fn(&mut Scenario); 4] = [
            |scenario| scenario.data_link = sound(scenario.data_link),
            |scenario| scenario.replication_link = sound(scenario.replication_link),
            |scenario| scenario.waits_for_expiry = false,
            |scenario| scenario.hold_first_reply = Duration::ZERO,
        ];
        for change in changes {
            let mut candidate = self.best.clone();
            change(&mut candidate);
            if size(&candidate) < size(&self.best) {
                self.attempt(candidate);
            }
        }
        for index in 0..self.best.transfers.len() {
            let mut candidate = self.best.clone();
            let transfer = &mut candidate.transfers[index];
            if transfer.bytes.iter().any(|bytes| *bytes > 2000) {
                transfer.bytes = transfer.bytes.map(|bytes| bytes.min(2000));
                self.attempt(candidate);
            }
        }
    }
}

fn sound(link: LinkConfig) -> LinkConfig {
    LinkConfig { delay: link.delay, ..LinkConfig::default() }
}

/// Ends the remaining scenario as long after its last fault as the whole did.
fn settle_end(candidate: &mut Scenario, before: &Scenario) {
    let last_ms = |scenario: &Scenario| scenario.episodes.iter().map(Episode::ends_at_ms).max().unwrap_or(0);
    let saved = Duration::from_millis(last_ms(before).saturating_sub(last_ms(candidate)));
    let begins_last = candidate.transfers.iter().map(|transfer| transfer.begins_at).max();
    let earlier = |at: flow::Instant| flow::Instant::ZERO + at.saturating_since(flow::Instant::ZERO + saved);
    let grace = before.ends_at.saturating_since(before.calm_at);
    candidate.calm_at = earlier(before.calm_at).max(begins_last.unwrap_or(flow::Instant::ZERO)).min(before.calm_at);
    candidate.ends_at = candidate.calm_at + grace;
}

fn size(scenario: &Scenario) -> u64 {
    let steps = scenario.episodes.iter().flat_map(|episode| &episode.steps);
    let bytes: u64 = scenario.transfers.iter().flat_map(|transfer| transfer.bytes).sum();
    let faults = [scenario.data_link, scenario.replication_link].map(|link| {
        u64::from(link.loss_per_mille + link.duplicate_per_mille + link.reorder_per_mille + link.corrupt_per_mille)
            + u64::from(!link.jitter.is_zero())
    });
    steps.map(|step| 1 + step.after_ms).sum::<u64>()
        + 1000 * (scenario.transfers.len() + scenario.episodes.len()) as u64
        + bytes
        + faults.iter().sum::<u64>()
        + u64::from(scenario.waits_for_expiry)
        + u64::from(!scenario.hold_first_reply.is_zero())
}

/// A readable form of a schedule.
#[must_use]
pub fn describe(scenario: &Scenario) -> String {
    let link = |link: LinkConfig| {
        format!(
            "delay {:?}, jitter {:?}, of a thousand {} lost, {} doubled, {} out of order, {} damaged",
            link.delay,
            link.jitter,
            link.loss_per_mille,
            link.duplicate_per_mille,
            link.reorder_per_mille,
            link.corrupt_per_mille
        )
    };
    let mut lines = vec![
        format!("links of hosts and ports: {}", link(scenario.data_link)),
        format!("link between the nodes: {}", link(scenario.replication_link)),
        format!("replicated: {:?}; first replies held: {:?}", scenario.selection, scenario.hold_first_reply),
    ];
    let begins = scenario.transfers.iter().map(|transfer| {
        let [up, down] = transfer.bytes;
        let what = match transfer.kind {
            crate::scenario::Kind::Tcp => format!("{up} bytes there, {down} back, then {:?}", transfer.closing),
            _ => format!("{} requests", transfer.requests),
        };
        let text = format!(
            "host {} begins transfer {} ({:?}) with {}: {what}",
            transfer.client, transfer.number, transfer.kind, transfer.target
        );
        (transfer.begins_at, text)
    });
    let faults = scenario.schedule().into_iter().map(|(at, fault)| (at, fault.to_string()));
    let calm = (scenario.calm_at, String::from("calm: links are reliable, everything resumes"));
    let mut events: Vec<_> = begins.chain(faults).chain([calm]).collect();
    events.sort_by_key(|(at, _)| *at);
    lines.extend(events.iter().map(|(at, text)| format!("{:>10.3} s  {text}", at.as_nanos() as f64 / 1e9)));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sabotage;
    use crate::scenario::FaultSet;

    #[test]
    fn a_violating_schedule_is_minimised_and_still_violates() {
        let options = Options { sabotage: Some(Sabotage::SwappedBytes), faults: FaultSet::ALL, ..Options::default() };
        let scenario = Scenario::generate(3, FaultSet::ALL);
        let whole = run_scenario(&scenario, options).problems[0].problem;
        let shrunk = shrink(&scenario, options, Duration::from_secs(60)).expect("it violates a guarantee");
        assert_eq!(shrunk.outcome.problems[0].problem, whole);
        assert_eq!(shrunk.scenario.transfers.len(), 1, "one transfer suffices");
        assert!(shrunk.scenario.episodes.is_empty(), "no fault is needed: {:?}", shrunk.scenario.episodes);
        assert_eq!(shrunk.scenario.data_link.loss_per_mille, 0);
        assert!(shrunk.runs <= RUNS_MAX);
        let text = describe(&shrunk.scenario);
        assert!(text.contains("begins transfer"), "{text}");
        assert!(text.lines().count() < 10, "it is short enough to be read:\n{text}");
    }

    #[test]
    fn a_necessary_failure_stays_in_the_schedule() {
        let options = Options { sabotage: Some(Sabotage::NoReplication), ..Options::default() };
        let broken = (1..30).map(|seed| Scenario::generate(seed, FaultSet::DEFAULT)).find(|scenario| {
            run_scenario(scenario, options)
                .problems
                .first()
                .is_some_and(|failure| failure.problem == Problem::Unreplicated)
        });
        let shrunk = shrink(&broken.expect("some seed misses a connection"), options, Duration::from_secs(60)).unwrap();
        assert_eq!(shrunk.outcome.problems[0].problem, Problem::Unreplicated);
        assert_eq!(shrunk.scenario.episodes.len(), 1, "{:?}", shrunk.scenario.episodes);
        assert!(describe(&shrunk.scenario).contains("dies"), "{}", describe(&shrunk.scenario));
    }

    #[test]
    fn a_schedule_without_violation_is_not_minimised() {
        let scenario = Scenario::generate(1, FaultSet::DEFAULT);
        assert!(shrink(&scenario, Options::default(), Duration::from_secs(60)).is_none());
    }
}
