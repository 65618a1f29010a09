//! The kernel's own TCP through a forwarder in user space, by `AF_XDP` sockets.

mod common;
mod transfer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use common::{Network, SERVER};
use flow::wire::build;
use flow::{Disposition, DropReason, Frame, PortId, Segmentation, SegmentationKind, Tuple};
use packet_io::af_packet::AfPacketIo;
use packet_io::af_xdp::{AfXdpIo, AttachMode, AttachedPort, Fallback, MTU_BYTES_MAX, PortConfig};
use packet_io::interface::{Offload, set_offload};
use packet_io::netlink::Netlink;
use packet_io::signal::die_with_parent;
use packet_io::{IoError, PacketIo};
use transfer::{PATIENCE, TRANSFER_BYTES, transfer_to, while_forwarding};

/// Set in the environment of a child that holds the queues until it is killed.
const HOLD: &str = "MAINSTAY_TEST_HOLD_QUEUES";
/// The child's output when it holds them.
const HELD: &str = "the queues are held";

/// The gateway's addresses towards client and server.
fn routers() -> [[IpAddr; 2]; 2] {
    [1, 2].map(|side: u8| {
        let v6 = Ipv6Addr::new(0xfd00 + u16::from(side), 0, 0, 0, 0, 0, 0, 1);
        [IpAddr::V4(Ipv4Addr::new(10, side, 0, 1)), IpAddr::V6(v6)]
    })
}

/// A network whose hosts compute checksums and have neighbour entries for the gateway, as its kernel receives no
/// requests. `None`, with a message, where the machine forbids namespaces or `AF_XDP`.
fn network() -> Option<Network> {
    let network = Network::new()?;
    if let Err(error @ (IoError::NotPermitted { .. } | IoError::System { .. })) =
        network.gateway.run(|| AfXdpIo::open(&configs())).unwrap()
    {
        packet_io::namespace::skip(format_args!("{error}"));
        return None;
    }
    for ((host, port), routers) in [(&network.client, "port0"), (&network.server, "port1")].into_iter().zip(routers()) {
        let mac = network.gateway.run(|| Netlink::open().unwrap().interface(port).unwrap().mac).unwrap();
        host.run(|| {
            set_offload("host", Offload::TransmitChecksum, false).unwrap();
            routers.iter().for_each(|router| Netlink::open().unwrap().add_neighbour("host", *router, mac).unwrap());
        })
        .unwrap();
    }
    Some(network)
}

fn configs() -> [PortConfig; 2] {
    [PortConfig::new("port0"), PortConfig::new("port1")]
}

fn generic_configs() -> [PortConfig; 2] {
    configs().map(|config| PortConfig { allow_native: false, ..config })
}

fn open(network: &Network, configs: &[PortConfig]) -> AfXdpIo {
    network.gateway.run(|| AfXdpIo::open(configs).unwrap()).unwrap()
}

fn assert_tcp_passes(network: &Network, io: AfXdpIo) {
    let (largest_bytes, counters) = while_forwarding((io, network.forwarder()), || transfer_to(network, SERVER));
    assert_eq!(largest_bytes, [0; 2], "there are no frames of several segments");
    for counters in counters {
        assert!(counters.received_bytes > 2 * TRANSFER_BYTES as u64, "{counters:?}");
        assert!(counters.sent_bytes > 2 * TRANSFER_BYTES as u64, "{counters:?}");
        assert_eq!(counters.transmit_failures.total() - counters.transmit_failures.queue_full, 0, "{counters:?}");
        assert_eq!(counters.undecided, 0);
    }
}

#[test]
fn tcp_passes_unchanged_in_the_driver() {
    let Some(network) = network() else { return };
    let io = open(&network, &configs());
    assert_eq!(io.attach_mode(PortId(0)), Some(AttachMode::Native), "{:?}", io.fallbacks(PortId(0)).next());
    assert_tcp_passes(&network, io);
}

#[test]
fn tcp_passes_unchanged_behind_the_driver() {
    let Some(network) = network() else { return };
    // The hosts would coalesce segments to frames longer than a chunk: see the test below.
    let io = open(&network, &generic_configs());
    assert_eq!(io.attach_mode(PortId(1)), Some(AttachMode::Generic));
    assert_tcp_passes(&network, io);
}

#[test]
fn unavailable_features_are_reported_as_fallbacks() {
    let Some(network) = network() else { return };
    let io = open(&network, &configs());
    // Virtual cables lack zero-copy.
    let fallbacks: Vec<_> = io.fallbacks(PortId(0)).collect();
    assert!(matches!(fallbacks[..], [Fallback::Copy(_)]), "{fallbacks:?}");
    assert!(!io.is_zero_copy(PortId(0)));
    drop(io);
    // A bridge has no native XDP.
    network.gateway.run(|| Netlink::open().unwrap().create_bridge("bridge0").unwrap()).unwrap();
    let io = open(&network, &[PortConfig::new("bridge0")]);
    assert_eq!(io.attach_mode(PortId(0)), Some(AttachMode::Generic));
    let fallbacks: Vec<String> = io.fallbacks(PortId(0)).map(ToString::to_string).collect();
    assert!(fallbacks[0].starts_with("generic instead of native XDP"), "{fallbacks:?}");
}

