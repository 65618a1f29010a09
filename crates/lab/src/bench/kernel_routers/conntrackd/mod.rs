//! conntrackd as its operators run it: a configuration file, a process in its router's namespace, and its own client to ask
//! it things.

mod config;
mod daemon;
mod error;

use std::process::{Command, Stdio};

pub(crate) use self::daemon::Daemon;
pub use self::error::ConntrackdError;
pub(crate) use self::error::READY_WITHIN;

/// Has a daemon commit its external cache to the kernel.
pub const COMMIT: &str = "-c";
/// Has a daemon begin as a primary that has committed its external cache: flush that, read the kernel's connections,
/// and send them.
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
    /// Events of TCP connections in states that the documentation names as those worth replicating are the only ones
    /// that the kernel lets through to the daemon; else those in all states.
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
