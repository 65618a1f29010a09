//! Why `mainstay sync` cannot run.

use crate::gateway::credentials::SecretError;
use crate::logging;
use control::ServerError;
use control::metrics::server::MetricsError;

/// Why `mainstay sync` cannot run. The operator sees its text only.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// Logging cannot begin.
    #[error(transparent)]
    Logging(#[from] logging::LoggingError),
    /// The system refuses something: an address, a privilege, connection tracking.
    #[error(transparent)]
    System(#[from] packet_io::IoError),
    /// The node cannot be made as configured.
    #[error(transparent)]
    Node(#[from] conntrack_sync::ConfigError),
    /// Keys or certificates cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}: raise the limit of processes (ulimit -u, TasksMax)")]
    Thread(#[source] std::io::Error),
    /// The control API cannot be served.
    #[error(transparent)]
    Control(#[from] ServerError),
    /// The control API cannot be offered from afar.
    #[error(transparent)]
    Remote(#[from] control::remote::RemoteError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}
