//! What the daemon runs with: every value checked, every reference resolved, every default filled in.

mod cluster;
pub mod edge;
mod fast_path;
mod functions;
mod limits;
mod membership;
mod port;
mod reachability;
mod redundancy;
mod service;
mod syn_proxy;
pub mod sync;
mod url_filter;
mod workers;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use flow::conntrack::StrayResets;
use flow::{NodeId, PortId};
use network_functions::classifier::ClassifierConfig;
use network_functions::firewall::{Related, Rule};
use network_functions::port_range::PortRange;
use network_functions::rate_limit::RuleConfig as RateLimitRule;

pub use self::cluster::{BackupLookup, Backups, Cluster, FailureDetection, Peer, Replication, Representation};
pub use self::fast_path::FastPath;
pub use self::functions::{DestinationNat, Ftp, Function, NatMapping, OnReload, SourceNat};
pub use self::limits::Limits;
pub use self::membership::{Etcd, Gossip, Membership, MembershipSource};
pub use self::port::{Backend, Port, SharedAddress};
pub use self::reachability::Reachability;
pub use self::redundancy::{Redundancy, RedundancyRule};
pub use self::service::{CheckKind, HealthCheck, Service};
pub use self::syn_proxy::SynProxy;
pub use self::url_filter::{UrlFilter, UrlList, UrlServer, UrlServerTls};
pub use self::workers::{Workers, replication_address};
pub use super::compact::{Compact, Recovery};
pub use super::security::{CertificateFiles, Security};
pub use super::timeouts::Timeouts;
use super::value::Prefix;
use crate::remote::RemoteAccess;

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// This node.
    pub node: Node,
    /// Its ports; a [`PortId`] is an index.
    pub ports: Vec<Port>,
    /// Groups of shared addresses, each of which is on one node at a time; a [`GroupId`](::cluster::GroupId) is an index. Empty: all addresses
    /// are of one group, [`GroupId::FIRST`](::cluster::GroupId::FIRST).
    pub groups: Vec<Group>,
    /// Static routes. Networks of the ports' own addresses are not among them.
    pub routes: Vec<Route>,
    /// Connections held at most, 1 to 2^31.
    pub connections_max: u32,
    /// What is held at most beside connections, and what one source may have.
    pub limits: Limits,
    /// How long connections live without a packet.
    pub timeouts: Timeouts,
    /// Options of connection tracking.
    pub tracking: Tracking,
    /// What the node should reach.
    pub reachability: Reachability,
    /// The threads that move packets.
    pub workers: Workers,
    /// The connections that the kernel forwards.
    pub fast_path: FastPath,
    /// Functions, in the order in which packets of the original direction meet them.
    pub chain: Vec<Function>,
    /// Traffic classes.
    pub classifier: ClassifierConfig,
    /// Rules of the firewall, first match wins; what none accepts is dropped.
    pub firewall: Vec<Rule>,
    /// What becomes of connections when the rules change.
    pub on_reload: OnReload,
    /// Matches that each rule may log in a second; `None`: all of them.
    pub firewall_log_per_s: Option<u32>,
    /// Hosts and paths that are refused.
    pub url_filter: UrlFilter,
    /// Rate limits, first match decides.
    pub rate_limit: Vec<RateLimitRule>,
    /// For which servers the gateway answers SYNs.
    pub syn_proxy: SynProxy,
    /// Services of the load balancer; no two of them match the same packet.
    pub services: Vec<Service>,
    /// Ports that source NAT translates to, of which every node has its share.
    pub nat_ports: PortRange,
    /// File of the secret that keyed mappings are computed under; there if one is keyed.
    pub nat_mapping_key: Option<PathBuf>,
    /// File with the secret under which free ports are chosen; `None`: the cluster's.
    pub nat_key: Option<PathBuf>,
    /// Source translations, first match wins.
    pub source_nat: Vec<SourceNat>,
    /// Destination translations; no two of them match the same packet.
    pub destination_nat: Vec<DestinationNat>,
    /// What becomes of connections that another one announced.
    pub related: Related,
    /// The FTP helper.
    pub ftp: Ftp,
    /// The other nodes; `None` for a gateway that stands alone.
    pub cluster: Option<Cluster>,
    /// Where the list of the other nodes comes from.
    pub membership: Membership,
    /// The tunnel to another site, if there is one.
    pub redundancy: Option<Redundancy>,
    /// The control API from afar, if it is offered.
    pub control: Option<RemoteAccess>,
}

impl Config {
    /// Whether several nodes may forward at the same time: each holds a group of addresses, or edges distribute flows over them.
    #[must_use]
    pub fn several_forward(&self) -> bool {
        let has_edges =
            |cluster: &Cluster| cluster.failure_detection.edges_max > 0 || cluster.replication.backups.is_some();
        self.groups.len() > 1 || self.cluster.as_ref().is_some_and(has_edges)
    }
}

/// This node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number, below `nodes`.
    pub id: NodeId,
    /// Its name for people.
    pub name: String,
    /// Nodes of the cluster, this one included: where several forward at a time, they divide the NAT ports among them.
    pub nodes: u8,
    /// The higher, the rather this node is the active one; where there are groups, each has its own.
    pub priority: u8,
    /// How often the shared addresses that this node holds are announced again; zero: never.
    pub announce_refresh: Duration,
    /// Where the control API listens.
    pub control_socket: PathBuf,
    /// Where metrics are served, if at all.
    pub metrics: Option<SocketAddr>,
    /// How much is logged.
    pub log: LogLevel,
    /// How log entries are written.
    pub log_format: LogFormat,
    /// Entries that each place in the program may log in a second; `None`: all of them.
    pub log_per_s: Option<u32>,
}

/// How log entries are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

impl LogFormat {
    /// All formats, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogLevel {
    /// What keeps the gateway from its work.
    Error,
    /// And what may do so soon.
    Warn,
    /// And every change of role or peer.
    #[default]
    Info,
    /// And why.
    Debug,
    /// And every message.
    Trace,
}

impl LogLevel {
    /// All levels, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// The level's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// A group of shared addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its name, the same on all nodes.
    pub name: String,
    /// The higher, the rather this node holds it.
    pub priority: u8,
    /// Whether this node takes it from a healthy one of lower priority.
    pub preempt: bool,
}

impl Group {
    /// The number by which nodes know the group.
    #[must_use]
    pub fn identity(&self) -> u32 {
        Self::identity_of(&self.name)
    }

    /// The number by which nodes know a group of this name: FNV-1a, 32 bits.
    #[must_use]
    pub fn identity_of(name: &str) -> u32 {
        name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

/// A static route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destinations.
    pub to: Prefix,
    /// The next hop, of the same family, on the network of `port`.
    pub via: IpAddr,
    /// The port that the next hop is on.
    pub port: PortId,
}

/// Options of connection tracking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracking {
    /// TCP connections whose beginning was not seen are picked up in the middle.
    pub loose: bool,
    /// Segments outside the window pass; only resets are held to it.
    pub liberal: bool,
    /// Which TCP segments of no connection are answered by a reset.
    pub reset_stray: StrayResets,
}
