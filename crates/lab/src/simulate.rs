//! `mainstay simulate`: clusters under faults, each from a seed, or from a scenario file.

pub mod many_nodes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use replication::compact::Representation;
use serde::Serialize;
use simulator::report::{ClockFaults, Failure, Filtered, Outcome, Played, Totals};
use simulator::scenario::file::{ScenarioError, ScenarioFile};
use simulator::scenario::{FaultSet, Scenario};
use simulator::shrink::{self, Shrunk};
use simulator::{Options, run_many, run_scenario};

use crate::args::SimulateArgs;
use console::{Progress, Table, Unit};

/// Seeds played by default.
const SEEDS_DEFAULT: u64 = 200;

/// So long a schedule that breaks a promise is made shorter.
const SHRINKING_MAX: Duration = Duration::from_secs(30);

/// Some runs broke a promise; the report names them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{failures} of {seeds} runs broke a promise; replay one with `{replay}`")]
pub struct PromisesBroken {
    /// How many.
    pub failures: u64,
    /// Of how many.
    pub seeds: u64,
    /// What plays one of them read_back.
    pub replay: String,
}

/// Why a simulation has no result, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A run broke a promise.
    #[error(transparent)]
    Broken(#[from] PromisesBroken),
    /// Connections of a cluster of many nodes broke.
    #[error(transparent)]
    ManyNodes(#[from] many_nodes::ConnectionsBroken),
    /// A cluster of many nodes cannot be simulated.
    #[error(transparent)]
    ManyNodesOptions(#[from] simulator::many_nodes::ManyNodesError),
    /// A scenario's file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] std::io::Error),
}

/// A file with a scenario cannot be read, played or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses.
    #[error("{}: {error}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It does not hold a scenario.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        error: toml::de::Error,
    },
    /// What it holds cannot be played.
    #[error("{}: {error}", path.display())]
    Unplayable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: ScenarioError,
    },
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report {
    seeds: u64,
    failures: u64,
    faults: String,
    by_fault: BTreeMap<&'static str, OfFault>,
    by_representation: BTreeMap<&'static str, OfFault>,
    transfers: u64,
    connections: u64,
    survived: u64,
    kills: u64,
    pauses: u64,
    failovers: u64,
    messages_lost: u64,
    filtered: OfFilters,
    clocks: OfClocks,
    leaves: OfLeaves,
    events: u64,
    simulated_s: f64,
    wall_s: f64,
    broken: Vec<Broken>,
}

/// How well filters knew the connections of nodes that died; all zero with precise replication.
#[derive(Debug, Serialize)]
struct OfFilters {
    asked: u64,
    unknown: u64,
    inaccurate_states: u64,
    strangers_asked: u64,
    false_hits: u64,
}

/// Wall clocks that were wrong or were set, and what depended on them.
#[derive(Debug, Serialize)]
struct OfClocks {
    skews: u64,
    steps_forward: u64,
    steps_back: u64,
    longest_s: u64,
    gateways_started: u64,
    quota_periods: u64,
}

/// Nodes that left a larger cluster, and its connections.
#[derive(Debug, Serialize)]
struct OfLeaves {
    departures: u64,
    connections: u64,
}

/// How often a kind of fault, or a representation, was played, and how often a promise was broken then.
#[derive(Debug, Serialize)]
struct OfFault {
    played: u64,
    failures: u64,
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
/// A run broke a promise, a file cannot be used, or the result cannot be printed.
pub fn run(args: &SimulateArgs) -> Result<(), SimulateError> {
    let first = args.seed.unwrap_or(1);
    if let Some(nodes) = args.many_nodes.nodes {
        return many_nodes::run(nodes, first, args);
    }
    if let Some(path) = &args.scenario {
        return play(&read(path)?, &format!("mainstay lab simulate --scenario {}", path.display()), args);
    }
    if args.trace {
        let scenario = Scenario::generate(first, args.faults).with_representation(args.representation);
        return play(&scenario, &replay(first, args), args);
    }
    let seeds = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS_DEFAULT });
    let began = Instant::now();
    let progress = Progress::new();
    let work = progress.work(Unit::Of("seeds"), Some(seeds));
    let (mut totals, mut broken) = (Totals::default(), Vec::new());
    let options = Options { faults: args.faults, representation: args.representation, ..Options::default() };
    work.show(0, "0 with a broken promise");
    run_many(first, seeds, args.jobs, options, |outcome| {
        totals.add(&outcome);
        broken
            .extend(outcome.problems.iter().map(|failure| describe(failure, outcome.seed, replay(outcome.seed, args))));
        work.show(totals.seeds, &format!("{} with a broken promise", totals.failures));
    });
    drop(progress);
    broken.sort_by_key(|one: &Broken| one.seed);
    let report = report(&totals, args.faults, began.elapsed(), broken);
    console::print_as(args.json, &report, || render(&report))?;
    let Some(one) = report.broken.first() else { return Ok(()) };
    let scenario = Scenario::generate(one.seed, args.faults).with_representation(args.representation);
    print_shortest(&scenario, options, args)?;
    Err(PromisesBroken { failures: report.failures, seeds, replay: one.replay.clone() }.into())
}

