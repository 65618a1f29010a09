//! Two sites with two gateways each: either site's active gateway dies, and the standby one goes on with the tunnel's
//! caches.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::string::ToString;
use std::time::Duration;
use std::vec::Vec;

use flow::wire::arp::ArpView;
use flow::wire::{MacAddress, Parsed, build, ethernet, ip_protocol, parse, tcp_flags};
use flow::{Checksum, Frame, Instant, NodeId, PacketBatch, PortId, Tuple};
use network_functions::chain::ChainBuilder;
use network_functions::firewall::{Action, Rule};
use network_functions::rule_set::Conditions;
use tunnel::TunnelConfig;
use tunnel::mirror::{MirrorConfig, MirrorStatus};

use super::cluster::{INSIDE, OUTSIDE, Options, firewall, node_config, security, segment, syn, syn_ack};
use crate::node::{Node, NodeConfig, NodeError, Transmit, TunnelEndpointConfig};
use crate::{forwarding, role};

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 10), Ipv4Addr::new(10, 2, 0, 10)];
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1)];
const OUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const HOST_MAC: MacAddress = MacAddress([2, 9, 9, 9, 9, 9]);
const TUNNEL_PORT: u16 = 3785;
const SEGMENT_BYTES: usize = 1448;
/// What the sending host has unacknowledged at most: less than the window that segments advertise, so that the gateways'
/// tracking takes every segment for one of its connection.
const WINDOW_BYTES: usize = 16 * SEGMENT_BYTES;
const DOWNLOAD_MILLISECONDS_MAX: usize = 5000;

/// What the tests vary.
#[derive(Clone, Copy)]
struct Setting {
    mirror: bool,
    is_secured: bool,
}

const MIRRORED: Setting = Setting { mirror: true, is_secured: false };

fn mac(site: usize, node: usize, port: PortId) -> MacAddress {
    MacAddress([2, 7, 0, node as u8, site as u8, port.0])
}

