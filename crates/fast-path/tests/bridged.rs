//! Bridged frames: they keep all but their destination link address, are for any host, and their windows are followed and not enforced.

mod common;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use common::{LOOPBACK, Network, PATIENCE};
use fast_path::{Config, FastPath, Hook, NextHop, Outcome, Plan, TestContext};
use flow::fast_path::{Side, Windows};
use flow::wire::build::{self, Envelope, Tcp};
use flow::wire::{MacAddress, ip_protocol, tcp_flags};
use flow::{Frame, PortId, Tuple};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};

const NODE: [u8; 6] = [2, 0, 0, 0, 9, 9];
const HOST: [u8; 6] = [2, 0, 0, 0, 7, 7];
const CONTEXT: TestContext = TestContext { ifindex: LOOPBACK, gso_bytes: 0, repeat: 1 };

fn tuple(protocol: u8) -> Tuple {
    Tuple::v4(protocol, (Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 443))
}

fn config(hook: Hook) -> Config {
    Config { is_bridged: true, hook, heartbeat_age_max: PATIENCE * 10, ..Config::default() }
}

/// Next hop 0 readdresses frames to a node, next hop 1 leaves them as they are. Frames that come back must be for the host.
fn install(fast_path: &mut FastPath, protocol: u8, windows: Option<Windows>) -> fast_path::ConnectionIndex {
    fast_path.set_next_hop(0, Some(&NextHop::bridged(LOOPBACK, Some(NODE), 1500))).unwrap();
    fast_path.set_next_hop(1, Some(&NextHop::bridged(LOOPBACK, None, 1500))).unwrap();
    let plan = Plan::bridged(&tuple(protocol), windows, [LOOPBACK; 2], [0, 1]);
    fast_path.install(&Plan { link_addresses: [None, Some(HOST)], ..plan }).unwrap()
}

/// Runs the program on a frame; returns what it made of it, if it forwarded it.
fn run(fast_path: &FastPath, frame: &[u8]) -> (Option<Vec<u8>>, Outcome) {
    let before = fast_path.counters().unwrap();
    let run = fast_path.test_run(frame, CONTEXT).unwrap();
    let counted = fast_path.counters().unwrap() - before;
    let outcome = Outcome::ALL.into_iter().find(|outcome| counted.of(*outcome) == 1).unwrap();
    if !run.is_redirected {
        assert_eq!(run.bytes, frame, "what is left is unchanged");
    }
    (run.is_redirected.then_some(run.bytes), outcome)
}

fn assert_frames_are_bridged(hook: Hook) {
    let Some(mut fast_path) = common::load(&config(hook)) else { return };
    install(&mut fast_path, ip_protocol::UDP, None);
    // The link address of nobody here, and a time to live that a router would refuse.
    let to = |destination| Envelope { destination: MacAddress(destination), ttl: 1, ..Envelope::default() };
    let entering = to([2, 0, 0, 0, 1, 1]).udp(&tuple(ip_protocol::UDP), b"query");
    let (forwarded, outcome) = run(&fast_path, &entering);
    assert_eq!(outcome, Outcome::Forwarded);
    assert_eq!(forwarded.unwrap(), [&NODE[..], &entering[6..]].concat());
    let back = |destination| to(destination).udp(&tuple(ip_protocol::UDP).inverse(), b"answer");
    let leaving = back(HOST);
    assert_eq!(run(&fast_path, &leaving), (Some(leaving), Outcome::Forwarded));
    assert_eq!(run(&fast_path, &back(NODE)), (None, Outcome::Host), "between nodes");
    assert_eq!(run(&fast_path, &to([0xff; 6]).udp(&tuple(ip_protocol::UDP), b"query")), (None, Outcome::Host));
    fast_path.set_next_hop(0, None).unwrap();
    assert_eq!(run(&fast_path, &entering), (None, Outcome::NextHop), "the node is stopped");
}

#[test]
fn frames_are_bridged_at_tc() {
    assert_frames_are_bridged(Hook::Tc);
}

