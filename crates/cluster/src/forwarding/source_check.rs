//! Which sources packets may have that come in by a port (RFC 3704, RFC 1812 section 5.3.7): a packet with the address of another
//! side is not taken for that side's.
//!
//! ```text
//!   strict   the source lies behind the port that the packet came in by
//!   loose    the source lies behind some port, but behind no strict one other than this
//!   off      any source that is neither the node's own nor no host's
//! ```

use alloc::vec::Vec;
use core::net::IpAddr;

use flow::{DropReason, PortId};

use super::address::{LocalAddresses, is_link_local};
use super::config::{Config, ReversePath};

/// The configuration of source checks, prepared for lookups.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    /// By port: of IPv4, then of IPv6. None is [`ReversePath::Automatic`].
    ports: Vec<[ReversePath; 2]>,
    /// The broadcast addresses of the ports' networks, ascending.
    broadcasts: Vec<u32>,
    /// The addresses of services with direct return, each with a port that leads to a backend, ascending.
    returning: Vec<(IpAddr, PortId)>,
}

impl Sources {
    /// The configuration is sound; `port_to` returns the port that leads to an address by it.
    pub(super) fn new(config: &Config, port_to: impl Fn(IpAddr) -> Option<PortId>) -> Self {
        let ports = config.ports.iter().zip((0..=u8::MAX).map(PortId));
        let mode = |mode: ReversePath, port: PortId, is_ipv4: bool| match mode {
            ReversePath::Automatic => automatic(config, port, is_ipv4),
            chosen => chosen,
        };
        let modes = ports.map(|(port, id)| [true, false].map(|is_ipv4| mode(port.reverse_path, id, is_ipv4)));
        let networks = config.ports.iter().flat_map(|port| port.networks());
        let mut broadcasts: Vec<u32> =
            networks.filter_map(|network| network.broadcast()).map(|b| b.to_bits()).collect();
        broadcasts.sort_unstable();
        let returning = config.direct_return.iter();
        let mut returning: Vec<_> =
            returning.filter_map(|(service, backend)| Some((*service, port_to(*backend)?))).collect();
        returning.sort_unstable();
        returning.dedup();
        Self { ports: modes.collect(), broadcasts, returning }
    }

    /// Whether an address is the broadcast address of a port's network (RFC 2644).
    #[inline]
    pub(super) fn is_broadcast(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address.is_broadcast() || self.broadcasts.binary_search(&address.to_bits()).is_ok(),
            IpAddr::V6(_) => false,
        }
    }

    #[inline]
    fn mode(&self, port: PortId, is_ipv4: bool) -> ReversePath {
        self.ports.get(usize::from(port.0)).map_or(ReversePath::Strict, |modes| modes[usize::from(!is_ipv4)])
    }

    /// Checks the source of a packet that came in by a port. `port_to` returns the port that leads to an address.
    ///
    /// # Errors
    /// No host there can have sent it.
    pub(super) fn check(
        &self,
        ingress: PortId,
        source: IpAddr,
        addresses: &LocalAddresses,
        port_to: impl Fn(IpAddr) -> Option<PortId>,
    ) -> Result<(), DropReason> {
        if self.returning.binary_search(&(source, ingress)).is_ok() {
            return Ok(());
        }
        if addresses.find(source, ingress).is_some() || self.is_broadcast(source) {
            return Err(DropReason::MartianAddress);
        }
        if source.is_ipv6() && is_link_local(source) {
            // It is on the link, and its packets stay there.
            return Ok(());
        }
        let mode = self.mode(ingress, source.is_ipv4());
        if mode == ReversePath::Off {
            return Ok(());
        }
        let behind = port_to(source).ok_or(DropReason::ReversePath)?;
        let is_strict = |port: PortId| self.mode(port, source.is_ipv4()) == ReversePath::Strict;
        let may_come = behind == ingress || !is_strict(ingress) && !is_strict(behind);
        if may_come { Ok(()) } else { Err(DropReason::ReversePath) }
    }
}

/// Behind a port with a default route lies whatever lies behind no other.
fn automatic(config: &Config, port: PortId, is_ipv4: bool) -> ReversePath {
    let is_default = |route: &super::Route| {
        route.port == port && route.destination.length_bits == 0 && route.destination.address.is_ipv4() == is_ipv4
    };
    if config.routes.iter().any(is_default) { ReversePath::Loose } else { ReversePath::Strict }
}
