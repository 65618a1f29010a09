//! The configuration file as it is written: shape only. What the values mean is checked afterwards.

mod limits;
mod reachability;
mod redundancy;
pub mod sync;

use serde::Deserialize;
use toml::Spanned;

pub use self::limits::RawLimits;
pub use self::reachability::{RawReachability, RawTrack};
pub use self::redundancy::{RawRedundancy, RawRedundancyRule};
pub use super::compact::{RawFilter, RawRecovery};
pub use super::diagnostic::Text;
pub use super::security::RawSecurity;
pub use super::timeouts::RawTimeouts;
use super::value::{MssText, PortText, ProtocolText};

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// Functions, in the order in which packets of the original direction meet them. Default: those whose sections are there.
    pub chain: Option<Vec<Text>>,
    /// `[node]`.
    pub node: Option<Spanned<RawNode>>,
    /// `[[port]]`.
    #[serde(default)]
    pub port: Vec<Spanned<RawPort>>,
    /// `[[group]]`.
    #[serde(default)]
    pub group: Vec<Spanned<RawGroup>>,
    /// `[[route]]`.
    #[serde(default)]
    pub route: Vec<Spanned<RawRoute>>,
    /// `[limits]`.
    #[serde(default)]
    pub limits: RawLimits,
    /// `[timeouts]`.
    #[serde(default)]
    pub timeouts: RawTimeouts,
    /// `[tracking]`.
    #[serde(default)]
    pub tracking: RawTracking,
    /// `[reachability]`.
    #[serde(default)]
    pub reachability: RawReachability,
    /// `[workers]`.
    #[serde(default)]
    pub workers: RawWorkers,
    /// `[firewall]`.
    pub firewall: Option<Spanned<RawFirewall>>,
    /// `[nat]`.
    pub nat: Option<Spanned<RawNat>>,
    /// `[ftp]`.
    pub ftp: Option<Spanned<RawFtp>>,
    /// `[replication]`.
    pub replication: Option<Spanned<RawReplication>>,
    /// `[failure_detection]`.
    pub failure_detection: Option<Spanned<RawFailureDetection>>,
    /// `[redundancy]`.
    pub redundancy: Option<Spanned<RawRedundancy>>,
    /// `[control]`.
    pub control: Option<Spanned<RawControl>>,
}

/// `[node]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawNode {
    /// Number of the node in its cluster.
    pub id: Spanned<u8>,
    /// Name for people. Default: `node-` and `id`.
    pub name: Option<Text>,
    /// Nodes of the cluster. Default: the peers and this node.
    pub nodes: Option<Spanned<u8>>,
    /// Which node is preferred as the active one.
    pub priority: Option<u8>,
    /// How often the shared addresses that the node holds are announced again.
    pub announce_refresh: Option<Text>,
    /// Path of the control socket.
    pub control_socket: Option<Text>,
    /// Where metrics are served.
    pub metrics: Option<Text>,
    /// How much is logged.
    pub log: Option<Text>,
    /// How log entries are written.
    pub log_format: Option<Text>,
    /// Entries that each place in the program may log in a second.
    pub log_per_s: Option<Spanned<u32>>,
}

/// `[[port]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPort {
    /// What other sections call it.
    pub name: Text,
    /// The system's interface.
    pub interface: Text,
    /// How packets are taken from it and given to it.
    pub backend: Option<Text>,
    /// Shared addresses with their prefix lengths, where there is one group.
    #[serde(default)]
    pub addresses: Vec<Text>,
    /// `[[port.group]]`.
    #[serde(default)]
    pub group: Vec<Spanned<RawPortGroup>>,
    /// To what the maximum segment size of TCP connections is lowered.
    pub mss_clamp: Option<Spanned<MssText>>,
}

