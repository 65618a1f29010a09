//! A host with servers that answer their clients directly: packets reach it in tunnels, and its answers go past the gateways.
//!
//! ```text
//!   clients ──────► gateways ══ tunnel ══► bridge ─► decapsulation ─► tun device ─► servers at the service's address
//!      ▲                                                                              │
//!      └───────────────────────────── link "return" ◄─────────────────────────────────┘
//! ```
//!
//! The kernel needs no module for tunnels: a thread takes the packets out and hands them to the kernel by a tun device.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flow::wire::ethernet::{self, ETHERNET_HEADER_BYTES, ether_type};
use flow::wire::{GUE_PORT_DEFAULT, MacAddress, Parsed, ip_protocol, parse};
use flow::{Disposition, Frame, PacketBatch, PortId, Tuple};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::tun::{DeviceKind, RawTunnel};
use packet_io::{IoError, PacketIo, sysctl};

use super::topology::{BRIDGE, Both, v4, v6};

/// The link that answers take, and the device that packets come out of.
const LINK: &str = "return";
const DEVICE: &str = "decap";
/// The addresses of the servers' host and of the clients' on that link.
const ENDS: [Both<IpAddr>; 2] =
    [[v4(10, 98, 0, 1), v6(0xfd00, 0x98, 0, 1)], [v4(10, 98, 0, 2), v6(0xfd00, 0x98, 0, 2)]];
const LINK_PREFIX_BITS: Both<u8> = [30, 64];
/// How long is waited until it is looked again when nothing has come.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// What is to be served.
#[derive(Clone, Copy, Debug)]
pub struct DirectReturnPlan<'a> {
    /// The host of the clients.
    pub clients: &'a Namespace,
    /// The networks that they are in.
    pub client_networks: &'a [Prefix],
    /// The host of the servers.
    pub servers: &'a Namespace,
    /// The services' addresses, which the host then has.
    pub services: &'a [IpAddr],
    /// The ends of the tunnels: addresses of the host.
    pub ends: &'a [IpAddr],
}

#[derive(Debug, Default)]
struct Counted {
    packets: AtomicU64,
    moved: AtomicU64,
}

/// The decapsulation, until it is dropped.
#[derive(Debug)]
pub struct DirectReturn {
    is_over: Arc<AtomicBool>,
    counted: Arc<Counted>,
    thread: Option<JoinHandle<()>>,
}

impl DirectReturn {
    /// Lays the link, gives the host the services' addresses, and begins to take packets out of tunnels.
    ///
    /// # Errors
    /// The system permits no link, device or socket.
    pub fn start(plan: &DirectReturnPlan<'_>) -> Result<Self, IoError> {
        plan.servers.run(|| Netlink::open()?.create_veth(LINK, LINK, plan.clients))??;
        plan.clients.run(|| set_up_link(ENDS[1]))??;
        plan.servers.run(|| set_up_link(ENDS[0]))??;
        let (mut port, device) = plan.servers.run(|| open(plan))??;
        let (is_over, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(Counted::default()));
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&counted));
        let mut decapsulation = Decapsulation { ends: plan.ends.to_vec(), device, flows: HashMap::new() };
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                // What fails now works the next time, or never.
                if port.poll(&mut |batch| decapsulation.take_out(batch, &count)).unwrap_or_default() == 0 {
                    thread::sleep(POLL_INTERVAL);
                }
            }
        });
        Ok(Self { is_over, counted, thread: Some(thread) })
    }

    /// The packets that came out of tunnels.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.counted.packets.load(Ordering::Relaxed)
    }

    /// Those that came to another end than packets of their connection before.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.counted.moved.load(Ordering::Relaxed)
    }
}

impl Drop for DirectReturn {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It panics in a test that fails anyway.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// An end of the link. Packets come by another way than those to their source go.
fn set_up_link(addresses: Both<IpAddr>) -> Result<(), IoError> {
    let mut netlink = Netlink::open()?;
    netlink.set_up(LINK, true)?;
    for name in ["all", LINK] {
        sysctl::write(&format!("net/ipv4/conf/{name}/rp_filter"), "0")?;
    }
    let mut ends = addresses.into_iter().zip(LINK_PREFIX_BITS);
    ends.try_for_each(|(address, bits)| netlink.add_address(LINK, Prefix::new(address, bits)))
}

/// The servers' host: its routes to clients, its addresses, and where packets come in and go to.
fn open(plan: &DirectReturnPlan<'_>) -> Result<(AfPacketIo, RawTunnel), IoError> {
    let device = RawTunnel::open(DEVICE, DeviceKind::Ip, false)?;
    sysctl::write(&format!("net/ipv4/conf/{DEVICE}/rp_filter"), "0")?;
    let mut netlink = Netlink::open()?;
    for service in plan.services {
        netlink.add_address(DEVICE, Prefix::new(*service, if service.is_ipv4() { 32 } else { 128 }))?;
    }
    for network in plan.client_networks {
        netlink.add_route(*network, ENDS[1][usize::from(network.address.is_ipv6())])?;
    }
    Ok((AfPacketIo::open(&[PortConfig::new(BRIDGE)])?, device))
}

/// Takes packets out of tunnels.
struct Decapsulation {
    ends: Vec<IpAddr>,
    device: RawTunnel,
    /// The end that each connection came to.
    flows: HashMap<Tuple, IpAddr>,
}

impl Decapsulation {
    fn take_out(&mut self, batch: &mut PacketBatch<'_>, counted: &Counted) {
        for frame in batch.iter_mut() {
            frame.disposition = Disposition::Consumed;
            let Some((end, packet)) = inside(frame, &self.ends) else { continue };
            let Some(tuple) = tuple_of(packet) else { continue };
            // A packet that the kernel does not take is lost, as on any link.
            if self.device.send_packet(packet).is_ok() {
                counted.packets.fetch_add(1, Ordering::Relaxed);
            }
            if *self.flows.entry(tuple).or_insert(end) != end {
                counted.moved.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The packet in a tunnel to one of these ends, and which. The outer packet must be valid, with its checksums.
fn inside<'a>(frame: &'a Frame<'_>, ends: &[IpAddr]) -> Option<(IpAddr, &'a [u8])> {
    let Ok(Parsed::Ip(headers)) = parse(frame) else { return None };
    let at = match headers.tuple.protocol {
        ip_protocol::IPIP | ip_protocol::IPV6_IN_IP => headers.l4_offset,
        ip_protocol::UDP if headers.tuple.destination_port == GUE_PORT_DEFAULT => headers.payload_offset,
        _ => return None,
    };
    let end = headers.tuple.destination_ip();
    let packet = frame.bytes().get(usize::from(at)..headers.l3_end())?;
    ends.contains(&end).then_some((end, packet))
}

/// The tuple of a packet, whose checksums must be right.
fn tuple_of(packet: &[u8]) -> Option<Tuple> {
    let kind = if packet.first()? >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
    let mut bytes = Vec::with_capacity(ETHERNET_HEADER_BYTES + packet.len());
    ethernet::emit(&mut bytes, MacAddress::default(), MacAddress::default(), kind);
    bytes.extend_from_slice(packet);
    let length_bytes = bytes.len();
    let Ok(Parsed::Ip(headers)) = parse(&Frame::new(&mut bytes, 0, length_bytes, PortId(0))?) else { return None };
    Some(headers.tuple)
}
