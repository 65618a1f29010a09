//! The configuration file as it is written: shape only. What the values mean is checked afterwards.
//!
//! The comments of types and fields are the text of `docs/reference`: a type describes its section, a field its key. What follows
//! `Default:` stands in the column of defaults.

mod classifier;
pub mod edge;
mod limits;
mod membership;
mod rate_limit;
mod reachability;
mod redundancy;
mod router_advertisements;
mod service;
mod syn_proxy;
pub mod sync;
mod url_filter;

use serde::Deserialize;
use toml::Spanned;

pub use self::classifier::{RawClassMark, RawClassRule, RawClassifier};
pub use self::limits::RawLimits;
pub use self::membership::RawMembership;
pub use self::rate_limit::{RawRateLimit, RawRateLimitLimit, RawRateLimitRule};
pub use self::reachability::{RawReachability, RawTrack};
pub use self::redundancy::{RawRedundancy, RawRedundancyRule};
pub use self::router_advertisements::RawRouterAdvertisements;
pub use self::service::{RawCheck, RawQuic, RawService, RawServiceBackend};
pub use self::syn_proxy::{RawSynProxy, RawSynProxyRule};
pub use self::url_filter::{RawUrlFilter, RawUrlList, RawUrlRule, RawUrlServer};
pub use super::compact::{RawFilter, RawRecovery};
pub use super::diagnostic::Text;
pub use super::security::RawSecurity;
pub use super::timeouts::RawTimeouts;
use super::value::{
    AddressText, DurationText, MssText, PathText, PortText, PrefixText, ProtocolText, SocketAddressText,
};

/// Keys above the first section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// Network functions in the order in which packets of the original direction pass them: `"classifier"`, `"firewall"`,
    /// `"url_filter"`, `"rate_limit"`, `"syn_proxy"`, `"load_balancer"` (the sections `[[service]]`), `"nat"`, `"ftp"`. `"url_filter"` and `"syn_proxy"` stand before those behind them in this list. Replies pass them in the opposite order. The key stands above the
    /// first section, because TOML counts every key below a section's head as that section's. Default: the functions whose sections are present, in this order.
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
    /// `[fast_path]`.
    #[serde(default)]
    pub fast_path: RawFastPath,
    /// `[classifier]`.
    pub classifier: Option<Spanned<RawClassifier>>,
    /// `[firewall]`.
    pub firewall: Option<Spanned<RawFirewall>>,
    /// `[url_filter]`.
    pub url_filter: Option<Spanned<RawUrlFilter>>,
    /// `[rate_limit]`.
    pub rate_limit: Option<Spanned<RawRateLimit>>,
    /// `[syn_proxy]`.
    pub syn_proxy: Option<Spanned<RawSynProxy>>,
    /// `[[service]]`.
    #[serde(default)]
    pub service: Vec<Spanned<RawService>>,
    /// `[nat]`.
    pub nat: Option<Spanned<RawNat>>,
    /// `[ftp]`.
    pub ftp: Option<Spanned<RawFtp>>,
    /// `[replication]`.
    pub replication: Option<Spanned<RawReplication>>,
    /// `[membership]`.
    pub membership: Option<Spanned<RawMembership>>,
    /// `[failure_detection]`.
    pub failure_detection: Option<Spanned<RawFailureDetection>>,
    /// `[redundancy]`.
    pub redundancy: Option<Spanned<RawRedundancy>>,
    /// `[control]`.
    pub control: Option<Spanned<RawControl>>,
}