fn node(site: usize, number: usize, setting: Setting, now: Instant) -> Node {
    let prefix = |address: Ipv4Addr, bits| forwarding::Prefix::new(address.into(), bits);
    let port = |port: PortId, address: Ipv4Addr| forwarding::Port {
        mac: mac(site, number, port),
        mtu_bytes: 1500,
        own: Vec::new(),
        shared: std::vec![prefix(address, 24).into()],
        mss_clamp: None,
        reverse_path: forwarding::ReversePath::default(),
        router_advertisements: None,
    };
    let accept = Rule { name: "all".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let id = number as u8;
    let config = NodeConfig {
        chain: ChainBuilder::new().push(firewall(std::vec![accept])).build().unwrap(),
        forwarding: forwarding::Config {
            ports: std::vec![port(INSIDE, INNER[site]), port(OUTSIDE, OUTER[site])],
            routes: std::vec![forwarding::Route {
                destination: prefix(HOSTS[1 - site], 24),
                gateway: OUTER[1 - site].into(),
                port: OUTSIDE,
            }],
            direct_return: Vec::new(),
            seed: 3,
        },
        role: role::Config { priority: 200 - id, preempt: true, ..role::Config::new(NodeId(id), Vec::new()) },
        security: setting.is_secured.then(|| security(site as u8 + 1, id, now)),
        seed: now.as_nanos() + 10 * site as u64 + u64::from(id),
        ..node_config(id, Options::default())
    };
    let end = |site: usize| (OUTER[site], TUNNEL_PORT).into();
    let mirror = setting.mirror.then(MirrorConfig::default);
    let tunnel = TunnelConfig { cache_bytes: 1 << 20, mirror, ..TunnelConfig::default() };
    let config_of_site =
        TunnelEndpointConfig { local: end(site), peer: end(1 - site), rules: Vec::new(), tunnel, sealing: None };
    let seed = 77 + now.as_nanos() + 10 * site as u64 + u64::from(id);
    Node::new(config, now).unwrap().with_tunnel(config_of_site, seed, flow::HashKey([5, 6]))
}

/// A frame, and what its sender left undone of its checksum.
type Sent = (Vec<u8>, Checksum, flow::Segmentation);

struct World {
    now: Instant,
    setting: Setting,
    /// `None`: it is dead.
    sites: [[Option<Node>; 2]; 2],
    /// What is on the network between the sites: to which of them.
    between: VecDeque<(usize, Sent)>,
    /// What came to each host.
    arrived: [Vec<Vec<u8>>; 2],
    bytes_between: usize,
    refused: Vec<NodeError>,
}

impl World {
    fn start(setting: Setting) -> Self {
        let now = Instant::from_millis(1);
        let site = |site| [0, 1].map(|number| Some(node(site, number, setting, now)));
        let mut world = Self {
            now,
            setting,
            sites: [site(0), site(1)],
            between: VecDeque::new(),
            arrived: [Vec::new(), Vec::new()],
            bytes_between: 0,
            refused: Vec::new(),
        };
        world.run_until_open();
        world
    }

    fn active(&self, site: usize) -> Option<usize> {
        self.sites[site].iter().position(|node| node.as_ref().is_some_and(Node::holds_addresses))
    }

    fn active_mut(&mut self, site: usize) -> Option<&mut Node> {
        let active = self.active(site)?;
        self.sites[site][active].as_mut()
    }

    fn is_open(&self) -> bool {
        (0..2).all(|site| {
            let node = self.active(site).and_then(|active| self.sites[site][active].as_ref());
            node.is_some_and(|node| node.status(self.now).tunnel.is_some_and(|site| site.bypass.is_none()))
        })
    }

    fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if condition(self) {
                return;
            }
            self.run(1);
        }
        let active = [0, 1].map(|site| self.active(site));
        panic!("waited too long for {what}: active {active:?}, mirrors {:?} {:?}", self.mirror(0), self.mirror(1));
    }

    fn run_until_open(&mut self) {
        self.run_until("the tunnel to be open", Self::is_open);
        self.run(50);
    }

    /// The mirror of the site's standby node.
    fn mirror(&self, site: usize) -> Option<MirrorStatus> {
        let standby = self.sites[site].iter().flatten().find(|node| !node.holds_addresses())?;
        standby.status(self.now).tunnel?.mirror.map(|mirror| *mirror)
    }

    fn run_until_mirrored(&mut self, bytes: u64) {
        self.run_until("both mirrors to be whole", |world| {
            let is_whole = |[held, to_hold]: [u64; 2]| held == to_hold;
            let mirrors = [world.mirror(0), world.mirror(1)];
            mirrors.iter().all(|mirror| {
                mirror.is_some_and(|it| {
                    is_whole(it.sent_bytes)
                        && is_whole(it.received_bytes)
                        && it.sent_bytes[0].max(it.received_bytes[0]) >= bytes
                })
            })
        });
    }

    fn kill_active(&mut self, site: usize) {
        let active = self.active(site).expect("one of them is active");
        self.sites[site][active] = None;
        self.run_until("the other node to take over", |world| world.active(site).is_some());
        self.run_until_open();
    }

    fn restart_dead(&mut self) {
        for (site, number) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            if self.sites[site][number].is_none() {
                self.sites[site][number] = Some(node(site, number, self.setting, self.now));
            }
        }
    }

    fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now = self.now + Duration::from_millis(1);
            for (site, number) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let Some(node) = &mut self.sites[site][number] else { continue };
                node.handle_timeout(self.now);
                self.take(site, number);
            }
            for _ in 0..self.between.len() {
                let Some((to, sent)) = self.between.pop_front() else { break };
                self.hand_in(to, OUTSIDE, sent);
            }
        }
    }

    /// Carries all that a node has to send.
    fn take(&mut self, site: usize, number: usize) {
        let mut buffer = Vec::new();
        loop {
            let Some(node) = &mut self.sites[site][number] else { return };
            match node.poll_transmit(self.now, &mut buffer) {
                None => return,
                Some(Transmit::Port { port, checksum, segmentation }) => {
                    self.leave(site, port, (buffer.clone(), checksum, segmentation));
                }
                Some(transmit) => {
                    let Some(peer) = &mut self.sites[site][1 - number] else { continue };
                    let from = NodeId(number as u8);
                    let result = match transmit {
                        Transmit::Detection(_) => peer.handle_detection(self.now, from, &buffer, 255),
                        _ => peer.handle_replication(self.now, from, &buffer),
                    };
                    self.refused.extend(result.err());
                }
            }
        }
    }

    fn leave(&mut self, site: usize, port: PortId, sent: Sent) {
        if port == OUTSIDE {
            self.bytes_between += sent.0.len();
            self.between.push_back((1 - site, sent));
            return;
        }
        match ArpView::new_checked(sent.0.get(14..).unwrap_or_default()) {
            Ok(arp) if sent.0[12..14] == ethernet::ether_type::ARP.to_be_bytes() => {
                if arp.target_ip() == HOSTS[site] {
                    let reply = build::arp_reply(HOST_MAC, HOSTS[site], (arp.sender_mac(), arp.sender_ip()));
                    self.hand_in(site, INSIDE, (reply, Checksum::Valid, flow::Segmentation::default()));
                }
            }
            _ => self.arrived[site].push(sent.0),
        }
    }

    /// A frame comes to a site: its active node gets it, and frames to all get everybody.
    fn hand_in(&mut self, site: usize, port: PortId, (bytes, checksum, segmentation): Sent) {
        let is_arp = bytes[12..14] == ethernet::ether_type::ARP.to_be_bytes();
        let active = self.active(site);
        for number in 0..2 {
            if !is_arp && active != Some(number) {
                continue;
            }
            let Some(node) = &mut self.sites[site][number] else { continue };
            let mut bytes = bytes.clone();
            // The node that answered for the address last receives its frames.
            if !is_arp {
                bytes[..6].copy_from_slice(&mac(site, number, port).0);
            }
            let length_bytes = bytes.len();
            let mut frame = Frame::new(&mut bytes, 0, length_bytes, port).unwrap();
            (frame.checksum, frame.segmentation) = (checksum, segmentation);
            let mut batch: PacketBatch<'_> = core::iter::once(frame).collect();
            node.handle_packets(self.now, &mut batch);
            let frame = &batch[0];
            if let flow::Disposition::Transmit(port) = frame.disposition {
                let sent = (frame.bytes().to_vec(), frame.checksum, frame.segmentation);
                self.leave(site, port, sent);
            }
            self.take(site, number);
        }
    }

    fn send(&mut self, site: usize, ports: (u16, u16), tcp: build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (HOSTS[site], ports.0), (HOSTS[1 - site], ports.1));
        let envelope = build::Envelope { source: HOST_MAC, destination: HOST_MAC, ..build::Envelope::default() };
        let frame = envelope.tcp(&tuple, tcp, payload);
        self.hand_in(site, INSIDE, (frame, Checksum::Valid, flow::Segmentation::default()));
    }

    /// A connection from site b's host to site a's, over which `bytes` come down. Site b's host acknowledges what has
    /// arrived and nothing else, and site a's host keeps to its window. Returns the share of the bytes that the network
    /// between the sites did not carry.
    fn download(&mut self, port: u16, bytes: &[u8]) -> f64 {
        self.send(1, (port, 80), syn(), b"");
        self.run(20);
        self.send(0, (80, port), syn_ack(), b"");
        self.run(20);
        self.send(1, (port, 80), segment(tcp_flags::ACK, 1001, 5001), b"");
        self.run(20);
        self.arrived[1].clear();
        let before = self.bytes_between;
        let (mut sent_bytes, mut acknowledged_bytes, mut received) = (0, 0, Vec::new());
        for _ in 0..DOWNLOAD_MILLISECONDS_MAX {
            if sent_bytes < bytes.len() && sent_bytes < acknowledged_bytes + WINDOW_BYTES {
                let part = &bytes[sent_bytes..bytes.len().min(sent_bytes + SEGMENT_BYTES)];
                self.send(0, (80, port), segment(tcp_flags::ACK, 5001 + sent_bytes as u32, 1001), part);
                sent_bytes += part.len();
            }
            self.run(1);
            received.extend(self.received());
            let is_whole = received.len() >= bytes.len();
            if is_whole || received.len() >= acknowledged_bytes + 4 * SEGMENT_BYTES {
                acknowledged_bytes = received.len();
                let end = 5001 + acknowledged_bytes as u32;
                self.send(1, (port, 80), segment(tcp_flags::ACK, 1001, end), b"");
            }
            if is_whole {
                break;
            }
        }
        self.run(50);
        received.extend(self.received());
        assert!(received == bytes, "byte by byte: {} of {} bytes came", received.len(), bytes.len());
        1.0 - (self.bytes_between - before) as f64 / bytes.len() as f64
    }

    /// The payloads that came to site b's host.
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
    let words = core::iter::repeat_with(|| {
        state = flow::random::mix(state + 1);
        state.to_le_bytes()
    });
    words.flatten().take(200_000).collect()
}

