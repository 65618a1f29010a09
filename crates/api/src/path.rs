//! The path of a connection's packets through a gateway with a fast path.

use serde::{Deserialize, Serialize};

/// What forwards the packets of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketPath {
    /// The kernel forwards the packets, except for single ones that it leaves to the gateway.
    Kernel,
    /// All packets go through the gateway.
    Gateway,
}

impl PacketPath {
    /// The path for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Gateway => "gateway",
        }
    }
}

/// Why the kernel does not forward the packets of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayReason {
    /// Another node owns the connection.
    NotOwner,
    /// The node does not forward packets: it is not active.
    Inactive,
    /// Packets of the connection are traced or captured.
    Traced,
    /// The protocol is neither TCP nor UDP.
    Protocol,
    /// The connection has had fewer than ten packets.
    FewPackets,
    /// The connection is not established or not answered, or no packet of it has passed this node since a take-over.
    State,
    /// Packets of the connection pass two nodes.
    Shared,
    /// The packets of one direction have not left this node yet.
    OneWay,
    /// A function of the chain needs the packets.
    Function,
    /// The packets go to a backend in a tunnel (direct return).
    Tunnel,
    /// A peer may have forwarded packets of the connection.
    ForwardedElsewhere,
    /// A living peer has not acknowledged the connection.
    NotAcknowledged,
    /// The packets leave by a port without a fast path.
    Port,
    /// The link address of a next hop is not known, or the route leads out of another port than the last packet.
    NextHop,
    /// The windows of both sides are not known, as after a take-over.
    Windows,
    /// All places in the kernel were taken.
    Full,
    /// The kernel refused the connection; the log has why at level `debug`.
    Refused,
    /// Nothing: the kernel forwards the packets after the next one.
    NextPacket,
}

impl GatewayReason {
    /// The reason for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::NotOwner => "not owner",
            Self::Inactive => "not active",
            Self::Traced => "traced",
            Self::Protocol => "protocol",
            Self::FewPackets => "few packets",
            Self::State => "state",
            Self::Shared => "shared",
            Self::OneWay => "one way",
            Self::Function => "function",
            Self::Tunnel => "tunnel",
            Self::ForwardedElsewhere => "forwarded elsewhere",
            Self::NotAcknowledged => "not acknowledged",
            Self::Port => "port",
            Self::NextHop => "next hop",
            Self::Windows => "windows",
            Self::Full => "full",
            Self::Refused => "refused",
            Self::NextPacket => "from next packet",
        }
    }
}
