//! The command line.
//!
//! A command belongs to the group that its enumeration is: the help is made of them.

mod arguments;
mod edge;
mod flows;
mod gateway;
mod help;
mod inspect;
mod key;
#[cfg(feature = "studies")]
mod model;
mod operate;
mod replay;
mod shell;
#[cfg(feature = "studies")]
mod study;
#[cfg(feature = "studies")]
mod study_redundancy;
mod sync;
mod target;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ColorChoice, FromArgMatches, Parser, Subcommand};

pub use edge::{EdgeArgs, EdgeCommand, EdgeDrainArgs};
pub use flows::FlowsArgs;
pub use gateway::{CheckArgs, GatewayArgs};
pub use inspect::{
    CaptureArgs, EventsArgs, PacketFilterArgs, RulesArgs, StatusArgs, TopArgs, TopOrder, TraceArgs, UrlArgs,
};
pub use key::KeyArgs;
#[cfg(feature = "studies")]
pub use model::{ModelCommand, ModelFailoverArgs};
pub use operate::{DrainArgs, ReloadArgs, UndrainArgs};
pub use replay::{ChecksumsChoice, PortMapping, ReplayArgs};
pub use shell::{CompletionsArgs, ManArgs};
#[cfg(feature = "studies")]
pub use study::{StudyCommand, StudyReplicationArgs, admission};
#[cfg(feature = "studies")]
pub use study_redundancy::StudyRedundancyArgs;
pub use sync::{HookArgs, ImportArgs, ReadyArgs, SyncArgs, SyncCommand};
pub use target::SocketArgs;

/// A network gateway whose connections survive the failure of the machine that carries them.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, arg_required_else_help = true)]
pub struct Cli {
    /// When output has colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto, global = true, hide_possible_values = true)]
    pub color: ColorChoice,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads a command line, which begins with the program's name.
    ///
    /// # Errors
    /// The command line is not understood, or it asks for help or the version: the error's text is the answer.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let arguments = arguments::current(arguments);
        let mut command = Self::grouped_command().color(arguments::color(&arguments));
        let matches = command.try_get_matches_from_mut(arguments)?;
        let cli = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let contradictory = match &cli.command {
            Command::Run(RunCommand::Sync(sync)) if sync.is_contradictory() => "sync",
            Command::Run(RunCommand::Edge(edge)) if edge.is_contradictory() => "edge",
            _ => return Ok(cli),
        };
        let mut command = command.find_subcommand(contradictory).cloned().unwrap_or(command);
        Err(command.error(ErrorKind::ArgumentConflict, "options of the daemon cannot be used with a command"))
    }
}

/// All commands, by group.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What runs until it is ended.
    #[command(flatten)]
    Run(RunCommand),
    /// What shows a running gateway.
    #[command(flatten)]
    Inspect(InspectCommand),
    /// What changes a running gateway.
    #[command(flatten)]
    Operate(OperateCommand),
    /// What studies captures, and what formulas predict.
    #[command(flatten)]
    Plan(PlanCommand),
    /// What demonstrates, measures and simulates.
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Try(TryCommand),
    /// What serves shells and readers of manuals.
    #[command(flatten)]
    Shell(ShellCommand),
}

/// The daemons.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Run one node of a gateway cluster
    Gateway(GatewayArgs),
    /// Run the switch beside a cluster: it distributes flows to nodes and resends what a failed one lost
    Edge(Box<EdgeArgs>),
    /// Replicate the kernel's connection tracking, in place of conntrackd
    Sync(Box<SyncArgs>),
}

/// What shows a running gateway.
#[derive(Debug, Subcommand)]
pub enum InspectCommand {
    /// Show the node's role, peers, ports and dropped packets
    Status(StatusArgs),
    /// Show or count connections, or follow them as they change
    Flows(FlowsArgs),
    /// Show rates, the busiest connections, drops, latencies and peers, again and again
    Top(TopArgs),
    /// Show the way of packets: lookup, rules, translation, route, reason of the drop
    Trace(TraceArgs),
    /// Write frames at a point of their way to a pcapng file
    Capture(CaptureArgs),
    /// Show the firewall's rules and the number of connections that each matched
    Rules(RulesArgs),
    /// Show recent events: changes of roles, peers, links and configuration
    Events(EventsArgs),
    /// Show the categories of a host, and what each rule of the URL filter decides about it
    Url(UrlArgs),
}

/// What changes a running gateway, and what it needs.
#[derive(Debug, Subcommand)]
pub enum OperateCommand {
    /// Read the configuration file again and apply it without losing a connection
    Reload(ReloadArgs),
    /// Take a node out of service: a peer takes over its addresses and connections
    Drain(DrainArgs),
    /// Take a drained node back into service
    Undrain(UndrainArgs),
    /// Make a key by which nodes authenticate each other
    Key(KeyArgs),
}

/// What studies captures, and what formulas predict.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Play a capture through a configuration and report the outcome of its packets
    Replay(ReplayArgs),
    /// Study captures: the cost of replication, the savings of redundancy elimination
    #[cfg(feature = "studies")]
    #[command(subcommand)]
    Study(StudyCommand),
    /// Evaluate models: TCP across a failover
    #[cfg(feature = "studies")]
    #[command(subcommand)]
    Model(ModelCommand),
}

/// What demonstrates, measures and simulates; packages are built without.
#[cfg(feature = "lab")]
#[derive(Debug, Subcommand)]
pub enum TryCommand {
    /// Kill a node under real traffic on this machine and show which connections survive
    Demo(lab::args::DemoArgs),
    /// Measure and simulate: bench, simulate, synthesize, link
    #[command(subcommand)]
    Lab(lab::args::LabCommand),
}

/// What serves shells and readers of manuals.
#[derive(Debug, Subcommand)]
pub enum ShellCommand {
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Print a manual page, of the program or of a command
    Man(ManArgs),
}

#[cfg(test)]
mod documents;
#[cfg(test)]
mod tests;
