//! `mainstay simulate --nodes`: the state service of a cluster of many nodes.

use std::time::Instant;

use console::Table;
use simulator::many_nodes::{DistributionKind, ManyNodesConfig, ManyNodesReport, run_many_nodes};

use super::SimulateError;
use crate::args::{DistributionArg, SimulateArgs};

/// Connections broke although no more nodes failed than they have backups.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{broken} connections broke with {failures} failures and {backups} backups; replay with `--seed {seed}`")]
pub struct ConnectionsBroken {
    /// How many.
    pub broken: u64,
    /// Nodes that failed at once.
    pub failures: u8,
    /// Backups of each connection.
    pub backups: usize,
    /// The RNG seed.
    pub seed: u64,
}

/// Simulates it and prints the result.
///
/// # Errors
/// A number is out of range, the result cannot be printed, or connections broke that had enough backups.
pub(crate) fn run(nodes: u8, seed: u64, args: &SimulateArgs) -> Result<(), SimulateError> {
    let config = config(nodes, seed, args);
    let began = Instant::now();
    let report = run_many_nodes(&config, &mut || began.elapsed())?;
    console::print_as(args.json, &report, || render(&report))?;
    check(&report).map_err(Into::into)
}

fn config(nodes: u8, seed: u64, args: &SimulateArgs) -> ManyNodesConfig {
    let many = &args.many_nodes;
    ManyNodesConfig {
        nodes,
        failures: many.failures,
        backups: many.backups.unwrap_or_else(|| many.failures.min(8).into()),
        connections: many.connections,
        distribution: match many.distribution {
            DistributionArg::Edge => DistributionKind::Edge,
            DistributionArg::Switch => DistributionKind::Switch,
        },
        failure_probability: many.failure_probability,
        loss_per_mille: many.loss_per_mille,
        seed,
    }
}

/// Connections may break if as many nodes fail as have a connection.
fn check(report: &ManyNodesReport) -> Result<(), ConnectionsBroken> {
    let ManyNodesReport { broken, failures, backups, seed, .. } = *report;
    if broken == 0 || usize::from(failures) > backups {
        return Ok(());
    }
    Err(ConnectionsBroken { broken, failures, backups, seed })
}

fn render(report: &ManyNodesReport) -> String {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let mut table = Table::of("|>");
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("nodes, of which the last is added", console::count(report.nodes.into()));
    row("nodes that failed at once", console::count(report.failures.into()));
    row("connections", console::count(report.connections.into()));
    row("backups of each", console::count(report.backups as u64));
    row("connections broken", console::count(report.broken));
    row("pulled, of those that the failure moved", percent(report.pulls_share));
    row("time to place a batch", format!("{:.3} ms, at most {:.3} ms", report.placement_ms, report.placement_max_ms));
    row("messages of the state service", console::count(report.messages));
    row("bytes of these", console::count(report.message_bytes));
    row("packets of no connection", console::count(report.flood.packets));
    row("queries and pulls for these", format!("{} and {}", report.flood.queries, report.flood.pulls));
    let mut text = table.render().trim_start().to_owned();
    let mut phases = Table::of("event|>moved|>pulled|>broken|>queries");
    for phase in &report.phases {
        let figures = [phase.moved, phase.pulled, phase.broken, phase.queries].map(console::count);
        phases.row([phase.phase.to_owned()].into_iter().chain(figures));
    }
    text.push('\n');
    text.push_str(&phases.render());
    let mut placements = Table::of("placement|>without a replica|>replicas");
    let (churn, replicas) = (&report.churn, &report.replicas);
    for (name, churn, replicas) in [
        ("min-churn", churn.min_churn, replicas.min_churn),
        ("random", churn.random, replicas.random),
        ("perfect", churn.perfect, replicas.perfect),
    ] {
        placements.row([name.to_owned(), percent(churn), format!("{replicas:.2}")]);
    }
    text.push('\n');
    text.push_str(&placements.render());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LabCommand, parse};

    fn read(line: &str) -> SimulateArgs {
        match parse(line) {
            Ok(LabCommand::Simulate(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_report_of_many_nodes_has_its_figures_as_text_and_as_json() {
        let args = read("simulate --nodes 8 --failures 2 --connections 500 --json");
        let config = config(8, 1, &args);
        assert_eq!((config.backups, config.failures), (2, 2));
        let report = run_many_nodes(&config, &mut || std::time::Duration::ZERO).expect("in range");
        assert_eq!(check(&report), Ok(()));
        let json = serde_json::to_value(&report).expect("it is plain data");
        for field in ["broken", "pulls_share", "placement_ms"] {
            assert!(json[field].is_number(), "{field}: {json}");
        }
        for placement in ["min_churn", "random", "perfect"] {
            assert!(json["churn"][placement].is_number(), "{placement}: {json}");
        }
        assert_eq!(json["distribution"], "edge");
        let text = render(&report);
        assert!(text.contains("connections broken") && text.contains("min-churn") && text.contains("rejoin"), "{text}");
    }

    #[test]
    fn broken_connections_are_an_error_unless_too_many_nodes_failed() {
        let args = read("simulate --nodes 8 --failures 3 --backups 1 --connections 500");
        let report = run_many_nodes(&config(8, 1, &args), &mut || std::time::Duration::ZERO).expect("in range");
        assert!(report.broken > 0 && check(&report) == Ok(()));
        let error = check(&ManyNodesReport { backups: 3, ..report }).expect_err("they had enough backups");
        assert!(error.to_string().contains("--seed 1"), "{error}");
    }

    #[test]
    fn options_of_many_nodes_need_nodes_and_exclude_those_of_two() {
        for line in
            ["simulate --nodes 8 --faults all", "simulate --failures 2", "simulate --nodes 2", "simulate --nodes 65"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!(read("simulate --seeds 3").many_nodes.nodes, None);
    }
}
