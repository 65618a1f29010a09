//! Why commands fail.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::{ErrorKind, NodeRole};
use config::key_file::KeyNotWritten;
use config::{ConfigError, Diagnostic, FILE_BYTES_MAX};
use control::client::ClientError;
use control::remote::RemoteError;
use daemon::ProcessError;
use packet_io::IoError;
use packet_io::pcap::PcapError;

#[cfg(feature = "studies")]
use super::model::ModelError;
use super::problem::CheckFailed;
use super::replay::ReplayError;
#[cfg(feature = "studies")]
use super::study::StudyError;
use super::sync::import::SyntaxError;
use crate::exit::Exit;

/// Why a command failed. Its text is the whole message to the operator; [`Exit`] is its code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A start on this host would fail.
    #[error(transparent)]
    Check(#[from] CheckFailed),
    /// The gateway does not answer, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A command for gateways reached `mainstay sync`; the field names the kernel's own tool.
    #[error(
        "this control socket belongs to mainstay sync, not to a gateway: the kernel forwards all packets here. {0}"
    )]
    KernelForwards(&'static str),
    /// The credentials of remote clients of the control API cannot be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The gateway or `mainstay sync` cannot run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The laboratory has no result, or one that shows a broken promise.
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// The configuration was not put in force.
    #[error(transparent)]
    Reload(#[from] NotReloaded),
    /// The node was not taken out of service.
    #[error(transparent)]
    Drain(#[from] NotDrained),
    /// The capture cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The capture cannot be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A study has no result.
    #[cfg(feature = "studies")]
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A model has no figures.
    #[cfg(feature = "studies")]
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A conntrackd.conf was not translated.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// `mainstay sync` did not carry out an order.
    #[error(transparent)]
    Hook(#[from] HookFailed),
    /// A key was not made.
    #[error(transparent)]
    Key(#[from] KeyNotWritten),
    /// A manual page is asked for that there is none of.
    #[error("there is no command {0:?}: mainstay --help lists all commands")]
    UnknownCommand(String),
    /// Manual pages were not written.
    #[error(transparent)]
    Pages(#[from] PagesNotWritten),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The mistakes of a configuration file, if these are why the command failed.
    pub(crate) fn config_mistakes(&self) -> Option<&[Diagnostic]> {
        match self {
            Self::Config(ConfigError::Invalid(found))
            | Self::Process(ProcessError::Config(ConfigError::Invalid(found))) => Some(found),
            _ => None,
        }
    }
}

/// A manual page was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct PagesNotWritten {
    /// The file.
    pub path: PathBuf,
    /// The reason of the operating system.
    pub source: io::Error,
}

/// Why the file is not in force. Its mistakes have been printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReloaded {
    /// There are mistakes.
    #[error("nothing has changed: correct the file and reload it again")]
    Mistakes,
    /// The gateway must be restarted.
    #[error(
        "nothing has changed: restart the gateway; its peer keeps the connections meanwhile (mainstay drain, then restart)"
    )]
    NeedsRestart,
}

/// Why the node is still in service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotDrained {
    /// No peer took over its addresses.
    #[error("no peer took over the addresses in time, and the node stays in service: see mainstay events")]
    GivenUp,
    /// The node has not changed its role.
    #[error("the node is still {role} after {seconds} s: see mainstay status and mainstay events")]
    Unfinished {
        /// The node's role.
        role: NodeRole,
        /// How long was waited.
        seconds: u64,
    },
}

/// Why a capture is not written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be made.
    #[error("{} cannot be written: {source}: choose another --output", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something cannot be written to it.
    #[error("the capture cannot be written: {0}")]
    Write(#[from] PcapError),
    /// No signal can end it.
    #[error("the capture is not begun: {0}")]
    Signals(#[from] IoError),
    /// No thread can wait for signals.
    #[error("the capture is not begun: no thread can be started: {0}")]
    Thread(io::Error),
    /// The gateway sends malformed frames.
    #[error("the gateway's frames are malformed: is this program of another version?")]
    NotUnderstood,
}

/// Why an order was not carried out. Its text is the whole line that keepalived logs.
#[derive(Debug, thiserror::Error)]
pub enum HookFailed {
    /// The daemon does not answer.
    #[error(
        "no mainstay sync answers at {}: is it running? (mainstay sync --config …; node.control_socket is where it listens)",
        .0.display()
    )]
    NoDaemon(PathBuf),
    /// The connection to the daemon failed, or the daemon refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node takes longer than the timeout.
    #[error("{order} was ordered, but the state is not usable after {waited:?}: {}", reasons.join("; "))]
    NotUsable {
        /// What was ordered.
        order: &'static str,
        /// How long was waited.
        waited: Duration,
        /// The reasons.
        reasons: Vec<String>,
    },
    /// Another order came meanwhile.
    #[error("{order} was ordered, but another order has made the node {role} meanwhile")]
    Overtaken {
        /// What was ordered.
        order: &'static str,
        /// The role that the node has.
        role: NodeRole,
    },
    /// The node is not eligible.
    #[error("this node must not take over: {}", .0.join("; "))]
    NotReady(Vec<String>),
}

