//! The path of a connection's packets, for operators.

/// What forwards the packets of a connection, in a node with a fast path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketPath {
    /// The program below the node.
    Kernel,
    /// The node, for this reason.
    Gateway(GatewayReason),
}

/// Why the fast path does not forward the packets of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatewayReason {
    /// Another node owns the connection.
    NotOwner,
    /// The node does not forward packets.
    Inactive,
    /// An operator watches packets of the connection.
    Traced,
    /// The protocol is neither TCP nor UDP.
    Protocol,
    /// There were fewer packets than [`FAST_PATH_PACKETS_MIN`](super::FAST_PATH_PACKETS_MIN).
    FewPackets,
    /// The connection is not [settled](flow::fast_path::is_settled).
    State,
    /// Packets of the connection reach two living nodes.
    Shared,
    /// The egress port of one direction is not known.
    OneWay,
    /// A function of the chain needs the packets.
    Function,
    /// They leave in a tunnel to a server that answers the client directly.
    Tunnel,
    /// A peer may have forwarded packets of the connection.
    ForwardedElsewhere,
    /// A living peer has not acknowledged the connection.
    NotAcknowledged,
    /// An egress port has no fast path.
    Port,
    /// The route leads elsewhere, or the link address of the next hop is not known.
    NextHop,
    /// The windows of both sides are not known.
    Windows,
    /// The latest installation found no room.
    Full,
    /// The latest installation was refused otherwise.
    Refused,
    /// The connection is installed after its next packet.
    NextPacket,
}
