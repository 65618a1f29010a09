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
pub mod status;
pub mod study;
pub mod sync;
pub mod top;
pub mod trace;

use std::io;

use config::ConfigError;
use config::key_file::KeyNotWritten;
use control::client::{Client, ClientError};
use control::remote::RemoteError;
use daemon::RunError;

use crate::replay::ReplayError;
use sync::import::ImportError;

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
    /// A gateway's command was given to `mainstay sync`; what does the same for the kernel.
    #[error(
        "this socket is that of mainstay sync, not of a gateway: the kernel forwards, and no packet passes mainstay. {0}"
    )]
    KernelForwards(&'static str),
    /// What clients of the control API from afar must show cannot be had.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The gateway, or `mainstay sync`, cannot run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The laboratory has no result, or one that shows a broken promise.
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// The configuration was not put in force.
    #[error(transparent)]
    Reload(#[from] reload::NotReloaded),
    /// The node was not taken out of service.
    #[error(transparent)]
    Drain(#[from] drain::NotDrained),
    /// The capture cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The capture cannot be written.
    #[error(transparent)]
    Capture(#[from] capture::CaptureError),
    /// A study has no result.
    #[error(transparent)]
    Study(#[from] study::StudyError),
    /// A conntrackd.conf was not translated.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// What keepalived or an operator wanted of mainstay sync was not done.
    #[error(transparent)]
    Hook(#[from] sync::HookFailed),
    /// A key was not made.
    #[error(transparent)]
    Key(#[from] KeyNotWritten),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
}

#[cfg(test)]
mod tests;

/// Says so where the control socket is not a gateway's; `instead` does the same for the kernel.
///
/// # Errors
/// It is that of `mainstay sync`, or nobody answers.
fn gateways_only(client: &mut Client, instead: &'static str) -> Result<(), CommandError> {
    if client.status()?.sync.is_some() { Err(CommandError::KernelForwards(instead)) } else { Ok(()) }
}