/// Why a conntrackd.conf cannot be translated.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The system does not give the file.
    #[error("cannot read {}: {source}: name the file that conntrackd is started with (conntrackd -C)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is larger than any configuration.
    #[error("{} is larger than {FILE_BYTES_MAX} bytes: is it a conntrackd.conf?", .0.display())]
    TooLarge(PathBuf),
    /// The file is not what conntrackd would read.
    #[error("{}:{error}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        error: SyntaxError,
    },
    /// It configures something else.
    #[error("{} has no Sync section: it configures no replication, and there is nothing to translate", .0.display())]
    NoSync(PathBuf),
}

impl From<&CommandError> for Exit {
    fn from(error: &CommandError) -> Self {
        match error {
            CommandError::Client(error) | CommandError::Hook(HookFailed::Client(error)) => error.into(),
            CommandError::Hook(HookFailed::NoDaemon(_)) => Self::Unreachable,
            CommandError::KernelForwards(_) | CommandError::Reload(_) => Self::Refused,
            CommandError::UnknownCommand(_) => Self::Usage,
            #[cfg(feature = "studies")]
            CommandError::Model(ModelError::Config(_)) => Self::Usage,
            #[cfg(feature = "lab")]
            CommandError::Lab(lab::LabError::Ns3(
                lab::ns3::Ns3Error::Config(_) | lab::ns3::Ns3Error::Unsupported { .. },
            )) => Self::Usage,
            #[cfg(feature = "lab")]
            CommandError::Lab(lab::LabError::Simulate(lab::simulate::SimulateError::ManyNodesOptions(_))) => {
                Self::Usage
            }
            _ => Self::Failed,
        }
    }
}

impl From<&ClientError> for Exit {
    fn from(error: &ClientError) -> Self {
        match error {
            ClientError::NoGateway(_) | ClientError::Broken { .. } => Self::Unreachable,
            // A condition that the gateway cannot read was on the command line.
            ClientError::Refused { kind: ErrorKind::Malformed, .. } | ClientError::BadName(_) => Self::Usage,
            ClientError::Refused { kind: ErrorKind::Incompatible, .. } => Self::Failed,
            ClientError::Refused { .. } | ClientError::NotAllowed(_) | ClientError::Untrusted { .. } => Self::Refused,
            ClientError::NoToken(_) | ClientError::Secret(_) | ClientError::Tls(_) | ClientError::NotUnderstood(_) => {
                Self::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use control::target::Target;

    use super::*;

    #[test]
    fn each_failure_has_its_code() {
        let target = || Target::Socket(PathBuf::from("/run/s"));
        let broken = || ClientError::Broken { target: target(), source: io::Error::other("reset") };
        let refused_as = |kind| ClientError::Refused { kind, message: "no peer".into() };
        let refused = || refused_as(ErrorKind::Refused);
        let cases: [(CommandError, Exit); 13] = [
            (refused_as(ErrorKind::Malformed).into(), Exit::Usage),
            (refused_as(ErrorKind::Incompatible).into(), Exit::Failed),
            (ClientError::NoGateway(target()).into(), Exit::Unreachable),
            (broken().into(), Exit::Unreachable),
            (HookFailed::NoDaemon("/run/s".into()).into(), Exit::Unreachable),
            (refused().into(), Exit::Refused),
            (HookFailed::Client(refused()).into(), Exit::Refused),
            (ClientError::NotAllowed("/run/s".into()).into(), Exit::Refused),
            (NotReloaded::Mistakes.into(), Exit::Refused),
            (CommandError::KernelForwards("nft"), Exit::Refused),
            (ClientError::BadName("-".into()).into(), Exit::Usage),
            (NotDrained::GivenUp.into(), Exit::Failed),
            (io::Error::other("full").into(), Exit::Failed),
        ];
        for (error, exit) in cases {
            assert_eq!(Exit::from(&error), exit, "{error}");
        }
    }
}
