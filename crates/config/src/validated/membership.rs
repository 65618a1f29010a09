//! Where the list of the other nodes comes from.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where the list of the other nodes comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The source.
    pub source: MembershipSource,
    /// Where the last known list is kept.
    pub state_file: Option<PathBuf>,
    /// How long a member is kept whose record has disappeared, and which is down.
    pub forget_after: Duration,
    /// How long a starting node waits for the first list.
    pub start_wait: Duration,
}

/// A source of the list of the other nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum MembershipSource {
    /// The configuration file.
    #[default]
    Static,
    /// The nodes find each other.
    Gossip(Gossip),
    /// A cluster of etcd.
    Etcd(Etcd),
}

impl MembershipSource {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Gossip(_) => "gossip",
            Self::Etcd(_) => "etcd",
        }
    }
}

/// Gossip with other nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gossip {
    /// Own address and UDP port.
    pub listen: SocketAddr,
    /// Those of some other nodes.
    pub seeds: Vec<SocketAddr>,
}

/// A cluster of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Etcd {
    /// Client URLs, without a slash at the end; never empty.
    pub endpoints: Vec<String>,
    /// What the keys begin with, without a slash at the end.
    pub prefix: String,
    /// Time to live of the node's key.
    pub lease: Duration,
    /// Certificates of the authority of etcd's servers.
    pub authority: Option<PathBuf>,
    /// The node's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}
