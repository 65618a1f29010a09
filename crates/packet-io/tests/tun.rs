//! The kernel's own TCP, routed into one tunnel device and out of another, through a forwarder in user space.

mod common;
mod transfer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use common::{Forwarder, Network, SERVER};
use flow::wire::{MacAddress, build};
use flow::{Disposition, Frame, PacketBatch, PortId};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::tun::{KERNEL_MAC, NODE_MAC, PortConfig, TunIo};
use packet_io::{IoError, PacketIo, PortCounters};
use transfer::{PATIENCE, TRANSFER_BYTES, transfer_to, while_forwarding};

/// A device in the client's namespace and one in the server's, as two ports.
struct Pair([TunIo; 2]);

impl PacketIo for Pair {
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError> {
        let [client, server] = &mut self.0;
        let mut pass = |from: &mut TunIo, to: &mut TunIo, ingress: u8| {
            from.poll(&mut |batch| {
                batch.iter_mut().for_each(|frame| frame.ingress = PortId(ingress));
                process(batch);
                for frame in batch.iter_mut() {
                    if let Disposition::Transmit(_) = frame.disposition {
                        to.transmit(PortId(0), frame).unwrap();
                        frame.disposition = Disposition::Consumed;
                    }
                }
            })
        };
        Ok(pass(client, server, 0)? + pass(server, client, 1)?)
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        self.0[usize::from(port.0)].transmit(PortId(0), frame)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().flat_map(PacketIo::descriptors).collect()
    }

    fn counters(&self, port: PortId) -> PortCounters {
        self.0[usize::from(port.0)].counters(PortId(0))
    }
}

fn open(namespace: &Namespace, offload: bool, addresses: [IpAddr; 2]) -> Option<TunIo> {
    let opened = namespace.run(|| {
        let io = TunIo::open(&[PortConfig { offload, ..PortConfig::new("tun0") }])?;
        let mut netlink = Netlink::open()?;
        for (address, bits) in addresses.into_iter().zip([24, 64]) {
            netlink.add_address("tun0", Prefix::new(address, bits))?;
        }
        Ok(io)
    });
    match opened.unwrap() {
        Ok(io) => Some(io),
        Err(error @ (IoError::NotPermitted { .. } | IoError::Misuse(_))) => {
            packet_io::namespace::skip(format_args!("{error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn side(number: u8, host: u8) -> [IpAddr; 2] {
    let v6 = Ipv6Addr::new(0xfd10 + u16::from(number), 0, 0, 0, 0, 0, 0, host.into());
    [IpAddr::V4(Ipv4Addr::new(10, 10 + number, 0, host)), IpAddr::V6(v6)]
}

/// Client and server with a device each, and routes to each other through it. `None`, with a message, where the machine
/// forbids that.
fn pair(network: &Network, offload: bool) -> Option<Pair> {
    let ends = [(&network.client, 1), (&network.server, 2)];
    for (namespace, number) in ends {
        let io = open(namespace, offload, side(number, 2))?;
        drop(io);
    }
    let [client, server] = ends.map(|(namespace, number)| open(namespace, offload, side(number, 2)).unwrap());
    for ((namespace, number), other) in ends.into_iter().zip([2, 1]) {
        namespace
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                for ((to, via), bits) in side(other, 0).into_iter().zip(side(number, 1)).zip([24, 64]) {
                    netlink.add_route(Prefix::new(to, bits), via).unwrap();
                }
            })
            .unwrap();
    }
    Some(Pair([client, server]))
}

fn forwarder() -> Forwarder {
    Forwarder::new([NODE_MAC.0; 2], [KERNEL_MAC.0; 2])
}

#[test]
fn tcp_passes_unchanged_and_in_packets_of_many_segments() {
    let Some(network) = Network::new() else { return };
    let Some(pair) = pair(&network, true) else { return };
    let (largest_bytes, counters) = while_forwarding((pair, forwarder()), || transfer_to(&network, side(2, 2)));
    assert!(largest_bytes.into_iter().all(|bytes| bytes > 8192), "{largest_bytes:?}");
    for counters in counters {
        assert!(counters.received_bytes > 2 * TRANSFER_BYTES as u64, "{counters:?}");
        assert_eq!(counters.transmit_failures.total() + counters.received_unsupported_offload, 0, "{counters:?}");
    }
}

#[test]
fn without_offloads_packets_are_complete() {
    let Some(network) = Network::new() else { return };
    let Some(pair) = pair(&network, false) else { return };
    let (largest_bytes, _) = while_forwarding((pair, forwarder()), || transfer_to(&network, side(2, 2)));
    assert_eq!(largest_bytes, [0; 2]);
}

#[test]
fn neighbour_requests_are_answered_without_the_kernel() {
    let Some(network) = Network::new() else { return };
    let Some(mut io) = open(&network.client, true, side(1, 2)) else { return };
    let mut request = build::arp_request(NODE_MAC, Ipv4Addr::new(10, 11, 0, 1), Ipv4Addr::new(10, 11, 0, 7));
    let length_bytes = request.len();
    let frame = Frame::new(&mut request, 0, length_bytes, PortId(0)).unwrap();
    io.transmit(PortId(0), &frame).unwrap();
    let mut answer = None;
    io.poll(&mut |batch| {
        for frame in batch {
            answer = answer.or(frame.bytes().get(6..12).map(|mac| MacAddress(mac.try_into().unwrap())));
            frame.disposition = Disposition::Consumed;
        }
    })
    .unwrap();
    assert_eq!(answer, Some(KERNEL_MAC));
}

#[test]
fn a_device_that_was_switched_off_works_when_it_is_on() {
    let Some(network) = Network::new() else { return };
    let Some(mut io) = open(&network.client, true, side(1, 2)) else { return };
    let switch = |up| network.client.run(|| Netlink::open().unwrap().set_up("tun0", up).unwrap()).unwrap();
    let tuple = flow::Tuple::new(17, (side(1, 3)[0], 1).into(), (SERVER[0], 2).into());
    let mut bytes = build::udp(&tuple, b"data");
    let length_bytes = bytes.len();
    let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
    io.transmit(PortId(0), &frame).unwrap();
    switch(false);
    io.transmit(PortId(0), &frame).unwrap_err();
    assert_eq!((io.counters(PortId(0)).went_down, io.counters(PortId(0)).transmit_failures.down), (1, 1));
    switch(true);
    let begin = Instant::now();
    while io.transmit(PortId(0), &frame).is_err() {
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn an_interface_of_another_kind_is_refused() {
    let Some(network) = Network::new() else { return };
    let opened = network.client.run(|| TunIo::open(&[PortConfig::new("host")])).unwrap();
    let error = opened.err().unwrap().to_string();
    assert!(
        error.contains("not a tunnel device") || error.contains("not permitted") || error.contains("tun"),
        "{error}"
    );
}
