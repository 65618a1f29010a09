//! `mainstay model`: what formulas predict.

pub mod failover;

use std::io;
use std::path::PathBuf;

use analysis::tcp_failover::ConfigError;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A parameter is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The page cannot be written.
    #[error("{}: {error}: choose another --output", path.display())]
    Page {
        /// Its file.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
}
