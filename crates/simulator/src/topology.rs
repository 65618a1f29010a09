//! The simulated network: two nodes between two links, two hosts on each.
//!
//! ```text
//!   host 0 ──┐                  ┌─ node 0 ─┐                   ┌── host 2
//!            ├── inside link ───┤    ║     ├─── outside link ──┤
//!   host 1 ──┘   10.0.0.0/24    └─ node 1 ─┘   192.0.2.0/24    └── host 3
//!                fd00:1::/64   replication     fd00:2::/64
//! ```
//!
//! IPv4 from inside leaves with the cluster's outside address; port 8080 of that address leads to host 0. IPv6 is
//! routed untranslated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cluster::forwarding::PathId;
use cluster::node::{Target, Tracked, TrackingConfig};
use flow::PortId;
use flow::wire::arp::ArpOperation;
use flow::wire::{MacAddress, build};

/// Nodes in the cluster.
pub(crate) const NODES: usize = 2;
/// Hosts on both links.
pub(crate) const HOSTS: usize = 4;
/// The first host of the outside link.
pub(crate) const OUTSIDE_FIRST: usize = 2;

/// The port that servers listen on, for TCP and UDP.
pub(crate) const SERVICE_PORT: u16 = 80;
/// The port of the cluster's outside address that is forwarded to host 0.
pub(crate) const FORWARDED_PORT: u16 = 8080;
pub(crate) const PREFIX_V4_BITS: u8 = 24;
pub(crate) const PREFIX_V6_BITS: u8 = 64;

/// The identity of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostConfig {
    pub(crate) mac: MacAddress,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) gateway_v4: Ipv4Addr,
    pub(crate) gateway_v6: Ipv6Addr,
}

/// One of the two links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Inside,
    Outside,
}

impl Side {
    pub(crate) const fn of_host(host: usize) -> Self {
        if host < OUTSIDE_FIRST { Self::Inside } else { Self::Outside }
    }

    pub(crate) const fn of_port(port: PortId) -> Self {
        if port.0 == 0 { Self::Inside } else { Self::Outside }
    }

    pub(crate) const fn port(self) -> PortId {
        PortId(self as u8)
    }

    pub(crate) const fn v4(self, host: u8) -> Ipv4Addr {
        match self {
            Self::Inside => Ipv4Addr::new(10, 0, 0, host),
            Self::Outside => Ipv4Addr::new(192, 0, 2, host),
        }
    }

    pub(crate) const fn v6(self, host: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, self as u16 + 1, 0, 0, 0, 0, 0, host)
    }

    /// The address of either family that the cluster shares on the link.
    pub(crate) const fn shared(self) -> [IpAddr; 2] {
        [IpAddr::V4(self.v4(1)), IpAddr::V6(self.v6(1))]
    }
}

/// The link address of a node's port.
pub(crate) const fn node_mac(node: usize, side: Side) -> MacAddress {
    MacAddress([2, 0, 0, 1, side as u8, node as u8])
}

/// The link address of a host.
pub(crate) const fn host_mac(host: usize) -> MacAddress {
    MacAddress([2, 0, 0, 2, 0, host as u8])
}

pub(crate) fn host_config(host: usize) -> HostConfig {
    let side = Side::of_host(host);
    let number = 10 + host as u8;
    HostConfig {
        mac: host_mac(host),
        v4: side.v4(number),
        v6: side.v6(number.into()),
        gateway_v4: side.v4(1),
        gateway_v6: side.v6(1),
    }
}

/// The announcement of a host that claims the shared addresses of its link.
pub(crate) fn claims(host: usize) -> Vec<Vec<u8>> {
    let side = Side::of_host(host);
    let mac = host_mac(host);
    vec![
        build::gratuitous_arp(ArpOperation::Reply, mac, side.v4(1)),
        build::unsolicited_neighbour_advertisement(mac, side.v6(1), true),
    ]
}

/// The tracked objects of nodes: their ports, and a host of each link in place of a router.
pub(crate) fn tracking() -> TrackingConfig {
    let next_hops = [(Side::Inside, 0), (Side::Outside, OUTSIDE_FIRST)];
    let next_hops = next_hops.map(|(side, host)| Target::NextHop(side.port(), IpAddr::V4(host_config(host).v4)));
    let ports = [Side::Inside, Side::Outside].map(|side| Target::Port(side.port()));
    let tracked = |weight| move |target| Tracked { target, weight };
    let group = ports.map(tracked(100)).into_iter().chain(next_hops.map(tracked(50))).collect();
    TrackingConfig { groups: vec![group], ..TrackingConfig::default() }
}

/// The ports whose links carry failure detection.
pub(crate) fn service_paths() -> [(PortId, PathId); 2] {
    [(Side::Inside, "inside"), (Side::Outside, "outside")].map(|(side, name)| (side.port(), PathId::of_name(name)))
}

/// The address of an outside server as seen from inside.
pub(crate) fn server_address(server: usize, is_ipv6: bool, port: u16) -> SocketAddr {
    let config = host_config(OUTSIDE_FIRST + server);
    SocketAddr::new(if is_ipv6 { config.v6.into() } else { config.v4.into() }, port)
}

/// The address of host 0 as seen from outside.
pub(crate) const fn forwarded_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Side::Outside.v4(1)), FORWARDED_PORT)
}
