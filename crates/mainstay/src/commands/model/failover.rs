//! `mainstay model failover`.

use std::collections::BTreeMap;

use analysis::tcp_failover::{Estimate, FailoverConfig, Kind, Model, SweepRow, report, simulate, sweep};
use console::Table;
use serde::Serialize;

use super::ModelError;
use crate::cli::ModelFailoverArgs;
use crate::commands::CommandError;
use crate::commands::study::footer;

/// The outages of a page's plots, where `--sweep` names no others: those of \[HALR\] table I.
const PAGE_SWEEP_S: (f64, f64) = (0.05, 12.0);
/// Outages of a page's plots.
const PAGE_POINTS: usize = 240;
/// Outages that a sweep prints.
const PRINTED_POINTS: usize = 25;

/// What `--json` prints.
#[derive(Serialize)]
struct Outcome {
    #[serde(flatten)]
    config: FailoverConfig,
    kinds: BTreeMap<Kind, Figures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sweep: Vec<SweepRow>,
    #[cfg(feature = "lab")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ns3: Option<lab::ns3::Comparison>,
}

#[derive(Serialize)]
struct Figures {
    #[serde(flatten)]
    model: Estimate,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<Estimate>,
}

/// Evaluates the model and prints its figures.
///
/// # Errors
/// A parameter is out of its range, or the page or the output cannot be written.
pub fn run(args: &ModelFailoverArgs) -> Result<(), CommandError> {
    #[cfg_attr(not(feature = "lab"), expect(unused_mut))]
    let mut outcome = evaluate(args)?;
    #[cfg(feature = "lab")]
    if args.ns3 {
        outcome.ns3 = Some(run_in_ns3(args, &outcome).map_err(lab::LabError::from)?);
    }
    if let Some(path) = &args.output {
        let page = page(args, &outcome)?;
        std::fs::write(path, page).map_err(|error| ModelError::Page { path: path.clone(), error })?;
    }
    Ok(console::print_as(args.json, &outcome, || describe(&outcome))?)
}

fn evaluate(args: &ModelFailoverArgs) -> Result<Outcome, ModelError> {
    let config = args.config();
    let model = Model::new(&config)?;
    let mut kinds = BTreeMap::new();
    for kind in Kind::ALL {
        let simulated = args.simulate.then(|| simulate(&config, kind, args.seed, args.seeds)).transpose()?;
        kinds.insert(kind, Figures { model: model.estimate(kind), simulated });
    }
    let rows = args.sweep.map(|range| sweep(&config, range, PRINTED_POINTS)).transpose()?;
    Ok(Outcome {
        config,
        kinds,
        sweep: rows.unwrap_or_default(),
        #[cfg(feature = "lab")]
        ns3: None,
    })
}

/// The flows of the outages that are printed, in ns-3.
#[cfg(feature = "lab")]
fn run_in_ns3(args: &ModelFailoverArgs, outcome: &Outcome) -> Result<lab::ns3::Comparison, lab::ns3::Ns3Error> {
    let outages_s = match outcome.sweep.as_slice() {
        [] => vec![outcome.config.outage_s],
        rows => rows.iter().map(|row| row.outage_s).collect(),
    };
    let ns3 = lab::ns3::Ns3::build(args.ns3_dir.as_deref())?;
    lab::ns3::compare(&ns3, &outcome.config, &outages_s, (args.seed, args.seeds))
}

fn page(args: &ModelFailoverArgs, outcome: &Outcome) -> Result<String, ModelError> {
    let drawn = sweep(&outcome.config, args.sweep.unwrap_or(PAGE_SWEEP_S), PAGE_POINTS)?;
    let model = outcome.kinds.iter().map(|(kind, figures)| (*kind, figures.model)).collect();
    let simulated = outcome.kinds.iter().filter_map(|(kind, figures)| Some((*kind, figures.simulated?))).collect();
    Ok(report(&outcome.config, &model, &simulated, &drawn, footer()).html())
}

fn describe(outcome: &Outcome) -> String {
    let mut table = Table::of("FLOW|SOURCE|>STALL WITHOUT|>WITH|>COMPLETION WITHOUT|>WITH|>NO OUTAGE");
    for (kind, figures) in &outcome.kinds {
        let sources = [("model", Some(figures.model)), ("simulation", figures.simulated)];
        for (source, estimate) in sources {
            let Some(Estimate { stall_s, completion_s, undisturbed_s }) = estimate else { continue };
            let cells = [stall_s.without, stall_s.with, completion_s.without, completion_s.with, undisturbed_s];
            table.row([kind.name().to_owned(), source.to_owned()].into_iter().chain(cells.map(seconds)));
        }
    }
    let config = &outcome.config;
    let mut text = format!(
        "outage {}, round trip {}; times are seconds, with and without local recovery\n\n{}",
        seconds(config.outage_s),
        seconds(config.rtt_s),
        table.render()
    );
    if !outcome.sweep.is_empty() {
        text.push_str(&format!("\n{}", swept(&outcome.sweep)));
    }
    #[cfg(feature = "lab")]
    if let Some(comparison) = &outcome.ns3 {
        text.push_str(&format!("\n{}", comparison.describe()));
    }
    text
}