#[test]
fn whichever_sites_node_dies_a_download_that_was_made_before_takes_as_few_bytes_as_ever() {
    for is_secured in [false, true] {
        let mut world = World::start(Setting { is_secured, ..MIRRORED });
        let content = content();
        world.download(4000, &content);
        let before = world.download(4001, &content);
        world.run_until_mirrored(200_000);
        for site in [0, 1] {
            world.kill_active(site);
            let after = world.download(4002 + site as u16, &content);
            assert!(before > 0.8 && after > before - 0.05, "site {site}: {before} before, {after} after");
        }
        assert!(world.refused.is_empty(), "{:?}", world.refused);
    }
}

#[test]
fn without_mirrors_the_caches_die_with_their_node() {
    let mut world = World::start(Setting { mirror: false, ..MIRRORED });
    let content = content();
    world.download(4000, &content);
    assert!(world.download(4001, &content) > 0.8);
    world.kill_active(0);
    let after = world.download(4002, &content);
    assert!(after < 0.05, "{after}");
    assert!(world.download(4003, &content) > 0.8);
}

#[test]
fn a_node_that_comes_back_becomes_a_mirror_and_takes_over_with_it() {
    let mut world = World::start(MIRRORED);
    let content = content();
    world.download(4000, &content);
    let before = world.download(4001, &content);
    world.run_until_mirrored(200_000);
    for turn in 0..2 {
        world.kill_active(turn);
        world.restart_dead();
        // It has the higher priority, and takes the addresses back: but not before its mirror is whole.
        world.run_until("the node to take the addresses back", |world| world.active(turn) == Some(0));
        world.run_until_mirrored(200_000);
        world.run_until_open();
        let after = world.download(4010 + turn as u16, &content);
        assert!(after > before - 0.05, "turn {turn}: {before} before, {after} after");
    }
}

#[test]
fn a_node_whose_peer_has_no_tunnel_reports_it() {
    let mut world = World::start(MIRRORED);
    let config = NodeConfig { peers: node_config(0, Options::default()).peers, ..node_config(0, Options::default()) };
    let mut stranger = Node::new(config, world.now).unwrap();
    let mut follow = std::vec![0xd1, 1, 0, 0, 0, 9];
    let error = stranger.handle_replication(world.now, NodeId(1), &follow);
    assert_eq!(error, Err(NodeError::NoTunnel(NodeId(1))));
    follow.truncate(3);
    let now = world.now;
    let active = world.active_mut(0).expect("one is active");
    let error = active.handle_replication(now, NodeId(1), &follow).map_err(|error| error.to_string());
    assert!(error.is_err_and(|error| error.contains("malformed")));
}
