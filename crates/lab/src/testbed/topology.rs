//! The demo's network: two hosts, two nodes between them, and a link of their own between the nodes. Of more nodes, this link is a switch.
//!
//! ```text
//!            namespace client                                        namespace server
//!   ┌──────────────────────────────┐                      ┌──────────────────────────────────┐
//!   │ bridge 10.1.0.10, fd00:1::10 │                      │ bridge 198.51.100.10, 2001:db8:2::10 │
//!   └──────┬────────────────┬──────┘                      └──────┬───────────────────┬───────┘
//!          │      inside ┌──┴──────────── node a ────────────────┴─┐ outside         │
//!          │             └──────────────── sync ───────────────────┘                 │
//!          │                        10.99.0.1 │ 10.99.0.2                            │
//!          │      inside ┌──────────────── sync ───────────────────┐ outside         │
//!          └─────────────┴──────────────── node b ─────────────────┴─────────────────┘
//! ```
//!
//! The shared addresses ([`INSIDE`], [`OUTSIDE`]) belong to no interface: the active node answers ARP for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use flow::wire::MacAddress;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::tun::DeviceKind;
use packet_io::{IoError, sysctl};

use crate::emulator::channel::Settings;
use crate::emulator::{Link, LinkError, LinkPlan};

/// A network's two families: IPv4 and IPv6.
pub type Both<T> = [T; 2];

/// The shared addresses inside: the client's default routers.
pub const INSIDE: Both<IpAddr> = [v4(10, 1, 0, 1), v6(0xfd00, 1, 0, 1)];
/// The shared addresses outside, which the client's are translated to.
pub const OUTSIDE: Both<IpAddr> = [v4(198, 51, 100, 1), v6(0x2001, 0x0db8, 2, 1)];
/// The client's addresses.
pub const CLIENT: Both<IpAddr> = [v4(10, 1, 0, 10), v6(0xfd00, 1, 0, 0x10)];
/// The server's addresses.
pub const SERVER: Both<IpAddr> = [v4(198, 51, 100, 10), v6(0x2001, 0x0db8, 2, 0x10)];
/// Addresses of a second server on the same host, where there is one.
pub const SECOND_SERVER: Both<IpAddr> = [v4(198, 51, 100, 11), v6(0x2001, 0x0db8, 2, 0x11)];
/// The ports that the server listens on: several, for each has a queue of its own for connections that begin.
pub const SERVER_PORTS: [u16; 4] = [7000, 7001, 7002, 7003];
/// Nodes that a network can have.
pub const NODES_MAX: usize = 8;
/// The addresses of two nodes on the link between them.
pub const SYNC: [IpAddr; 2] = [sync_address(0), sync_address(1)];
/// Lengths of the prefixes inside and outside, in bits.
pub const PREFIX_BITS: Both<u8> = [24, 64];
/// The networks inside and outside, without their lengths.
pub const NETWORKS: [Both<IpAddr>; 2] =
    [[v4(10, 1, 0, 0), v6(0xfd00, 1, 0, 0)], [v4(198, 51, 100, 0), v6(0x2001, 0x0db8, 2, 0)]];
/// Names of a node's interfaces: towards the client, towards the server, towards the other nodes.
pub const INTERFACES: [&str; 3] = ["inside", "outside", "sync"];

pub(crate) const SYNC_PREFIX_BITS: u8 = 24;
pub(crate) const BRIDGE: &str = "bridge";
/// The name of an edge's interface towards its host.
pub(crate) const EDGE_NETWORK: &str = "network";
/// Names of interfaces of a host, an edge or a switch towards the nodes, in the order of their numbers.
pub(crate) const TO_NODES: [&str; NODES_MAX] = ["to-a", "to-b", "to-c", "to-d", "to-e", "to-f", "to-g", "to-h"];
/// Connections that wait to be accepted, at most, where the system lets it be raised.
const ACCEPT_QUEUE_MAX: &str = "16384";
/// Ports that the client connects from.
const CLIENT_PORTS: &str = "1024 65535";

