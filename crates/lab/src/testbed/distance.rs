//! Links of the demo's network that are no cables: a client that is far away, a link between the nodes that loses packets.
//!
//! ```text
//!   far client ════ delay ════ bridge ──┬── node a ──┐
//!                                       │     ║ loss ├── server
//!                                       └── node b ──┘
//! ```

use std::time::Duration;

use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::tun::DeviceKind;
use packet_io::{random, sysctl};

use super::topology::{
    BRIDGE, CLIENT, INSIDE, INTERFACES, PREFIX_BITS, SYNC, SYNC_PREFIX_BITS, Topology, add_client_ports,
};
use crate::emulator::{self, Link, LinkError, LinkPlan, LinkReport};

/// Names of the delaying link's ends: at the bridge, and at the client.
const FAR: [&str; 2] = ["to-far", "near"];

/// The links that are emulated; none if nothing of the kind was asked for.
#[derive(Debug)]
pub struct Distances {
    links: Vec<Link>,
    /// Where the bridge is, once the client has moved away from it.
    _bridge: Option<Namespace>,
}

impl Distances {
    /// Puts a link with a round trip of `rtt_ms` between the client and the nodes, and one that loses a share of `link_loss`
    /// between the nodes; none where the number is 0.
    ///
    /// # Errors
    /// A link cannot be made.
    pub fn lay(topology: &mut Topology, link_loss: f64, rtt_ms: f64) -> Result<Self, LinkError> {
        let mut laid = Self { links: Vec::new(), _bridge: None };
        if link_loss > 0.0 {
            laid.links.push(lose_between_nodes(topology, link_loss, random::number())?);
        }
        if rtt_ms > 0.0 {
            let (link, bridge) = move_client_away(topology, Duration::from_secs_f64(rtt_ms / 1e3))?;
            laid.links.push(link);
            laid._bridge = Some(bridge);
        }
        Ok(laid)
    }

    /// From now on lateness counts.
    ///
    /// # Errors
    /// A link is gone.
    pub fn reset(&mut self) -> Result<(), LinkError> {
        self.links.iter_mut().try_for_each(Link::reset)
    }

    /// How late all but one in a hundred packets were at most, on the link where that was worst, in microseconds; nothing
    /// without links.
    ///
    /// # Errors
    /// A link is gone.
    pub fn lateness_p99_us(&mut self) -> Result<Option<u64>, LinkError> {
        let reports: Vec<LinkReport> = self.links.iter_mut().map(Link::report).collect::<Result<_, _>>()?;
        Ok(reports.iter().map(|report| report.lateness.p99_us).max())
    }
}

/// Puts a link that loses packets, by chance drawn from `seed`, in the place of the cable between the nodes.
///
/// # Errors
/// The link cannot be made.
pub(crate) fn lose_between_nodes(topology: &Topology, loss: f64, seed: u64) -> Result<Link, LinkError> {
    let (interface, [a, b]) = (INTERFACES[2], &topology.nodes);
    a.run(|| Netlink::open()?.delete(interface))??;
    let settings = emulator::channel::Settings { loss, ..Default::default() };
    let plan = LinkPlan {
        interfaces: [interface, interface].map(str::to_owned),
        addresses: SYNC.map(|address| vec![Prefix::new(address, SYNC_PREFIX_BITS)]),
        seed,
        ..LinkPlan::symmetric(settings)
    };
    Link::start(&plan, [a, b])
}

/// Puts the client into a namespace of its own, as far away as asked. Returns the one that it leaves, with the bridge.
fn move_client_away(topology: &mut Topology, round_trip: Duration) -> Result<(Link, Namespace), LinkError> {
    let far = Namespace::new()?;
    far.run(sysctl::quieten_ipv6)??;
    far.run(add_client_ports)??;
    let addresses: Vec<Prefix> =
        CLIENT.into_iter().zip(PREFIX_BITS).map(|(address, bits)| Prefix::new(address, bits)).collect();
    topology.client.run(|| {
        let mut netlink = Netlink::open()?;
        addresses.iter().try_for_each(|address| netlink.delete_address(BRIDGE, *address))
    })??;
    let settings = emulator::channel::Settings { delay: round_trip / 2, ..Default::default() };
    let plan = LinkPlan {
        interfaces: FAR.map(str::to_owned),
        addresses: [Vec::new(), addresses],
        kind: DeviceKind::Ethernet,
        has_offload: true,
        ..LinkPlan::symmetric(settings)
    };
    let link = Link::start(&plan, [&topology.client, &far])?;
    topology.client.run(|| Netlink::open()?.attach_to_bridge(FAR[0], BRIDGE))??;
    far.run(|| -> Result<(), IoError> {
        let mut netlink = Netlink::open()?;
        netlink.add_route(Prefix::DEFAULT_V4, INSIDE[0])?;
        netlink.add_route(Prefix::DEFAULT_V6, INSIDE[1])
    })??;
    let bridge = std::mem::replace(&mut topology.client, far);
    Ok((link, bridge))
}
