//! Whether a failover now would be safe, and why not.

use alloc::vec::Vec;
use core::fmt;

use flow::NodeId;

use super::request::KernelRefusal;
use super::share::Share;

/// Something that stands in the way of a failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// What the kernel had at the start is not known yet.
    NotInitialised,
    /// Events of the kernel were lost, and what was missed is not known yet.
    EventsLost,
    /// So many connections wait to be told to the kernel.
    Pending(u32),
    /// The kernel refused so many connections, the last time for this reason.
    NotInKernel(u32, Option<KernelRefusal>),
    /// Nothing is heard of the peer.
    Silent(NodeId),
    /// The peer has not told all its connections yet.
    NotHeard(NodeId),
    /// The peer has not been told all of this node's yet.
    NotTold(NodeId),
    /// There is no room for all of the peer's connections.
    NoRoom(NodeId),
    /// Copies of the peer's connections are not what it told.
    Differs(NodeId),
    /// Both are primary, and one should be.
    SplitBrain(NodeId),
    /// The peer cannot hold the addresses.
    PeerAtFault(NodeId),
    /// This node cannot.
    Fault,
    /// The filter leaves out nearly all of this kernel's connections.
    FewReplicated(Share),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialised => f.write_str("the kernel's table has not been read yet"),
            Self::EventsLost => f.write_str("events of the kernel were lost and are being made up for"),
            Self::Pending(count) => write!(f, "{count} connections wait to be told to the kernel"),
            Self::NotInKernel(count, Some(why)) => write!(f, "the kernel refused {count} connections: {why}"),
            Self::NotInKernel(count, None) => write!(f, "the kernel refused {count} connections"),
            Self::Silent(peer) => write!(f, "nothing is heard of node {}", peer.0),
            Self::NotHeard(peer) => write!(f, "node {} has not told all its connections yet", peer.0),
            Self::NotTold(peer) => write!(f, "node {} has not been told all connections yet", peer.0),
            Self::NoRoom(peer) => write!(f, "there is no room for all of node {}'s connections", peer.0),
            Self::Differs(peer) => write!(f, "copies of node {}'s connections differ and are being put right", peer.0),
            Self::SplitBrain(peer) => write!(f, "node {} is primary as well", peer.0),
            Self::PeerAtFault(peer) => write!(f, "node {} is at fault", peer.0),
            Self::Fault => f.write_str("this node is at fault"),
            Self::FewReplicated(Share { established, replicated }) => write!(
                f,
                "of {established} established connections of this kernel {replicated} are replicated: [filter] leaves the others \
                 out (filter.addresses, [[filter.ignore]])"
            ),
        }
    }
}

/// Whether a failover now would be safe.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// Nothing is left to tell to the kernel: whatever this node knows, packets may come for.
    pub is_usable: bool,
    /// What stands in the way of a failover, to this node or from it.
    pub obstacles: Vec<Obstacle>,
}

impl Readiness {
    /// No connection would be lost.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.obstacles.is_empty()
    }
}

/// `a failover now would be safe`, or that it would not, and why.
impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_safe() {
            return f.write_str("a failover now would be safe");
        }
        f.write_str("a failover now would not be safe: ")?;
        for (at, obstacle) in self.obstacles.iter().enumerate() {
            write!(f, "{}{obstacle}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
