//! What the daemon runs with: every value checked, every reference resolved, every default filled in.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use cluster::GroupId;
use cluster::forwarding::MssClamp;
use filters::Insertion;
use flow::{NodeId, PortId};
use replication::{Transport, compact};

pub use super::compact::{Compact, Recovery};
pub use super::limits::Limits;
pub use super::redundancy::{Redundancy, RedundancyRule};
pub use super::security::{CertificateFiles, Security};
pub use super::timeouts::Timeouts;
use super::value::{PortRange, Prefix};
use crate::control::remote::RemoteAccess;

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// This node.
    pub node: Node,
    /// Its ports; a [`PortId`] is an index.
    pub ports: Vec<Port>,
    /// Groups of shared addresses, each of which is on one node at a time; a [`GroupId`] is an index. Empty: all addresses
    /// are of one group, [`GroupId::FIRST`].
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
    /// The threads that move packets.
    pub workers: Workers,
    /// Functions, in the order in which packets of the original direction meet them.
    pub chain: Vec<Function>,
    /// Rules of the firewall, first match wins; what none accepts is dropped.
    pub firewall: Vec<Rule>,
    /// What becomes of connections when the rules change.
    pub on_reload: OnReload,
    /// Matches that each rule may log in a second; `None`: all of them.
    pub firewall_log_per_s: Option<u32>,
    /// Ports that source NAT translates to, of which every node has its share.
    pub nat_ports: PortRange,
    /// File of the secret that keyed mappings are computed under; there if one is keyed.
    pub nat_mapping_key: Option<PathBuf>,
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
    /// The tunnel to another site, if there is one.
    pub redundancy: Option<Redundancy>,
    /// The control API from afar, if it is offered.
    pub control: Option<RemoteAccess>,
}

/// This node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number, below `nodes`.
    pub id: NodeId,
    /// Its name for people.
    pub name: String,
    /// Nodes of the cluster, this one included: they divide the NAT ports among them.
    pub nodes: u8,
    /// The higher, the rather this node is the active one; where there are groups, each has its own.
    pub priority: u8,
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

/// How packets are taken from an interface and given to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// A packet socket with virtio-net headers (packet(7)).
    #[default]
    AfPacket,
    /// `AF_XDP` sockets, one for each queue: past the kernel.
    AfXdp,
    /// A tunnel device that the host's kernel routes into and out of.
    Tun,
}

impl Backend {
    /// All backends, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("af_packet", Self::AfPacket), ("af_xdp", Self::AfXdp), ("tun", Self::Tun)];

    /// The backend's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its index in [`Config::ports`].
    pub id: PortId,
    /// What other sections and metrics call it.
    pub name: String,
    /// The system's interface.
    pub interface: String,
    /// How packets are taken from it and given to it.
    pub backend: Backend,
    /// Shared addresses, announced by whichever node holds their group.
    pub addresses: Vec<SharedAddress>,
    /// To what the maximum segment size of TCP connections through the port is lowered, if at all.
    pub mss_clamp: Option<MssClamp>,
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

/// A shared address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedAddress {
    /// The address, with the length of its network.
    pub prefix: Prefix,
    /// Its group.
    pub group: GroupId,
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

/// The threads that move packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workers {
    /// How many, 1 to [`flow::steering::WORKERS_MAX`].
    pub count: u8,
    /// Each stays on a processor of its own.
    pub pin: bool,
}

/// From one worker's replication port to the next one's. Not 1, lest the port of failure detection, which is near, is met.
const REPLICATION_PORT_STEP: u16 = 10;

/// Where a worker replicates, on a node whose replication address is `address`; `None` beyond the last port.
#[must_use]
pub fn replication_address(address: SocketAddr, worker: flow::WorkerId) -> Option<SocketAddr> {
    let port = address.port().checked_add(REPLICATION_PORT_STEP * u16::from(worker.0))?;
    Some(SocketAddr::new(address.ip(), port))
}