/// The section identifies this node and names its control socket, metrics page and log. It is required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawNode {
    /// Number of this node in its cluster. A gateway's is below `nodes`.
    pub id: Spanned<u8>,
    /// Name of this node for people. Default: `node-` and the `id`.
    pub name: Option<Text>,
    /// Number of nodes in the cluster. The nodes divide the NAT ports among them, so all nodes must have the same value. Default: the
    /// number of peers plus 1.
    pub nodes: Option<Spanned<u8>>,
    /// Preference of this node: of two nodes that start together, the one with the higher priority becomes active. Groups without a
    /// priority of their own have this one.
    pub priority: Option<u8>,
    /// Interval, ±10 %, at which the active node announces its shared addresses (gratuitous ARP, unsolicited neighbour advertisements).
    /// The value is `"0s"` (no periodic announcements) or at least `"1s"`. After the loss of a peer, the node announces every second for
    /// a minute, then every 10 s until the peer returns.
    pub announce_refresh: Option<DurationText>,
    /// Unix socket of the control API. Its mode is 0600.
    pub control_socket: Option<PathText>,
    /// Address on which `/metrics` is served in the Prometheus text format. The page asks for no password, so any address but a
    /// loopback address needs a packet filter. Default: no metrics are served.
    pub metrics: Option<SocketAddressText>,
    /// Least severe level that is logged to standard error. The environment variable `MAINSTAY_LOG` overrides it. At `info` and above,
    /// libraries log warnings only.
    pub log: Option<Text>,
    /// Format of log entries: lines for people, or one JSON object per line.
    pub log_format: Option<Text>,
    /// Log entries per second of each place in the program. A burst may have five times as many. One second later, the log states how
    /// many entries were suppressed.
    pub log_per_s: Option<Spanned<u32>>,
}

/// Each section is a port: an interface that the gateway forwards on. A gateway has 2 to 64 ports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPort {
    /// Name of the port in other sections and in metrics. It is unique.
    pub name: Text,
    /// Interface of the system, as `ip link` shows it: up to 15 bytes. No other port has it.
    pub interface: Text,
    /// Method by which the port receives and sends frames.
    pub backend: Option<Text>,
    /// Shared addresses with the prefix lengths of their networks. The active node answers requests for them, and the interface itself must not
    /// have them. Networks of different ports must not overlap, but for IPv6 link-local ones: each port may have `fe80::1/64`. Where there are several groups, `[[port.group]]` replaces the key.
    #[serde(default)]
    pub addresses: Vec<PrefixText>,
    /// `[[port.group]]`.
    #[serde(default)]
    pub group: Vec<Spanned<RawPortGroup>>,
    /// Largest TCP segment, in bytes, that connections through the port may agree on, for paths where path MTU discovery fails. `"mtu"`
    /// is what fits the port's MTU: 40 bytes less for IPv4, 60 for IPv6. A number from 536 to 65495 applies to both families. Of a
    /// connection's two ports, the smaller value applies. SYN and SYN/ACK are lowered, never raised. Default: segments are not clamped.
    pub mss_clamp: Option<Spanned<MssText>>,
    /// Check of the source addresses of packets that come in by the port (RFC 3704). `"strict"`: the route to the source leads by this
    /// port. `"loose"`: it leads by any port that is not `"strict"`. `"off"`: only sources are refused that no other host can have, such as
    /// the gateway's own addresses. Packets that fail are dropped as `reverse_path`. Default: `"loose"` for IPv4 if a route to `0.0.0.0/0`
    /// leads by the port, and for IPv6 if one to `::/0` does; otherwise `"strict"`.
    pub reverse_path: Option<Text>,
    /// `[port.router_advertisements]`.
    pub router_advertisements: Option<Spanned<RawRouterAdvertisements>>,
    /// Whether the fast path hands packets for this port to the other end of its virtual cable at once (`bpf_redirect_peer`). For an
    /// interface that is a veth whose other end is in another network namespace, as a container's is. The port's own interface then
    /// neither counts nor captures these packets. A change needs a restart.
    pub redirect_peer: Option<Spanned<bool>>,
}

/// Each section is a group of shared addresses that move together. With several groups, several nodes carry connections and back each
/// other up. Without the section, all addresses are one group. A gateway has at most 8 groups.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawGroup {
    /// Name of the group. It is unique in the file and the same on all nodes.
    pub name: Text,
    /// Preference of this node for the group: the node with the highest priority holds it. It is the only key of the section in which
    /// the nodes' files may differ. Default: `node.priority`.
    pub priority: Option<u8>,
    /// Whether this node takes the group from a healthy node of lower priority once it has all connections. Default:
    /// `failure_detection.preempt` if that is given, else `true` where there are several groups.
    pub preempt: Option<bool>,
    /// Ports and next hops that are tracked for this group. Default: `reachability.track`.
    pub track: Option<Vec<Spanned<RawTrack>>>,
}

