//! What the subcommands do, one file each.

pub mod capture;
pub mod check;
pub mod drain;
pub mod error;
pub mod events;
pub mod finding;
pub mod flows;
pub mod follow;
mod host;
pub mod key;
pub mod latency;
mod probe;
pub mod reload;
pub mod replay;
pub mod rules;
pub mod shell;
pub mod status;
pub mod study;
pub mod sync;
pub mod top;
pub mod trace;

use control::client::Client;

pub use error::CommandError;

#[cfg(test)]
mod tests;

/// Says so where the control socket is not a gateway's; `instead` does the same for the kernel.
///
/// # Errors
/// It is that of `mainstay sync`, or nobody answers.
fn gateways_only(client: &mut Client, instead: &'static str) -> Result<(), CommandError> {
    if client.status()?.sync.is_some() { Err(CommandError::KernelForwards(instead)) } else { Ok(()) }
}
