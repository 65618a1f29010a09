//! Why the demo of two sites has no result, or a bad one.

use std::time::Duration;

use packet_io::IoError;

use crate::emulator::LinkError;
use crate::testbed::cluster::ClusterError;
use crate::testbed::watch::WatchError;

/// How long all downloads of one round may take.
pub(super) const DOWNLOADED_WITHIN: Duration = Duration::from_secs(180);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The network, or the server in it.
    #[error(transparent)]
    Network(#[from] IoError),
    /// The server cannot listen.
    #[error("the server cannot listen: {0}")]
    Server(#[source] std::io::Error),
    /// The link between the sites.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The nodes cannot be started.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The nodes run but do not get ready.
    #[error("the nodes were not ready in time: {reason}\n{logs}")]
    NotReady {
        /// What is missing.
        reason: String,
        /// The ends of their logs.
        logs: String,
    },
    /// There is no node to kill.
    #[error("no node of site {0} is active: is the machine overloaded?")]
    NobodyToKill(&'static str),
    /// Downloads that do not come to an end.
    #[error("downloads were not over within {} s", DOWNLOADED_WITHIN.as_secs())]
    TooSlow,
    /// A signal came.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Downloads broke.
    #[error("{failed} downloads failed, {corrupted} were corrupted, and the failovers were {survived}")]
    Broken {
        /// Those that did not end.
        failed: usize,
        /// Those whose bytes were wrong.
        corrupted: usize,
        /// `survived` or not.
        survived: &'static str,
    },
}