/// Each section gives the port its shared addresses of one group. It replaces `addresses` where there are several groups.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPortGroup {
    /// Name of the group.
    pub name: Text,
    /// Shared addresses of the group on this port, with the prefix lengths of their networks. Different groups may have addresses of the
    /// same network.
    #[serde(default)]
    pub addresses: Vec<PrefixText>,
}

/// Each section is a route to a network that no port is on. The longest prefix wins.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRoute {
    /// Destination of the route. It is unique.
    pub to: PrefixText,
    /// Next hop, of the same family as `to` and on the network of a port. A link-local address is followed by `%` and the name of its port or
    /// interface (`"fe80::1%outside"`), or `port` is given.
    pub via: AddressText,
    /// Name of the port on whose network the next hop is. Default: the port that `via` names, or that has an address in its network.
    pub port: Option<Text>,
}

/// Workers are the threads that move packets. Each has a share of the connections and its own sockets. All nodes of a cluster must have
/// the same number of workers, and several workers need Linux 5.17. A change needs a restart.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawWorkers {
    /// Number of workers. `"auto"` is the number of processors that the process may use.
    pub count: Option<Spanned<WorkersText>>,
    /// Whether each worker is bound to a processor of its own.
    pub pin: Option<bool>,
}

/// The kernel forwards the packets of established TCP and UDP connections by itself, translated and with their windows checked, where
/// the host can do so. Other packets reach the gateway as without. Needs Linux 5.15 and ports of the backend `af_packet`. A change needs
/// a restart.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFastPath {
    /// Whether the kernel forwards established connections. Where the host cannot do so, the gateway logs why and forwards all packets.
    pub enabled: Option<bool>,
    /// Where the kernel forwards them: `tc` at the ingress of any interface, `xdp` in the driver of a network card. Where a port cannot have
    /// `xdp`, the gateway logs why and uses `tc`. On virtual cables `xdp` ends segmentation offload, which makes large transfers slow.
    pub hook: Option<Text>,
    /// Largest number of connections that the kernel forwards at a time; others go through the gateway. Each takes about 430 bytes of
    /// the kernel's memory from the start. More than `limits.connections_max` is not used. Each worker has an equal part.
    pub connections_max: Option<Spanned<u32>>,
    /// How long the kernel goes on forwarding established connections while the gateway is not running and no peer is alive: after a crash,
    /// or for an upgrade. The gateway that starts in this time takes them over. 0: not at all. Needs Linux 6.6, a mounted bpffs and
    /// one worker.
    pub restart_grace: Option<Text>,
    /// Directory of the mounted bpffs in which program and connections are pinned for `restart_grace`; one for each gateway of a host.
    pub pin_directory: Option<Text>,
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

/// The section relaxes connection tracking.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTracking {
    /// Whether TCP connections and SCTP associations are picked up in the middle when the node has not seen their beginning. A picked-up
    /// connection has the state of a new one: see `docs/operations.md` for what is not restored.
    pub loose: Option<Spanned<bool>>,
    /// Whether TCP segments outside the window pass. Resets are checked against the window in any case.
    pub liberal: Option<bool>,
    /// TCP segments of no connection that are answered by a reset, so that hosts learn at once that a connection is lost. `"served"`: those
    /// that `[nat]` would translate and those to a service, if the firewall accepts them. `"always"`: all that the firewall accepts. `"never"`:
    /// none. A reset is not answered. Nothing is answered while another node or a recovery may have the connection.
    pub reset_stray: Option<Text>,
}

/// The section configures the stateful packet filter.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFirewall {
    /// Treatment of related connections, which another connection announced. `"accept"` lets them pass without a rule, and new rules do
    /// not apply to them. `"rules"` checks them as any other connection.
    pub related: Option<Text>,
    /// Treatment of established connections when the rules change. `"keep"` keeps all of them. `"reevaluate"` ends those that the new rules
    /// do not accept. After a failover, connections that only a peer filter contains are restored under the rules in force.
    pub on_reload: Option<Text>,
    /// Matches per second that each rule with `log` logs. A burst may have as many at once. One second later, the log states how many
    /// matches were suppressed.
    pub log_per_s: Option<Spanned<u32>>,
    /// `[[firewall.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawRule>>,
}

