//! The laboratory: what shows, measures and simulates. Packages are built without it.
//!
//! [`demo`] kills nodes under real traffic in namespaces; [`mod@bench`] measures beside what one would use instead; [`emulator`] is
//! a link of known delay, loss and rate; [`simulate`] plays seeded clusters under faults; [`synthesize`] makes traffic. Nothing
//! that a gateway runs depends on it.

pub mod args;
pub mod bench;
pub mod demo;
pub mod emulator;
pub mod simulate;
pub mod synthesize;

use std::io;

use args::{BenchCommand, LabCommand};
use bench::BenchError;
use demo::DemoError;
use emulator::EmulatorError;

/// Why there is no result. Its text is all that the operator is told.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The demo failed, or showed a failure.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A measurement has no result.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The simulation found a broken promise.
    #[error(transparent)]
    Simulation(#[from] simulate::PromisesBroken),
    /// A scenario's file cannot be used.
    #[error(transparent)]
    Scenario(#[from] simulate::FileError),
    /// The link does not run.
    #[error(transparent)]
    Link(#[from] EmulatorError),
    /// No traffic was made.
    #[error(transparent)]
    Synthesize(#[from] synthesize::SynthesizeError),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
}

/// Does what the command line asks for.
///
/// # Errors
/// There is no result, or it shows a broken promise.
pub fn run(command: &LabCommand) -> Result<(), LabError> {
    match command {
        LabCommand::Demo(args) => Ok(demo::run(args)?),
        LabCommand::Simulate(args) => simulate::run(args),
        LabCommand::Synthesize(command) => synthesize::run(command),
        LabCommand::Link(args) => Ok(emulator::run(args)?),
        LabCommand::Bench(BenchCommand::Pipeline(args)) => bench::pipeline::run(args),
        LabCommand::Bench(BenchCommand::AttackRecovery(args)) => bench::attack_recovery::run(args),
        LabCommand::Bench(BenchCommand::Bulk(args)) => bench::bulk::run(args),
        LabCommand::Bench(BenchCommand::Workers(args)) => bench::workers::run(args),
        LabCommand::Bench(BenchCommand::Packets(args)) => bench::packets::run(args),
        LabCommand::Bench(BenchCommand::Encryption(args)) => bench::encryption::run(args),
        LabCommand::Bench(BenchCommand::Filters(args)) => bench::filters::run(args),
        LabCommand::Bench(BenchCommand::Lazy(args)) => bench::lazy::run(args),
        LabCommand::Bench(BenchCommand::SetupRate(args)) => bench::setup_rate::run(args),
        LabCommand::Bench(BenchCommand::Replication(args)) => bench::replication::run(args),
        LabCommand::Bench(BenchCommand::Sync(args)) => bench::sync::run(args),
        LabCommand::Bench(BenchCommand::Redundancy(args)) => bench::redundancy::run(args),
    }
}
