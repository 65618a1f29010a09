//! Two sites with two gateways each, a router before either, and a thin link between the routers.
//!
//! ```text
//!  namespace server        nodes a0, a1           router a      link       router b          nodes b0, b1       namespace client
//!  10.1.0.10 ── bridge ──┬─ inside uplink┬── bridge 192.0.2.254 ════ 198.51.100.254 bridge ──┬─uplink inside─┬── bridge ── 10.2.0.10
//!                        └─ inside uplink┘              203.0.113.1/30    .2                 └─uplink inside─┘
//! ```
//! The sites' shared addresses are 10.1.0.1 and 192.0.2.1, 198.51.100.1 and 10.2.0.1. The routers are the kernel's, and know
//! nothing of the tunnel.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, sysctl};

use crate::emulator::channel::Settings;
use crate::emulator::{Link, LinkError, LinkPlan};
use crate::testbed::topology::{BRIDGE, v4};

/// Names of a node's interfaces: towards its hosts, towards the router, towards the other node.
pub(super) const INTERFACES: [&str; 3] = ["inside", "uplink", "sync"];
/// What a host's TCP reckons a path's capacity by, as /proc/sys has it.
const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";
/// Ends of the link between the routers.
const LINK_ENDS: [IpAddr; 2] = [v4(203, 0, 113, 1), v4(203, 0, 113, 2)];
const LINK_PREFIX_BITS: u8 = 30;
/// Length of every other network's prefix.
pub(super) const PREFIX_BITS: u8 = 24;

/// A site's addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct SitePlan {
    /// Its name, one character.
    pub(super) name: &'static str,
    pub(super) host: IpAddr,
    /// The gateway's address inside.
    pub(super) inside: IpAddr,
    /// The gateway's address towards the other site, at which the tunnel ends.
    pub(super) uplink: IpAddr,
    pub(super) router: IpAddr,
    /// The nodes' addresses on the link between them.
    pub(super) sync: [IpAddr; 2],
}

/// Site a has the server, site b the client.
pub(super) const SITES: [SitePlan; 2] = [
    SitePlan {
        name: "a",
        host: v4(10, 1, 0, 10),
        inside: v4(10, 1, 0, 1),
        uplink: v4(192, 0, 2, 1),
        router: v4(192, 0, 2, 254),
        sync: [v4(10, 99, 0, 1), v4(10, 99, 0, 2)],
    },
    SitePlan {
        name: "b",
        host: v4(10, 2, 0, 10),
        inside: v4(10, 2, 0, 1),
        uplink: v4(198, 51, 100, 1),
        router: v4(198, 51, 100, 254),
        sync: [v4(10, 98, 0, 1), v4(10, 98, 0, 2)],
    },
];

/// Where the server listens.
pub(super) const SERVER: SocketAddr = SocketAddr::new(SITES[0].host, 8080);

/// A site's namespaces.
pub(super) struct Site {
    pub(super) host: Arc<Namespace>,
    pub(super) nodes: [Namespace; 2],
    router: Namespace,
}

/// The network. It is gone when the value and all processes in it are.
pub(super) struct Topology {
    pub(super) sites: [Site; 2],
    pub(super) link: Link,
}

impl Topology {
    /// Makes the hosts use this congestion control, if one is named. Returns what they use.
    pub(super) fn set_congestion_control(&self, name: Option<&str>) -> Result<String, IoError> {
        for (site, name) in self.sites.iter().zip(std::iter::repeat(name)) {
            name.map_or(Ok(()), |name| site.host.run(|| sysctl::write(CONGESTION_CONTROL, name))?)?;
        }
        self.sites[0].host.run(|| sysctl::read(CONGESTION_CONTROL))?
    }

    /// Builds it, with a link of this quality in both directions.
    pub(super) fn build(settings: Settings, seed: u64) -> Result<Self, LinkError> {
        let sites = [Site::build(&SITES[0])?, Site::build(&SITES[1])?];
        let plan = LinkPlan {
            addresses: LINK_ENDS.map(|end| vec![Prefix::new(end, LINK_PREFIX_BITS)]),
            seed,
            ..LinkPlan::symmetric(settings)
        };
        let link = Link::start(&plan, [&sites[0].router, &sites[1].router])?;
        for (number, site) in sites.iter().enumerate() {
            let (own, other) = (&SITES[number], &SITES[1 - number]);
            site.router.run(|| route_by(own, other, LINK_ENDS[1 - number]))??;
        }
        Ok(Self { sites, link })
    }
}

/// The router's ways: its own site's hosts by the gateway, all that is the other site's by the link.
fn route_by(own: &SitePlan, other: &SitePlan, far_end: IpAddr) -> Result<(), IoError> {
    let mut netlink = Netlink::open()?;
    netlink.add_route(network(own.inside), own.uplink)?;
    netlink.add_route(network(other.inside), far_end)?;
    netlink.add_route(network(other.uplink), far_end)
}

/// The network that an address lies in.
fn network(address: IpAddr) -> Prefix {
    let IpAddr::V4(address) = address else { unreachable!("the sites' addresses are IPv4's") };
    let [a, b, c, _] = address.octets();
    Prefix::new(v4(a, b, c, 0), PREFIX_BITS)
}

impl Site {
    fn build(plan: &SitePlan) -> Result<Self, IoError> {
        let [host, router, first, second] =
            [Namespace::new()?, Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let nodes = [first, second];
        for namespace in [&host, &router].into_iter().chain(&nodes) {
            namespace.run(sysctl::quieten_ipv6)??;
        }
        for node in &nodes {
            node.run(|| sysctl::write("net/ipv4/ip_forward", "0"))??;
        }
        router.run(|| sysctl::write("net/ipv4/ip_forward", "1"))??;
        host.run(|| build_switch(INTERFACES[0], plan.host, &nodes))??;
        router.run(|| build_switch(INTERFACES[1], plan.router, &nodes))??;
        host.run(|| Netlink::open()?.add_route(Prefix::DEFAULT_V4, plan.inside))??;
        nodes[0].run(|| Netlink::open()?.create_veth(INTERFACES[2], INTERFACES[2], &nodes[1]))??;
        for (node, address) in nodes.iter().zip(plan.sync) {
            node.run(|| -> Result<(), IoError> {
                let mut netlink = Netlink::open()?;
                netlink.set_up(INTERFACES[2], true)?;
                netlink.add_address(INTERFACES[2], Prefix::new(address, PREFIX_BITS))
            })??;
        }
        Ok(Self { host: Arc::new(host), nodes, router })
    }
}

/// A bridge with an address, and a cable from it to each node's `interface`. Runs in the namespace of the bridge.
fn build_switch(interface: &str, address: IpAddr, nodes: &[Namespace; 2]) -> Result<(), IoError> {
    let mut netlink = Netlink::open()?;
    netlink.create_bridge(BRIDGE)?;
    // Where the kernel has no such parameter, its packet filter does not look at what a bridge carries.
    let _ = sysctl::write("net/bridge/bridge-nf-call-iptables", "0");
    netlink.set_up(BRIDGE, true)?;
    for (node, name) in nodes.iter().zip(["to-0", "to-1"]) {
        netlink.create_veth(name, interface, node)?;
        netlink.attach_to_bridge(name, BRIDGE)?;
        netlink.set_up(name, true)?;
        node.run(|| Netlink::open()?.set_up(interface, true))??;
    }
    netlink.add_address(BRIDGE, Prefix::new(address, PREFIX_BITS))
}
