//! `mainstay sync` and what belongs to it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::CheckArgs;
use config::value::parse_duration;

/// `mainstay sync`.
#[derive(Debug, Args)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
keepalived calls `mainstay sync primary`, `backup` and `fault` as it changes state (notify_master and its like), and may ask
`mainstay sync ready` whether this node may take over at all (vrrp_script). See docs/sync.md."
)]
pub struct SyncArgs {
    /// Configuration file (docs/sync.md)
    #[arg(long, value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    /// Whether it is only checked.
    #[command(flatten)]
    pub check: CheckArgs,
    /// What is wanted of a daemon that runs, or of a file.
    #[command(subcommand)]
    pub command: Option<SyncCommand>,
}

/// What is wanted of a daemon that runs, or of a file.
#[derive(Debug, Subcommand)]
pub enum SyncCommand {
    /// This node carries connections from now on; returns when all that is known of them is in the kernel
    Primary(HookArgs),
    /// This node stands by from now on; returns when it does
    Backup(HookArgs),
    /// This node must not be chosen, and stands by
    Fault(HookArgs),
    /// Has every peer told everything, and asks every peer for everything
    Resync(HookArgs),
    /// Whether this node may take over: its status is 0 if so, and the reason is printed if not
    Ready(ReadyArgs),
    /// Translates a conntrackd.conf; the result is printed
    Import(ImportArgs),
}

/// The daemon that is meant, and how long it is waited for.
#[derive(Debug, Args)]
pub struct HookArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = config::sync::CONTROL_SOCKET_DEFAULT)]
    pub socket: PathBuf,
    /// How long to wait at most: 500ms, 10s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// What keepalived adds to the commands that it calls; has no effect
    #[arg(value_name = "KEEPALIVED", hide = true)]
    pub from_keepalived: Vec<String>,
}

/// `mainstay sync ready`.
#[derive(Debug, Args)]
pub struct ReadyArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = config::sync::CONTROL_SOCKET_DEFAULT)]
    pub socket: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay sync import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file that conntrackd is started with
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(line: &str) -> Result<SyncArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Sync(args) => Ok(args),
            _ => panic!("another command was understood"),
        }
    }

    #[test]
    fn a_daemon_needs_a_file_and_a_hook_does_not() {
        assert!(parse("mainstay sync").is_err());
        assert!(parse("mainstay sync --config f --check --json").expect("it is right").check.check);
        let hook = parse("mainstay sync primary --socket /run/s --timeout 500ms").expect("it is right").command;
        let Some(SyncCommand::Primary(args)) = hook else { panic!("another command was understood") };
        assert_eq!((args.socket, args.timeout), (PathBuf::from("/run/s"), Duration::from_millis(500)));
    }

    #[test]
    fn what_keepalived_adds_to_a_notify_script_is_taken() {
        // keepalived.conf(5): `notify` scripts are called with the kind, the name, the state and the priority.
        let hook = parse("mainstay sync backup GROUP G1 BACKUP 100").expect("it is right").command;
        assert!(matches!(hook, Some(SyncCommand::Backup(_))));
    }
}
