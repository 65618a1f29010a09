//! What `mainstay sync` runs with: every value checked, every default filled in.

use std::net::SocketAddr;
use std::time::Duration;

use flow::NodeId;
use flow::netfilter::TcpState;

use super::{Node, Replication};
use crate::remote::RemoteAccess;
use crate::value::Prefix;

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct SyncConfig {
    /// This node.
    pub node: Node,
    /// The kernel's side.
    pub kernel: Kernel,
    /// Who carries connections.
    pub mode: Mode,
    /// The node's role when it starts.
    pub role: StartRole,
    /// What is replicated.
    pub filter: Filter,
    /// Replication to other nodes of Mainstay, if there is any.
    pub replication: Option<Native>,
    /// Replication to a conntrackd, if there is any.
    pub conntrackd: Option<Conntrackd>,
    /// The control API from afar, if it is offered.
    pub control: Option<RemoteAccess>,
}

/// When peers' connections are injected into the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Injection {
    /// As soon as they are received.
    #[default]
    Direct,
    /// When this node becomes primary.
    ExternalCache,
}

impl Injection {
    /// Both, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("direct", Self::Direct), ("external-cache", Self::ExternalCache)];
}

/// Which events the kernel makes of TCP connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Events {
    /// Of each that it is established, that it is being closed, and that it ended.
    #[default]
    Lean,
    /// Of every change.
    All,
}

impl Events {
    /// Both, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("lean", Self::Lean), ("all", Self::All)];
}

/// The kernel's side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// Which events the kernel makes of TCP connections.
    pub events: Events,
    /// When peers' connections are injected into the kernel.
    pub injection: Injection,
    /// Connections remembered at most.
    pub connections_max: u32,
    /// Buffer of the event socket to begin with, in bytes.
    pub receive_buffer_bytes: usize,
    /// And at most, in bytes: it grows after the kernel found no room for events.
    pub receive_buffer_bytes_max: usize,
    /// Events are read at most this often, many at once.
    pub event_interval: Duration,
    /// Connections that others have announced are replicated, too.
    pub expectations: bool,
}

/// Who carries connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// One node at a time.
    #[default]
    PrimaryBackup,
    /// All nodes.
    MultiPrimary,
}

impl Mode {
    /// Both, with their names.
    pub const ALL: [(&'static str, Self); 2] =
        [("primary-backup", Self::PrimaryBackup), ("multi-primary", Self::MultiPrimary)];
}

/// The role that a node has when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StartRole {
    /// It carries connections.
    Primary,
    /// It stands by.
    #[default]
    Backup,
}

impl StartRole {
    /// Both, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("primary", Self::Primary), ("backup", Self::Backup)];
}

/// From when on connections of protocols other than TCP are replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Others {
    /// From their first reply on.
    #[default]
    Replied,
    /// From their first packet on.
    Begun,
}

impl Others {
    /// Both, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("replied", Self::Replied), ("begun", Self::Begun)];
}

/// What is replicated. A connection is, unless one of these excludes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// TCP states that are replicated.
    pub tcp_states: Vec<TcpState>,
    /// From when on connections of other protocols are replicated.
    pub others: Others,
    /// Protocols that are replicated; `None`: all.
    pub protocols: Option<Vec<u8>>,
    /// Source or destination has to lie in one of these; `None`: anywhere.
    pub addresses: Option<Vec<Prefix>>,
    /// What is left out.
    pub ignore: Vec<Ignore>,
}

/// The states before a connection is established.
pub const TCP_HANDSHAKE: [TcpState; 3] = [TcpState::SynSent, TcpState::SynRecv, TcpState::SynSent2];

impl Filter {
    /// Whether TCP connections are replicated before they are established.
    #[must_use]
    pub fn replicates_handshakes(&self) -> bool {
        TCP_HANDSHAKE.iter().any(|state| self.tcp_states.contains(state))
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            tcp_states: TCP_STATES_DEFAULT.to_vec(),
            others: Others::default(),
            protocols: None,
            addresses: None,
            ignore: Vec::new(),
        }
    }
}

/// TCP states that are replicated by default: none before the handshake is over.
pub const TCP_STATES_DEFAULT: [TcpState; 6] = [
    TcpState::Established,
    TcpState::FinWait,
    TcpState::CloseWait,
    TcpState::LastAck,
    TcpState::TimeWait,
    TcpState::Close,
];

/// Connections that are left out: those that meet all conditions. Never without any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ignore {
    /// Source or destination, of either direction, lies in one of these; empty: anywhere.
    pub addresses: Vec<Prefix>,
    /// The protocol.
    pub protocol: Option<u8>,
    /// The state of TCP is one of these; empty: any.
    pub states: Vec<TcpState>,
    /// The mark, where the mask has ones.
    pub mark: Option<Mark>,
    /// The zone.
    pub zone: Option<u16>,
}

/// A mark, and which of its bits count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The mark; no bit outside the mask is set.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

/// Replication to other nodes of Mainstay.
#[derive(Clone, PartialEq, Debug)]
pub struct Native {
    /// As for a gateway.
    pub replication: Replication,
    /// How long a change waits for others to go with it.
    pub batch_delay: Duration,
}

/// Replication to a conntrackd, whose mode is FTFW.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conntrackd {
    /// Own address and UDP port.
    pub local: SocketAddr,
    /// Where its datagrams go.
    pub peer: ConntrackdPeer,
    /// The interface of the link.
    pub interface: Option<String>,
    /// This node's number for its peer.
    pub peer_id: NodeId,
    /// Window scales are replicated.
    pub window_tracking: bool,
    /// Messages until an acknowledgement is sent.
    pub ack_window_messages: u16,
    /// Ended connections kept until their end is acknowledged.
    pub resend_queue_max: u32,
    /// Largest datagram, without IP and UDP headers.
    pub datagram_bytes_max: u16,
    /// How long a change waits for others to go with it.
    pub batch_delay: Duration,
    /// Silence after which the peer counts as away.
    pub peer_timeout: Duration,
}

/// Where a conntrackd is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConntrackdPeer {
    /// At an address.
    Unicast(SocketAddr),
    /// In a multicast group.
    Multicast(SocketAddr),
}

impl ConntrackdPeer {
    /// The address that datagrams are sent to.
    #[must_use]
    pub const fn address(self) -> SocketAddr {
        match self {
            Self::Unicast(address) | Self::Multicast(address) => address,
        }
    }
}
