//! Why commands fail.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use config::key_file::KeyNotWritten;
use config::{ConfigError, FILE_BYTES_MAX};
use control::client::ClientError;
use control::remote::RemoteError;
use daemon::gateway::GatewayError;
use daemon::sync::SyncError;
use packet_io::pcap::PcapError;

use super::finding::CheckFailed;
use super::replay::ReplayError;
use super::study::StudyError;
use super::sync::import::SyntaxError;

/// Why a command failed; its text is all that the operator is told.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A start on this host would fail.
    #[error(transparent)]
    Check(#[from] CheckFailed),
    /// The gateway cannot be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A gateway's command was given to `mainstay sync`; what does the same for the kernel.
    #[error(
        "this socket is that of mainstay sync, not of a gateway: the kernel forwards, and no packet passes mainstay. {0}"
    )]
    KernelForwards(&'static str),
    /// What clients of the control API from afar must show cannot be had.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The gateway cannot run.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// `mainstay sync` cannot run.
    #[error(transparent)]
    Sync(#[from] SyncError),
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
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A conntrackd.conf was not translated.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// What keepalived or an operator wanted of mainstay sync was not done.
    #[error(transparent)]
    Hook(#[from] HookFailed),
    /// A key was not made.
    #[error(transparent)]
    Key(#[from] KeyNotWritten),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
}

/// Why the file is not in force. What is wrong with it has been printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReloaded {
    /// There are mistakes.
    #[error("nothing has changed: the file cannot be used")]
    Mistakes,
    /// The gateway must be restarted.
    #[error(
        "nothing has changed: restart the gateway, its peer keeps the connections meanwhile (mainstay drain, then restart)"
    )]
    NeedsRestart,
}

/// Why the node is still in service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotDrained {
    /// Nobody took its addresses, and it went on.
    #[error("no peer took the addresses within the time for it: the node goes on (mainstay status --events)")]
    GivenUp,
    /// It is not known what became of it.
    #[error("the node is still {role} after {seconds} s: see mainstay status")]
    Unfinished {
        /// The node's role.
        role: String,
        /// How long was waited.
        seconds: u64,
    },
}

/// Why a capture is not written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be made.
    #[error("{} cannot be written: {source}: choose another --write", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something cannot be written to it.
    #[error("the capture cannot be written: {0}")]
    Write(#[from] PcapError),
    /// The gateway tells of frames that make no sense.
    #[error("the gateway's frames are not understood: is this program of another version?")]
    NotUnderstood,
}

/// Why it was not done. Its text is all that keepalived logs.
#[derive(Debug, thiserror::Error)]
pub enum HookFailed {
    /// Nobody listens.
    #[error(
        "no mainstay sync answers at {}: is it running? (mainstay sync --config …; node.control_socket says where it listens)",
        .0.display()
    )]
    NoDaemon(PathBuf),
    /// It cannot be asked, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It takes longer than whoever asks can wait.
    #[error("{order} was ordered, but the state is not usable after {waited:?}: {}", because.join("; "))]
    NotUsable {
        /// What was ordered.
        order: &'static str,
        /// How long was waited.
        waited: Duration,
        /// What is in the way.
        because: Vec<String>,
    },
    /// Somebody else wants something else.
    #[error("{order} was ordered, but the node is {role} now: something else has ordered that meanwhile")]
    Overtaken {
        /// What was ordered.
        order: &'static str,
        /// The role that the node has.
        role: String,
    },
    /// The node must not be chosen.
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
    #[error("{} has no Sync section: it does not replicate connections, and there is nothing to translate", .0.display())]
    NoSync(PathBuf),
}