/// The address of a node on the link between the nodes.
#[must_use]
pub const fn sync_address(number: usize) -> IpAddr {
    v4(10, 99, 0, number as u8 + 1)
}

/// A second address of a node on that link, which it may move to.
#[must_use]
pub const fn second_sync_address(number: usize) -> IpAddr {
    v4(10, 99, 0, number as u8 + 51)
}

pub(crate) const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// `first:second:third::last`, with a zero `third` left out.
pub(crate) const fn v6(first: u16, second: u16, third: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last))
}

/// The network. It is gone when the value and all processes in it are.
#[derive(Debug)]
pub struct Topology {
    /// Where the client runs.
    pub client: Namespace,
    /// Where the nodes run: a, b and so on.
    pub nodes: Vec<Namespace>,
    /// Where the server runs.
    pub server: Namespace,
    /// Where the edges run, inside and outside; none, if there are no edges.
    pub edges: Vec<Namespace>,
    /// The switch between the nodes; none, if two nodes are joined by a cable.
    pub switch: Option<Namespace>,
}

impl Topology {
    /// Builds the network in four new namespaces.
    ///
    /// # Errors
    /// The process may not make networks, or the kernel lacks veth pairs or bridges.
    pub fn build() -> Result<Self, IoError> {
        Self::build_around(2, Vec::new())
    }

    /// As [`Topology::build`], with a namespace for an edge between each host and the nodes.
    ///
    /// # Errors
    /// As [`Topology::build`].
    pub fn build_with_edges() -> Result<Self, IoError> {
        Self::build_of(2)
    }

    /// As [`Topology::build_with_edges`], of so many nodes, 2 to [`NODES_MAX`]. More than two are joined by a switch.
    ///
    /// # Errors
    /// As [`Topology::build`], and another number of nodes.
    pub fn build_of(nodes: usize) -> Result<Self, IoError> {
        if !(2..=NODES_MAX).contains(&nodes) {
            return Err(IoError::Misuse(format!("a network of {nodes} nodes: choose 2 to {NODES_MAX}")));
        }
        Self::build_around(nodes, vec![Namespace::new()?, Namespace::new()?])
    }

