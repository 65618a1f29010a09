//! The file of `mainstay sync` as it is written: shape only.

use serde::Deserialize;
use toml::Spanned;

use super::{RawControl, RawNode, RawReplication, Text};
use crate::value::{DurationText, PrefixText, ProtocolText, SizeText, SocketAddressText};

/// A file of `mainstay sync`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSync {
    /// `[node]`.
    pub node: Option<Spanned<RawNode>>,
    /// `[kernel]`.
    #[serde(default)]
    pub kernel: RawKernel,
    /// `[cluster]`.
    #[serde(default)]
    pub cluster: RawCluster,
    /// `[filter]`.
    #[serde(default)]
    pub filter: RawFilter,
    /// `[replication]`.
    pub replication: Option<Spanned<RawReplication>>,
    /// `[conntrackd]`.
    pub conntrackd: Option<Spanned<RawConntrackd>>,
    /// `[control]`.
    pub control: Option<Spanned<RawControl>>,
}

/// The section configures how the daemon reads and changes the kernel's connection table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawKernel {
    /// Events that the kernel makes of TCP connections. `"lean"` is three of them: established, closing, removed from the table. The
    /// daemon requests them by nftables rules (table `inet mainstay_sync`) and needs `nft`. `"all"` is an event of every change.
    pub events: Option<Text>,
    /// Time of injection. `"direct"` enters a peer's connections into this kernel within 40 ms. `"external-cache"` keeps them in memory
    /// until `mainstay sync primary`.
    pub injection: Option<Text>,
    /// Largest number of connections in the daemon's connection table, those of peers included. Each takes about 100 bytes once it exists.
    pub connections_max: Option<Spanned<u64>>,
    /// Initial size of the buffer for the kernel's events.
    pub receive_buffer: Option<Spanned<SizeText>>,
    /// Largest size of that buffer. It doubles each time the kernel found no room in it.
    pub receive_buffer_max: Option<Spanned<SizeText>>,
    /// Shortest time between two reads of events and of peers' datagrams. Many are read at once. `"0ms"` reads each as it arrives.
    pub event_interval: Option<DurationText>,
    /// Whether expectations (FTP, SIP and others) are replicated, too.
    pub expectations: Option<bool>,
}

/// The section gives the node its role among the nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCluster {
    /// Nodes that carry connections: one at a time (`"primary-backup"`), or all (`"multi-primary"`).
    pub mode: Option<Text>,
    /// Role of the node at its start, which keepalived's hooks change. With `mode = "multi-primary"` a node is always primary.
    pub role: Option<Text>,
}

/// The section selects the connections that are replicated. Where a condition holds for a connection from its beginning to its end, the
/// kernel applies it and makes no event. All nodes leave out the same connections.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFilter {
    /// TCP states that are replicated. `"syn_sent"`, `"syn_recv"` and `"syn_sent2"` need `kernel.events = "all"`. With `"lean"`, the state
    /// `"established"` implies `"fin_wait"`, `"last_ack"` and `"close"`, because closed connections would stay established at the peer.
    /// Default: `established`, `fin_wait`, `close_wait`, `last_ack`, `time_wait` and `close`.
    pub tcp_states: Option<Spanned<Vec<Text>>>,
    /// Packet from which connections of other protocols are replicated: their first reply (`"replied"`) or their first packet (`"begun"`).
    /// With `[conntrackd]`, the default is `"begun"`, as conntrackd does.
    pub others: Option<Text>,
    /// Protocols that are replicated. Default: all protocols.
    pub protocols: Option<Spanned<Vec<Spanned<ProtocolText>>>>,
    /// Prefixes, one of which contains an address of the connection, before or after translation. Default: any address.
    pub addresses: Option<Spanned<Vec<PrefixText>>>,
    /// `[[filter.ignore]]`.
    #[serde(default)]
    pub ignore: Vec<Spanned<RawIgnore>>,
}

/// Each section leaves out the connections that match all its keys. There are at most 256 sections, each with at least one key.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawIgnore {
    /// Prefixes, one of which contains an end point of the connection: the host that opened it or the host that answers, without
    /// translation. Default: any address.
    #[serde(default)]
    pub addresses: Vec<PrefixText>,
    /// IP protocol of the connection. Default: any protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// TCP states, one of which the connection has. Default: any state.
    #[serde(default)]
    pub states: Vec<Text>,
    /// Mark of the connection, or mark and mask as `"0x1/0xff"`. Default: any mark.
    pub mark: Option<Text>,
    /// Zone of the connection. Default: any zone.
    pub zone: Option<Spanned<u16>>,
}

/// The section connects this node to a conntrackd, by the protocol of its mode FTFW over UDP. It has either `peer` or `multicast`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConntrackd {
    /// Address and UDP port of this node.
    pub local: SocketAddressText,
    /// Address and UDP port of the conntrackd.
    pub peer: Option<SocketAddressText>,
    /// Multicast group and UDP port of both daemons. It needs `interface`.
    pub multicast: Option<SocketAddressText>,
    /// Interface of the replication link: 1 to 15 characters.
    pub interface: Option<Text>,
    /// Number by which this node identifies the peer. It differs from `node.id` and from the ids of `[[replication.peer]]`.
    pub peer_id: Spanned<u8>,
    /// Whether window scales are replicated (`TCPWindowTracking` of conntrackd.conf).
    pub window_tracking: Option<bool>,
    /// Number of received messages after which an acknowledgement is sent (`ACKWindowSize` of conntrackd.conf).
    pub ack_window_messages: Option<Spanned<u16>>,
    /// Largest number of ended connections that are kept until the peer has acknowledged them (`ResendQueueSize` of conntrackd.conf).
    pub resend_queue_max: Option<Spanned<u32>>,
    /// Largest datagram in bytes, without IP and UDP headers: the link's MTU less 28 for IPv4, or 48 for IPv6.
    pub datagram_bytes_max: Option<Spanned<u16>>,
    /// Time that a change waits for other changes to share a datagram.
    pub batch_delay: Option<DurationText>,
    /// Silence after which the peer counts as away.
    pub peer_timeout: Option<DurationText>,
}