#[test]
fn a_port_recovers_after_going_down() {
    let Some(network) = network() else { return };
    let switch = |up| network.gateway.run(|| Netlink::open().unwrap().set_up("port1", up).unwrap()).unwrap();
    let mut io = open(&network, &configs());
    let mut bytes = [0; 60];
    let frame = Frame::new(&mut bytes, 0, 60, PortId(0)).unwrap();
    let begin = Instant::now();
    switch(false);
    while io.counters(PortId(1)).went_down == 0 {
        assert!(begin.elapsed() < PATIENCE, "the failure was not detected");
        io.poll(&mut |_| {}).unwrap();
    }
    io.transmit(PortId(1), &frame).unwrap_err();
    assert_eq!(io.counters(PortId(1)).transmit_failures.down, 1);
    switch(true);
    while io.transmit(PortId(1), &frame).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the port did not recover");
        io.poll(&mut |_| {}).unwrap();
    }
    assert_eq!(io.counters(PortId(1)).went_down, 1);
    while_forwarding((io, network.forwarder()), || transfer_to(&network, [SERVER[0]]));
}

#[test]
fn the_queues_of_a_killed_process_can_be_reopened() {
    if std::env::var_os(HOLD).is_some() {
        let _io = AfXdpIo::open(&configs()).unwrap();
        println!("{HELD}");
        loop {
            thread::park();
        }
    }
    let Some(network) = network() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_queues_of_a_killed_process_can_be_reopened", "--nocapture"]).env(HOLD, "1");
    command.stdout(Stdio::piped());
    die_with_parent(&mut command);
    let mut child = network.gateway.spawn_command(command).unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains(HELD)), "the child could not open the queues");

    let busy = network.gateway.run(|| AfXdpIo::open(&configs()).err().unwrap()).unwrap();
    assert!(busy.to_string().contains("another XDP program is on port0"), "{busy}");

    child.kill().unwrap();
    let begin = Instant::now();
    let io = open(&network, &configs());
    println!("taken over {:?} after the kill", begin.elapsed());
    child.wait().unwrap();
    assert_tcp_passes(&network, io);
}

#[test]
fn queues_can_be_divided_and_a_port_without_queues_is_unusable() {
    let Some(network) = network() else { return };
    network
        .gateway
        .run(|| {
            let ports = configs().map(|config| AttachedPort::attach(&config).unwrap());
            assert_eq!(ports[0].queues(), 1);
            let first = [(ports[0].clone(), 0..1), (ports[1].clone(), 0..0)];
            let second = [(ports[0].clone(), 0..0), (ports[1].clone(), 0..1)];
            let mut workers = [AfXdpIo::open_shares(&first).unwrap(), AfXdpIo::open_shares(&second).unwrap()];
            let mut bytes = [0; 60];
            for (worker, (own, other)) in workers.iter_mut().zip([(0, 1), (1, 0)]) {
                let frame = Frame::new(&mut bytes, 0, 60, PortId(0)).unwrap();
                worker.transmit(PortId(own), &frame).unwrap();
                worker.transmit(PortId(other), &frame).unwrap_err();
                assert_eq!(worker.descriptors().len(), 1);
            }
        })
        .unwrap();
}

#[test]
fn frames_longer_than_a_chunk_are_counted_and_not_truncated() {
    let Some(network) = network() else { return };
    network.client.run(|| set_offload("host", Offload::TransmitChecksum, true).unwrap()).unwrap();
    network.client.run(|| set_offload("host", Offload::TcpSegmentation, true).unwrap()).unwrap();
    // Behind the driver the kernel passes unsegmented packets from the host's offload.
    let mut io = open(&network, &generic_configs());
    let client = [packet_io::af_packet::PortConfig::new("host")];
    let mut client = network.client.run(|| AfPacketIo::open(&client).unwrap()).unwrap();
    let tuple = Tuple::new(6, (Ipv4Addr::new(10, 1, 0, 2), 7).into(), (SERVER[0], 7).into());
    let mut bytes = build::tcp(&tuple, build::Tcp::default(), &[1; 20_000]);
    let checksum = build::offload_checksum(&mut bytes);
    let length_bytes = bytes.len();
    let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
    frame.checksum = checksum;
    frame.segmentation = Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1448, ..Segmentation::default() };
    client.transmit(PortId(0), &frame).unwrap();
    let begin = Instant::now();
    while io.counters(PortId(0)).received_oversized == 0 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", io.counters(PortId(0)));
        io.poll(&mut |batch| {
            for frame in batch {
                assert!(frame.bytes().len() <= 1514);
                frame.disposition = Disposition::Drop(DropReason::UnsupportedLinkProtocol);
            }
        })
        .unwrap();
    }
}

#[test]
fn too_large_an_mtu_is_refused_with_the_maximum() {
    let Some(network) = network() else { return };
    let mtu_bytes = MTU_BYTES_MAX + 1;
    network.gateway.run(|| Netlink::open().unwrap().set_mtu("port0", mtu_bytes).unwrap()).unwrap();
    let error = network.gateway.run(|| AfXdpIo::open(&configs()).err().unwrap()).unwrap();
    assert!(error.to_string().contains(&format!("at most {MTU_BYTES_MAX}")), "{error}");
}
