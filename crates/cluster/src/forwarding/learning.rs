//! What one of several forwarders of a node learns of a neighbour, for the others.

use core::net::IpAddr;

use flow::PortId;
use flow::wire::MacAddress;

use super::neighbour::Learnt;

/// How a forwarder stands to others of its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// There is no other.
    #[default]
    Alone,
    /// It passes what it learns to the others.
    Lead,
    /// It learns from the lead.
    Follower,
}

/// What was learnt of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learning {
    pub(super) port: PortId,
    pub(super) address: IpAddr,
    pub(super) mac: MacAddress,
    pub(super) how: Learnt,
}