    fn build_around(nodes: usize, edges: Vec<Namespace>) -> Result<Self, IoError> {
        let [client, server] = [Namespace::new()?, Namespace::new()?];
        let nodes = (0..nodes).map(|_| Namespace::new()).collect::<Result<Vec<_>, _>>()?;
        let switch = (nodes.len() > 2).then(Namespace::new).transpose()?;
        for namespace in [&client, &server].into_iter().chain(&nodes).chain(&edges).chain(&switch) {
            namespace.run(sysctl::quieten_ipv6)??;
        }
        for node in &nodes {
            node.run(|| sysctl::write("net/ipv4/ip_forward", "0"))??;
        }
        let topology = Self { client, nodes, server, edges, switch };
        topology.client.run(|| topology.build_host(0, CLIENT))??;
        topology.server.run(|| topology.build_host(1, SERVER))??;
        for (side, edge) in topology.edges.iter().enumerate() {
            edge.run(|| topology.build_edge(side))??;
        }
        topology.client.run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            netlink.add_route(Prefix::DEFAULT_V4, INSIDE[0])?;
            netlink.add_route(Prefix::DEFAULT_V6, INSIDE[1])
        })??;
        match &topology.switch {
            Some(switch) => topology.build_switch(switch)?,
            None => topology.build_sync_link()?,
        }
        topology.make_room_for_connections()?;
        Ok(topology)
    }

    /// Puts an emulated link in the place of the cable between the inside edge and each of two nodes.
    ///
    /// # Errors
    /// A link cannot be made.
    pub fn limit_nodes(&self, settings: Settings) -> Result<[Link; 2], LinkError> {
        let ([edge, _], [node_a, node_b]) = (&self.edges[..], &self.nodes[..]) else {
            return Err(LinkError::System(IoError::Misuse("the network has no edges, or not two nodes".into())));
        };
        let lay = |(name, node): (&str, &Namespace)| {
            edge.run(|| Netlink::open()?.delete(name))??;
            let interfaces = [name, INTERFACES[0]].map(str::to_owned);
            let plan = LinkPlan { interfaces, kind: DeviceKind::Ethernet, ..LinkPlan::symmetric(settings) };
            Link::start(&plan, [edge, node])
        };
        Ok([lay((TO_NODES[0], node_a))?, lay((TO_NODES[1], node_b))?])
    }

    /// Where the server listens, IPv4 and IPv6 in turn.
    #[must_use]
    pub fn server_addresses() -> Vec<SocketAddr> {
        let of_port = |port| SERVER.map(|address| SocketAddr::new(address, port));
        SERVER_PORTS.into_iter().flat_map(of_port).collect()
    }

    /// A host's bridge with its addresses, and a cable from it to each node, or to the edge of this side. Runs in the host's
    /// namespace.
    fn build_host(&self, side: usize, addresses: Both<IpAddr>) -> Result<(), IoError> {
        let mut netlink = Netlink::open()?;
        netlink.create_bridge(BRIDGE)?;
        // The bridge is a switch: the host's own packet filter has no business with what passes it. Where the kernel has
        // no such parameter, it has none.
        for family in ["iptables", "ip6tables"] {
            let _ = sysctl::write(&format!("net/bridge/bridge-nf-call-{family}"), "0");
        }
        netlink.set_up(BRIDGE, true)?;
        match self.edges.get(side) {
            Some(edge) => lay_cable(&mut netlink, "to-edge", EDGE_NETWORK, edge)?,
            None => self.lay_cables_to_nodes(&mut netlink, side)?,
        }
        let to_bridge = if self.edges.is_empty() { &TO_NODES[..self.nodes.len()] } else { &["to-edge"] };
        to_bridge.iter().try_for_each(|name| netlink.attach_to_bridge(name, BRIDGE))?;
        for (address, bits) in addresses.into_iter().zip(PREFIX_BITS) {
            netlink.add_address(BRIDGE, Prefix::new(address, bits))?;
        }
        Ok(())
    }

    /// The cables of an edge to the nodes. Runs in the edge's namespace.
    fn build_edge(&self, side: usize) -> Result<(), IoError> {
        self.lay_cables_to_nodes(&mut Netlink::open()?, side)
    }

    fn lay_cables_to_nodes(&self, netlink: &mut Netlink, side: usize) -> Result<(), IoError> {
        let mut cables = self.nodes.iter().zip(TO_NODES);
        cables.try_for_each(|(node, name)| lay_cable(netlink, name, INTERFACES[side], node))
    }

    /// Two nodes are joined by a cable.
    fn build_sync_link(&self) -> Result<(), IoError> {
        let interface = INTERFACES[2];
        self.nodes[0].run(|| Netlink::open()?.create_veth(interface, interface, &self.nodes[1]))??;
        for (node, address) in self.nodes.iter().zip(SYNC) {
            node.run(|| set_up_with_address(interface, address))??;
        }
        Ok(())
    }

    /// More nodes are joined by a switch.
    fn build_switch(&self, switch: &Namespace) -> Result<(), IoError> {
        switch.run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            netlink.create_bridge(BRIDGE)?;
            netlink.set_up(BRIDGE, true)
        })??;
        for (number, (node, name)) in self.nodes.iter().zip(TO_NODES).enumerate() {
            self.join_switch(name, node, sync_address(number))?;
        }
        Ok(())
    }

    /// Joins a namespace to the switch between the nodes, by a port `name`; its interface has the name of a node's.
    ///
    /// # Errors
    /// There is no switch, or the process may not.
    pub fn join_switch(&self, name: &str, host: &Namespace, address: IpAddr) -> Result<(), IoError> {
        let Some(switch) = &self.switch else {
            return Err(IoError::Misuse("the nodes are joined by a cable".into()));
        };
        let interface = INTERFACES[2];
        switch.run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            netlink.create_veth(name, interface, host)?;
            netlink.set_up(name, true)?;
            netlink.attach_to_bridge(name, BRIDGE)
        })??;
        host.run(|| set_up_with_address(interface, address))?
    }

    fn make_room_for_connections(&self) -> Result<(), IoError> {
        self.client.run(add_client_ports)??;
        self.server.run(let_server_queue)?;
        Ok(())
    }
}

