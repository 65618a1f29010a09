//! `mainstay sync` and what belongs to it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, Subcommand};

use super::{CheckArgs, EventsArgs, FlowsArgs, StatusArgs};
use config::sync::CONTROL_SOCKET_DEFAULT;
use config::value::parse_duration;

/// `mainstay sync`.
#[derive(Debug, Args)]
#[command(
    subcommand_negates_reqs = true,
    after_help = "\
keepalived runs `mainstay sync primary`, `backup` and `fault` when it changes state (notify_master and its like), and may run
`mainstay sync ready` to ask whether this node may take over (vrrp_script). See docs/sync.md."
)]
pub struct SyncArgs {
    /// Configuration file (docs/sync.md)
    #[arg(long, value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    /// Whether it is only checked.
    #[command(flatten)]
    pub check: CheckArgs,
    /// An order to a running daemon, a question to it, or an import.
    #[command(subcommand)]
    pub command: Option<SyncCommand>,
}

impl SyncArgs {
    /// Whether there are options of the daemon beside a command, which would have no effect. `--color`, which every command takes, is
    /// none of them: so clap's `args_conflicts_with_subcommands` refuses too much.
    pub(super) fn is_contradictory(&self) -> bool {
        self.command.is_some() && (self.config.is_some() || self.check != CheckArgs::default())
    }
}

/// Orders to a running daemon, questions to it, and the import.
#[derive(Debug, Subcommand)]
pub enum SyncCommand {
    /// Show the node's role, peers, and the state of its replication
    #[command(mut_arg("socket", of_sync))]
    Status(StatusArgs),
    /// Show or count connections, or follow them as they change
    #[command(mut_arg("socket", of_sync))]
    Flows(FlowsArgs),
    /// Show recent events: changes of roles, peers and configuration
    #[command(mut_arg("socket", of_sync))]
    Events(EventsArgs),
    /// Make this node primary; returns when all known connections are in the kernel
    Primary(HookArgs),
    /// Make this node backup; returns when it is
    Backup(HookArgs),
    /// Make this node backup, and not eligible to take over
    Fault(HookArgs),
    /// Send the whole table to every peer, and request every peer's
    Resync(HookArgs),
    /// Ask whether this node may take over: exit code 0 if so, otherwise the reason is printed
    Ready(ReadyArgs),
    /// Translate a conntrackd.conf, and print the result
    Import(ImportArgs),
}

/// The daemon, and how long the command waits for it.
#[derive(Debug, Args)]
pub struct HookArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT)]
    pub socket: PathBuf,
    /// Wait at most so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Arguments that keepalived adds to the commands that it runs; they have no effect
    #[arg(value_name = "KEEPALIVED", hide = true)]
    pub from_keepalived: Vec<String>,
}

/// `mainstay sync ready`.
#[derive(Debug, Args)]
pub struct ReadyArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT)]
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

/// `--socket`, which is that of `mainstay sync` unless another is named.
fn of_sync(socket: Arg) -> Arg {
    socket.default_value(CONTROL_SOCKET_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::read;
    use crate::cli::{Command, RunCommand};

    fn parse(line: &str) -> Result<SyncArgs, clap::Error> {
        match read(line)?.command {
            Command::Run(RunCommand::Sync(args)) => Ok(*args),
            _ => panic!("another command was understood"),
        }
    }

    #[test]
    fn questions_to_the_daemon_find_its_socket_and_not_that_of_a_gateway() {
        let asked = |line: &str| match parse(line).expect("it is right").command {
            Some(SyncCommand::Status(args)) => args.socket.socket,
            Some(SyncCommand::Flows(args)) => args.socket.socket,
            Some(SyncCommand::Events(args)) => args.socket.socket,
            _ => panic!("another command was understood"),
        };
        for command in ["status", "flows", "events"] {
            assert_eq!(asked(&format!("mainstay sync {command}")), PathBuf::from(CONTROL_SOCKET_DEFAULT));
            assert_eq!(asked(&format!("mainstay sync {command} --socket /run/s")), PathBuf::from("/run/s"));
            // A default is no conflict with an address.
            assert!(parse(&format!("mainstay sync {command} --connect 192.0.2.1:3782")).is_ok());
        }
    }

    #[test]
    fn color_is_accepted_before_a_command_and_options_of_the_daemon_are_not() {
        for line in ["mainstay sync --color never status", "mainstay sync status --color never"] {
            assert_eq!(read(line).expect("it is right").color, clap::ColorChoice::Never, "{line}");
        }
        for option in ["--config f", "--check", "--json", "--config-only", "--user u"] {
            let error = parse(&format!("mainstay sync {option} status")).expect_err(option);
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{option}");
            assert!(error.to_string().contains("mainstay sync [OPTIONS] <COMMAND>"), "{error}");
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
