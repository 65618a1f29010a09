//! Signs of another host with one of the node's shared addresses.

use core::net::IpAddr;

use flow::PortId;
use flow::wire::MacAddress;

use crate::group::GroupId;

/// A frame of another host that concerns one of the node's shared addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressReport {
    /// The port on whose link it was.
    pub port: PortId,
    /// The address.
    pub address: IpAddr,
    /// Its group.
    pub group: GroupId,
    /// The other host's link address.
    pub mac: MacAddress,
    /// What it did.
    pub kind: AddressReportKind,
}

/// Kinds of [`AddressReport`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressReportKind {
    /// It claims the address.
    InUse,
    /// It probes for the address itself, and has the lower link address: of two that probe, it goes first.
    ProbedFirst,
    /// It probes for the address itself, and has the higher link address.
    ProbedSecond,
}
