//! What the laboratory's commands are given on the command line.

mod attack;
mod attack_recovery;
mod bench;
mod cluster;
mod demo;
mod edge;
mod encryption;
mod failover;
mod filters;
mod lazy;
mod load_balancer;
mod operations;
mod rate_control;
mod recovery;
mod redundancy;
pub mod replication;
mod syn_flood;
pub mod sync_bench;
mod synthesize;
mod values;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub use crate::categorise::CategoriseArgs;
pub use crate::emulator::LinkArgs;
pub use attack::BenchAttackArgs;
pub use attack_recovery::BenchAttackRecoveryArgs;
pub use bench::{
    BenchBulkArgs, BenchCommand, BenchPacketsArgs, BenchPipelineArgs, BenchSetupRateArgs, BenchWorkersArgs,
    SideBySideCommand,
};
pub use cluster::{BenchClusterArgs, StoreGatewayArgs};
pub use demo::{DemoArgs, Way};
pub use edge::BenchEdgeArgs;
pub use encryption::BenchEncryptionArgs;
pub use failover::BenchFailoverArgs;
pub use filters::BenchFiltersArgs;
pub use lazy::BenchLazyArgs;
pub use load_balancer::BenchLoadBalancerArgs;
pub use operations::{BenchOperationsArgs, BenchWorstPacketArgs};
pub use rate_control::BenchRateControlArgs;
pub use recovery::{BenchRecoveryArgs, Switch};
pub use redundancy::BenchRedundancyArgs;
pub use replication::BenchReplicationArgs;
pub use syn_flood::BenchSynFloodArgs;
pub use sync_bench::BenchSyncArgs;
pub use synthesize::{SynthesizeCommand, SynthesizeOutputArgs, SynthesizeRedundancyArgs, SynthesizeReplicationArgs};

/// `mainstay lab`: what measures and simulates.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Simulate clusters under faults, each from a seed, and check their promises
    Simulate(SimulateArgs),
    /// Write synthetic traffic of stated statistics as a capture, for studies
    #[command(subcommand)]
    Synthesize(SynthesizeCommand),
    /// Emulate a link of known delay, rate, loss and cuts between two network namespaces
    Link(LinkArgs),
    /// Serve categories of hosts to URL filters, from a file
    Categorise(CategoriseArgs),
    /// A gateway that keeps its state in a remote store, which `bench cluster` compares with
    #[command(hide = true)]
    StoreGateway(StoreGatewayArgs),
    /// Measure side by side with what an operator would use instead
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// `mainstay simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// How many seeds to play [default: 200, or 1 if --seed is given]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// What may go wrong: default, all, or names of faults with commas between them (docs/simulation.md)
    #[arg(long, value_name = "NAMES", default_value_t)]
    pub faults: simulator::scenario::FaultSet,
    /// Representation of replicated connections, if not precise: host-aggregate, flow-digest, multi-level or
    /// multi-level-least-load
    #[arg(long, value_name = "NAME", value_parser = simulator::scenario::representation_named)]
    pub representation: Option<::replication::compact::Representation>,
    /// Play what is written in a file, as a seed that broke a promise leaves it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "seed", "faults", "representation", "json"])]
    pub scenario: Option<PathBuf>,
    /// Write the shortest schedule that still breaks the promise to a file, for --scenario
    #[arg(long, short, alias = "write", value_name = "FILE", conflicts_with = "scenario")]
    pub output: Option<PathBuf>,
    /// Seeds played at once
    #[arg(long, value_name = "THREADS", default_value = "2")]
    pub jobs: std::num::NonZeroUsize,
    /// Print all that happens in the run of --seed or --scenario
    #[arg(long, conflicts_with_all = ["seeds", "json"])]
    pub trace: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// A cluster of many nodes.
    #[command(flatten)]
    pub many_nodes: ManyNodesArgs,
}

/// `mainstay simulate --nodes`.
#[derive(Debug, Args)]
#[command(next_help_heading = "A cluster of many nodes")]
pub struct ManyNodesArgs {
    /// Simulate the state service of this many nodes instead (3 to 64): failures, returns, and an added node
    #[arg(
        long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(3..=64),
        conflicts_with_all = ["seeds", "faults", "representation", "scenario", "output", "jobs", "trace"]
    )]
    pub nodes: Option<u8>,
    /// Nodes that fail at once
    #[arg(long, value_name = "COUNT", default_value = "1", requires = "nodes")]
    pub failures: u8,
    /// Backups of each connection, 1 to 8 [default: as many as failures]
    #[arg(long, value_name = "COUNT", requires = "nodes")]
    pub backups: Option<usize>,
    /// Connections of the cluster
    #[arg(long, value_name = "COUNT", default_value = "20000", requires = "nodes")]
    pub connections: u32,
    /// What distributes packets to the nodes: edges compute a node of highest weight, a switch computes remainders
    #[arg(long, value_name = "KIND", default_value = "edge", requires = "nodes")]
    pub distribution: DistributionArg,
    /// The probability that a node fails, for the placement of backups
    #[arg(long, value_name = "SHARE", default_value = "0.01", requires = "nodes")]
    pub failure_probability: f64,
    /// Lost messages between nodes, in thousandths
    #[arg(
        long, value_name = "COUNT", default_value = "10", requires = "nodes",
        value_parser = clap::value_parser!(u32).range(..=500)
    )]
    pub loss_per_mille: u32,
}

/// What distributes packets to nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum DistributionArg {
    /// Mainstay's edges
    Edge,
    /// A switch with two-stage ECMP
    Switch,
}

/// A command line of the laboratory, without `mainstay lab`, as it is understood.
///
/// # Errors
/// What is wrong with it.
#[cfg(test)]
pub(crate) fn parse(line: &str) -> Result<LabCommand, clap::Error> {
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: LabCommand,
    }
    Line::try_parse_from(std::iter::once("mainstay").chain(line.split_whitespace())).map(|line| line.command)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn what_the_demo_cannot_do_is_refused_with_what_it_can() {
        #[derive(Debug, Parser)]
        struct Line {
            #[command(flatten)]
            _demo: DemoArgs,
        }
        let refused = [
            ("--sync-loss 1.5", "a number from 0 to 0.9"),
            ("--ramp 1000000", "a number from 0 to 50000"),
            ("--duration 0s", "from 1s to 5m"),
            ("--duration 3", "a number and a unit"),
            ("--wan --duration 5s", "cannot be used with"),
            ("--wan --representation multi-level", "cannot be used with"),
            ("--failures --workers 2", "cannot be used with"),
            ("--nodes 2", "3..=8"),
            ("--nodes 4 --edges", "cannot be used with"),
            ("--kill 2", "--nodes"),
        ];
        for (option, remedy) in refused {
            let error = Line::try_parse_from(format!("demo {option}").split(' ')).expect_err(option);
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
