//! Failures of the network: cables pulled, switches that pass less than they did, a host that claims an address of others.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flow::wire::arp::ArpOperation;
use flow::wire::{MacAddress, build};
use flow::{Frame, PortId};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, PacketIo, sysctl};

use crate::testbed::topology::{BRIDGE, INSIDE, INTERFACES, PREFIX_BITS, Topology};

/// The hosts' ends of the cables to the nodes.
const TO_NODES: [&str; 2] = ["to-a", "to-b"];
/// A switch without hosts.
const EMPTY_BRIDGE: &str = "empty";
/// The link address of the server's bridge while a cable moves: by default a bridge has that of one of its ports, and changes it
/// with them.
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x10];
/// The claimant's end of its cable, and the other end.
const CLAIMANT: [&str; 2] = ["claimant", "to-claimant"];
/// Time between two announcements of a claimant.
const CLAIM_EVERY: Duration = Duration::from_millis(200);

/// Which hosts a port of a node leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    /// The node's port on this side.
    pub(super) const fn port(self) -> &'static str {
        match self {
            Self::Client => INTERFACES[0],
            Self::Server => INTERFACES[1],
        }
    }
}

/// Switches a node's own port off or on, as an operator would by mistake.
pub(super) fn set_port(topology: &Topology, node: usize, side: Side, is_up: bool) -> Result<(), IoError> {
    topology.nodes[node].run(|| Netlink::open()?.set_up(side.port(), is_up))?
}

/// Pulls the cable between a node and a host's switch, or plugs it in: the node's port loses carrier.
pub(super) fn set_cable(topology: &Topology, node: usize, side: Side, is_plugged: bool) -> Result<(), IoError> {
    host(topology, side).run(|| Netlink::open()?.set_up(TO_NODES[node], is_plugged))?
}

/// Cuts the replication link, or joins it again.
pub(super) fn set_replication_link(topology: &Topology, is_up: bool) -> Result<(), IoError> {
    topology.nodes[0].run(|| Netlink::open()?.set_up(INTERFACES[2], is_up))?
}

/// Lets the nodes exchange no frame by any way, or all again. Each still reaches both hosts.
pub(super) fn set_all_paths(topology: &Topology, are_joined: bool) -> Result<(), IoError> {
    let isolate = || -> Result<(), IoError> {
        let mut netlink = Netlink::open()?;
        TO_NODES.into_iter().try_for_each(|name| netlink.set_isolated(name, !are_joined))
    };
    topology.client.run(isolate)??;
    topology.server.run(isolate)??;
    set_replication_link(topology, are_joined)
}

/// Readies the server's switch for [`set_next_hop`]. Before there is traffic.
pub(super) fn prepare_next_hop(topology: &Topology) -> Result<(), IoError> {
    topology.server.run(|| {
        let mut netlink = Netlink::open()?;
        netlink.set_mac(BRIDGE, SERVER_MAC)?;
        netlink.create_bridge(EMPTY_BRIDGE)?;
        netlink.set_up(EMPTY_BRIDGE, true)?;
        // Without this, Linux answers ARP for its addresses on every interface, and so on the empty switch.
        sysctl::write("net/ipv4/conf/all/arp_ignore", "1")
    })?
}

/// Moves a node's cable from the server's switch to one without hosts, or back: the node's port keeps its carrier.
pub(super) fn set_next_hop(topology: &Topology, node: usize, is_reachable: bool) -> Result<(), IoError> {
    let bridge = if is_reachable { BRIDGE } else { EMPTY_BRIDGE };
    topology.server.run(|| Netlink::open()?.attach_to_bridge(TO_NODES[node], bridge))?
}

const fn host(topology: &Topology, side: Side) -> &Namespace {
    match side {
        Side::Client => &topology.client,
        Side::Server => &topology.server,
    }
}

/// A host in the client's network that has the shared addresses inside, too, and announces them again and again. Its kernel
/// answers who asks for them. It forwards nothing. Ends with the value.
pub(super) struct Claimant {
    is_over: Arc<AtomicBool>,
    announcing: Option<JoinHandle<Result<(), IoError>>>,
    namespace: Namespace,
}

impl Claimant {
    /// Connects the host and begins the claim.
    pub(super) fn start(topology: &Topology) -> Result<Self, IoError> {
        let namespace = Namespace::new()?;
        namespace.run(sysctl::quieten_ipv6)??;
        let [own_end, other_end] = CLAIMANT;
        topology.client.run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            netlink.create_veth(other_end, own_end, &namespace)?;
            netlink.attach_to_bridge(other_end, BRIDGE)?;
            netlink.set_up(other_end, true)
        })??;
        let (mac, port) = namespace.run(|| -> Result<_, IoError> {
            let mut netlink = Netlink::open()?;
            netlink.set_up(own_end, true)?;
            for (address, bits) in INSIDE.into_iter().zip(PREFIX_BITS) {
                netlink.add_address(own_end, Prefix::new(address, bits))?;
            }
            Ok((MacAddress(netlink.interface(own_end)?.mac), AfPacketIo::open(&[PortConfig::new(own_end)])?))
        })??;
        let is_over = Arc::new(AtomicBool::new(false));
        let announcing = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || announce_until(&is_over, mac, port)
        });
        Ok(Self { is_over, announcing: Some(announcing), namespace })
    }

    /// Ends the claim as a host does whose cable is pulled: it withdraws nothing.
    pub(super) fn end(mut self) -> Result<(), IoError> {
        self.namespace.run(|| Netlink::open()?.set_up(CLAIMANT[0], false))??;
        self.join()
    }

    fn join(&mut self) -> Result<(), IoError> {
        self.is_over.store(true, Ordering::Relaxed);
        let Some(announcing) = self.announcing.take() else { return Ok(()) };
        announcing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Claimant {
    fn drop(&mut self) {
        // One that could not go on announcing was reported where the row ended it.
        let _ = self.join();
    }
}

fn announce_until(is_over: &AtomicBool, mac: MacAddress, mut port: AfPacketIo) -> Result<(), IoError> {
    while !is_over.load(Ordering::Relaxed) {
        for mut bytes in INSIDE.into_iter().flat_map(|address| announcements(mac, address)) {
            let length_bytes = bytes.len();
            if let Some(frame) = Frame::new(&mut bytes, 0, length_bytes, PortId(0)) {
                // A port that has just been switched off takes nothing more.
                let _ = port.transmit(PortId(0), &frame);
            }
        }
        thread::sleep(CLAIM_EVERY);
    }
    Ok(())
}

fn announcements(mac: MacAddress, address: IpAddr) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => [ArpOperation::Request, ArpOperation::Reply]
            .map(|operation| build::gratuitous_arp(operation, mac, address))
            .into(),
        IpAddr::V6(address) => vec![build::unsolicited_neighbour_advertisement(mac, address, true)],
    }
}
