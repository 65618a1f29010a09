//! A loaded fast path, and a network of three namespaces to attach it in.
//!
//! ```text
//!   client 10.1.0.2 host ── port0 10.1.0.1 gateway 10.2.0.1 port1 ── host 10.2.0.2 server
//! ```

#![allow(dead_code, reason = "each test uses a part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use fast_path::{Config, Error, FastPath, NextHop};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;

/// The time limit of every step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The gateway's interfaces: towards the client, towards the server.
pub(crate) const PORTS: [&str; 2] = ["port0", "port1"];

/// The fast path, switched on and with a heartbeat. `None`, with a message, where the machine refuses eBPF.
pub(crate) fn load(config: &Config) -> Option<FastPath> {
    match FastPath::load(config) {
        Ok(fast_path) => {
            fast_path.set_enabled(true);
            fast_path.beat(fast_path::now());
            Some(fast_path)
        }
        Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. })) => {
            packet_io::namespace::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// An address of a side (1: the client's, 2: the server's), IPv4 or IPv6. Host 1 is the gateway.
pub(crate) fn address(version: u8, side: u8, host: u8) -> IpAddr {
    match version {
        4 => Ipv4Addr::new(10, side, 0, host).into(),
        _ => Ipv6Addr::new(0xfd00 + u16::from(side), 0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

fn prefixes(side: u8, host: u8) -> [Prefix; 2] {
    [Prefix::new(address(4, side, host), 24), Prefix::new(address(6, side, host), 64)]
}

/// Client, gateway and server. The gateway's kernel does not forward.
pub(crate) struct Network {
    pub(crate) client: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) server: Namespace,
}

impl Network {
    /// `None`, with a message, where the machine forbids namespaces.
    pub(crate) fn new() -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let [client, gateway, server] = std::array::from_fn(|_| Namespace::new().unwrap());
        for namespace in [&client, &gateway, &server] {
            namespace.run(|| sysctl::quieten_ipv6().unwrap()).unwrap();
        }
        for (end, side, port) in [(&client, 1, PORTS[0]), (&server, 2, PORTS[1])] {
            gateway.run(|| connect(end, side, port)).unwrap();
            end.run(|| configure_host(side)).unwrap();
        }
        for (end, interface) in [(&client, "host"), (&gateway, "port0"), (&gateway, "port1"), (&server, "host")] {
            end.run(|| wait_until_running(interface)).unwrap();
        }
        Some(Self { client, gateway, server })
    }

    /// The indices of the gateway's interfaces.
    pub(crate) fn ports(&self) -> [u32; 2] {
        let index = |port: &str| fast_path::interface_index(port).unwrap();
        self.gateway.run(|| PORTS.map(index)).unwrap()
    }

    /// The next hops through the gateway's interfaces: to the client, to the server.
    pub(crate) fn next_hops(&self) -> [NextHop; 2] {
        let mac = |namespace: &Namespace, name: &str| {
            namespace.run(|| Netlink::open().unwrap().interface(name).unwrap().mac).unwrap()
        };
        let hosts = [&self.client, &self.server];
        let [client, server] = self.ports();
        let hop =
            |side: usize, index| NextHop::new(index, mac(&self.gateway, PORTS[side]), mac(hosts[side], "host"), 1500);
        [hop(0, client), hop(1, server)]
    }

    /// Attaches the fast path to the gateway's interfaces, and sets its next hops: 0 to the client, 1 to the server.
    pub(crate) fn attach(&self, fast_path: &mut FastPath) {
        self.attach_as(fast_path, false);
    }

    /// As [`Network::attach`]; packets go to the hosts' ends of the cables at once if `to_peer`.
    pub(crate) fn attach_as(&self, fast_path: &mut FastPath, to_peer: bool) {
        for (index, hop) in (0..).zip(self.next_hops()) {
            fast_path.set_next_hop(index, Some(&NextHop { to_peer, ..hop })).unwrap();
        }
        self.gateway.run(|| PORTS.into_iter().for_each(|port| fast_path.attach(port).unwrap())).unwrap();
    }
}

/// In the gateway: a cable to a host.
fn connect(end: &Namespace, side: u8, port: &str) {
    let mut netlink = Netlink::open().unwrap();
    netlink.create_veth(port, "host", end).unwrap();
    netlink.set_up(port, true).unwrap();
    for prefix in prefixes(side, 1) {
        netlink.add_address(port, prefix).unwrap();
    }
}

/// In a host: its addresses, and routes through the gateway.
fn configure_host(side: u8) {
    let mut netlink = Netlink::open().unwrap();
    netlink.set_up("host", true).unwrap();
    for prefix in prefixes(side, 2) {
        netlink.add_address("host", prefix).unwrap();
    }
    let routers = prefixes(side, 1).map(|prefix| prefix.address);
    netlink.add_route(Prefix::DEFAULT_V4, routers[0]).unwrap();
    netlink.add_route(Prefix::DEFAULT_V6, routers[1]).unwrap();
}

/// The kernel activates a new cable a moment after both ends are up, and drops earlier frames.
fn wait_until_running(interface: &str) {
    let mut netlink = Netlink::open().unwrap();
    let begin = Instant::now();
    while !netlink.interface(interface).unwrap().running {
        assert!(begin.elapsed() < PATIENCE, "{interface} does not come into service");
        std::thread::yield_now();
    }
}
