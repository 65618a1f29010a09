//! Two sites with a gateway each and a tunnel between them, as hosts at either site see it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use std::vec::Vec;

use flow::wire::arp::ArpView;
use flow::wire::icmpv6::advertisement_flags;
use flow::wire::{MacAddress, Parsed, build, ethernet, ip_protocol, parse, tcp_flags};
use flow::{Checksum, Disposition, Frame, Instant, NodeId, PacketBatch, PortId, Tuple};
use network_functions::chain::ChainBuilder;
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::rule_set::Conditions;
use replication::secure::{Credentials, PreSharedKey, Rotation, Seed};
use tunnel::{Bypass, SealingConfig, TunnelConfig};

use super::cluster::{INSIDE, OUTSIDE, Options, node_config, segment, syn, syn_ack};
use crate::forwarding;
use crate::node::{Node, NodeConfig, Transmit, TunnelEndpointConfig};
use crate::role;

/// Which addresses are IPv6's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Families {
    /// Those of hosts, and of the gateways towards them.
    inner: bool,
    /// Those that the tunnel ends at.
    outer: bool,
}

/// The address of a host at either site.
fn host(site: usize, families: Families) -> IpAddr {
    inside(site, families, 10)
}

fn inside(site: usize, families: Families, last: u8) -> IpAddr {
    let network = 1 + site as u8;
    if families.inner {
        Ipv6Addr::new(0x2001, 0xdb8, network.into(), 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(10, network, 0, last).into()
    }
}

/// Where the tunnel ends: on one network, so that no router is needed.
fn outer(site: usize, families: Families) -> IpAddr {
    let last = 1 + site as u8;
    if families.outer {
        Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(192, 0, 2, last).into()
    }
}

/// The other site's gateway, which a way to hosts of that family leads by.
fn gateway(site: usize, families: Families) -> IpAddr {
    // Where the families differ, the ports have an address of either.
    if families.inner == families.outer {
        outer(site, families)
    } else {
        outer(site, Families { outer: families.inner, ..families })
    }
}

const IPV4: Families = Families { inner: false, outer: false };
const HOST_MAC: MacAddress = MacAddress([2, 9, 9, 9, 9, 9]);
const TUNNEL_PORT: u16 = 3785;
/// As much as an IPv6 packet of 1500 bytes takes.
const SEGMENT_BYTES: usize = 1440;

fn mac(site: usize, port: PortId) -> MacAddress {
    MacAddress([2, 7, 0, 0, site as u8, port.0])
}

fn node(site: usize, families: Families, sealing: Option<SealingConfig>) -> Node {
    let network = |address: IpAddr| forwarding::Prefix::new(address, if address.is_ipv4() { 24 } else { 64 });
    let port = |port: PortId, addresses: &[IpAddr]| forwarding::Port {
        mac: mac(site, port),
        mtu_bytes: 1500,
        own: Vec::new(),
        shared: addresses.iter().map(|address| network(*address).into()).collect(),
        mss_clamp: None,
        reverse_path: forwarding::ReversePath::default(),
        router_advertisements: None,
    };
    let accept = Rule { name: "all".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let firewall = Firewall::new(FirewallConfig { rules: std::vec![accept], ..FirewallConfig::default() }).unwrap();
    let both = [outer(site, families), gateway(site, families)];
    let config = node_config(site as u8, Options::default());
    let config = NodeConfig {
        chain: ChainBuilder::new().push(firewall).build().unwrap(),
        forwarding: forwarding::Config {
            ports: std::vec![
                port(INSIDE, &[inside(site, families, 1)]),
                port(OUTSIDE, if families.inner == families.outer { &both[..1] } else { &both }),
            ],
            routes: std::vec![forwarding::Route {
                destination: network(host(1 - site, families)),
                gateway: gateway(1 - site, families),
                port: OUTSIDE,
            }],
            direct_return: Vec::new(),
            seed: 3,
        },
        role: role::Config { startup_hold: Duration::ZERO, ..role::Config::new(NodeId(site as u8), Vec::new()) },
        peers: Vec::new(),
        ..config
    };
    let end = |site: usize| (outer(site, families), TUNNEL_PORT).into();
    let tunnel = TunnelConfig { cache_bytes: 1 << 20, datagram_bytes_max: 1452, ..TunnelConfig::default() };
    let site_config =
        TunnelEndpointConfig { local: end(site), peer: end(1 - site), rules: Vec::new(), tunnel, sealing };
    Node::new(config, Instant::from_millis(1)).unwrap().with_tunnel(
        site_config,
        77 + site as u64,
        flow::HashKey([5, 6]),
    )
}

/// ICMPv6's types (RFC 4861).
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

fn is_about_neighbours(frame: &[u8]) -> bool {
    let is_arp = frame[12..14] == ethernet::ether_type::ARP.to_be_bytes();
    let is_icmpv6 = frame[12..14] == ethernet::ether_type::IPV6.to_be_bytes() && frame[20] == ip_protocol::ICMPV6;
    is_arp || is_icmpv6 && [NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT].contains(&frame[54])
}

/// A frame, and what its sender left undone of its checksum.
type Sent = (Vec<u8>, Checksum, flow::Segmentation);

struct World {
    now: Instant,
    families: Families,
    nodes: [Node; 2],
    /// What is on the network between the gateways: to which of them.
    between: VecDeque<(usize, Sent)>,
    /// What came to each host.
    arrived: [Vec<Vec<u8>>; 2],
    bytes_between: usize,
    /// The gateway at the other end of the network between them receives nothing.
    is_partitioned: bool,
}

impl World {
    fn start() -> Self {
        Self::start_with(IPV4, [None, None])
    }

    fn start_with(families: Families, [first, second]: [Option<SealingConfig>; 2]) -> Self {
        let mut world = Self {
            now: Instant::from_millis(1),
            families,
            nodes: [node(0, families, first), node(1, families, second)],
            between: VecDeque::new(),
            arrived: [Vec::new(), Vec::new()],
            bytes_between: 0,
            is_partitioned: false,
        };
        world.run_until_open();
        world
    }

    fn is_open(&self) -> bool {
        self.nodes.iter().all(|node| node.status(self.now).tunnel.unwrap().bypass.is_none())
    }

    fn run_until_open(&mut self) {
        for _ in 0..5000 {
            if self.is_open() {
                return;
            }
            self.run(1);
        }
        panic!("the tunnel does not open: {:?}", self.nodes[0].status(self.now).tunnel);
    }

    fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now = self.now + Duration::from_millis(1);
            for site in 0..2 {
                if self.nodes[site].poll_timeout().is_some_and(|due| due <= self.now) {
                    self.nodes[site].handle_timeout(self.now);
                }
                self.take_frames(site);
            }
            for _ in 0..self.between.len() {
                let Some((to, sent)) = self.between.pop_front() else { break };
                self.hand_in(to, OUTSIDE, sent);
            }
        }
    }

    fn take_frames(&mut self, site: usize) {
        let mut buffer = Vec::new();
        while let Some(Transmit::Port { port, checksum, segmentation }) =
            self.nodes[site].poll_frame(self.now, &mut buffer)
        {
            self.leave(site, port, (buffer.clone(), checksum, segmentation));
        }
    }

    fn leave(&mut self, site: usize, port: PortId, sent: Sent) {
        if port == OUTSIDE {
            self.bytes_between += sent.0.len();
            if !self.is_partitioned {
                self.between.push_back((1 - site, sent));
            }
            return;
        }
        match self.answer(site, &sent.0) {
            Some(reply) => self.hand_in(site, INSIDE, (reply, Checksum::Valid, flow::Segmentation::default())),
            None if is_about_neighbours(&sent.0) => {}
            None => self.arrived[site].push(sent.0),
        }
    }

    /// What the host answers if it is asked for its link address.
    fn answer(&self, site: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let asks = is_about_neighbours(frame);
        match host(site, self.families) {
            IpAddr::V4(own) => {
                let arp = ArpView::new_checked(frame.get(14..)?).ok().filter(|arp| asks && arp.target_ip() == own)?;
                Some(build::arp_reply(HOST_MAC, own, (arp.sender_mac(), arp.sender_ip())))
            }
            IpAddr::V6(own) => {
                let is_asked =
                    asks && frame.get(54) == Some(&NEIGHBOUR_SOLICITATION) && frame.get(62..78)? == own.octets();
                let asker = Ipv6Addr::from(*frame.get(22..38)?.first_chunk::<16>()?);
                let flags = advertisement_flags::SOLICITED | advertisement_flags::OVERRIDE;
                let to = (mac(site, INSIDE), asker);
                is_asked.then(|| build::neighbour_advertisement(HOST_MAC, own, to, flags))
            }
        }
    }

    fn hand_in(&mut self, site: usize, port: PortId, (mut bytes, checksum, segmentation): Sent) {
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, port).unwrap();
        (frame.checksum, frame.segmentation) = (checksum, segmentation);
        let mut batch: PacketBatch<'_> = core::iter::once(frame).collect();
        self.nodes[site].handle_packets(self.now, &mut batch);
        let frame = &batch[0];
        if let Disposition::Transmit(port) = frame.disposition {
            let sent = (frame.bytes().to_vec(), frame.checksum, frame.segmentation);
            self.leave(site, port, sent);
        }
        self.take_frames(site);
    }

    fn tuple(&self, site: usize, source_port: u16, destination_port: u16) -> Tuple {
        let end = |site: usize, port: u16| SocketAddr::new(host(site, self.families), port);
        Tuple::new(ip_protocol::TCP, end(site, source_port), end(1 - site, destination_port))
    }

    /// A host sends a segment to the other site's.
    fn send(&mut self, site: usize, source_port: u16, destination_port: u16, tcp: build::Tcp<'_>, payload: &[u8]) {
        let tuple = self.tuple(site, source_port, destination_port);
        let envelope =
            build::Envelope { source: HOST_MAC, destination: mac(site, INSIDE), ..build::Envelope::default() };
        let frame = envelope.tcp(&tuple, tcp, payload);
        self.hand_in(site, INSIDE, (frame, Checksum::Valid, flow::Segmentation::default()));
    }

    /// A connection from site b's host to site a's, over which `bytes` come down.
    fn download(&mut self, port: u16, bytes: &[u8]) {
        self.send(1, port, 80, syn(), b"");
        self.run(20);
        self.send(0, 80, port, syn_ack(), b"");
        self.run(20);
        self.send(1, port, 80, segment(tcp_flags::ACK, 1001, 5001), b"");
        self.run(20);
        for (place, part) in bytes.chunks(SEGMENT_BYTES).enumerate() {
            let sequence = 5001 + (SEGMENT_BYTES * place) as u32;
            self.send(0, 80, port, segment(tcp_flags::ACK, sequence, 1001), part);
            self.run(1);
            let end = sequence + part.len() as u32;
            self.send(1, port, 80, segment(tcp_flags::ACK, 1001, end), b"");
        }
        self.run(50);
    }

    /// The payloads that came to site b's host, whose checksums are right.
    fn received(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        for mut bytes in self.arrived[1].drain(..) {
            let length_bytes = bytes.len();
            let frame = Frame::new(&mut bytes, 0, length_bytes, INSIDE).unwrap();
            let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("whatever arrives is whole") };
            received.extend_from_slice(&bytes[headers.payload_offset.into()..headers.l3_end()]);
        }
        received
    }
}

