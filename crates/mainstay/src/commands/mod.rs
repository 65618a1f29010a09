//! What the subcommands do, one file each.

pub mod capture;
pub mod check;
pub mod drain;
pub mod finding;
pub mod flows;
pub mod follow;
mod host;
pub mod key;
pub mod latency;
mod probe;
pub mod reload;
pub mod rules;
pub mod simulate;
pub mod status;
pub mod study;
pub mod sync;
pub mod synthesize;
pub mod top;
pub mod trace;

use std::io;

use crate::bench::BenchError;
use crate::config::ConfigError;
use crate::control::client::ClientError;
use crate::control::remote::RemoteError;
use crate::demo::DemoError;
use crate::emulator::EmulatorError;
use crate::gateway::GatewayError;
use crate::logging::LoggingError;
use crate::replay::ReplayError;
use crate::sync::SyncError;
use crate::sync::import::ImportError;

/// Why a command failed; its text is all that the operator is told.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A start on this host would fail.
    #[error(transparent)]
    Check(#[from] finding::CheckFailed),
    /// The gateway cannot be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What clients of the control API from afar must show cannot be had.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The gateway cannot run.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The demo failed, or showed a failure.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// Logging cannot begin.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// A measurement has no result.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The configuration was not put in force.
    #[error(transparent)]
    Reload(#[from] reload::NotReloaded),
    /// The node was not taken out of service.
    #[error(transparent)]
    Drain(#[from] drain::NotDrained),
    /// The capture cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The simulation found a broken promise.
    #[error(transparent)]
    Simulation(#[from] simulate::PromisesBroken),
    /// A scenario's file cannot be used.
    #[error(transparent)]
    Scenario(#[from] simulate::FileError),
    /// The capture cannot be written.
    #[error(transparent)]
    Capture(#[from] capture::CaptureError),
    /// A study has no result.
    #[error(transparent)]
    Study(#[from] study::StudyError),
    /// The link does not run.
    #[error(transparent)]
    Link(#[from] EmulatorError),
    /// Replication of the kernel's connections cannot run.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A conntrackd.conf was not translated.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// What keepalived or an operator wanted of mainstay sync was not done.
    #[error(transparent)]
    Hook(#[from] sync::HookFailed),
    /// No traffic was made.
    #[error(transparent)]
    Synthesize(#[from] synthesize::SynthesizeError),
    /// A key was not made.
    #[error(transparent)]
    Key(#[from] key::KeyNotWritten),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
}

#[cfg(test)]
mod tests;
