//! Why the demo has no result, or a bad one.

use std::io;
use std::path::PathBuf;

use packet_io::IoError;

use super::run::RunError;
use super::tunnel;

/// Why the demo has no result, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The machine cannot give what the demo needs.
    #[error(transparent)]
    System(#[from] IoError),
    /// A program is missing that the demo runs.
    #[error("the demo cannot be run: {0}")]
    Missing(String),
    /// A run could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The page cannot be written.
    #[error("cannot write the report {}: {source}", path.display())]
    Page {
        /// Where it was to be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The two sites.
    #[error(transparent)]
    Tunnel(#[from] tunnel::TunnelError),
    /// What replication costs could not be measured.
    #[error(transparent)]
    Rate(#[from] crate::bench::BenchError),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
    /// Promises were broken, of failures that were made on purpose.
    #[error("promises were broken: {0}")]
    PromisesBroken(String),
    /// Connections broke that should not have.
    #[error("{broken} of {connections} replicated connections broke")]
    Broken {
        /// How many.
        broken: usize,
        /// Of how many.
        connections: usize,
    },
}