fn content() -> Vec<u8> {
    let mut state = 9_u64;
    core::iter::repeat_with(|| {
        state = flow::random::mix(state + 1);
        state.to_le_bytes()
    })
    .flatten()
    .take(100_000)
    .collect()
}

#[test]
fn a_download_that_was_made_before_takes_a_fraction_of_the_bytes_and_is_the_same() {
    let mut world = World::start();
    let content = content();
    world.download(4000, &content);
    assert_eq!(world.received(), content);
    let first = std::mem::take(&mut world.bytes_between);
    world.download(4001, &content);
    assert_eq!(world.received(), content);
    let second = world.bytes_between;
    // Acknowledgements of the hosts are among them, which are not redundant.
    assert!(second * 5 < first, "{second} bytes the second time, {first} the first");
    let status = world.nodes[0].status(world.now).tunnel.unwrap();
    assert_eq!(status.counters.broken, 0);
    assert!(status.counters.encoder.blocks_encoded > 60, "{status:?}");
}

#[test]
fn connections_go_on_past_the_tunnel_while_the_other_site_does_not_answer_it() {
    let mut world = World::start();
    world.download(4000, &content()[..20_000]);
    world.received();
    world.is_partitioned = true;
    world.run(5000);
    world.is_partitioned = false;
    // Before the two have found each other again.
    world.send(1, 4001, 80, syn(), b"");
    world.run(1);
    let counters = world.nodes[1].status(world.now).tunnel.unwrap().counters;
    assert!(counters.bypassed.iter().sum::<u64>() > 0, "{counters:?}");
    assert!(!world.arrived[0].is_empty(), "it came all the same");
    world.run_until_open();
    world.download(4002, &content()[..20_000]);
    assert_eq!(world.received(), content()[..20_000]);
}

