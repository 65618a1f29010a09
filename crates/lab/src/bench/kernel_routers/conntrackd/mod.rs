//! conntrackd as its operators run it: a configuration file, a process in its router's namespace, and its own client to ask
//! it things.

mod config;
mod daemon;

use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use packet_io::IoError;

pub(crate) use self::daemon::Daemon;

/// How long the daemons may take until they hear each other.
pub const READY_WITHIN: Duration = Duration::from_secs(30);
/// Has a daemon commit what it was told to the kernel.
pub const COMMIT: &str = "-c";
/// What has a daemon begin as a primary that has committed what it was told: forget that, read the kernel's connections, and
/// tell them.
pub const BEGIN_AS_PRIMARY: [&str; 3] = ["-f", "-R", "-B"];

/// How the daemons talk to each other (conntrackd.conf(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Its reliable protocol, over UDP.
    #[default]
    Ftfw,
    /// Every change once, over UDP.
    Notrack,
    /// Every change once, over TCP.
    Tcp,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ftfw, Self::Notrack, Self::Tcp];

    /// What reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftfw => "conntrackd",
            Self::Notrack => "conntrackd-udp",
            Self::Tcp => "conntrackd-tcp",
        }
    }
}

/// Sizes of the buffer that the kernel's events wait in, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventBuffer {
    /// At first.
    pub bytes: u32,
    /// What it may grow to when events were lost.
    pub bytes_max: u32,
}

impl Default for EventBuffer {
    /// Large enough that nothing is lost in it.
    fn default() -> Self {
        Self { bytes: 4 << 20, bytes_max: 32 << 20 }
    }
}

/// How a daemon is to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DaemonPlan {
    /// How the daemons talk to each other.
    pub mode: Mode,
    /// The backup keeps the other's connections in its own memory and commits them to the kernel when it takes over. Without,
    /// it gives them to the kernel as they come.
    pub has_external_cache: bool,
    /// Events of TCP connections in states that the documentation names as those worth telling are the only ones that the
    /// kernel lets through to the daemon; else those in all states.
    pub filters_states: bool,
    /// Where the kernel's events wait.
    pub event_buffer: EventBuffer,
}

impl Default for DaemonPlan {
    /// As conntrackd's documentation recommends.
    fn default() -> Self {
        Self { mode: Mode::Ftfw, has_external_cache: true, filters_states: false, event_buffer: EventBuffer::default() }
    }
}

/// Why the pair does not run as it should.
#[derive(Debug, thiserror::Error)]
pub enum ConntrackdError {
    /// The machine cannot give what it needs.
    #[error(transparent)]
    System(#[from] IoError),
    /// The machine lacks a program or a part of the kernel.
    #[error("there is no comparison with conntrackd: {0}")]
    Unavailable(String),
    /// A daemon ended by itself.
    #[error("conntrackd of router {name} ended ({status}) while it should run; its log ends with:\n{log}")]
    Ended {
        /// Which.
        name: &'static str,
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The daemons run but do not hear each other.
    #[error("the conntrackd of the two routers did not hear each other within {} s: {why}", READY_WITHIN.as_secs())]
    NotReady {
        /// What is missing.
        why: String,
    },
    /// A daemon does not do what it is asked.
    #[error("conntrackd of router {name} does not do what it is asked ({request}): {why}")]
    Refused {
        /// Which.
        name: &'static str,
        /// The option.
        request: &'static str,
        /// Its words.
        why: String,
    },
}

/// Whether such a pair can be run here; if not, why, and what to do about it.
///
/// # Errors
/// A program is missing.
pub fn available() -> Result<(), String> {
    for (program, package) in [("conntrackd", "conntrackd"), ("nft", "nftables")] {
        let mut command = Command::new(program);
        command.arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
            .status()
            .map_err(|error| format!("{program} cannot be run ({error}): install the package {package}"))?;
    }
    Ok(())
}
