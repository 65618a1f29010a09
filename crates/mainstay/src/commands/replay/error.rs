//! Why a capture cannot be replayed.

use std::path::PathBuf;

use cluster::forwarding;
use daemon::ProcessError;
use packet_io::pcap::PcapError;

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The capture cannot be read.
    #[error("{}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: PcapError,
    },
    /// The output capture cannot be written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: PcapError,
    },
    /// `--port-map` names a port that the configuration does not have.
    #[error("--port-map: there is no port {name:?}: write one of {known}")]
    UnknownPort {
        /// What it names.
        name: String,
        /// The ports that there are.
        known: String,
    },
    /// The node cannot be made from the configuration.
    #[error(transparent)]
    Gateway(#[from] ProcessError),
    /// Its addresses and routes cannot be used.
    #[error(transparent)]
    Forwarding(#[from] forwarding::ConfigError),
    /// The node itself cannot be made.
    #[error(transparent)]
    Node(#[from] cluster::node::ConfigError),
}