/// Each section is a rule. The first rule that matches a connection's first packet decides for the whole connection. A connection that no
/// rule accepts is dropped. A rule matches if all its conditions hold; a condition that is left out holds for every packet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    /// Name of the rule in counters and in the log. It is unique.
    pub name: Text,
    /// Name of the port that the packet arrives on. Default: any port.
    pub from: Option<Text>,
    /// Prefixes, one of which contains the source address. The address is the one before translation where `firewall` precedes `nat`.
    /// Default: any address.
    #[serde(default)]
    pub source: Vec<PrefixText>,
    /// Prefixes, one of which contains the destination address. The address is the one before translation where `firewall` precedes
    /// `nat`. Default: any address.
    #[serde(default)]
    pub destination: Vec<PrefixText>,
    /// IP protocol of the packet. Default: any protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Ports and ranges, one of which contains the source port. The key needs `protocol` `"tcp"`, `"udp"` or `"sctp"`. Default: any port.
    #[serde(default)]
    pub source_ports: Vec<Spanned<PortText>>,
    /// Ports and ranges, one of which contains the destination port. The key needs `protocol` `"tcp"`, `"udp"` or `"sctp"`. Default: any
    /// port.
    #[serde(default)]
    pub destination_ports: Vec<Spanned<PortText>>,
    /// ICMP type of the query; echo is 8 for ICMP and 128 for ICMPv6. The key needs `protocol` `"icmp"` or `"icmpv6"`. Default: any type.
    pub icmp_type: Option<Spanned<u8>>,
    /// Traffic classes, one of which is the connection's. `classifier` must precede `firewall` in `chain`. The rules decide again when the
    /// class changes. Default: any class.
    #[serde(default)]
    pub class: Vec<Text>,
    /// Verdict for connections that the rule matches.
    pub action: Text,
    /// Whether each match is logged, up to `firewall.log_per_s`.
    #[serde(default)]
    pub log: bool,
}

/// The section configures address translation.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawNat {
    /// Ports that source NAT translates to. Where several nodes forward at a time (groups, edges), node *k* of *n* uses the *k*-th part, so
    /// that two nodes never choose the same port. Computed mappings are equal on all nodes and divide the ports among inside addresses
    /// instead.
    pub ports: Option<Spanned<PortText>>,
    /// File with the secret under which free ports are chosen, which `mainstay key` makes. Its mode is 0600 and its content is the same on all
    /// nodes: a connection that `tracking.loose` picks up finds its port again by it. Default: it follows from the first of
    /// `replication.security.pre_shared_keys`. Without these, each start draws another secret; with `tracking.loose` the secret then
    /// follows from the rules of `[nat]`, and who knows these can guess ports.
    pub key: Option<PathText>,
    /// File with the secret of keyed mappings, which `mainstay key` makes. Its mode is 0600 and its content is the same on all nodes.
    pub mapping_key: Option<PathText>,
    /// `[[nat.source]]`.
    #[serde(default)]
    pub source: Vec<Spanned<RawSourceNat>>,
    /// `[[nat.destination]]`.
    #[serde(default)]
    pub destination: Vec<Spanned<RawDestinationNat>>,
}

/// Each section is a rule that translates source addresses. The first rule that matches a connection applies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSourceNat {
    /// Prefixes of one family, one of which contains the source address.
    pub source: Spanned<Vec<PrefixText>>,
    /// Prefixes, one of which contains the destination address. Default: any address.
    #[serde(default)]
    pub destination: Vec<PrefixText>,
    /// IP protocol of the packet. Default: any protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Shared addresses to translate to: 1 to 256 of the same family as `source`.
    pub to: Spanned<Vec<AddressText>>,
    /// Choice of the outside address and port. `"dynamic"` takes a free port. `"endpoint-independent"` takes one for each inside address and
    /// port, towards all destinations (RFC 4787 REQ-1), as long as a connection uses it. `"deterministic"` computes both from the inside address and
    /// port (RFC 7422). `"deterministic-keyed"` computes them under the secret of `nat.mapping_key`, so that ports do not identify hosts.
    pub mapping: Option<Text>,
    /// Ports of an inside address where the mapping is computed; at least 128. Default: the hosts of an outside address have equal
    /// parts of all ports.
    pub block_ports: Option<Spanned<u16>>,
}

