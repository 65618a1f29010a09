//! Networks for the tests of real interfaces.

#![allow(dead_code, reason = "each test uses a part")]
//! A network of three namespaces, client – gateway – server, and a forwarder for the middle one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use flow::{Disposition, DropReason, PacketBatch, PortId, SegmentationKind};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::{Namespace, NamespaceSupport, probe};
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;

/// The server's addresses, IPv4 and IPv6.
pub(crate) const SERVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 2, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 2))];

/// The time limit for a new cable.
const IN_SERVICE_WITHIN: Duration = Duration::from_secs(10);

/// Client, gateway and server, joined by cables, with addresses and routes. The gateway's kernel
/// does not forward.
pub(crate) struct Network {
    pub(crate) client: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) server: Namespace,
}

fn prefixes(side: u8, host: u8) -> [Prefix; 2] {
    let (wide_side, wide_host) = (u16::from(side), u16::from(host));
    [
        Prefix::new(Ipv4Addr::new(10, side, 0, host).into(), 24),
        Prefix::new(Ipv6Addr::new(0xfd00 + wide_side, 0, 0, 0, 0, 0, 0, wide_host).into(), 64),
    ]
}

/// The kernel activates a new cable a moment after both ends are up, and drops earlier frames.
fn wait_until_in_service(interface: &str) {
    let mut netlink = Netlink::open().unwrap();
    let begin = Instant::now();
    while !netlink.interface(interface).unwrap().running {
        assert!(begin.elapsed() < IN_SERVICE_WITHIN, "{interface} does not come into service");
        std::thread::yield_now();
    }
}

impl Network {
    /// `None`, with a message, where the machine forbids namespaces.
    pub(crate) fn new() -> Option<Self> {
        let support = probe();
        if support != NamespaceSupport::Available {
            packet_io::namespace::skip(format_args!("{support:?}"));
            return None;
        }
        let [client, gateway, server] = std::array::from_fn(|_| Namespace::new().unwrap());
        for namespace in [&client, &gateway, &server] {
            namespace.run(|| sysctl::quieten_ipv6().unwrap()).unwrap();
        }
        for (end, side, port) in [(&client, 1, "port0"), (&server, 2, "port1")] {
            gateway
                .run(|| {
                    let mut netlink = Netlink::open().unwrap();
                    netlink.create_veth(port, "host", end).unwrap();
                    netlink.set_up(port, true).unwrap();
                    for prefix in prefixes(side, 1) {
                        netlink.add_address(port, prefix).unwrap();
                    }
                })
                .unwrap();
            end.run(|| {
                let mut netlink = Netlink::open().unwrap();
                netlink.set_up("host", true).unwrap();
                for prefix in prefixes(side, 2) {
                    netlink.add_address("host", prefix).unwrap();
                }
                let routers = prefixes(side, 1).map(|prefix| prefix.address);
                netlink.add_route(Prefix::DEFAULT_V4, routers[0]).unwrap();
                netlink.add_route(Prefix::DEFAULT_V6, routers[1]).unwrap();
            })
            .unwrap();
        }
        for (end, interface) in [(&client, "host"), (&gateway, "port0"), (&gateway, "port1"), (&server, "host")] {
            end.run(|| wait_until_in_service(interface)).unwrap();
        }
        Some(Self { client, gateway, server })
    }

    /// The gateway's two interfaces as ports through packet sockets, and the forwarder between them.
    #[allow(dead_code, reason = "not every test is about packet sockets")]
    pub(crate) fn open_gateway(&self) -> (AfPacketIo, Forwarder) {
        self.open_gateway_for(&[])
    }

    /// As [`Network::open_gateway`], for frames of some EtherTypes alone.
    pub(crate) fn open_gateway_for(&self, ether_types: &[u16]) -> (AfPacketIo, Forwarder) {
        let configs =
            ["port0", "port1"].map(|port| PortConfig { ether_types: ether_types.to_vec(), ..PortConfig::new(port) });
        let io = self.gateway.run(|| AfPacketIo::open(&configs).unwrap()).unwrap();
        (io, self.forwarder())
    }

    /// The forwarder between the gateway's two interfaces.
    pub(crate) fn forwarder(&self) -> Forwarder {
        let mac = |namespace: &Namespace, name: &'static str| {
            namespace.run(|| Netlink::open().unwrap().interface(name).unwrap().mac).unwrap()
        };
        let own = [mac(&self.gateway, "port0"), mac(&self.gateway, "port1")];
        let peer = [mac(&self.client, "host"), mac(&self.server, "host")];
        Forwarder::new(own, peer)
    }
}

/// A router of two ports with fixed neighbours: rewrites the link header and decrements the time to live. Other packets
/// than TCP or UDP of the hosts go to the kernel, which answers ARP and neighbour solicitations.
pub(crate) struct Forwarder {
    own: [[u8; 6]; 2],
    peer: [[u8; 6]; 2],
    /// The largest TCP frame of several segments seen, IPv4 and IPv6, in bytes.
    pub(crate) largest_bytes: [usize; 2],
}

impl Forwarder {
    /// Forwards between two ports, each with its own link address and that of its only neighbour.
    pub(crate) const fn new(own: [[u8; 6]; 2], peer: [[u8; 6]; 2]) -> Self {
        Self { own, peer, largest_bytes: [0; 2] }
    }

    pub(crate) fn process(&mut self, batch: &mut PacketBatch<'_>) {
        for frame in batch {
            match frame.segmentation.kind {
                SegmentationKind::TcpIpv4 => self.largest_bytes[0] = self.largest_bytes[0].max(frame.bytes().len()),
                SegmentationKind::TcpIpv6 => self.largest_bytes[1] = self.largest_bytes[1].max(frame.bytes().len()),
                _ => {}
            }
            let egress = PortId(1 - frame.ingress.0);
            let for_us = frame.bytes().get(..6) == Some(self.own[usize::from(frame.ingress.0)].as_slice());
            frame.disposition = if for_us && lower_time_to_live(frame.bytes_mut()) {
                let number = usize::from(egress.0);
                frame.bytes_mut()[..6].copy_from_slice(&self.peer[number]);
                frame.bytes_mut()[6..12].copy_from_slice(&self.own[number]);
                Disposition::Transmit(egress)
            } else {
                Disposition::Drop(DropReason::UnsupportedLinkProtocol)
            };
        }
    }
}

/// False for frames that are neither TCP nor UDP.
fn lower_time_to_live(frame: &mut [u8]) -> bool {
    match (frame.get(12..14), frame.len()) {
        (Some([0x08, 0x00]), 34..) if matches!(frame[23], 6 | 17) => {
            frame[22] -= 1;
            // The sum of the header decreases by 0x0100, so its complement increases by as much (RFC 1624).
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let (raised, carry) = sum.overflowing_add(0x0100);
            frame[24..26].copy_from_slice(&(raised + u16::from(carry)).to_be_bytes());
            true
        }
        (Some([0x86, 0xdd]), 54..) if matches!(frame[20], 6 | 17) => {
            frame[21] -= 1;
            true
        }
        _ => false,
    }
}
