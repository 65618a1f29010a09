//! The addresses that a node holds.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use flow::wire::MacAddress;
use flow::{PortId, Prefix, Tuple};

use super::config::Port;
use crate::group::{GroupId, GroupSet};

/// An address on one of the node's ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LocalAddress {
    pub(super) prefix: Prefix,
    pub(super) port: PortId,
    /// The group of a shared address; `None`: it is this node's alone.
    pub(super) group: Option<GroupId>,
}

impl LocalAddress {
    /// Whether a node that holds these groups holds it.
    #[inline]
    pub(super) fn is_held(&self, held: GroupSet) -> bool {
        self.group.is_none_or(|group| held.contains(group))
    }
}

/// All addresses of all ports, in the order of the addresses, those of IPv4 first.
#[derive(Clone, Debug)]
pub(super) struct LocalAddresses {
    all: Vec<LocalAddress>,
    /// The addresses as numbers, in the same order: every packet's destination is looked for among them.
    v4: Vec<u32>,
    v6: Vec<u128>,
}

impl LocalAddresses {
    pub(super) fn new(ports: &[Port]) -> Self {
        let mut all = Vec::new();
        for (port, id) in ports.iter().zip((0..=u8::MAX).map(PortId)) {
            let link_local = Prefix::new(IpAddr::V6(link_local(port.mac)), 64);
            let own = port.own.iter().chain([&link_local]).map(|prefix| (*prefix, None));
            let shared = port.shared.iter().map(|shared| (shared.prefix, Some(shared.group)));
            all.extend(own.chain(shared).map(|(prefix, group)| LocalAddress { prefix, port: id, group }));
        }
        all.sort_unstable();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for local in &all {
            match local.prefix.address {
                IpAddr::V4(address) => v4.push(address.to_bits()),
                IpAddr::V6(address) => v6.push(address.to_bits()),
            }
        }
        Self { all, v4, v6 }
    }

    /// The address, on `port` if it is there, else on another.
    pub(super) fn find(&self, address: IpAddr, port: PortId) -> Option<&LocalAddress> {
        let start = match address {
            IpAddr::V4(address) => position(&self.v4, address.to_bits())?,
            IpAddr::V6(address) => self.v4.len() + position(&self.v6, address.to_bits())?,
        };
        self.on_port(start, port)
    }

    /// As [`LocalAddresses::find`], the destination of `tuple`.
    #[inline]
    pub(super) fn find_destination(&self, tuple: &Tuple, port: PortId) -> Option<&LocalAddress> {
        let start = if tuple.version == 4 {
            let [.., a, b, c, d] = tuple.destination;
            position(&self.v4, u32::from_be_bytes([a, b, c, d]))?
        } else {
            self.v4.len() + position(&self.v6, u128::from_be_bytes(tuple.destination))?
        };
        self.on_port(start, port)
    }

    /// Of the addresses equal to the one at `start`, the one on `port`, or else the first.
    #[inline]
    fn on_port(&self, start: usize, port: PortId) -> Option<&LocalAddress> {
        let first = &self.all[start];
        if first.port == port {
            return Some(first);
        }
        let address = first.prefix.address;
        let mut same = self.all[start + 1..].iter().take_while(|local| local.prefix.address == address);
        // A link-local address on another link is another host's.
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        same.find(|local| local.port == port).or((!is_link_local).then_some(first))
    }

    /// The shared addresses of these groups.
    pub(super) fn shared(&self, groups: GroupSet) -> impl Iterator<Item = &LocalAddress> {
        self.all.iter().filter(move |local| local.group.is_some_and(|group| groups.contains(group)))
    }

    /// The source address on `port` for packets to `peer`, on its link or beyond: one in the peer's network before others, and
    /// then a shared one of the groups `held` before the node's own. IPv6 link-local addresses are the last resort.
    pub(super) fn source_for(&self, port: PortId, peer: IpAddr, held: GroupSet) -> Option<IpAddr> {
        let usable = self.all.iter().filter(|local| {
            local.port == port && local.prefix.address.is_ipv4() == peer.is_ipv4() && local.is_held(held)
        });
        let best = usable.max_by_key(|local| {
            let is_link_local = matches!(local.prefix.address, IpAddr::V6(address) if address.is_unicast_link_local());
            (local.prefix.contains(peer), !is_link_local, local.group.is_some())
        });
        best.map(|local| local.prefix.address)
    }
}

/// Where the first that is `wanted` lies in ascending numbers.
#[inline]
fn position<N: Copy + Ord>(numbers: &[N], wanted: N) -> Option<usize> {
    let start = numbers.partition_point(|number| *number < wanted);
    (numbers.get(start) == Some(&wanted)).then_some(start)
}

/// The link-local address that follows from a link address (RFC 4291 appendix A).
pub(super) const fn link_local(mac: MacAddress) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let words = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]];
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        u16::from_be_bytes(words[0]),
        u16::from_be_bytes(words[1]),
        u16::from_be_bytes(words[2]),
        u16::from_be_bytes(words[3]),
    )
}

/// Such packets stay on their link (RFC 3927 section 2.7, RFC 4291 section 2.5.6).
pub(super) const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