/// Puts an interface of the calling thread's namespace into service on the link between the nodes.
fn set_up_with_address(interface: &str, address: IpAddr) -> Result<(), IoError> {
    let mut netlink = Netlink::open()?;
    netlink.set_up(interface, true)?;
    netlink.add_address(interface, Prefix::new(address, SYNC_PREFIX_BITS))
}

/// Lets many connections begin at once with a server in the namespace of the calling thread.
fn let_server_queue() {
    // With cookies, a server that has many connections beginning at once keeps nothing of them, and resets one
    // whose first segment is lost and whose second arrives: that would be counted against the gateway.
    for (name, value) in [
        ("net/ipv4/tcp_syncookies", "0"),
        ("net/ipv4/tcp_max_syn_backlog", ACCEPT_QUEUE_MAX),
        ("net/core/somaxconn", ACCEPT_QUEUE_MAX),
    ] {
        // Some kernels keep one or the other from ordinary users; the defaults do for all but large ramps.
        let _ = sysctl::write(name, value);
    }
}

/// A cable from the interface `name` here to `far_name` in another namespace, both ends up.
fn lay_cable(netlink: &mut Netlink, name: &str, far_name: &str, far: &Namespace) -> Result<(), IoError> {
    netlink.create_veth(name, far_name, far)?;
    netlink.set_up(name, true)?;
    far.run(|| Netlink::open()?.set_up(far_name, true))?
}

/// The link address of an interface.
///
/// # Errors
/// There is no such interface.
pub fn link_address(namespace: &Namespace, interface: &str) -> Result<MacAddress, IoError> {
    namespace.run(|| Ok(MacAddress(Netlink::open()?.interface(interface)?.mac)))?
}

/// Lets the namespace of the calling thread connect from more ports than usual.
pub(crate) fn add_client_ports() -> Result<(), IoError> {
    sysctl::write("net/ipv4/ip_local_port_range", CLIENT_PORTS)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_those_of_the_documentation() {
        let written = [INSIDE, OUTSIDE, CLIENT, SERVER].map(|both| both.map(|address| address.to_string()));
        assert_eq!(written[0], ["10.1.0.1", "fd00:1::1"]);
        assert_eq!(written[1], ["198.51.100.1", "2001:db8:2::1"]);
        assert_eq!(written[2], ["10.1.0.10", "fd00:1::10"]);
        assert_eq!(written[3], ["198.51.100.10", "2001:db8:2::10"]);
    }

    #[test]
    fn nodes_of_a_large_network_reach_each_other_through_the_switch() {
        let Some(()) = packet_io::namespace::for_tests() else { return };
        let topology = Topology::build_of(4).unwrap();
        let listener = topology.nodes[0].run(|| TcpListener::bind((sync_address(0), 7000))).unwrap().unwrap();
        for node in &topology.nodes[1..] {
            let connect = || std::net::TcpStream::connect((sync_address(0), 7000)).map(drop);
            node.run(connect).unwrap().unwrap();
            listener.accept().unwrap();
        }
        for edge in &topology.edges {
            edge.run(|| (0..4).for_each(|node| drop(Netlink::open().unwrap().interface(TO_NODES[node]).unwrap())))
                .unwrap();
        }
        assert!(Topology::build_of(1).is_err() && Topology::build_of(NODES_MAX + 1).is_err());
    }

    #[test]
    fn the_network_is_built_and_addresses_serve_at_once() {
        let Some(()) = packet_io::namespace::for_tests() else { return };
        let topology = Topology::build().unwrap();
        for address in Topology::server_addresses() {
            topology.server.run(|| TcpListener::bind(address).map(drop)).unwrap().unwrap();
        }
        for node in &topology.nodes {
            let names: Vec<String> = node
                .run(|| Netlink::open().unwrap().interfaces().unwrap())
                .unwrap()
                .into_iter()
                .filter(|interface| interface.name != "lo")
                .map(|interface| interface.name)
                .collect();
            assert!(INTERFACES.iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
        }
    }
}