/// Each section is a rule that forwards connections to a server. No two rules may match the same packet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDestinationNat {
    /// Address that clients connect to.
    pub destination: AddressText,
    /// IP protocol of the packet. Default: any protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Port or range that clients connect to. The key needs `protocol` `"tcp"`, `"udp"` or `"sctp"`. Source NAT does not use the ports
    /// of a rule for the same address. Default: any port.
    pub port: Option<Spanned<PortText>>,
    /// Address of the server, with a port if it differs. For a range it is the server's port for the first port of the range.
    pub to: Text,
}

/// The section configures the FTP helper, even if it is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFtp {
    /// Ports of control connections, as clients or as servers know them. Default: `[21]`.
    pub ports: Option<Spanned<Vec<Spanned<PortText>>>>,
    /// Whether the helper accepts announcements of addresses that are not the announcer's. Transfers between two servers (FXP) need it,
    /// and others can abuse it (RFC 2577).
    pub loose: Option<bool>,
    /// Whether the helper accepts announcements of ports below 1024.
    pub privileged_ports: Option<bool>,
    /// Time for which an announced connection is expected.
    pub timeout: Option<DurationText>,
}

/// The section connects this node to its peers. Without it, a gateway runs alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawReplication {
    /// Address and UDP port of this node on the replication link. It is not a shared address.
    pub local: SocketAddressText,
    /// Choice of what is replicated. `"precise-selective"` replicates changes of a connection's state, `"precise-eager"` every change, and
    /// `"none"` nothing. The others are filters of compact replication.
    pub representation: Option<Text>,
    /// Confirmation that established connections may break. `representation = "flow-digest"` needs it, and any other refuses it. Default:
    /// `false`.
    pub experimental: Option<Spanned<bool>>,
    /// Packet from which a connection is replicated. `"handshake-reply"` is the first reply of TCP and SCTP, whose initiators repeat an
    /// unanswered packet, and the first packet of other protocols. `"first-reply"` never replicates a stream without replies.
    /// `"established"` begins with the established connection; a filter then has no entry for other states, which halves its updates.
    /// `"first-packet"` replicates every SYN of a scan. A connection that peers need earlier is replicated at once: of several groups,
    /// with `hold_first_reply`, through the SYN proxy, and of the FTP helper.
    pub start: Option<Text>,
    /// Longest time that the first reply of a connection (the SYN/ACK) waits until a peer has acknowledged the connection. An
    /// established connection then survives a failure a moment later. Each handshake takes a round trip to the peer longer. `"0ms"`
    /// disables it.
    pub hold_first_reply: Option<DurationText>,
    /// Longest time that a packet waits for an update of a peer, where several nodes forward at the same time. `"0ms"` disables it.
    pub wait_for_peer: Option<DurationText>,
    /// Confirmation that both directions of every connection come to one node although several groups forward: the hosts and routers of both
    /// sides use one group's addresses for it, or edges distribute. With several groups, a filter, `lazy` and `start` need it. A packet
    /// that comes to another node is a stray one.
    pub symmetric: Option<bool>,
    /// Largest datagram in bytes, without IP and UDP headers. With encryption it is at least 1057.
    pub datagram_bytes_max: Option<Spanned<u16>>,
    /// Bytes per second that updates may take on the links of ports while the replication link is down, with their frames. Updates go there
    /// only if `mode` encrypts and `failure_detection.service_paths` is on. New connections go first. `0` sends none.
    pub service_path_bytes_per_second: Option<Spanned<u32>>,
    /// Largest number of messages that are sent and not yet acknowledged.
    pub in_flight_messages_max: Option<Spanned<u16>>,
    /// Number of received messages after which an acknowledgement is sent.
    pub ack_every_messages: Option<Spanned<u16>>,
    /// Longest time from a received message to its acknowledgement.
    pub ack_delay: Option<DurationText>,
    /// Interval of Alive datagrams on an idle link.
    pub alive_interval: Option<DurationText>,
    /// Silence after which a peer counts as away. It is at least twice `alive_interval`.
    pub peer_timeout: Option<DurationText>,
    /// Time that a change waits for other changes to share a datagram.
    pub batch_delay: Option<DurationText>,
    /// Bytes per second that the filter and the precise replication beside it may send to all peers together. It is at least
    /// `datagram_bytes_max`. A change that waits is sent with its state at the time of sending. Default: no limit.
    pub budget_bytes_per_second: Option<Spanned<u64>>,
    /// `[replication.filter]`.
    pub filter: Option<Spanned<RawFilter>>,
    /// `[replication.recovery]`.
    pub recovery: Option<Spanned<RawRecovery>>,
    /// `[replication.backups]`.
    pub backups: Option<Spanned<super::backups::RawBackups>>,
    /// `[replication.lazy]`.
    pub lazy: Option<Spanned<super::lazy::RawLazy>>,
    /// `[replication.security]`.
    pub security: Option<Spanned<RawSecurity>>,
    /// `[[replication.peer]]`.
    #[serde(default)]
    pub peer: Vec<Spanned<RawPeer>>,
}