#[test]
fn a_frame_that_stands_for_several_segments_comes_out_as_it_went_in() {
    let mut world = World::start();
    world.download(4000, &content()[..1448]);
    world.received();
    let tuple = world.tuple(0, 80, 4000);
    let envelope = build::Envelope { source: HOST_MAC, destination: mac(0, INSIDE), ..build::Envelope::default() };
    let payload = &content()[..20_000];
    let mut frame = envelope.tcp(&tuple, segment(tcp_flags::ACK, 5001 + 1448, 1001), payload);
    let checksum = build::offload_checksum(&mut frame);
    let kind = flow::SegmentationKind::TcpIpv4;
    let segmentation = flow::Segmentation { kind, size_bytes: 1448, header_bytes: 54, ecn: false };
    world.hand_in(0, INSIDE, (frame.clone(), checksum, segmentation));
    world.run(20);
    let [arrived] = &world.arrived[1][..] else { panic!("one frame: {}", world.arrived[1].len()) };
    assert!(matches!(checksum, Checksum::Partial { .. }));
    // But for link addresses, time to live and the header's checksum, which two gateways changed.
    assert_eq!(arrived[26..], frame[26..]);
}

#[test]
fn packets_and_tunnel_may_be_of_either_family() {
    for (inner, outer) in [(true, true), (true, false), (false, true)] {
        let mut world = World::start_with(Families { inner, outer }, [None, None]);
        world.download(4000, &content());
        assert!(world.received() == content(), "{:?}", world.families);
        let first = std::mem::take(&mut world.bytes_between);
        world.download(4001, &content());
        assert!(world.received() == content(), "{:?}", world.families);
        let second = world.bytes_between;
        assert!(second * 5 < first, "{second} bytes the second time, {first} the first: {:?}", world.families);
        let counters = world.nodes[0].status(world.now).tunnel.unwrap().counters;
        assert_eq!((counters.broken, counters.bypassed.iter().sum::<u64>()), (0, 0), "{:?}", world.families);
        assert!(counters.headers_small > 100, "{counters:?}");
    }
}

