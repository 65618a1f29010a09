//! Why a daemon of this program does not run as it should.

use std::process::ExitStatus;

/// Why a daemon of this program does not run as it should.
#[derive(Debug, thiserror::Error)]
pub enum SyncDaemonError {
    /// It ended by itself.
    #[error("mainstay sync of router {name} ended ({status}) while it should run; its log ends with:\n{log}")]
    Ended {
        /// Which.
        name: &'static str,
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// It does not do what it is asked.
    #[error("mainstay sync of router {name} does not do what it is asked ({request}): {reason}")]
    Refused {
        /// Which.
        name: &'static str,
        /// The request.
        request: &'static str,
        /// Its words.
        reason: String,
    },
    /// This program cannot be found.
    #[error("this program cannot be started anew: {0}")]
    Program(#[source] std::io::Error),
}
