//! The kernel's own TCP through a forwarder in user space, by packet sockets.

mod common;
mod transfer;

use std::net::TcpListener;
use std::time::Instant;

use common::{Forwarder, Network, SERVER};
use flow::PortId;
use packet_io::PacketIo;
use packet_io::af_packet::AfPacketIo;
use packet_io::netlink::Netlink;
use transfer::{PATIENCE, TRANSFER_BYTES, transfer, transfer_to, while_forwarding};

/// The MTU of the cables, in bytes.
const MTU_BYTES: usize = 1500;

#[test]
fn tcp_passes_unchanged_and_in_frames_of_many_segments() {
    let Some(network) = Network::new() else { return };
    check_transfer(&network, network.open_gateway());
}

#[test]
fn tcp_passes_ports_of_one_socket_for_each_ether_type() {
    let Some(network) = Network::new() else { return };
    check_transfer(&network, network.open_gateway_for(&[0x0800, 0x86dd]));
}

fn check_transfer(network: &Network, gateway: (AfPacketIo, Forwarder)) {
    let (largest_bytes, counters) = while_forwarding(gateway, || {
        transfer_to(network, SERVER);
    });
    for (version, largest_bytes) in ["IPv4", "IPv6"].into_iter().zip(largest_bytes) {
        assert!(largest_bytes > 4 * MTU_BYTES, "{version} came in frames of at most {largest_bytes} bytes");
    }
    for counters in counters {
        assert!(counters.received_bytes > 2 * TRANSFER_BYTES as u64);
        assert_eq!(counters.transmit_failures.total() + counters.undecided + counters.received_oversized, 0);
    }
}

#[test]
fn a_port_recovers_after_going_down() {
    let Some(network) = Network::new() else { return };
    let switch = |up| network.gateway.run(|| Netlink::open().unwrap().set_up("port1", up).unwrap()).unwrap();
    let (_, counters) = while_forwarding(network.open_gateway(), || {
        let listener = network.server.run(|| TcpListener::bind((SERVER[0], 0)).unwrap()).unwrap();
        transfer(&network, listener.local_addr().unwrap(), &listener);
        switch(false);
        switch(true);
        transfer(&network, listener.local_addr().unwrap(), &listener);
    });
    assert_eq!(counters[1].went_down, 1);
}

#[test]
fn a_recreated_interface_is_reopened() {
    let Some(network) = Network::new() else { return };
    let (mut io, _) = network.open_gateway();
    let in_gateway = |work: &(dyn Fn(&mut Netlink) + Sync)| {
        network.gateway.run(|| work(&mut Netlink::open().unwrap())).unwrap();
    };
    in_gateway(&|netlink| netlink.delete("port1").unwrap());
    io.poll(&mut |_| {}).unwrap();
    let mut bytes = [0; 60];
    let frame = flow::Frame::new(&mut bytes, 0, 60, PortId(1)).unwrap();
    assert!(io.transmit(PortId(1), &frame).is_err());

    in_gateway(&|netlink| {
        netlink.create_bridge("port1").unwrap();
        netlink.set_up("port1", true).unwrap();
    });
    let begin = Instant::now();
    while io.transmit(PortId(1), &frame).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the port did not recover: {:?}", io.counters(PortId(1)));
        io.poll(&mut |_| {}).unwrap();
    }
    assert_eq!(io.counters(PortId(1)).went_down, 1);
}

#[test]
fn a_missing_interface_is_reported() {
    let Some(network) = Network::new() else { return };
    let configs = [packet_io::af_packet::PortConfig::new("nowhere0")];
    let error = network.gateway.run(|| AfPacketIo::open(&configs).err().unwrap()).unwrap();
    assert!(error.to_string().contains("there is no interface \"nowhere0\""), "{error}");
}
