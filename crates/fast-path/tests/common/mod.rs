//! A loaded fast path, and a network of three namespaces to attach it in.
//!
//! ```text
//!   client 10.1.0.2 host ── port0 10.1.0.1 gateway 10.2.0.1 port1 ── host 10.2.0.2 server
//! ```

#![allow(dead_code, reason = "each test uses a part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fast_path::{Config, DirectionPlan, Error, FastPath, Hook, NextHop, Plan};
use flow::Tuple;
use flow::wire::ip_protocol;
use packet_io::interface::{Offload, set_offload};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;

/// The time limit of every step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The gateway's interfaces: towards the client, towards the server.
pub(crate) const PORTS: [&str; 2] = ["port0", "port1"];

/// The loopback interface, on which the kernel runs programs by default. Its link address is all zero.
pub(crate) const LOOPBACK: u32 = 1;

/// The fast path, switched on and with a heartbeat. `None`, with a message, where the machine refuses eBPF.
pub(crate) fn load(config: &Config) -> Option<FastPath> {
    match FastPath::load(config) {
        Ok(mut fast_path) => {
            fast_path.set_enabled(true);
            fast_path.beat(fast_path::now());
            fast_path.set_link_address(LOOPBACK, [0; 6]).unwrap();
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

    /// Has the hosts' ends of the cables take what an XDP program redirects to the gateway's ends. A virtual cable needs an XDP program
    /// at the other end for that, or generic receive offload.
    pub(crate) fn take_redirected(&self) {
        for host in [&self.client, &self.server] {
            host.run(|| set_offload("host", Offload::GenericReceive, true).unwrap()).unwrap();
        }
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

/// Has the network do what a hook needs on virtual cables.
pub(crate) fn prepare(network: &Network, hook: Hook) {
    if hook == Hook::Xdp {
        network.take_redirected();
        // The program cannot see that somebody else is to complete a checksum, and leaves what looks so.
        for host in [&network.client, &network.server] {
            host.run(|| set_offload("host", Offload::TransmitChecksum, false).unwrap()).unwrap();
        }
    }
}

/// A bpffs of its own, unmounted with the value.
pub(crate) struct Bpffs(PathBuf);

impl Bpffs {
    pub(crate) fn mount() -> Option<Self> {
        static MOUNTED: AtomicU32 = AtomicU32::new(0);
        let number = MOUNTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("fast-path-pins-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let status = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&directory).status();
        if !status.is_ok_and(|status| status.success()) {
            packet_io::namespace::skip("a bpffs cannot be mounted");
            return None;
        }
        Some(Self(directory))
    }
}

impl Bpffs {
    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The ports of the hosts' sockets.
pub(crate) const CLIENT_PORT: u16 = 4000;
pub(crate) const SERVER_PORT: u16 = 5000;

/// The client's datagrams to the server, which sees the gateway as their source.
pub(crate) fn translated_plan(ports: [u32; 2]) -> Plan {
    let client = (address(4, 1, 2), CLIENT_PORT).into();
    let (public, server) = ((address(4, 2, 1), 6000).into(), (address(4, 2, 2), SERVER_PORT).into());
    let original = DirectionPlan {
        tuple: Tuple::new(ip_protocol::UDP, client, server),
        translated: Tuple::new(ip_protocol::UDP, public, server),
        ingress: ports[0],
        next_hop: 1,
    };
    let reply = DirectionPlan {
        tuple: original.translated.inverse(),
        translated: original.tuple.inverse(),
        ingress: ports[1],
        next_hop: 0,
    };
    Plan { directions: [original, reply], windows: None, is_liberal: false, link_addresses: [None; 2] }
}

/// The hosts' sockets.
pub(crate) struct Hosts {
    pub(crate) client: UdpSocket,
    pub(crate) server: UdpSocket,
}

impl Hosts {
    pub(crate) fn open(network: &Network) -> Self {
        let open = |host: &Namespace, side, port| {
            let socket = host.run(|| UdpSocket::bind((address(4, side, 2), port)).unwrap()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            socket
        };
        Self { client: open(&network.client, 1, CLIENT_PORT), server: open(&network.server, 2, SERVER_PORT) }
    }

    /// Whether a datagram arrives and its answer comes back.
    pub(crate) fn exchange(&self) -> bool {
        let mut buffer = [0; 16];
        self.client.send_to(b"question", (address(4, 2, 2), SERVER_PORT)).unwrap();
        let Ok((_, source)) = self.server.recv_from(&mut buffer) else { return false };
        assert_eq!(source, (address(4, 2, 1), 6000).into(), "the client is translated");
        self.server.send_to(b"answer", source).unwrap();
        self.client.recv_from(&mut buffer).is_ok_and(|(length, _)| &buffer[..length] == b"answer")
    }
}
