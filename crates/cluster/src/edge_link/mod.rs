//! Between a node and the edges beside the cluster: each knows whether the other is alive, and an edge knows what the node serves.
//!
//! ```text
//!   edge                                                    node
//!    │  edge state, BFD control packet if one is due         │   RFC 5880; the node is passive: it answers edges that it
//!    ├──────────────────────────────────────────────────────►│   does not know, up to its limit
//!    │  node state, BFD control packet if one is due         │
//!    │◄──────────────────────────────────────────────────────┤   both at once when the state changes
//! ```
//!
//! A node reports that it serves the connections of a failed node once its state is usable *and* all edges have moved their flows:
//! otherwise one edge would resend a segment, and the other would send its acknowledgement to the failed node.
//!
//! Both travel in Ethernet frames over the link between them ([`crate::forwarding::PATH_ETHER_TYPE`]), so neither needs an address
//! there. An edge's state is 8 bytes: the nodes to which it sends no flows, bit n for node n, big-endian. A node's is 16 bytes:
//!
//! ```text
//!    0  flags: bit 0, the node forwards packets; the other bits are 0 and are ignored
//!    1  zero, 7 bytes, which are ignored
//!    8  nodes whose connections it serves: bit n for node n, big-endian
//! ```
//!
//! Where the cluster has pre-shared keys, all of this travels in a [secure channel](replication::secure) under keys that follow from them.
//! An edge's channel begins anew when it has been silent, for the node may have been restarted. In plain text, an edge and a node that are
//! up are bound to the link address that they were found at, and neither can be taken down by who does not know its discriminator; but
//! who reads the link can do what ARP spoofing can.

mod edges;
mod nodes;
mod security;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use flow::{DropReason, NodeId};

use replication::secure::ChannelError;

use crate::failure_detector::BfdError;

pub use edges::{EDGES_MAX, EdgeConfig};
pub(crate) use edges::{EdgeAddress, EdgeSessions};
pub use nodes::{LinkError, NodeLinkStatus, NodeLinks, NodeUpdate};
pub use security::LinkSecurity;

/// Bytes of a node's state.
pub const NODE_STATE_BYTES: usize = 16;
/// Nodes that a state can name.
pub const NODES_MAX: u8 = 64;

const FORWARDS: u8 = 1;

/// What a node serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeState {
    /// It forwards the packets that arrive at its ports.
    pub forwards: bool,
    /// The nodes whose connections it serves: they are dead or passive, and the state of their connections is usable here.
    /// Bit n stands for node n.
    pub serves: u64,
}

impl NodeState {
    /// Whether it serves the connections of the node.
    #[must_use]
    pub const fn serves(&self, node: NodeId) -> bool {
        node.0 < NODES_MAX && self.serves & (1 << node.0) != 0
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[if self.forwards { FORWARDS } else { 0 }, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.serves.to_be_bytes());
    }

    /// Reads it, and returns what follows. `None`: it is truncated.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([flags, _, _, _, _, _, _, _, serves @ ..], rest) = bytes.split_first_chunk::<NODE_STATE_BYTES>()?;
        Some((Self { forwards: flags & FORWARDS != 0, serves: u64::from_be_bytes(*serves) }, rest))
    }
}

/// What an edge reports to nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EdgeState {
    /// The nodes to which it sends no flows; bit n stands for node n.
    pub(crate) stopped: u64,
}

impl EdgeState {
    /// Appends its bytes.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stopped.to_be_bytes());
    }

    /// Reads it, and returns what follows. `None`: it is truncated.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (stopped, rest) = bytes.split_first_chunk()?;
        Some((Self { stopped: u64::from_be_bytes(*stopped) }, rest))
    }
}

/// Why a frame of an edge was not taken. The edge's fault, or of whoever sends in its name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum EdgeError {
    /// It is in plain text, though edges authenticate themselves here.
    #[error(
        "an edge that does not authenticate itself: give its file [security] with the key of [replication.security]"
    )]
    NotAuthenticated,
    /// It is encrypted, and this node has no key.
    #[error("an edge that authenticates itself, and this node has no pre-shared key in [replication.security]")]
    NoKey,
    /// The edge is up at another link address.
    #[error(
        "a frame in the name of an edge that is up at another link address: a stranger's, or two edges have one number"
    )]
    OtherLinkAddress,
    /// The keys do not open it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// There is no room for another.
    #[error("more edges than failure_detection.edges_max: raise it if they are yours")]
    TooMany,
    /// It is truncated.
    #[error("a truncated frame of an edge")]
    Truncated,
    /// Its packet is none of failure detection.
    #[error(transparent)]
    Bfd(#[from] BfdError),
}

impl EdgeError {
    /// The reason that the frame counts as dropped for.
    pub(crate) const fn reason(&self) -> DropReason {
        match self {
            Self::NotAuthenticated | Self::NoKey | Self::OtherLinkAddress | Self::Channel(_) | Self::Bfd(_) => {
                DropReason::ControlUnauthenticated
            }
            Self::Truncated => DropReason::Truncated,
            Self::TooMany => DropReason::LocalUnhandled,
        }
    }
}