/// Plays one schedule. Prints all that happened if that is asked for.
fn play(scenario: &Scenario, replay: &str, args: &SimulateArgs) -> Result<(), SimulateError> {
    let options = Options { trace: args.trace, ..Options::default() };
    let outcome = run_scenario(scenario, options);
    let mut text = outcome.trace.join("\n");
    if args.trace {
        text.push('\n');
    } else {
        text.push_str(&shrink::describe(scenario));
    }
    push_failures(&mut text, &outcome);
    text.push_str(&format!("digest {:016x}, {} events\n", outcome.digest, outcome.events));
    console::print(&text)?;
    if outcome.is_sound() {
        return Ok(());
    }
    if args.output.is_some() {
        print_shortest(scenario, options, args)?;
    }
    Err(PromisesBroken { failures: 1, seeds: 1, replay: replay.to_owned() }.into())
}

/// Shortens a schedule that breaks a promise, and prints what is left of it: beside the report if that is for people,
/// else to the standard error.
fn print_shortest(scenario: &Scenario, options: Options, args: &SimulateArgs) -> Result<(), SimulateError> {
    let progress = Progress::new();
    progress.show(&format!("making the schedule of seed {} shorter", scenario.seed));
    let shrunk = shrink::shrink(scenario, options, SHRINKING_MAX);
    drop(progress);
    let Some(Shrunk { scenario, outcome, runs }) = shrunk else { return Ok(()) };
    let mut text =
        format!("\nwhat is left of seed {} after {} attempts to leave something out:\n", scenario.seed, runs);
    text.push_str(&shrink::describe(&scenario));
    push_failures(&mut text, &outcome);
    if let Some(path) = &args.output {
        let file = toml::to_string(&ScenarioFile::from(&scenario)).expect("it is plain data");
        std::fs::write(path, file).map_err(|error| FileError::System { path: path.clone(), error })?;
        text.push_str(&format!("  mainstay lab simulate --scenario {} --trace\n", path.display()));
    }
    if args.json {
        eprint!("{text}");
        return Ok(());
    }
    Ok(console::print(&text)?)
}

fn read(path: &Path) -> Result<Scenario, FileError> {
    let path = || path.to_owned();
    let text = std::fs::read_to_string(path()).map_err(|error| FileError::System { path: path(), error })?;
    let file: ScenarioFile = toml::from_str(&text).map_err(|error| FileError::Malformed { path: path(), error })?;
    file.try_into().map_err(|error| FileError::Unplayable { path: path(), error })
}

fn push_failures(text: &mut String, outcome: &Outcome) {
    for failure in &outcome.problems {
        text.push_str(&format!("{:>13.6} BROKEN {:?}: {}\n", seconds(failure), failure.problem, failure.text));
    }
}

fn replay(seed: u64, args: &SimulateArgs) -> String {
    replay_of(seed, args.faults, args.representation)
}

fn replay_of(seed: u64, faults: FaultSet, representation: Option<Representation>) -> String {
    let faults = if faults == FaultSet::DEFAULT { String::new() } else { format!(" --faults {faults}") };
    let representation = representation.map_or(String::new(), |it| format!(" --representation {}", it.name()));
    format!("mainstay lab simulate --seed {seed}{faults}{representation} --trace")
}

fn seconds(failure: &Failure) -> f64 {
    failure.at.as_nanos() as f64 / 1e9
}

fn describe(failure: &Failure, seed: u64, replay: String) -> Broken {
    Broken {
        seed,
        at_s: seconds(failure),
        promise: format!("{:?}", failure.problem),
        text: failure.text.clone(),
        replay,
    }
}

const fn of_filters(filtered: Filtered) -> OfFilters {
    let Filtered { asked, unknown, inaccurate_states, strangers_asked, false_hits } = filtered;
    OfFilters { asked, unknown, inaccurate_states, strangers_asked, false_hits }
}

const fn of_clocks(clocks: ClockFaults) -> OfClocks {
    let ClockFaults { skews, steps_forward, steps_back, longest_s, gateways_started, quota_periods } = clocks;
    OfClocks { skews, steps_forward, steps_back, longest_s, gateways_started, quota_periods }
}

fn report(totals: &Totals, faults: FaultSet, wall: Duration, broken: Vec<Broken>) -> Report {
    let of_fault = |played: &Played| OfFault { played: played.played, failures: played.failures };
    Report {
        faults: faults.to_string(),
        by_fault: totals.by_fault.iter().map(|(family, played)| (family.name(), of_fault(played))).collect(),
        by_representation: totals.by_representation.iter().map(|(name, played)| (*name, of_fault(played))).collect(),
        seeds: totals.seeds,
        failures: totals.failures,
        transfers: totals.transfers,
        connections: totals.connections,
        survived: totals.survived,
        kills: totals.kills,
        pauses: totals.pauses,
        failovers: totals.failovers,
        messages_lost: totals.messages_lost,
        filtered: of_filters(totals.filtered),
        clocks: of_clocks(totals.clocks),
        leaves: OfLeaves { departures: totals.leaves.departures, connections: totals.leaves.connections },
        events: totals.events,
        simulated_s: totals.simulated.as_secs_f64(),
        wall_s: wall.as_secs_f64(),
        broken,
    }
}

