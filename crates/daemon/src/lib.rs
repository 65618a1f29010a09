//! The processes: [`gateway`] runs a node of a cluster, [`sync`] replicates the kernel's connection tracking.
//!
//! Each owns its node, its sockets and its threads, and answers operators over the control API. What a node decides is in
//! `cluster`; what a configuration means is in `config`.

mod complaints;
mod describe;
pub mod gateway;
pub mod logging;
pub mod sync;

use config::ConfigError;
use gateway::GatewayError;
use logging::LoggingError;
use sync::SyncError;

/// Why a process cannot run. Its text is all that the operator is told.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Logging cannot begin.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// The gateway cannot run.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// Replication of the kernel's connections cannot run.
    #[error(transparent)]
    Sync(#[from] SyncError),
}