/// Stalls without recovery, and completions with and without, by outage.
fn swept(rows: &[SweepRow]) -> String {
    let kinds = [Kind::Syn, Kind::Short, Kind::Bulk];
    let heading = |kind: Kind| format!("|>{0} STALL|>{0} WITHOUT|>{0} WITH", kind.name().to_uppercase());
    let mut table = Table::of(&format!(">OUTAGE{}", kinds.map(heading).concat()));
    for row in rows {
        let figures = kinds.iter().filter_map(|kind| row.kinds.get(kind)).flat_map(|estimate| {
            [estimate.stall_s.without, estimate.completion_s.without, estimate.completion_s.with].map(seconds)
        });
        table.row([seconds(row.outage_s)].into_iter().chain(figures));
    }
    table.render()
}

fn seconds(figure: f64) -> String {
    format!("{figure:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, ModelCommand, PlanCommand};

    fn args(options: &str) -> ModelFailoverArgs {
        let line = format!("mainstay model failover {options}");
        match Cli::read(line.split_whitespace().map(Into::into)).expect("it is right").command {
            Command::Plan(PlanCommand::Model(ModelCommand::Failover(args))) => *args,
            _ => panic!("another command was understood"),
        }
    }

    #[test]
    fn times_are_seconds_unless_they_have_a_unit() {
        for (options, outage_s, rtt_s) in [
            ("--outage 3 --rtt 0.1", 3.0, 0.1),
            ("--outage 3s --rtt 100ms", 3.0, 0.1),
            ("--outage 0.5m --rtt 20ms", 30.0, 0.02),
        ] {
            let config = args(options).config();
            assert_eq!((config.outage_s, config.rtt_s), (outage_s, rtt_s));
        }
        for wrong in ["--outage 61", "--outage=-1", "--sweep 3..1", "--sweep 3", "--seeds 5"] {
            let line = format!("mainstay model failover {wrong}");
            assert!(Cli::read(line.split_whitespace().map(Into::into)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_has_the_parameters_and_each_kind_with_and_without_recovery() {
        let outcome = evaluate(&args("--outage 3 --rtt 0.1 --schedule thesis --arrival start")).expect("valid");
        let json = serde_json::to_value(&outcome).expect("plain data");
        assert_eq!(
            (&json["outage_s"], &json["rtt_s"], &json["schedule"]),
            (&3.0.into(), &0.1.into(), &"thesis".into())
        );
        for kind in ["syn", "short", "bulk", "syn_bulk"] {
            for figure in ["stall_s", "completion_s"] {
                for recovery in ["with", "without"] {
                    assert!(json["kinds"][kind][figure][recovery].is_f64(), "{kind} {figure} {recovery}");
                }
            }
        }
        // The second timeout of data is 4.5 s after the first loss.
        assert_eq!(json["kinds"]["bulk"]["stall_s"], serde_json::json!({"with": 0.0, "without": 1.5}));
        assert!(json["kinds"]["bulk"].get("simulated").is_none() && json.get("sweep").is_none());
    }

    #[test]
    fn simulated_medians_and_sweeps_are_shown_beside_the_model() {
        let args = args("--simulate --seeds 3 --sweep 50ms..12s");
        let outcome = evaluate(&args).expect("valid");
        let json = serde_json::to_value(&outcome).expect("plain data");
        assert!(json["kinds"]["short"]["simulated"]["completion_s"]["with"].is_f64());
        assert_eq!(json["sweep"].as_array().map(Vec::len), Some(PRINTED_POINTS));
        let text = describe(&outcome);
        assert_eq!(text.lines().filter(|line| line.contains("simulation")).count(), Kind::ALL.len());
        assert!(page(&args, &outcome).expect("valid").contains("simulation"));
    }

    #[test]
    fn parameters_out_of_range_are_an_error_of_usage() {
        let error = evaluate(&args("--loss 0.6")).err().expect("out of range");
        assert!(error.to_string().contains("loss is 0.6, and must be from 0 to 0.2"), "{error}");
        assert_eq!(crate::exit::Exit::from(&CommandError::from(error)), crate::exit::Exit::Usage);
    }
}
