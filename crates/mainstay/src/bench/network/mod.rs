//! Measurements of real TCP through real gateways, in network namespaces of their own.
//!
//! Everything shares the machine's processors: the end points, the gateways and whatever else runs. So figures are to be
//! compared with each other, not with those of machines that do one thing each.

pub mod bulk;
mod kernel;
mod report;
pub mod setup_rate;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use packet_io::IoError;

use crate::demo::cluster::{Cluster, ClusterPlan};
use crate::demo::run::RunError;
use crate::demo::topology::{SERVER, Topology};
use crate::demo::watch::{Watch, WatchError};

/// How long a connection to the server may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// Why a measurement over a network has no result.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The network cannot be built.
    #[error(transparent)]
    System(#[from] IoError),
    /// The gateways do not run as they should.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A signal came.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The end points cannot talk to each other.
    #[error("{who} cannot work: {source}")]
    Socket {
        /// Client or server.
        who: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing came through.
    #[error("nothing came through {0}, so there is nothing to measure")]
    Nothing(&'static str),
}

impl NetworkError {
    fn client(source: io::Error) -> Self {
        Self::Socket { who: "the client", source }
    }

    fn server(source: io::Error) -> Self {
        Self::Socket { who: "the server", source }
    }
}

/// A network with a pair of gateways in it, one of which forwards.
struct Gateways {
    topology: Topology,
    _cluster: Cluster,
}

impl Gateways {
    fn start(watch: &Watch, is_replicated: bool, connections_max: usize) -> Result<Self, NetworkError> {
        let topology = Topology::build()?;
        let plan = ClusterPlan { is_replicated, sync_loss: 0.0, connections_max };
        let mut cluster = Cluster::start(&topology, plan).map_err(RunError::from)?;
        cluster.wait_until_ready(watch, is_replicated).map_err(RunError::from)?;
        Ok(Self { topology, _cluster: cluster })
    }
}

/// The server's IPv4 address with a port.
fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER[0], port)
}
