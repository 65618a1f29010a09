//! The kernel distributes an interface's frames among workers by the steering function.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use common::Network;
use flow::steering::program;
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{MacAddress, Parsed, build, ip_protocol, parse};
use flow::{Frame, PortId, Steering, Tuple, WorkerId};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, Fanout, PortConfig};
use packet_io::netlink::Netlink;

const WORKERS: u8 = 3;
/// The time limit of every step.
const PATIENCE: Duration = Duration::from_secs(10);
/// The mark that distinguishes this test's packets from those of the kernels.
const MARK: &[u8] = b"mainstay fanout";

/// Ports of the same interface, one for each worker. Each receives single EtherTypes, or everything.
fn open_workers(network: &Network, ether_types: &[u16]) -> Vec<AfPacketIo> {
    let places = Fanout::group(WORKERS.into(), &program(Steering::new(WORKERS).unwrap()));
    let open = |fanout| {
        let config = PortConfig {
            promiscuous: true,
            fanout: Some(fanout),
            ether_types: ether_types.to_vec(),
            ..PortConfig::new("port0")
        };
        network.gateway.run(|| AfPacketIo::open(&[config]).unwrap()).unwrap()
    };
    places.into_iter().map(open).collect()
}

/// What the workers' sockets receive.
#[derive(Clone, Copy)]
enum Kinds {
    /// Frames for any link address, tagged and not.
    All,
    /// Frames for this host, not tagged.
    ForThisHost,
}

impl Kinds {
    const fn vlans(self) -> &'static [&'static [u16]] {
        match self {
            Self::All => &[&[], &[5], &[5, 6]],
            Self::ForThisHost => &[&[]],
        }
    }

    fn destination(self) -> MacAddress {
        match self {
            Self::All => build::Envelope::default().destination,
            Self::ForThisHost => MacAddress::BROADCAST,
        }
    }
}

fn end(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// Packets of every kind that the program supports, in both directions, with options.
fn packets(round: u8, kinds: Kinds) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let v4 = |host: u8| IpAddr::from(Ipv4Addr::new(198, 18, round, host));
    let v6 = |host: u8| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, round.into(), 0, 0, 0, host.into()));
    for host in 1..=8 {
        for (near, far) in [(v4(host), v4(200)), (v6(host), v6(200))] {
            let port = 30_000 + 7 * u16::from(host);
            for vlans in kinds.vlans() {
                let options: &[u8] = if host % 2 == 0 { &[1; 8] } else { &[] };
                let destination = kinds.destination();
                let envelope =
                    build::Envelope { vlans, ipv4_options: options, destination, ..build::Envelope::default() };
                for protocol in [ip_protocol::TCP, ip_protocol::UDP] {
                    let tuple = Tuple::new(protocol, end(near, port), end(far, 443));
                    for tuple in [tuple, tuple.inverse()] {
                        frames.push(if protocol == ip_protocol::TCP {
                            envelope.tcp(&tuple, build::Tcp::default(), MARK)
                        } else {
                            envelope.udp(&tuple, MARK)
                        });
                    }
                }
                frames.push(envelope.echo(&Tuple::echo(near, far, port), build::Echo::default(), MARK));
                let fragment = Some(FragmentHeader { identification: 1, offset_bytes: 64, more: false });
                let tuple = Tuple::new(ip_protocol::UDP, end(near, 0), end(far, 0));
                frames.push(build::Envelope { fragment, ..envelope }.raw(&tuple, MARK));
                let about =
                    build::Envelope::default().udp(&Tuple::new(ip_protocol::UDP, end(far, 53), end(near, port)), MARK);
                let kind = if near.is_ipv4() { 3 } else { 1 };
                let header = build::IcmpHeader { kind, code: 1, parameter: 0 };
                frames.push(envelope.icmp_error(near, header, &about[14..]).unwrap());
            }
        }
    }
    frames
}

fn worker_of(frame: &[u8]) -> WorkerId {
    let mut bytes = frame.to_vec();
    let length_bytes = bytes.len();
    match parse(&Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap()) {
        Ok(Parsed::Ip(headers)) => Steering::new(WORKERS).unwrap().worker_of(&headers),
        other => panic!("the test's frames are sound: {other:?}"),
    }
}

fn send(sender: &mut AfPacketIo, frames: &[Vec<u8>]) {
    for frame in frames {
        let mut bytes = frame.clone();
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        frame.checksum = flow::Checksum::Valid;
        sender.transmit(PortId(0), &frame).unwrap();
    }
}

fn is_marked(frame: &Frame<'_>) -> bool {
    frame.bytes().windows(MARK.len()).any(|part| part == MARK)
}