/// Each section is a peer. There is one for every other node of the cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPeer {
    /// The peer's `node.id`.
    pub id: Spanned<u8>,
    /// The peer's `replication.local`, of the same family as this node's.
    pub address: SocketAddressText,
    /// The peer's `failure_detection.local`. Default: `address` with port 3784.
    pub failure_detection_address: Option<SocketAddressText>,
    /// DNS name or IP address in the peer's certificate. Authentication by certificates needs it.
    pub certificate_name: Option<Text>,
}

/// The section offers the control API over TCP, beside the control socket. Without it, only the control socket is offered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawControl {
    /// Address and TCP port of the control API.
    pub listen: SocketAddressText,
    /// File with one line `NAME ROLE TOKEN` per client, mode 0600. The role is `read` or `operate`. A token has at least 32 characters. `#`
    /// begins a comment.
    pub tokens: Option<PathText>,
    /// PEM file with the gateway's certificate, followed by those that lead to its authority. Default: no TLS.
    pub certificate: Option<PathText>,
    /// PEM file with the certificate's private key, mode 0600.
    pub key: Option<PathText>,
    /// PEM file with the certificates of the authority that issues clients' certificates. It needs `[[control.client]]`.
    pub client_authority: Option<PathText>,
    /// Whether the API is offered without TLS on an address that other hosts can reach, which is refused otherwise. Default: `false`.
    pub plain: Option<bool>,
    /// `[[control.client]]`.
    #[serde(default)]
    pub client: Vec<Spanned<RawControlClient>>,
}

/// Each section authorises a client that authenticates by a certificate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawControlClient {
    /// DNS name in the client's certificate.
    pub name: Text,
    /// Role of the client: `"read"` may look, `"operate"` may also change the node.
    pub role: Text,
}

/// The section configures failure detection by BFD (RFC 5880, asynchronous mode). A path is down after `interval` × `multiplier` without
/// a packet. A peer is down once all its paths are.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFailureDetection {
    /// Address and UDP port of this node for failure detection. Default: the address of `replication.local`, with port 3784.
    pub local: Option<SocketAddressText>,
    /// Interval of control packets.
    pub interval: Option<DurationText>,
    /// Number of intervals without a packet after which a path is down.
    pub multiplier: Option<Spanned<u8>>,
    /// Interval of control packets while a peer is down.
    pub interval_while_down: Option<DurationText>,
    /// Time that a starting node listens before it becomes active without a peer's heartbeat. It probes for its shared addresses
    /// meanwhile. Default: three detection times, and at least 3 s where `membership.source` is not `"static"`.
    pub startup_hold: Option<DurationText>,
    /// Whether a node of higher priority takes over from a healthy active node. `[[group]]` may decide otherwise for a group. With
    /// `redundancy.mirror`, the node first waits for the tunnel's caches, a minute at most. Default: `true` where there are several
    /// groups, else `false`.
    pub preempt: Option<bool>,
    /// Whether failures are also detected over the link of every port with an Ethernet backend. A failure of the replication link then
    /// causes no take-over. The names of ports must be the same on all nodes. With `mode = "plain"` these frames are not authenticated.
    /// A change needs a restart.
    pub service_paths: Option<bool>,
    /// Largest number of edges (`mainstay edge`) that the node answers, each counted once for each port. Edges authenticate themselves by a
    /// key of `replication.security.pre_shared_keys`; where there is none, they are taken in plain text. A change needs a restart.
    pub edges_max: Option<Spanned<u8>>,
    /// Whether edges are taken in plain text although there are pre-shared keys. A change needs a restart.
    pub plain_edges: Option<bool>,
}