#[test]
fn frames_are_bridged_at_xdp() {
    assert_frames_are_bridged(Hook::Xdp);
}

#[test]
fn segments_outside_the_windows_are_bridged_and_change_nothing() {
    let Some(mut fast_path) = common::load(&config(Hook::Tc)) else { return };
    let side = |end| Side { end, end_max: end + 1000, window_max: 1000, acknowledged_max: 500, ..Side::default() };
    let index = install(&mut fast_path, ip_protocol::TCP, Some(Windows { sides: [side(500), side(500)] }));
    let segment = |flags, sequence| {
        let tcp = Tcp { flags, sequence, acknowledgement: 500, window: 1000, ..Tcp::default() };
        build::tcp(&tuple(ip_protocol::TCP), tcp, b"data")
    };
    for (sequence, end) in [(500, 504), (90_000, 504), (504, 508)] {
        assert_eq!(run(&fast_path, &segment(tcp_flags::ACK, sequence)).1, Outcome::Forwarded);
        assert_eq!(fast_path.read(index).unwrap().windows.unwrap().sides[0].end, end);
    }
    for flags in [tcp_flags::SYN, tcp_flags::FIN | tcp_flags::ACK, tcp_flags::RST | tcp_flags::ACK] {
        assert_eq!(run(&fast_path, &segment(flags, 508)), (None, Outcome::Flags));
    }
}

#[test]
fn a_routed_program_is_not_changed_by_the_switch() {
    let Some(mut fast_path) = common::load(&Config { is_bridged: false, ..config(Hook::Tc) }) else { return };
    install(&mut fast_path, ip_protocol::UDP, None);
    let to = |destination, ttl| {
        let envelope = Envelope { destination: MacAddress(destination), ttl, ..Envelope::default() };
        envelope.udp(&tuple(ip_protocol::UDP), b"query")
    };
    assert_eq!(run(&fast_path, &to([2, 0, 0, 0, 1, 1], 64)).1, Outcome::Host);
    assert_eq!(run(&fast_path, &to([0; 6], 1)).1, Outcome::Ttl);
    let (forwarded, _) = run(&fast_path, &to([0; 6], 64));
    assert_eq!(forwarded.unwrap()[14 + 8], 63);
}

#[test]
fn sockets_beside_it_receive_frames_for_any_host_but_none_of_a_vlan() {
    let Some(network) = Network::new() else { return };
    let Some(mut fast_path) = common::load(&config(Hook::Tc)) else { return };
    network.gateway.run(|| fast_path.attach("port0").unwrap()).unwrap();
    // Also while it forwards nothing.
    for is_enabled in [true, false] {
        fast_path.set_enabled(is_enabled);
        let config =
            PortConfig { promiscuous: true, ether_types: vec![0x0800], any_host: true, ..PortConfig::new("port0") };
        let mut port = network.gateway.run(|| AfPacketIo::open(&[config]).unwrap()).unwrap();
        let mut sender = network.client.run(|| AfPacketIo::open(&[PortConfig::new("host")]).unwrap()).unwrap();
        let frame = |vlans: &'static [u16], payload: &[u8]| {
            let envelope = Envelope { destination: MacAddress(HOST), vlans, ..Envelope::default() };
            envelope.udp(&tuple(ip_protocol::UDP), payload)
        };
        for mut bytes in [frame(&[5], b"of a VLAN"), frame(&[], b"for another host")] {
            let length_bytes = bytes.len();
            sender.transmit(PortId(0), &Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap()).unwrap();
        }
        let (begin, mut received) = (Instant::now(), Vec::new());
        while received.is_empty() {
            assert!(begin.elapsed() < PATIENCE, "no frame came");
            let polled = port.poll(&mut |batch| {
                let ours = batch.iter().filter(|frame| frame.bytes()[..6] == HOST);
                received.extend(ours.map(|frame| frame.bytes().to_vec()));
            });
            if polled.unwrap() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(received, [frame(&[], b"for another host")], "frames come in their order");
    }
}