/// Options of connection tracking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tracking {
    /// TCP connections whose beginning was not seen are picked up in the middle.
    pub loose: bool,
    /// Segments outside the window pass; only resets are held to it.
    pub liberal: bool,
}

/// A network function of the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// `[firewall]`.
    Firewall,
    /// `[nat]`.
    Nat,
    /// `[ftp]`.
    Ftp,
}

impl Function {
    /// All functions, with their names.
    pub const ALL: [(&'static str, Self); 3] = [("firewall", Self::Firewall), ("nat", Self::Nat), ("ftp", Self::Ftp)];
}

/// What a rule does with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Its packets pass.
    Accept,
    /// They are dropped.
    Drop,
}

impl Action {
    /// All actions, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("accept", Self::Accept), ("drop", Self::Drop)];
}

/// What becomes of connections when the firewall's rules change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnReload {
    /// They go on, whatever the new rules say.
    #[default]
    Keep,
    /// Those that the new rules would not let in are ended.
    Reevaluate,
}

impl OnReload {
    /// All choices, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("keep", Self::Keep), ("reevaluate", Self::Reevaluate)];
}

/// A firewall rule. Every condition must hold; an empty list or `None` is no condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its name, unique.
    pub name: String,
    /// Port that the connection's first packet comes in on.
    pub from: Option<PortId>,
    /// Source prefixes, any of which.
    pub source: Vec<Prefix>,
    /// Destination prefixes, any of which.
    pub destination: Vec<Prefix>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Source ports, any of which; only with TCP or UDP.
    pub source_ports: Vec<PortRange>,
    /// Destination ports, any of which; only with TCP or UDP.
    pub destination_ports: Vec<PortRange>,
    /// Type of the ICMP query; only with ICMP or ICMPv6.
    pub icmp_type: Option<u8>,
    /// What happens.
    pub action: Action,
    /// Whether a match is logged.
    pub log: bool,
}

/// A source translation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceNat {
    /// Source prefixes, any of which; never empty; all of one family.
    pub source: Vec<Prefix>,
    /// Destination prefixes, any of which; empty: all.
    pub destination: Vec<Prefix>,
    /// IP protocol; `None`: all.
    pub protocol: Option<u8>,
    /// Addresses to translate to, 1 to 256, of the same family.
    pub to: Vec<IpAddr>,
    /// How address and port outside are computed; `None`: they are chosen among those that are free.
    pub mapping: Option<NatMapping>,
}

/// How a source translation is computed (RFC 7422).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatMapping {
    /// Under the secret of [`Config::nat_mapping_key`].
    pub is_keyed: bool,
    /// Ports of an inside address; `None`: as many as there are for each.
    pub block_ports: Option<u16>,
}

/// A destination translation (port forwarding).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DestinationNat {
    /// Address that clients connect to.
    pub destination: IpAddr,
    /// IP protocol; `None`: all.
    pub protocol: Option<u8>,
    /// Ports that clients connect to; `None`: all.
    pub ports: Option<PortRange>,
    /// The server, of the same family.
    pub to: IpAddr,
    /// The server's port that the first of `ports` becomes; `None`: ports stay.
    pub to_port: Option<u16>,
}

/// What the firewall does with a connection that another one announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Related {
    /// It passes.
    #[default]
    Accept,
    /// The rules decide.
    Rules,
}

impl Related {
    /// Both choices, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("accept", Self::Accept), ("rules", Self::Rules)];
}

/// The FTP helper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ftp {
    /// Ports of control connections.
    pub ports: Vec<PortRange>,
    /// Addresses other than the announcer's are believed.
    pub loose: bool,
    /// Ports below 1024 are believed.
    pub privileged_ports: bool,
    /// How long an announced connection is waited for.
    pub timeout: Duration,
}

/// The other nodes and how this one speaks with them.
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// Replication of connection state.
    pub replication: Replication,
    /// Detection of dead peers.
    pub failure_detection: FailureDetection,
}

