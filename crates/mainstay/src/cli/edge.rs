//! `mainstay edge` and what belongs to it.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand};

use super::{CheckArgs, EventsArgs, FlowsArgs, SocketArgs, StatusArgs};
use config::edge::CONTROL_SOCKET_DEFAULT;

/// `mainstay edge`.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct EdgeArgs {
    /// Configuration file (docs/edge.md)
    #[arg(long, value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    /// Whether it is only checked.
    #[command(flatten)]
    pub check: CheckArgs,
    /// A question to a running edge.
    #[command(subcommand)]
    pub command: Option<EdgeCommand>,
}

impl EdgeArgs {
    /// Whether there are options of the daemon beside a command, which would have no effect.
    pub(super) fn is_contradictory(&self) -> bool {
        self.command.is_some() && (self.config.is_some() || self.check != CheckArgs::default())
    }
}

/// Questions to a running edge.
#[derive(Debug, Subcommand)]
pub enum EdgeCommand {
    /// Show the nodes, held packets, ports and dropped packets
    #[command(mut_arg("socket", of_edge))]
    Status(StatusArgs),
    /// Show recent events: nodes lost and returned, packets resent
    #[command(mut_arg("socket", of_edge))]
    Events(EventsArgs),
    /// Show connections, with the node of each
    #[command(mut_arg("socket", of_edge))]
    Flows(Box<FlowsArgs>),
    /// Send a node no new connections; those that it has stay there
    #[command(mut_arg("socket", of_edge))]
    Drain(EdgeDrainArgs),
    /// Send new connections to a drained node again
    #[command(mut_arg("socket", of_edge))]
    Undrain(EdgeDrainArgs),
}

/// `mainstay edge drain` and `undrain`.
#[derive(Debug, Args)]
pub struct EdgeDrainArgs {
    /// The edge.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Number of the node
    #[arg(long, value_name = "ID")]
    pub node: u8,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `--socket`, which is that of `mainstay edge` unless another is named.
fn of_edge(socket: Arg) -> Arg {
    socket.default_value(CONTROL_SOCKET_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::read;
    use crate::cli::{Command, RunCommand};

    fn parse(line: &str) -> Result<EdgeArgs, clap::Error> {
        match read(line)?.command {
            Command::Run(RunCommand::Edge(args)) => Ok(*args),
            _ => panic!("another command was understood"),
        }
    }

    #[test]
    fn a_daemon_needs_a_file_and_a_question_finds_its_socket() {
        assert!(parse("mainstay edge").is_err());
        assert!(parse("mainstay edge --config f --check --json").expect("it is right").check.check);
        match parse("mainstay edge status --json").expect("it is right").command {
            Some(EdgeCommand::Status(args)) => assert_eq!(args.socket.socket, PathBuf::from(CONTROL_SOCKET_DEFAULT)),
            _ => panic!("another command was understood"),
        }
        assert!(parse("mainstay edge --config f events").is_err());
    }
}