/// `[[group]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawGroup {
    /// Name, the same on all nodes.
    pub name: Text,
    /// Which node is preferred as the one that holds it. Default: `node.priority`.
    pub priority: Option<u8>,
    /// Whether a node of higher priority takes it from a healthy one. Default: `failure_detection.preempt`.
    pub preempt: Option<bool>,
    /// What is tracked for it. Default: `reachability.track`.
    pub track: Option<Vec<Spanned<RawTrack>>>,
}

/// `[[port.group]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPortGroup {
    /// Which group.
    pub name: Text,
    /// Its shared addresses on the port, with their prefix lengths.
    #[serde(default)]
    pub addresses: Vec<Text>,
}

/// `[[route]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRoute {
    /// Destination prefix.
    pub to: Text,
    /// The next hop.
    pub via: Text,
}

/// `[workers]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawWorkers {
    /// Threads that move packets.
    pub count: Option<Spanned<WorkersText>>,
    /// Each stays on a processor of its own.
    pub pin: Option<bool>,
}

/// A number of workers as written.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number of workers or \"auto\"")]
pub enum WorkersText {
    /// So many.
    Number(u64),
    /// A word for a number.
    Text(String),
}

impl std::fmt::Display for WorkersText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// `[tracking]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTracking {
    /// TCP connections are picked up in the middle.
    pub loose: Option<Spanned<bool>>,
    /// Only resets are held to the window.
    pub liberal: Option<bool>,
}

/// `[firewall]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFirewall {
    /// What becomes of connections that another one announced.
    pub related: Option<Text>,
    /// What becomes of connections when the rules change.
    pub on_reload: Option<Text>,
    /// Matches that each rule may log in a second.
    pub log_per_s: Option<Spanned<u32>>,
    /// `[[firewall.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawRule>>,
}

/// `[[firewall.rule]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    /// Name, for counters and logs.
    pub name: Text,
    /// Port that the connection's first packet comes in on.
    pub from: Option<Text>,
    /// Source prefixes, any of which.
    #[serde(default)]
    pub source: Vec<Text>,
    /// Destination prefixes, any of which.
    #[serde(default)]
    pub destination: Vec<Text>,
    /// IP protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Source ports, any of which.
    #[serde(default)]
    pub source_ports: Vec<Spanned<PortText>>,
    /// Destination ports, any of which.
    #[serde(default)]
    pub destination_ports: Vec<Spanned<PortText>>,
    /// ICMP type of the query.
    pub icmp_type: Option<Spanned<u8>>,
    /// What happens to the connection.
    pub action: Text,
    /// Whether a match is logged.
    #[serde(default)]
    pub log: bool,
}

/// `[nat]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawNat {
    /// Ports that source NAT translates to.
    pub ports: Option<Spanned<PortText>>,
    /// File of the secret that keyed mappings are computed under.
    pub mapping_key: Option<Text>,
    /// `[[nat.source]]`.
    #[serde(default)]
    pub source: Vec<Spanned<RawSourceNat>>,
    /// `[[nat.destination]]`.
    #[serde(default)]
    pub destination: Vec<Spanned<RawDestinationNat>>,
}

/// `[[nat.source]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSourceNat {
    /// Source prefixes, any of which.
    pub source: Spanned<Vec<Text>>,
    /// Destination prefixes, any of which.
    #[serde(default)]
    pub destination: Vec<Text>,
    /// IP protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Addresses to translate to.
    pub to: Spanned<Vec<Text>>,
    /// How address and port outside come about.
    pub mapping: Option<Text>,
    /// Ports of an inside address, where they are computed. Default: an equal part of all.
    pub block_ports: Option<Spanned<u16>>,
}

/// `[[nat.destination]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDestinationNat {
    /// Address that clients connect to.
    pub destination: Text,
    /// IP protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Port or ports that clients connect to.
    pub port: Option<Spanned<PortText>>,
    /// Address of the server, with a port if it differs.
    pub to: Text,
}

/// `[ftp]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFtp {
    /// Ports of control connections. Default: `[21]`.
    pub ports: Option<Spanned<Vec<Spanned<PortText>>>>,
    /// Addresses other than the announcer's are believed.
    pub loose: Option<bool>,
    /// Ports below 1024 are believed.
    pub privileged_ports: Option<bool>,
    /// How long an announced connection is waited for.
    pub timeout: Option<Text>,
}

