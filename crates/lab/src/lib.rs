//! The laboratory: what shows, measures and simulates. Packages are built without it.
//!
//! [`demo`] kills nodes under real traffic in namespaces; [`mod@bench`] measures beside what one would use instead; [`emulator`] is
//! a link of known delay, loss and rate; [`testbed`] is the network that demo and benchmarks run nodes in; [`simulate`] plays seeded clusters under faults; [`synthesize`] makes traffic;
//! [`categorise`] is a categorisation server; [`ns3`] runs flows in ns-3 beside the failover model. Nothing that a gateway runs depends on it.

pub mod args;
pub mod bench;
pub mod categorise;
pub mod demo;
pub mod emulator;
pub mod ns3;
pub mod simulate;
pub mod synthesize;
pub mod testbed;

use args::{BenchCommand, LabCommand};
use bench::BenchError;
use demo::DemoError;
use emulator::EmulatorError;

/// Why there is no result. Its text is all that the operator sees.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The demo failed, or showed a failure.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A measurement has no result.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The simulation could not be played, or found a broken promise.
    #[error(transparent)]
    Simulate(#[from] simulate::SimulateError),
    /// The link does not run.
    #[error(transparent)]
    Link(#[from] EmulatorError),
    /// The categorisation server does not run.
    #[error(transparent)]
    Categorise(#[from] categorise::CategoriseError),
    /// There are no figures of ns-3.
    #[error(transparent)]
    Ns3(#[from] ns3::Ns3Error),
    /// No traffic was made.
    #[error(transparent)]
    Synthesize(#[from] synthesize::SynthesizeError),
}

/// Does what `mainstay lab` asks for; [`demo::run()`] is a command of its own.
///
/// # Errors
/// There is no result, or it shows a broken promise.
pub fn run(command: &LabCommand) -> Result<(), LabError> {
    match command {
        LabCommand::Simulate(args) => Ok(simulate::run(args)?),
        LabCommand::Synthesize(command) => Ok(synthesize::run(command)?),
        LabCommand::Link(args) => Ok(emulator::run(args)?),
        LabCommand::StoreGateway(args) => Ok(bench::cluster::store_gateway::run(args)?),
        LabCommand::Categorise(args) => Ok(categorise::run(args)?),
        LabCommand::Bench(BenchCommand::SideBySide(command)) => Ok(bench::run(command)?),
        LabCommand::Bench(BenchCommand::RateControl(args)) => Ok(demo::rate_control::run(args)?),
        LabCommand::Bench(BenchCommand::Recovery(args)) => Ok(demo::recovery::run(args)?),
    }
}
