//! Why a pair of routers with conntrackd does not run as it should.

use std::process::ExitStatus;
use std::time::Duration;

use packet_io::IoError;

/// How long the daemons may take until they receive from each other.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(30);

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
    /// The daemons run but do not receive from each other.
    #[error("the conntrackd of the two routers did not receive from each other within {} s: {reason}", READY_WITHIN.as_secs())]
    NotReady {
        /// What is missing.
        reason: String,
    },
    /// A daemon does not do what it is asked.
    #[error("conntrackd of router {name} does not do what it is asked ({request}): {reason}")]
    Refused {
        /// Which.
        name: &'static str,
        /// The option.
        request: &'static str,
        /// Its words.
        reason: String,
    },
}