fn render(report: &Report) -> String {
    let mut table = Table::of("|>");
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("seeds", console::count(report.seeds));
    row("with a broken promise", console::count(report.failures));
    row("transfers", console::count(report.transfers));
    row("in progress when their node was lost", console::count(report.connections));
    row("of those came to their end", console::count(report.survived));
    row("nodes killed", console::count(report.kills));
    row("nodes that stood still", console::count(report.pauses));
    row("take-overs", console::count(report.failovers));
    row("replication messages retransmitted", console::count(report.messages_lost));
    if report.filtered.asked > 0 {
        let OfFilters { asked, unknown, inaccurate_states, strangers_asked, false_hits } = report.filtered;
        row("connections of killed nodes", console::count(asked));
        row("of those not in the filter", console::count(unknown));
        row("of those in another state", console::count(inaccurate_states));
        row("strangers asked for", console::count(strangers_asked));
        row("of those in the filter", console::count(false_hits));
    }
    let OfClocks { skews, steps_forward, steps_back, longest_s, .. } = report.clocks;
    if skews + steps_forward + steps_back > 0 {
        row("wall clocks wrong at the start", console::count(skews));
        row("wall clocks set forward", console::count(steps_forward));
        row("wall clocks set back", console::count(steps_back));
        row("by at most", console::duration(Duration::from_secs(longest_s)));
    }
    if report.leaves.departures > 0 {
        row("nodes that left a larger cluster", console::count(report.leaves.departures));
    }
    row("time simulated", console::duration(Duration::from_secs_f64(report.simulated_s)));
    row("time taken", console::duration(Duration::from_secs_f64(report.wall_s)));
    let mut text = table.render().trim_start().to_owned();
    let mut faults = Table::of("fault|>runs|>broken");
    for (name, of_fault) in &report.by_fault {
        faults.row([(*name).to_owned(), console::count(of_fault.played), console::count(of_fault.failures)]);
    }
    text.push('\n');
    text.push_str(&faults.render());
    if report.by_representation.len() > 1 {
        let mut by_representation = Table::of("replicated by|>runs|>broken");
        for (name, played) in &report.by_representation {
            by_representation.row([(*name).to_owned(), console::count(played.played), console::count(played.failures)]);
        }
        text.push('\n');
        text.push_str(&by_representation.render());
    }
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
    fn a_broken_promise_has_the_command_to_replay_it() {
        let failure = Failure {
            at: flow::Instant::from_millis(1500),
            problem: simulator::report::Problem::NotSurvived,
            text: "transfer 3 did not finish".into(),
        };
        let mut totals = Totals::default();
        totals.add(&simulator::run(1, Options::default()));
        let broken = vec![describe(&failure, 9, replay_of(9, FaultSet::DEFAULT, None))];
        let report = report(&totals, FaultSet::DEFAULT, Duration::from_secs(2), broken);
        let text = render(&report);
        assert!(text.starts_with("seeds"), "{text}");
        assert!(text.contains("seed 9 at 1.500000 s: NotSurvived: transfer 3 did not finish"), "{text}");
        assert!(text.ends_with("mainstay lab simulate --seed 9 --trace\n"), "{text}");
        let json = serde_json::to_value(&report).expect("it is plain data");
        for field in [
            "seeds",
            "failures",
            "pauses",
            "connections",
            "survived",
            "messages_lost",
            "failovers",
            "simulated_s",
            "wall_s",
        ] {
            assert!(json[field].is_number(), "{field}");
        }
        assert!(json["by_fault"].as_object().is_some_and(|faults| !faults.is_empty()), "{json}");
    }

    #[test]
    fn a_schedule_that_was_written_to_a_file_is_played_from_it() {
        let path = std::env::temp_dir().join(format!("mainstay-scenario-{}.toml", std::process::id()));
        let scenario = Scenario::generate(7, FaultSet::ALL);
        std::fs::write(&path, toml::to_string(&ScenarioFile::from(&scenario)).expect("it is plain data")).unwrap();
        let read_back = read(&path).unwrap();
        assert_eq!(shrink::describe(&read_back), shrink::describe(&scenario));
        let options = Options::default();
        assert_eq!(run_scenario(&read_back, options).digest, run_scenario(&scenario, options).digest);
        std::fs::write(&path, "seed = 1").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("missing field") && error.contains("mainstay-scenario"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_run_of_other_faults_is_replayed_with_their_names() {
        assert_eq!(replay_of(3, FaultSet::DEFAULT, None), "mainstay lab simulate --seed 3 --trace");
        let set = "kill,flapping".parse().unwrap();
        assert_eq!(replay_of(3, set, None), "mainstay lab simulate --seed 3 --faults kill,flapping --trace");
        let by_representation = replay_of(3, FaultSet::DEFAULT, Some(Representation::FlowDigest));
        assert_eq!(by_representation, "mainstay lab simulate --seed 3 --representation flow-digest --trace");
    }
}
