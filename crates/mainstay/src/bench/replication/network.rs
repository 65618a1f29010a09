//! The experiment's network: the demo's, whose link between the gateways loses datagrams and can be cut, and whose server
//! may be far away.
//!
//! ```text
//!                     ┌──────── gateway a ────────┐
//!   client ───────────┤            │ dedicated    ├─────────── server           near: the server is here
//!    10.1.0.10        └──────── gateway b ────────┘            198.51.100.10
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};

use crate::demo::topology::{INTERFACES, SERVER, Topology};

/// Ports that the server listens on: connections that are over keep their addresses and ports for a while, and several
/// server ports multiply those that are left.
const SERVER_PORTS: std::ops::Range<u16> = 7200..7216;

/// What the network's links are like.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Links {
    /// Share of the packets on the dedicated link that are lost, 0 to 1, in either direction.
    pub dedicated_loss: f64,
    /// Round trip between client and server that the network adds to its own.
    pub round_trip: Duration,
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
    topology: Arc<Topology>,
    links: Links,
}

impl Network {
    /// Builds it.
    ///
    /// # Errors
    /// The process may not make networks, or the kernel lacks what they are made of.
    pub fn build(links: Links) -> Result<Self, IoError> {
        Ok(Self { topology: Arc::new(Topology::build()?), links })
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
        &self.topology.server
    }

    /// Where the server listens.
    #[must_use]
    pub fn server_addresses(&self) -> Vec<SocketAddr> {
        SERVER_PORTS.map(|port| SocketAddr::new(SERVER[0], port)).collect()
    }

    /// Routes that the gateways need beside the networks of their addresses.
    #[must_use]
    pub const fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    /// Cuts the dedicated link for good; what is on its way is lost.
    ///
    /// # Errors
    /// Only for defects of the program.
    pub fn cut_dedicated_link(&self) -> Result<(), IoError> {
        // Both ends of a virtual cable go down together.
        self.topology.nodes[0].run(|| Netlink::open()?.set_up(INTERFACES[2], false))?
    }
}
