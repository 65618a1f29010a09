//! The command line.

mod flows;
mod key;
mod looking;
mod replay;
mod study;
mod study_redundancy;
mod sync;
mod target;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use flows::FlowsArgs;
pub use key::KeyArgs;
pub use looking::{CaptureArgs, PacketFilterArgs, TopArgs, TopOrder, TraceArgs};
pub use replay::{PortMapping, ReplayArgs};
pub use study::{ChecksumsChoice, StudyCommand, StudyReplicationArgs, admission};
pub use study_redundancy::StudyRedundancyArgs;
pub use sync::{HookArgs, ImportArgs, ReadyArgs, SyncArgs, SyncCommand};
pub use target::SocketArgs;

/// A network gateway whose connections outlive the machine that carries them.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One node of a gateway cluster
    Gateway(GatewayArgs),
    /// Replicates the kernel's connection tracking, in conntrackd's place
    Sync(SyncArgs),
    /// How a running gateway is: its role, its peers, what goes through and what is dropped
    Status(StatusArgs),
    /// The connections of a running gateway
    Flows(FlowsArgs),
    /// What goes through a running gateway, from moment to moment: rates, connections that carry most, drops, times, peers
    Top(TopArgs),
    /// The ways of packets through a running gateway: lookup, rules, translation, route, and why they were dropped
    Trace(TraceArgs),
    /// Frames at a point of their way through a running gateway, written as pcapng
    Capture(CaptureArgs),
    /// The firewall's rules, and how many connections each has decided on
    Rules(RulesArgs),
    /// Has a running gateway read its configuration file again, without losing a connection
    Reload(ReloadArgs),
    /// Takes a node out of service: another takes its addresses over, and its connections go on
    Drain(DrainArgs),
    /// Takes a drained node back into service
    Undrain(UndrainArgs),
    /// Plays a capture through a configured gateway and says what becomes of its packets
    Replay(ReplayArgs),
    /// What captures show: what replication would cost on their traffic, and what redundancy elimination would save
    #[command(subcommand)]
    Study(StudyCommand),
    /// Makes a key that nodes authenticate each other by
    Key(KeyArgs),
    /// What shows, measures and simulates
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab::args::LabCommand),
}

/// `mainstay gateway`.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Configuration file (docs/configuration.md)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Whether it is only checked.
    #[command(flatten)]
    pub check: CheckArgs,
}

/// Checks of a configuration and of the host.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Run nothing; say all that would keep the program from starting on this host, and what the host can do
    #[arg(long)]
    pub check: bool,
    /// With --check, look at the file alone, for use on another host
    #[arg(long, requires = "check")]
    pub config_only: bool,
    /// With --check, the user that the service runs as, whose own the files of keys must be (mainstay, as packaged)
    #[arg(long, value_name = "USER", requires = "check", conflicts_with = "config_only")]
    pub user: Option<String>,
    /// With --check, print one JSON object
    #[arg(long, requires = "check")]
    pub json: bool,
}

/// `mainstay status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// What happened lately instead
    #[arg(long)]
    pub events: bool,
    /// How long batches and functions take instead
    #[arg(long, conflicts_with = "events")]
    pub latency: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Only say what would change, and whether it could
    #[arg(long)]
    pub check_only: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Even if no peer can take over: connections are lost
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay undrain`.
#[derive(Debug, Args)]
pub struct UndrainArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn filters_of_flows_reach_the_request() {
        let line = "mainstay flows --protocol tcp --source 10.0.0.0/8 --port 443 --role master --limit 5 --json";
        let Command::Flows(args) = Cli::try_parse_from(line.split(' ')).expect("it is right").command else {
            panic!("another command was understood");
        };
        let filter = args.filter();
        assert_eq!((filter.protocol.as_deref(), filter.port), (Some("tcp"), Some(443)));
        assert_eq!((filter.source.as_deref(), filter.role.as_deref()), (Some("10.0.0.0/8"), Some("master")));
        assert_eq!((args.limit, args.json), (5, true));
    }
}
