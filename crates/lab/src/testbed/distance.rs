//! Links of the demo's network that are no cables: a client that is far away, a link between the nodes that loses packets.
//!
//! ```text
//!   far client ════ delay ════ bridge ──┬── node a ──┐
//!                                       │     ║ loss ├── server
//!                                       └── node b ──┘
//! ```

use std::net::IpAddr;
use std::time::Duration;

use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::tun::DeviceKind;
use packet_io::{random, sysctl};

use super::topology::{
    BRIDGE, Both, CLIENT, INSIDE, INTERFACES, PREFIX_BITS, SYNC, SYNC_PREFIX_BITS, Topology, add_client_ports,
};
use crate::emulator::{self, Link, LinkError, LinkPlan, LinkReport};

/// Names of the delaying link's ends: at the bridge, and at the client.
const FAR: [&str; 2] = ["to-far", "near"];

/// The links that are emulated; none if nothing of the kind was asked for.
#[derive(Debug)]
pub struct Distances {
    links: Vec<Link>,
    /// Where the bridges are, once the hosts have moved away from them.
    bridges: Vec<Namespace>,
}

impl Distances {
    /// Puts a link with a round trip of `rtt_ms` between the client and the nodes, and one that loses a share of `link_loss`
    /// between the nodes; none where the number is 0.
    ///
    /// # Errors
    /// A link cannot be made.
    pub fn lay(topology: &mut Topology, link_loss: f64, rtt_ms: f64) -> Result<Self, LinkError> {
        let mut laid = Self { links: Vec::new(), bridges: Vec::new() };
        if link_loss > 0.0 {
            laid.links.push(lose_between_nodes(topology, link_loss, random::number())?);
        }
        if rtt_ms > 0.0 {
            laid.move_client_away(topology, Duration::from_secs_f64(rtt_ms / 1e3))?;
        }
        Ok(laid)
    }

    fn move_client_away(&mut self, topology: &mut Topology, round_trip: Duration) -> Result<(), LinkError> {
        let (link, far) = move_away(&topology.client, CLIENT, round_trip, add_client_ports)?;
        far.run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            netlink.add_route(Prefix::DEFAULT_V4, INSIDE[0])?;
            netlink.add_route(Prefix::DEFAULT_V6, INSIDE[1])
        })??;
        self.links.push(link);
        self.bridges.push(std::mem::replace(&mut topology.client, far));
        Ok(())
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
    let (interface, [a, b]) = (INTERFACES[2], &topology.nodes[..]) else {
        return Err(LinkError::System(IoError::Misuse("there is no cable between many nodes".into())));
    };
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

/// Moves a host's addresses from its bridge to a namespace of their own, as far away as asked, which is `prepared`.
fn move_away(
    bridge: &Namespace,
    addresses: Both<IpAddr>,
    round_trip: Duration,
    prepared: impl FnOnce() -> Result<(), IoError> + Send,
) -> Result<(Link, Namespace), LinkError> {
    let far = Namespace::new()?;
    far.run(sysctl::quieten_ipv6)??;
    far.run(prepared)??;
    let addresses: Vec<Prefix> =
        addresses.into_iter().zip(PREFIX_BITS).map(|(address, bits)| Prefix::new(address, bits)).collect();
    bridge.run(|| {
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
    let link = Link::start(&plan, [bridge, &far])?;
    bridge.run(|| Netlink::open()?.attach_to_bridge(FAR[0], BRIDGE))??;
    Ok((link, far))
}
