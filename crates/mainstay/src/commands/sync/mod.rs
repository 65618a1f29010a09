//! `mainstay sync` on the command line: the daemon itself, its check, what keepalived calls, and the import.

mod check;
pub mod describe;
mod hook;
pub mod import;

use super::CommandError;
use crate::cli::{SyncArgs, SyncCommand};
use api::SyncOrder;

/// Does what the command line asks for.
///
/// # Errors
/// A sentence for the operator.
pub fn run(args: &SyncArgs) -> Result<(), CommandError> {
    match &args.command {
        Some(SyncCommand::Primary(args)) => Ok(hook::run(SyncOrder::Primary, args)?),
        Some(SyncCommand::Backup(args)) => Ok(hook::run(SyncOrder::Backup, args)?),
        Some(SyncCommand::Fault(args)) => Ok(hook::run(SyncOrder::Fault, args)?),
        Some(SyncCommand::Resync(args)) => Ok(hook::run(SyncOrder::Resync, args)?),
        Some(SyncCommand::Ready(args)) => hook::ready(args),
        Some(SyncCommand::Import(args)) => import::run(&args.file),
        None => match &args.config {
            Some(config) if args.check.check => check::run(config, &args.check),
            Some(config) => Ok(daemon::sync::run(config)?),
            // Command lines without either are refused before.
            None => Ok(()),
        },
    }
}