/// Which changes of a connection are told to its backups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Representation {
    /// Changes of the automaton's state.
    #[default]
    PreciseSelective,
    /// Every change.
    PreciseEager,
    /// Nothing: peers are watched, but know no connections.
    None,
    /// Connections as entries of a filter; see [`Compact`].
    Compact(compact::Representation),
}

impl Representation {
    /// All representations, with their names.
    pub const ALL: [(&'static str, Self); 9] = [
        ("precise-selective", Self::PreciseSelective),
        ("precise-eager", Self::PreciseEager),
        ("none", Self::None),
        ("host-aggregate", Self::Compact(compact::Representation::HostAggregate)),
        ("flow-digest", Self::Compact(compact::Representation::FlowDigest)),
        ("multi-level", Self::Compact(compact::Representation::MultiLevel(Insertion::FirstAvailable))),
        ("multi-level-least-load", Self::Compact(compact::Representation::MultiLevel(Insertion::LeastLoad))),
        ("d-left", Self::Compact(compact::Representation::DLeft)),
        ("counting-bloom", Self::Compact(compact::Representation::CountingBloom)),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("none", |(name, _)| *name)
    }

    /// Whether connections are told as entries of a filter.
    #[must_use]
    pub const fn is_compact(self) -> bool {
        matches!(self, Self::Compact(_))
    }
}

/// Replication of connection state.
#[derive(Clone, PartialEq, Debug)]
pub struct Replication {
    /// Own address and UDP port.
    pub local: SocketAddr,
    /// Which changes are told.
    pub representation: Representation,
    /// The filter, where connections are told as entries of one.
    pub compact: Option<Compact>,
    /// What carries it.
    pub transport: Transport,
    /// How long at most the first reply of a connection waits until a peer has confirmed the connection; zero: not at all.
    pub hold_first_reply: Duration,
    /// Where nodes forward at the same time: how long at most a packet that cannot be judged without what a peer is about to
    /// tell waits for it; zero: not at all.
    pub wait_for_peer: Duration,
    /// Share of the peers' datagrams, those of failure detection included, thrown away as they come in, 0 to 1. For
    /// tests only.
    pub test_loss: f64,
    /// Largest datagram, without IP and UDP headers.
    pub datagram_bytes_max: u16,
    /// Messages sent and not yet acknowledged, at most.
    pub in_flight_messages_max: u16,
    /// Messages received until an acknowledgement is sent.
    pub ack_every_messages: u16,
    /// Longest time until an acknowledgement is sent.
    pub ack_delay: Duration,
    /// Time between signs of life on an idle link.
    pub alive_interval: Duration,
    /// Silence after which a peer counts as away.
    pub peer_timeout: Duration,
    /// How long connections are put off before they are told; `None`: not at all.
    pub lazy: Option<replication::lazy::Config>,
    /// The other nodes, never empty.
    pub peers: Vec<Peer>,
    /// What all that is said to them is secured by; `None`: nothing, it is plain text.
    pub security: Option<Security>,
}

/// Another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its number.
    pub id: NodeId,
    /// Its address and UDP port for replication.
    pub address: SocketAddr,
    /// Its address and UDP port for failure detection.
    pub failure_detection_address: SocketAddr,
}

/// Detection of dead peers (BFD, RFC 5880), and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureDetection {
    /// Own address and UDP port.
    pub local: SocketAddr,
    /// Time between control packets.
    pub interval: Duration,
    /// Intervals without a packet until a peer counts as down.
    pub multiplier: u8,
    /// Time between control packets while a peer is down.
    pub interval_while_down: Duration,
    /// How long a starting node listens before it becomes active without having heard a peer.
    pub startup_hold: Duration,
    /// Whether a node of higher priority takes over from a healthy active one.
    pub preempt: bool,
}

impl FailureDetection {
    /// How long after its last packet a peer counts as down.
    #[must_use]
    pub fn detection_time(&self) -> Duration {
        self.interval * u32::from(self.multiplier)
    }
}
