//! The file as it is written: shape only.

use serde::Deserialize;
use toml::Spanned;

use super::{RawControl, RawNode, RawReplication, Text};
use crate::value::{ProtocolText, SizeText};

/// A whole file.
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

/// `[kernel]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawKernel {
    /// Which events the kernel is to make of TCP connections.
    pub events: Option<Text>,
    /// When the kernel is told of peers' connections.
    pub injection: Option<Text>,
    /// Connections remembered at most.
    pub connections_max: Option<Spanned<u64>>,
    /// Buffer of the event socket, to begin with.
    pub receive_buffer: Option<Spanned<SizeText>>,
    /// And at most.
    pub receive_buffer_max: Option<Spanned<SizeText>>,
    /// Events are read at most this often.
    pub event_interval: Option<Text>,
    /// Connections that others have announced are replicated, too.
    pub expectations: Option<bool>,
}

/// `[cluster]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCluster {
    /// Who carries connections.
    pub mode: Option<Text>,
    /// The node's role when it starts.
    pub role: Option<Text>,
}

/// `[filter]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFilter {
    /// TCP states that are told. Default: from `established` to `close`.
    pub tcp_states: Option<Spanned<Vec<Text>>>,
    /// From when on connections of other protocols are told.
    pub others: Option<Text>,
    /// Protocols that are told; absent: all.
    pub protocols: Option<Spanned<Vec<Spanned<ProtocolText>>>>,
    /// Source or destination has to lie in one of these; absent: anywhere.
    pub addresses: Option<Spanned<Vec<Text>>>,
    /// `[[filter.ignore]]`.
    #[serde(default)]
    pub ignore: Vec<Spanned<RawIgnore>>,
}

/// `[[filter.ignore]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawIgnore {
    /// Prefixes, in one of which source or destination lies.
    #[serde(default)]
    pub addresses: Vec<Text>,
    /// The protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// States of TCP, any of which.
    #[serde(default)]
    pub states: Vec<Text>,
    /// Mark, or mark and mask.
    pub mark: Option<Text>,
    /// The zone.
    pub zone: Option<Spanned<u16>>,
}

/// `[conntrackd]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConntrackd {
    /// Own address and UDP port.
    pub local: Text,
    /// The other daemon's address and UDP port.
    pub peer: Option<Text>,
    /// Or the group that both listen to, and its UDP port.
    pub multicast: Option<Text>,
    /// The interface of the link.
    pub interface: Option<Text>,
    /// The number by which this node calls the other one.
    pub peer_id: Spanned<u8>,
    /// `TCPWindowTracking`: window scales are told.
    pub window_tracking: Option<bool>,
    /// Messages until an acknowledgement is sent.
    pub ack_window_messages: Option<Spanned<u16>>,
    /// Ended connections kept until their end is acknowledged.
    pub resend_queue_max: Option<Spanned<u32>>,
    /// Largest datagram, without IP and UDP headers.
    pub datagram_bytes_max: Option<Spanned<u16>>,
    /// How long a change waits for others to go with it.
    pub batch_delay: Option<Text>,
    /// Silence after which the peer counts as away.
    pub peer_timeout: Option<Text>,
}
