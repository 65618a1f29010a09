//! `mainstay sync` on the command line: the daemon itself, its check, what keepalived calls, and the import.

mod check;
pub mod describe;
mod hook;
pub mod import;

use super::error::HookFailed;
use super::{CommandError, events, flows, status};
use crate::cli::{SyncArgs, SyncCommand};
use api::SyncOrder;
use control::client::ClientError;
use control::target::Target;

/// Does what the command line asks for.
///
/// # Errors
/// A sentence for the operator.
pub fn run(args: &SyncArgs) -> Result<(), CommandError> {
    match &args.command {
        Some(SyncCommand::Status(args)) => status::run(args).map_err(of_daemon),
        Some(SyncCommand::Flows(args)) => flows::run(args).map_err(of_daemon),
        Some(SyncCommand::Events(args)) => events::run(args.socket.target(), args.json).map_err(of_daemon),
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

/// The same error, where it is a daemon and not a gateway that does not answer.
fn of_daemon(error: CommandError) -> CommandError {
    match error {
        CommandError::Client(ClientError::NoGateway(Target::Socket(path))) => HookFailed::NoDaemon(path).into(),
        error => error,
    }
}
