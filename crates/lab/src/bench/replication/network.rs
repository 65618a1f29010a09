//! The experiment's network: the demo's, whose link between the gateways loses packets and can be cut, and whose server may
//! be far away.
//!
//! ```text
//!                     ┌──────── gateway a ────────┐           near: the server is here
//!   client ───────────┤            │ dedicated    ├────── router ══════════════ server
//!    10.1.0.10        └──────── gateway b ────────┘ 198.51.100.10   distance    203.0.113.10
//! ```
//!
//! What is lost, and what takes its time, is the doing of [`crate::emulator`]'s links; a link that is to do neither is the
//! kernel's own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, sysctl};

use crate::bench::BenchError;
use crate::emulator::channel::Settings;
use crate::emulator::{BOTH, Link, LinkPlan};
use crate::testbed::distance::lose_between_nodes;
use crate::testbed::topology::{INTERFACES, SERVER, Topology};
use crate::testbed::ways;

/// Ports that the server listens on: connections that are over keep their addresses and ports for a while, and several
/// server ports multiply those that are left.
const SERVER_PORTS: std::ops::Range<u16> = 7200..7216;
/// A far server's address, its router's on the link between them, and the network of both (RFC 5737).
const FAR_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10));
const FAR_ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
const FAR_PREFIX_BITS: u8 = 24;
const FAR_INTERFACE: &str = "distance";
/// Connections that wait to be accepted, at most.
const ACCEPT_QUEUE_MAX: &str = "16384";

/// What the network's links are like.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Links {
    /// Share of the packets on the dedicated link that are lost, 0 to 1, in either direction.
    pub dedicated_loss: f64,
    /// Round trip between client and server that the network adds to its own.
    pub round_trip: Duration,
    /// Both gateways are at work, each for the server addresses whose way leads through it. With a server that is near.
    pub both_active: bool,
    /// What chance is drawn from.
    pub seed: u64,
}

/// A route that the gateways need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network.
    pub to: Prefix,
    /// The next router on the way, on the outside.
    pub via: IpAddr,
}

/// The network. It is gone when the value and all processes in it are.
#[derive(Debug)]
pub struct Network {
    links: Links,
    dedicated: Option<Link>,
    distance: Option<Distance>,
    topology: Arc<Topology>,
}

/// What lies between the router and a far server.
#[derive(Debug)]
struct Distance {
    link: Link,
    server: Namespace,
}

impl Network {
    /// Builds it.
    ///
    /// # Errors
    /// The process may not make networks, or the kernel lacks what they are made of.
    pub fn build(links: Links) -> Result<Self, BenchError> {
        let topology = Arc::new(Topology::build()?);
        topology.client.run(allow_reuse_of_ports)??;
        if links.both_active {
            ways::build(&topology)?;
        }
        let dedicated = (links.dedicated_loss > 0.0)
            .then(|| lose_between_nodes(&topology, links.dedicated_loss, links.seed))
            .transpose()?;
        let distance = (!links.round_trip.is_zero()).then(|| Distance::build(&topology, links)).transpose()?;
        Ok(Self { links, dedicated, distance, topology })
    }

    /// The namespaces, with the interfaces of the gateways ([`INTERFACES`]) in place: inside, outside, and the dedicated link
    /// with its addresses.
    #[must_use]
    pub const fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// What its links are like.
    #[must_use]
    pub const fn links(&self) -> Links {
        self.links
    }

    /// Where the server runs.
    #[must_use]
    pub fn server(&self) -> &Namespace {
        self.distance.as_ref().map_or(&self.topology.server, |distance| &distance.server)
    }

    /// Where the server listens.
    #[must_use]
    pub fn server_addresses(&self) -> Vec<SocketAddr> {
        if self.links.both_active {
            let addresses = ways::server_addresses(ways::chosen(false), SERVER_PORTS);
            return addresses.into_iter().filter(SocketAddr::is_ipv4).collect();
        }
        let address = if self.distance.is_some() { FAR_SERVER } else { SERVER[0] };
        SERVER_PORTS.map(|port| SocketAddr::new(address, port)).collect()
    }