/// Receives until as many marked frames have arrived as were sent; returns each worker's.
fn receive(workers: &mut [AfPacketIo], number: usize) -> Vec<Vec<Vec<u8>>> {
    let mut received = vec![Vec::new(); workers.len()];
    let deadline = Instant::now() + PATIENCE;
    while received.iter().map(Vec::len).sum::<usize>() < number {
        assert!(Instant::now() < deadline, "{:?} of {number}", received.iter().map(Vec::len).collect::<Vec<_>>());
        for (worker, received) in workers.iter_mut().zip(&mut received) {
            let mut keep = |batch: &mut flow::PacketBatch<'_>| {
                let marked = batch.iter().filter(|frame| is_marked(frame));
                received.extend(marked.map(|frame| frame.bytes().to_vec()));
            };
            worker.poll(&mut keep).unwrap();
        }
    }
    received
}

/// Sends a round of packets and checks that each arrives once, at its worker.
fn expect_steered(sender: &mut AfPacketIo, workers: &mut [AfPacketIo], round: u8, kinds: Kinds) {
    let frames = packets(round, kinds);
    send(sender, &frames);
    let received = receive(workers, frames.len());
    for (worker, frames) in (0..).map(WorkerId).zip(&received) {
        assert!(!frames.is_empty(), "{worker:?} has its share");
        for frame in frames {
            assert_eq!(worker_of(frame), worker, "{frame:02x?}");
        }
    }
    let mut sent_and_received = [frames, received.concat()];
    sent_and_received.iter_mut().for_each(|frames| frames.sort());
    assert_eq!(sent_and_received[0], sent_and_received[1], "each arrived once and unchanged");
}

#[test]
fn the_kernel_steers_packets_to_their_workers_also_after_the_interface_was_recreated() {
    let Some(network) = Network::new() else { return };
    let mut workers = open_workers(&network, &[]);
    let open_sender = || network.client.run(|| AfPacketIo::open(&[PortConfig::new("host")]).unwrap()).unwrap();
    let mut sender = open_sender();
    expect_steered(&mut sender, &mut workers, 1, Kinds::All);

    // Down and up: the sockets leave the group and rejoin it.
    let set_up = |up| network.gateway.run(|| Netlink::open().unwrap().set_up("port0", up).unwrap()).unwrap();
    set_up(false);
    workers.iter_mut().for_each(|worker| assert_eq!(worker.poll(&mut |_| ()).unwrap(), 0));
    set_up(true);
    wait_until_received(&network, &mut sender, &mut workers);
    expect_steered(&mut sender, &mut workers, 2, Kinds::All);

    // Deleted and recreated: another interface of the same name, detected in any order.
    drop(sender);
    network.gateway.run(|| Netlink::open().unwrap().delete("port0").unwrap()).unwrap();
    workers.iter_mut().rev().for_each(|worker| assert_eq!(worker.poll(&mut |_| ()).unwrap(), 0));
    let create = || {
        let mut netlink = Netlink::open().unwrap();
        netlink.create_veth("port0", "host", &network.client).unwrap();
        netlink.set_up("port0", true).unwrap();
    };
    network.gateway.run(create).unwrap();
    network.client.run(|| Netlink::open().unwrap().set_up("host", true).unwrap()).unwrap();
    let mut sender = open_sender();
    workers.reverse();
    wait_until_received(&network, &mut sender, &mut workers);
    workers.reverse();
    expect_steered(&mut sender, &mut workers, 3, Kinds::All);
}

#[test]
fn sockets_of_single_ether_types_are_steered_alike() {
    let Some(network) = Network::new() else { return };
    let mut workers = open_workers(&network, &[0x0800, 0x86dd, 0x0806]);
    let mut sender = network.client.run(|| AfPacketIo::open(&[PortConfig::new("host")]).unwrap()).unwrap();
    expect_steered(&mut sender, &mut workers, 1, Kinds::ForThisHost);
    // For another host: neither worker gets one.
    send(&mut sender, &packets(2, Kinds::All));
    expect_steered(&mut sender, &mut workers, 3, Kinds::ForThisHost);
}

/// Waits until every worker receives frames again. Sockets are reopened in the interface's namespace.
fn wait_until_received(network: &Network, sender: &mut AfPacketIo, workers: &mut [AfPacketIo]) {
    let deadline = Instant::now() + PATIENCE;
    let frames: Vec<Vec<u8>> = packets(99, Kinds::All).into_iter().take(200).collect();
    let mut received = vec![false; workers.len()];
    while received.contains(&false) {
        assert!(Instant::now() < deadline, "{received:?}");
        for frame in &frames {
            let mut bytes = frame.clone();
            let length_bytes = bytes.len();
            // The link may not be up yet.
            let _ = sender.transmit(PortId(0), &Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap());
        }
        for (worker, received) in workers.iter_mut().zip(&mut received) {
            // The kernels send packets, too, and earlier ones may still lie in a socket that is about to be replaced.
            let mut note_marked = |batch: &mut flow::PacketBatch<'_>| *received |= batch.iter().any(is_marked);
            network.gateway.run(|| worker.poll(&mut note_marked).map(|_| ()).unwrap()).unwrap();
        }
    }
    // Discards the remaining frames, which must not count for the next step.
    for worker in workers {
        while worker.poll(&mut |_| ()).unwrap() > 0 {}
    }
}
