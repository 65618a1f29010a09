//! `mainstay simulate`: clusters under faults, each from a seed.

use std::time::{Duration, Instant};

use serde::Serialize;
use simulator::report::{Failure, Outcome, Totals};
use simulator::{Options, run_many};

use super::CommandError;
use crate::cli::SimulateArgs;
use crate::output::{self, Align, Progress, Table};

/// Seeds played unless told otherwise.
const SEEDS_DEFAULT: u64 = 200;

/// Some runs broke a promise; the report names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{failures} of {seeds} runs broke a promise; replay one with `mainstay simulate --seed {first} --trace`")]
pub struct PromisesBroken {
    /// How many.
    pub failures: u64,
    /// Of how many.
    pub seeds: u64,
    /// The lowest seed among them.
    pub first: u64,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report {
    seeds: u64,
    failures: u64,
    conversations: u64,
    connections: u64,
    survived: u64,
    kills: u64,
    failovers: u64,
    messages_lost: u64,
    events: u64,
    simulated_s: f64,
    wall_s: f64,
    broken: Vec<Broken>,
}

/// A broken promise.
#[derive(Debug, Serialize)]
struct Broken {
    seed: u64,
    at_s: f64,
    promise: String,
    text: String,
    replay: String,
}

/// Plays the seeds and prints what came of them.
///
/// # Errors
/// A run broke a promise, or the result cannot be printed.
pub fn run(args: &SimulateArgs) -> Result<(), CommandError> {
    let first = args.seed.unwrap_or(1);
    if args.trace {
        return trace(first);
    }
    let seeds = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS_DEFAULT });
    let began = Instant::now();
    let progress = Progress::new();
    let (mut totals, mut broken) = (Totals::default(), Vec::new());
    run_many(first, seeds, args.jobs, Options::default(), |outcome| {
        totals.add(&outcome);
        broken.extend(outcome.problems.iter().map(|failure| describe(outcome.seed, failure)));
        let (done, all, failures) = (output::count(totals.seeds), output::count(seeds), totals.failures);
        progress.show(&format!("{done} of {all} seeds, {failures} with a broken promise"));
    });
    drop(progress);
    broken.sort_by_key(|one: &Broken| one.seed);
    let report = report(&totals, began.elapsed(), broken);
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&render(&report))?;
    }
    match report.broken.first() {
        Some(one) => Err(PromisesBroken { failures: report.failures, seeds, first: one.seed }.into()),
        None => Ok(()),
    }
}

/// Plays one seed and prints all that happened.
fn trace(seed: u64) -> Result<(), CommandError> {
    let outcome: Outcome = simulator::run(seed, Options { trace: true, ..Options::default() });
    let mut text = outcome.trace.join("\n");
    text.push('\n');
    for failure in &outcome.problems {
        text.push_str(&format!("{:>13.6} BROKEN {:?}: {}\n", seconds(failure), failure.problem, failure.text));
    }
    text.push_str(&format!("digest {:016x}, {} events\n", outcome.digest, outcome.events));
    output::print(&text)?;
    if outcome.is_sound() { Ok(()) } else { Err(PromisesBroken { failures: 1, seeds: 1, first: seed }.into()) }
}

fn seconds(failure: &Failure) -> f64 {
    failure.at.as_nanos() as f64 / 1e9
}

fn describe(seed: u64, failure: &Failure) -> Broken {
    Broken {
        seed,
        at_s: seconds(failure),
        promise: format!("{:?}", failure.problem),
        text: failure.text.clone(),
        replay: format!("mainstay simulate --seed {seed} --trace"),
    }
}

fn report(totals: &Totals, wall: Duration, broken: Vec<Broken>) -> Report {
    Report {
        seeds: totals.seeds,
        failures: totals.failures,
        conversations: totals.conversations,
        connections: totals.connections,
        survived: totals.survived,
        kills: totals.kills,
        failovers: totals.failovers,
        messages_lost: totals.messages_lost,
        events: totals.events,
        simulated_s: totals.simulated.as_secs_f64(),
        wall_s: wall.as_secs_f64(),
        broken,
    }
}

fn render(report: &Report) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right)]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("seeds", output::count(report.seeds));
    row("with a broken promise", output::count(report.failures));
    row("conversations", output::count(report.conversations));
    row("under way when their node died", output::count(report.connections));
    row("of those came to their end", output::count(report.survived));
    row("nodes killed", output::count(report.kills));
    row("take-overs", output::count(report.failovers));
    row("replication messages told again", output::count(report.messages_lost));
    row("time simulated", output::duration(Duration::from_secs_f64(report.simulated_s)));
    row("time taken", output::duration(Duration::from_secs_f64(report.wall_s)));
    let mut text = table.render().trim_start().to_owned();
    for one in &report.broken {
        text.push_str(&format!(
            "\nseed {} at {:.6} s: {}: {}\n  {}\n",
            one.seed, one.at_s, one.promise, one.text, one.replay
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_says_how_to_see_it_again() {
        let failure = Failure {
            at: flow::Instant::from_millis(1500),
            problem: simulator::report::Problem::NotSurvived,
            text: "conversation 3 did not finish".into(),
        };
        let mut totals = Totals::default();
        totals.add(&simulator::run(1, Options::default()));
        let report = report(&totals, Duration::from_secs(2), vec![describe(9, &failure)]);
        let text = render(&report);
        assert!(text.starts_with("seeds"), "{text}");
        assert!(text.contains("seed 9 at 1.500000 s: NotSurvived: conversation 3 did not finish"), "{text}");
        assert!(text.ends_with("mainstay simulate --seed 9 --trace\n"), "{text}");
        let json = serde_json::to_value(&report).expect("it is plain data");
        for field in
            ["seeds", "failures", "connections", "survived", "messages_lost", "failovers", "simulated_s", "wall_s"]
        {
            assert!(json[field].is_number(), "{field}");
        }
    }
}