#[test]
fn while_the_processor_is_short_fewer_places_are_sampled_then_nothing_is_encoded_and_then_all_is_as_before() {
    let mut world = World::start();
    let site = |world: &World| world.nodes[0].status(world.now).tunnel.unwrap();
    assert_eq!(site(&world).period.bytes(), 32);
    let mut periods = std::vec![32];
    while site(&world).bypass.is_none() {
        world.run(100);
        let now = world.now;
        world.nodes[0].note_load(now, 100);
        periods.push(site(&world).period.bytes());
        assert!(periods.len() < 1000, "it yields in the end");
    }
    periods.dedup();
    assert_eq!(periods, [32, 64, 128, 256, 512], "step by step");
    assert_eq!(site(&world).bypass, Some(Bypass::Processor));
    let encoded = site(&world).counters.encoder.bytes_in;
    world.download(4000, &content()[..50_000]);
    assert_eq!(world.received(), content()[..50_000], "past the tunnel");
    let status = site(&world);
    assert_eq!(status.counters.encoder.bytes_in, encoded, "nothing is encoded");
    assert!(status.counters.bypassed[Bypass::Processor as usize] > 30, "{status:?}");
    for _ in 0..1000 {
        world.run(100);
        let now = world.now;
        world.nodes[0].note_load(now, 10);
    }
    let status = site(&world);
    assert_eq!((status.bypass, status.period.bytes()), (None, 32));
    world.download(4001, &content()[..50_000]);
    assert_eq!(world.received(), content()[..50_000]);
    assert!(site(&world).counters.encoder.bytes_in > encoded);
}

#[test]
fn two_sites_with_a_key_encrypt_their_tunnel() {
    let credentials = Credentials::new(std::vec![PreSharedKey::new([9; 32])], None).unwrap();
    let credentials = alloc::sync::Arc::new(credentials);
    let sealing = |site: u8| SealingConfig {
        credentials: alloc::sync::Arc::clone(&credentials),
        rotation: Rotation::default(),
        seed: Seed::new([site; 32]),
        is_lower: site == 0,
        unix_time: (Instant::ZERO, Duration::from_secs(1_800_000_000)),
    };
    let mut world = World::start_with(IPV4, [Some(sealing(0)), Some(sealing(1))]);
    world.download(4000, &content());
    assert_eq!(world.received(), content());
    assert_eq!(world.nodes[0].status(world.now).tunnel.unwrap().is_sealed, Some(true));
}
