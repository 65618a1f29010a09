//! A port that receives frames of some EtherTypes alone.

mod common;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use common::Network;
use flow::wire::{MacAddress, build, ip_protocol};
use flow::{Frame, PortId, Tuple};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::netlink::Netlink;

/// The time limit of every step.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at what is awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The mark of this test's packets, which distinguishes them from those of the kernels.
const MARK: &[u8] = b"mainstay ether types";

/// Frames for `gateway` and others, each with whether the port is to receive it.
fn frames(gateway: MacAddress) -> Vec<(Vec<u8>, bool)> {
    let other = MacAddress([2, 0, 0, 0, 0, 0xee]);
    let v4 = Tuple::v4(ip_protocol::UDP, (Ipv4Addr::new(10, 1, 0, 2), 4000), (Ipv4Addr::new(10, 2, 0, 2), 53));
    let v6 = Tuple::v6(
        ip_protocol::UDP,
        (Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 2), 4000),
        (Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 2), 53),
    );
    let to = |destination, vlans: &'static [u16]| build::Envelope { destination, vlans, ..build::Envelope::default() };
    vec![
        (to(gateway, &[]).udp(&v4, MARK), true),
        (to(other, &[]).udp(&v4, MARK), false),
        (to(gateway, &[5]).udp(&v4, MARK), false),
        (to(gateway, &[]).udp(&v6, MARK), true),
        (to(other, &[]).udp(&v6, MARK), false),
        // Of a type that is not asked for.
        ([&gateway.0[..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb6], MARK, &[0; 40]].concat(), false),
        ([&gateway.0[..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb5], MARK, &[0; 40]].concat(), true),
    ]
}

#[test]
fn only_frames_of_the_types_for_this_host_and_without_vlans_are_received() {
    let Some(network) = Network::new() else { return };
    let config =
        PortConfig { promiscuous: true, ether_types: vec![0x0800, 0x86dd, 0x88b5], ..PortConfig::new("port0") };
    let mut port = network.gateway.run(|| AfPacketIo::open(&[config]).unwrap()).unwrap();
    let mac = network.gateway.run(|| Netlink::open().unwrap().interface("port0").unwrap().mac).unwrap();
    let mut sender = network.client.run(|| AfPacketIo::open(&[PortConfig::new("host")]).unwrap()).unwrap();
    // More rounds than a quiet socket waits for its turn.
    for _ in 0..20 {
        let frames = frames(MacAddress(mac));
        for (bytes, _) in &frames {
            let mut bytes = bytes.clone();
            let length_bytes = bytes.len();
            sender.transmit(PortId(0), &Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap()).unwrap();
        }
        let mut expected: Vec<Vec<u8>> =
            frames.into_iter().filter(|(_, is_due)| *is_due).map(|(bytes, _)| bytes).collect();
        let mut received: Vec<Vec<u8>> = Vec::new();
        let begin = Instant::now();
        while received.len() < expected.len() {
            assert!(begin.elapsed() < PATIENCE, "{} of {} frames came", received.len(), expected.len());
            let polled = port.poll(&mut |batch| {
                let ours = batch.iter().filter(|frame| frame.bytes().windows(MARK.len()).any(|bytes| bytes == MARK));
                received.extend(ours.map(|frame| frame.bytes().to_vec()));
            });
            if polled.unwrap() == 0 {
                thread::sleep(POLL_INTERVAL);
            }
        }
        received.sort();
        expected.sort();
        assert_eq!(received, expected);
    }
}
