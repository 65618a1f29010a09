//! Large packets through a gateway that translates, with real hosts and real routers: path MTU discovery, fragments.
//!
//! ```text
//!   client ── router ══ router ── gateway ── router ══ router ── server
//!     link 0      link 1     link 2     link 3      link 4     link 5
//! ```
//! One link of each network is narrower than the others, and neither host is on it: only ICMP reports it.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::program::{Folder, PATIENCE, Program, until};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;

const HOSTS: usize = 7;
const GATEWAY: usize = 3;
const SERVER: usize = HOSTS - 1;
const NARROW_MTU_BYTES: u32 = 1300;
const BULK_BYTES: usize = 2_000_000;
const DATAGRAM_BYTES: usize = 20_000;

/// The addresses on a link: 1 is the end towards the client, 2 the one towards the server.
fn addresses(link: usize, end: u8) -> [IpAddr; 2] {
    let link = u8::try_from(link).unwrap();
    [Ipv4Addr::new(10, 50, link, end).into(), Ipv6Addr::new(0xfd50, 0, 0, link.into(), 0, 0, 0, end.into()).into()]
}

fn networks(link: usize) -> [Prefix; 2] {
    let [v4, v6] = addresses(link, 0);
    [Prefix::new(v4, 24), Prefix::new(v6, 64)]
}

/// The row of hosts. The gateway's process and its files are gone when the value is.
struct Network {
    hosts: Vec<Namespace>,
    gateway: Option<Program>,
    folder: Folder,
}

impl Network {
    /// A network whose `narrow` link takes [`NARROW_MTU_BYTES`], its gateway running. `port_options` goes into the
    /// configuration of each of the gateway's ports. `None`, said aloud, where the machine forbids namespaces.
    fn new(name: &str, narrow: usize, port_options: &str) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let hosts = (0..HOSTS).map(|_| Namespace::new().unwrap()).collect();
        let mut network = Self { hosts, gateway: None, folder: Folder::new(name) };
        for (index, host) in network.hosts.iter().enumerate() {
            host.run(|| {
                sysctl::quieten_ipv6().unwrap();
                let is_router = !matches!(index, 0 | GATEWAY | SERVER);
                let forwards = if is_router { "1" } else { "0" };
                sysctl::write("net/ipv4/ip_forward", forwards).unwrap();
                sysctl::write("net/ipv6/conf/all/forwarding", forwards).unwrap();
            })
            .unwrap();
        }
        for link in 0..HOSTS - 1 {
            network.lay_cable(link, if link == narrow { NARROW_MTU_BYTES } else { 1500 });
        }
        (0..HOSTS).filter(|host| *host != GATEWAY).for_each(|host| network.add_routes(host));
        network.start_gateway(port_options);
        Some(network)
    }

    /// The cable to the right of a host; the gateway's ends of cables carry no addresses.
    fn lay_cable(&self, link: usize, mtu_bytes: u32) {
        let (left, right) = (&self.hosts[link], &self.hosts[link + 1]);
        left.run(|| Netlink::open().unwrap().create_veth("right", "left", right).unwrap()).unwrap();
        for (host, name, end, number) in [(left, "right", 1, link), (right, "left", 2, link + 1)] {
            host.run(|| {
                let mut netlink = Netlink::open().unwrap();
                netlink.set_mtu(name, mtu_bytes).unwrap();
                netlink.set_up(name, true).unwrap();
                for (address, network) in addresses(link, end).into_iter().zip(networks(link)) {
                    if number != GATEWAY {
                        netlink.add_address(name, Prefix::new(address, network.length_bits)).unwrap();
                    }
                }
            })
            .unwrap();
        }
    }

    fn add_routes(&self, host: usize) {
        let to_the_left = (0..host.saturating_sub(1)).map(|link| (link, addresses(host - 1, 1)));
        let to_the_right = (host + 1..HOSTS - 1).map(|link| (link, addresses(host, 2)));
        self.hosts[host]
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                for (link, gateways) in to_the_left.clone().chain(to_the_right.clone()) {
                    for (network, gateway) in networks(link).into_iter().zip(gateways) {
                        netlink.add_route(network, gateway).unwrap();
                    }
                }
            })
            .unwrap();
    }

    fn start_gateway(&mut self, port_options: &str) {
        let mut text = "[node]\nid = 0\ncontrol_socket = \"CONTROL\"\n".to_owned();
        for (name, interface, link, end) in [("inside", "left", GATEWAY - 1, 2), ("outside", "right", GATEWAY, 1)] {
            let [v4, v6] = addresses(link, end);
            text += &format!(
                "[[port]]\nname = \"{name}\"\ninterface = \"{interface}\"\naddresses = [\"{v4}/24\", \"{v6}/64\"]\n{port_options}\n"
            );
        }
        for (links, via) in
            [(0..GATEWAY - 1, addresses(GATEWAY - 1, 1)), (GATEWAY + 1..HOSTS - 1, addresses(GATEWAY, 2))]
        {
            for (network, via) in links.flat_map(|link| networks(link).into_iter().zip(via)) {
                text += &format!("[[route]]\nto = \"{network}\"\nvia = \"{via}\"\n");
            }
        }
        text += "[[firewall.rule]]\nname = \"out\"\nfrom = \"inside\"\naction = \"accept\"\n";
        for (client, shared) in networks(0).into_iter().zip(addresses(GATEWAY, 1)) {
            text += &format!("[[nat.source]]\nsource = [\"{client}\"]\nto = [\"{shared}\"]\n");
        }
        let gateway = Program::start(&self.hosts[GATEWAY], &self.folder, "gateway", "gateway", &text);
        gateway.wait_for_role("active");
        self.gateway = Some(gateway);
    }

    /// The value of one of the gateway's counters.
    fn counter(&self, name: &str) -> f64 {
        let samples = self.gateway.as_ref().expect("it runs").client().counters().unwrap();
        samples.iter().filter(|sample| sample.name == name).map(|sample| sample.value).sum()
    }

    /// The client connects, and one of the two sends much.
    fn bulk(&self, family: usize, client_sends: bool) {
        let server = SocketAddr::new(addresses(HOSTS - 2, 2)[family], 7000);
        // A child of another test has the last listener until it has become another program.
        let bind = || self.hosts[SERVER].run(|| TcpListener::bind(server).ok()).unwrap();
        let listener = until("the server's port is free", bind);
        let client = self.hosts[0].run(|| TcpStream::connect_timeout(&server, PATIENCE).unwrap()).unwrap();
        let (served, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), addresses(GATEWAY, 1)[family], "the server sees the shared address");
        let (mut sender, mut receiver) = if client_sends { (client, served) } else { (served, client) };
        sender.set_write_timeout(Some(PATIENCE)).unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent: Vec<u8> = (0..BULK_BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
        let expected = sent.clone();
        let writer = thread::spawn(move || sender.write_all(&sent));
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).expect("the transfer does not stall");
        writer.join().unwrap().expect("all of it is taken");
        assert!(received == expected, "{} bytes arrived", received.len());
    }

    /// A large datagram goes to the server and one comes back, both in pieces. Where a router has to report the narrow
    /// link first, as for IPv6, the first ones are lost.
    fn datagrams(&self, family: usize, bytes: usize) {
        let server = SocketAddr::new(addresses(HOSTS - 2, 2)[family], 7001);
        let any =
            SocketAddr::new(if family == 0 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }, 0);
        let serving = self.hosts[SERVER].run(|| UdpSocket::bind(server).unwrap()).unwrap();
        let asking = self.hosts[0].run(|| UdpSocket::bind(any).unwrap()).unwrap();
        for socket in [&serving, &asking] {
            socket.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
        }
        let question: Vec<u8> = (0..bytes).map(|at| (at * 11 + at / 253) as u8).collect();
        let mut buffer = vec![0; 65_536];
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < PATIENCE, "no datagram of {bytes} bytes came back whole");
            // A datagram larger than the known path MTU is an error for its sender, who sends again.
            let _ = asking.send_to(&question, server);
            let Ok((length, from)) = serving.recv_from(&mut buffer) else { continue };
            assert!(buffer[..length] == question, "the server gets what was sent");
            assert_eq!(from.ip(), addresses(GATEWAY, 1)[family], "from the shared address");
            let _ = serving.send_to(&question, from);
            let Ok((length, from)) = asking.recv_from(&mut buffer) else { continue };
            assert!(buffer[..length] == question && from == server, "the client gets what the server sent");
            return;
        }
    }
}

