//! Whether a failover now would be safe, and the obstacles.

use alloc::vec::Vec;
use core::fmt;

use flow::NodeId;

use super::coverage::FilterCoverage;
use super::request::KernelRefusal;
use super::unreplicated::Unreplicated;

/// An obstacle to a safe failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// The kernel's initial table has not been read.
    NotInitialised,
    /// Events of the kernel were lost, and the missed changes are not known yet.
    EventsLost,
    /// So many requests to the kernel are pending.
    Pending(u32),
    /// The kernel refused so many connections, the last one for this reason.
    NotInKernel(u32, Option<KernelRefusal>),
    /// The session with the peer is down.
    Silent(NodeId),
    /// The peer has not completed its full resynchronisation.
    IncompleteFromPeer(NodeId),
    /// The full resynchronisation to the peer is not complete.
    IncompleteToPeer(NodeId),
    /// The peer's connections do not all fit.
    NoRoom(NodeId),
    /// Replicas of the peer's connections differ from its state.
    Differs(NodeId),
    /// Both are primary, contrary to the configuration.
    SplitBrain(NodeId),
    /// The peer cannot hold the addresses: it is at fault.
    PeerAtFault(NodeId),
    /// This node is at fault and cannot hold the addresses.
    Fault,
    /// The filter excludes nearly all of this kernel's connections.
    FewReplicated(FilterCoverage),
    /// Connections of this node are not replicated.
    Unreplicated(Unreplicated),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialised => f.write_str("the kernel's table has not been read yet"),
            Self::EventsLost => f.write_str("events of the kernel were lost and are being made up for"),
            Self::Pending(count) => write!(f, "{count} connections wait to be injected into the kernel"),
            Self::NotInKernel(count, Some(why)) => write!(f, "the kernel refused {count} connections: {why}"),
            Self::NotInKernel(count, None) => write!(f, "the kernel refused {count} connections"),
            Self::Silent(peer) => write!(f, "node {} is unreachable", peer.0),
            Self::IncompleteFromPeer(peer) => write!(f, "node {} has not replicated all its connections yet", peer.0),
            Self::IncompleteToPeer(peer) => write!(f, "not all connections are replicated to node {} yet", peer.0),
            Self::NoRoom(peer) => write!(f, "there is no room for all of node {}'s connections", peer.0),
            Self::Differs(peer) => write!(f, "copies of node {}'s connections differ and are being put right", peer.0),
            Self::SplitBrain(peer) => write!(f, "node {} is primary as well", peer.0),
            Self::PeerAtFault(peer) => write!(f, "node {} is at fault", peer.0),
            Self::Fault => f.write_str("this node is at fault"),
            Self::Unreplicated(unreplicated) => {
                let total = unreplicated.total();
                write!(
                    f,
                    "{total} {}: ",
                    if total == 1 { "connection is not replicated" } else { "connections are not replicated" }
                )?;
                let counts = unreplicated.counts().filter(|(_, count)| *count > 0);
                for (at, (reason, count)) in counts.enumerate() {
                    write!(f, "{}{count} {}", if at == 0 { "" } else { ", " }, reason.describe())?;
                }
                Ok(())
            }
            Self::FewReplicated(FilterCoverage { established, replicated }) => write!(
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
    /// No request to the kernel is pending: packets of all known connections may arrive.
    pub is_usable: bool,
    /// The obstacles to a failover, to this node or from it.
    pub obstacles: Vec<Obstacle>,
}

impl Readiness {
    /// No connection would be lost.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.obstacles.is_empty()
    }
}

/// `a failover now would be safe`, or the obstacles.
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
