//! What the subcommands do, one file each.

pub mod capture;
pub mod check;
pub mod drain;
pub mod edge;
pub mod error;
pub mod events;
pub mod flows;
pub mod follow;
mod host;
pub mod key;
pub mod latency;
#[cfg(feature = "studies")]
pub mod model;
mod probe;
pub mod problem;
pub mod reload;
pub mod replay;
pub mod rules;
pub mod shell;
pub(crate) mod snippet;
pub mod status;
#[cfg(feature = "studies")]
pub mod study;
pub mod sync;
pub mod top;
pub mod trace;
pub mod url;

use control::client::Client;

pub use error::CommandError;

#[cfg(test)]
mod tests;

/// Refuses a control socket that is not a gateway's; `instead` names the command for the kernel.
///
/// # Errors
/// It is that of `mainstay sync`, or nothing answers.
fn gateways_only(client: &mut Client, instead: &'static str) -> Result<(), CommandError> {
    if client.status()?.sync.is_some() { Err(CommandError::KernelForwards(instead)) } else { Ok(()) }
}