/// `[replication]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawReplication {
    /// Own address and UDP port.
    pub local: Text,
    /// Which changes are told.
    pub representation: Option<Text>,
    /// The representation may break established connections, and the operator knows. Default: `false`.
    pub experimental: Option<Spanned<bool>>,
    /// How long at most first replies wait for a peer's confirmation.
    pub hold_first_reply: Option<Text>,
    /// How long at most a packet that cannot be judged waits for what a peer tells, where nodes forward at the same time.
    pub wait_for_peer: Option<Text>,
    /// Largest datagram.
    pub datagram_bytes_max: Option<Spanned<u16>>,
    /// Messages sent and not yet acknowledged, at most.
    pub in_flight_messages_max: Option<Spanned<u16>>,
    /// Messages received until an acknowledgement is sent.
    pub ack_every_messages: Option<Spanned<u16>>,
    /// Longest time until an acknowledgement is sent.
    pub ack_delay: Option<Text>,
    /// Time between signs of life on an idle link.
    pub alive_interval: Option<Text>,
    /// Silence after which a peer counts as away.
    pub peer_timeout: Option<Text>,
    /// How long a change waits for others to go with it, where the kernel's connections are told.
    pub batch_delay: Option<Text>,
    /// What may be told to all peers together, where connections are entries of a filter.
    pub budget_bytes_per_second: Option<Spanned<u64>>,
    /// `[replication.filter]`.
    pub filter: Option<Spanned<RawFilter>>,
    /// `[replication.recovery]`.
    pub recovery: Option<Spanned<RawRecovery>>,
    /// `[replication.lazy]`.
    pub lazy: Option<Spanned<super::lazy::RawLazy>>,
    /// `[replication.security]`.
    pub security: Option<Spanned<RawSecurity>>,
    /// `[[replication.peer]]`.
    #[serde(default)]
    pub peer: Vec<Spanned<RawPeer>>,
}

/// `[[replication.peer]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPeer {
    /// The peer's node number.
    pub id: Spanned<u8>,
    /// Its address and UDP port.
    pub address: Text,
    /// Its address for failure detection, when that is another.
    pub failure_detection_address: Option<Text>,
    /// The name that its certificate was issued for.
    pub certificate_name: Option<Text>,
}

/// `[control]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawControl {
    /// Where to listen.
    pub listen: Text,
    /// File of tokens.
    pub tokens: Option<Text>,
    /// The gateway's certificate.
    pub certificate: Option<Text>,
    /// Its private key.
    pub key: Option<Text>,
    /// Certificates of the authority that vouches for clients.
    pub client_authority: Option<Text>,
    /// Without TLS, although others can reach it. Default: `false`.
    pub plain: Option<bool>,
    /// `[[control.client]]`.
    #[serde(default)]
    pub client: Vec<Spanned<RawControlClient>>,
}

/// `[[control.client]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawControlClient {
    /// The name in its certificate.
    pub name: Text,
    /// What it may do.
    pub role: Text,
}

/// `[failure_detection]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFailureDetection {
    /// Own address and UDP port. Default: the address of `replication.local` and port 3784.
    pub local: Option<Text>,
    /// Time between control packets.
    pub interval: Option<Text>,
    /// Intervals without a packet until a peer counts as down.
    pub multiplier: Option<Spanned<u8>>,
    /// Time between control packets while a peer is down.
    pub interval_while_down: Option<Text>,
    /// How long a starting node listens before it becomes active without having heard a peer. Default: three detection times.
    pub startup_hold: Option<Text>,
    /// Whether a node of higher priority takes over from a healthy active one. Default: `true` where there are several groups.
    pub preempt: Option<bool>,
    /// Whether failures are detected over the links of the ports as well.
    pub service_paths: Option<bool>,
}