    /// The route that the gateways need beside the networks of their addresses.
    #[must_use]
    pub fn route(&self) -> Option<Route> {
        let to = Prefix::new(Ipv4Addr::new(203, 0, 113, 0).into(), FAR_PREFIX_BITS);
        self.distance.as_ref().map(|_| Route { to, via: SERVER[0] })
    }

    /// Disconnects the dedicated link for good; packets in flight are lost.
    ///
    /// # Errors
    /// The link's process is gone.
    pub fn disconnect_dedicated_link(&mut self) -> Result<(), BenchError> {
        if let Some(link) = &mut self.dedicated {
            return Ok(link.interrupt(&BOTH, None)?);
        }
        // Both ends of a virtual cable go down together.
        self.topology.nodes[0].run(|| Netlink::open()?.set_up(INTERFACES[2], false))??;
        Ok(())
    }

    /// What follows is measured.
    ///
    /// # Errors
    /// A link's process is gone.
    pub fn begin_measuring(&mut self) -> Result<(), BenchError> {
        self.emulated_links().try_for_each(|link| Ok(link.reset()?))
    }

    /// How late a packet in a hundred was at most since [`Network::begin_measuring`], on the link where that was worst, in
    /// microseconds.
    ///
    /// # Errors
    /// A link's process is gone.
    pub fn lateness_p99_us(&mut self) -> Result<u64, BenchError> {
        self.emulated_links().try_fold(0, |worst: u64, link| Ok(worst.max(link.report()?.lateness.p99_us)))
    }

    fn emulated_links(&mut self) -> impl Iterator<Item = &mut Link> {
        self.dedicated.iter_mut().chain(self.distance.iter_mut().map(|distance| &mut distance.link))
    }
}

/// Lets the client use the ports of connections that are over again after a second.
fn allow_reuse_of_ports() -> Result<(), IoError> {
    sysctl::write("net/ipv4/tcp_tw_reuse", "1")
}

impl Distance {
    fn build(topology: &Topology, links: Links) -> Result<Self, BenchError> {
        let server = Namespace::new()?;
        server.run(|| -> Result<(), IoError> {
            sysctl::quieten_ipv6()?;
            // As in the demo: with cookies, a server that has many connections beginning at once keeps nothing of them.
            for (name, value) in [
                ("net/ipv4/tcp_syncookies", "0"),
                ("net/ipv4/tcp_max_syn_backlog", ACCEPT_QUEUE_MAX),
                ("net/core/somaxconn", ACCEPT_QUEUE_MAX),
            ] {
                let _ = sysctl::write(name, value);
            }
            Ok(())
        })??;
        let settings = Settings { delay: links.round_trip / 2, ..Settings::default() };
        let plan = LinkPlan {
            interfaces: [FAR_INTERFACE.into(), FAR_INTERFACE.into()],
            addresses: [FAR_ROUTER, FAR_SERVER].map(|address| vec![Prefix::new(address, FAR_PREFIX_BITS)]),
            has_offload: true,
            seed: links.seed.wrapping_add(1),
            ..LinkPlan::symmetric(settings)
        };
        let link = Link::start(&plan, [&topology.server, &server])?;
        server.run(|| Netlink::open()?.add_route(Prefix::DEFAULT_V4, FAR_ROUTER))??;
        topology.server.run(|| sysctl::write("net/ipv4/ip_forward", "1"))??;
        Ok(Self { link, server })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_near_server_needs_no_route_and_the_dedicated_link_can_be_disconnected() {
        let Some(()) = packet_io::namespace::for_tests() else { return };
        let mut network = Network::build(Links::default()).unwrap();
        assert_eq!(network.route(), None);
        assert!(network.server_addresses().iter().all(|address| address.ip() == SERVER[0]));
        assert_eq!(network.lateness_p99_us().unwrap(), 0, "nothing is emulated");
        network.disconnect_dedicated_link().unwrap();
        for node in &network.topology().nodes {
            let deadline = Instant::now() + Duration::from_secs(20);
            let sync = || node.run(|| Netlink::open().unwrap().interface(INTERFACES[2]).unwrap()).unwrap();
            // At the other end the kernel notices when it gets round to it.
            while sync().running {
                assert!(Instant::now() < deadline, "{:?}", sync());
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