#[test]
fn path_mtu_discovery_and_fragments_work_through_a_narrow_link_outside() {
    let Some(network) = Network::new("narrow-outside", 4, "") else { return };
    for family in [0, 1] {
        network.bulk(family, true);
        network.bulk(family, false);
        network.datagrams(family, DATAGRAM_BYTES);
    }
}

#[test]
fn path_mtu_discovery_and_fragments_work_through_a_narrow_link_inside() {
    let Some(network) = Network::new("narrow-inside", 1, "") else { return };
    for family in [0, 1] {
        network.bulk(family, false);
        network.bulk(family, true);
        network.datagrams(family, DATAGRAM_BYTES);
    }
}

#[test]
fn the_gateway_reports_its_own_narrow_link_and_fragments_what_it_may() {
    let Some(network) = Network::new("narrow-gateway", 3, "") else { return };
    for family in [0, 1] {
        network.bulk(family, true);
        network.bulk(family, false);
        network.datagrams(family, DATAGRAM_BYTES);
    }
    assert!(network.counter("mainstay_icmp_errors_sent_total") >= 2.0, "of either family");
    // From now on the client's packets may be cut on the way.
    network.hosts[0].run(|| sysctl::write("net/ipv4/ip_no_pmtu_disc", "1").unwrap()).unwrap();
    network.hosts[0].run(|| sysctl::write("net/ipv4/route/flush", "1")).unwrap().ok();
    let before = network.counter("mainstay_fragmented_packets_total");
    let started = Instant::now();
    while network.counter("mainstay_fragmented_packets_total") == before {
        assert!(started.elapsed() < PATIENCE, "nothing is cut");
        network.datagrams(0, 1400);
    }
}

#[test]
fn clamped_segments_need_no_path_mtu_discovery() {
    let Some(network) = Network::new("clamped", 4, "mss_clamp = 1240") else { return };
    let before = network.narrow_link_refusals();
    for family in [0, 1] {
        network.bulk(family, true);
        network.bulk(family, false);
    }
    assert_eq!(network.narrow_link_refusals(), before, "no segment was too large for the narrow link");
}

impl Network {
    /// Packets that the routers beside the narrow link outside found too large for it, by their own count.
    fn narrow_link_refusals(&self) -> u64 {
        let of_host = |host: usize| -> u64 {
            self.hosts[host]
                .run(|| {
                    let v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
                    let too_big = v6.lines().find_map(|line| line.strip_prefix("Ip6InTooBigErrors"));
                    let v4 = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
                    let mut ip = v4.lines().filter(|line| line.starts_with("Icmp:"));
                    let (names, values) = (ip.next().unwrap_or_default(), ip.next().unwrap_or_default());
                    let unreachable =
                        names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "OutDestUnreachs");
                    let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
                    number(too_big.unwrap_or_default()) + unreachable.map_or(0, |(_, value)| number(value))
                })
                .unwrap()
        };
        of_host(GATEWAY + 1) + of_host(GATEWAY + 2)
    }
}
