//! The gateway as an operator runs it, on each kind of port and alone, with real traffic through it.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::program::{Folder, PATIENCE, Program, wait_for, wait_until};
use lab::testbed::topology::{CLIENT, INTERFACES, OUTSIDE, SERVER, Topology};
use packet_io::IoError;
use packet_io::af_xdp::{AfXdpIo, PortConfig};
use packet_io::interface::{Offload, set_offload};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};

/// Bytes sent each way.
const TRANSFER_BYTES: usize = 2 << 20;

/// A gateway of two ports, whose inside may open connections, translated to the outside address.
fn config(inside: (&str, &str, &str), outside_backend: &str, client: IpAddr) -> String {
    let (interface, backend, address) = inside;
    let [_, outside, _] = INTERFACES;
    format!(
        r#"
chain = ["firewall", "nat"]
[node]
id = 0
nodes = 1
control_socket = "CONTROL"
[[port]]
name = "inside"
interface = "{interface}"
backend = "{backend}"
addresses = ["{address}"]
[[port]]
name = "outside"
interface = "{outside}"
backend = "{outside_backend}"
addresses = ["{0}/24"]
[[firewall.rule]]
name = "out"
from = "inside"
action = "accept"
[[nat.source]]
source = ["{client}"]
to = ["{0}"]
"#,
        OUTSIDE[0]
    )
}

fn topology() -> Option<Topology> {
    packet_io::namespace::for_tests()?;
    Some(Topology::build().expect("the network can be built"))
}

/// Sends bytes to the server and back again, from a connection that is opened as soon as the gateway lets it.
fn echo_through(topology: &Topology, client: &Namespace) {
    let server = SocketAddr::new(SERVER[0], 7500);
    let listener = topology.server.run(|| TcpListener::bind(server)).unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), OUTSIDE[0], "the source is translated");
            let mut bytes = vec![0; TRANSFER_BYTES];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let begin = Instant::now();
        let mut stream = loop {
            match client.run(|| TcpStream::connect_timeout(&server, Duration::from_secs(1))).unwrap() {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "nobody answers: {error}"),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent: Vec<u8> = (0..TRANSFER_BYTES).map(|at| ((at * 31) >> 7) as u8).collect();
        let mut received = vec![0; TRANSFER_BYTES];
        let mut writer = stream.try_clone().unwrap();
        scope.spawn(move || writer.write_all(&sent).unwrap());
        stream.read_exact(&mut received).unwrap();
        assert!(received.iter().enumerate().all(|(at, byte)| *byte == ((at * 31) >> 7) as u8));
    });
}

#[test]
fn tcp_passes_a_gateway_by_af_xdp_and_its_successor_after_a_kill() {
    let Some(topology) = topology() else { return };
    let node = &topology.nodes[0];
    if let Err(error @ IoError::NotPermitted { .. }) =
        node.run(|| AfXdpIo::open(&[PortConfig::new(INTERFACES[0])])).unwrap()
    {
        packet_io::namespace::skip(format_args!("{error}"));
        return;
    }
    for host in [&topology.client, &topology.server] {
        host.run(|| set_offload("to-a", Offload::TransmitChecksum, false)).unwrap().unwrap();
    }
    let config = config((INTERFACES[0], "af_xdp", "10.1.0.1/24"), "af_xdp", CLIENT[0]);
    let folder = Folder::new("af-xdp");
    let gateway = Program::start(node, &folder, "first", "gateway", &config);
    echo_through(&topology, &topology.client);
    gateway.kill();
    let _successor = Program::start(node, &folder, "successor", "gateway", &config);
    echo_through(&topology, &topology.client);
}

#[test]
fn the_kernel_routes_into_a_gateway_that_sends_on_by_a_packet_socket() {
    let Some(topology) = topology() else { return };
    let node = &topology.nodes[0];
    let client: IpAddr = "10.3.0.2".parse().unwrap();
    let config = config(("tun0", "tun", "10.3.0.1/24"), "af_packet", client);
    let folder = Folder::new("tun");
    let mut gateway = Program::start(node, &folder, "gateway", "gateway", &config);
    let begin = Instant::now();
    while node.run(|| Netlink::open().unwrap().interface("tun0").is_err()).unwrap() {
        if gateway.has_ended().is_some() {
            packet_io::namespace::skip(format_args!("the gateway cannot make a tunnel device here: {}", gateway.log()));
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "no tunnel device came");
        thread::sleep(Duration::from_millis(10));
    }
    node.run(|| {
        let mut netlink = Netlink::open().unwrap();
        netlink.add_address("tun0", Prefix::new(client, 24)).unwrap();
        let outside = Prefix::new("198.51.100.0".parse::<IpAddr>().unwrap(), 24);
        netlink.add_route(outside, "10.3.0.1".parse().unwrap()).unwrap();
    })
    .unwrap();
    // The node's host is the client: what it sends is routed into the node and comes back translated.
    echo_through(&topology, node);
}

/// A bpffs, unmounted with the value.
struct Bpffs<'a>(&'a Path);

impl<'a> Bpffs<'a> {
    /// `None`: this machine does not allow it.
    fn mount(directory: &'a Path) -> Option<Self> {
        let status = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(directory).status();
        status.is_ok_and(|status| status.success()).then_some(Self(directory))
    }
}

impl Drop for Bpffs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// A datagram that has not arrived by then never does.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// What hosts exchange while a test does something else.
#[derive(Default)]
struct Exchange {
    is_over: AtomicBool,
    /// Datagrams that the client has sent, and those that came back to it.
    sent: AtomicU64,
    returned: AtomicU64,
    /// Messages that came back on the TCP connection.
    echoed: AtomicU64,
}

impl Exchange {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Waits until this many more datagrams and messages came back.
    fn wait_for_more(&self, what: &str, more: u64) {
        let counts = || [&self.returned, &self.echoed].map(|count| count.load(Ordering::Relaxed));
        let before = counts();
        wait_for(what, || counts().iter().zip(before).all(|(now, before)| *now >= before + more));
    }

    /// Numbered datagrams, one a millisecond, each sent back by the server. No two are on their way at a time.
    fn datagrams(&self, topology: &Topology, server: SocketAddr) {
        let bind = |address: IpAddr, port| UdpSocket::bind((address, port)).unwrap();
        let far = topology.server.run(|| bind(SERVER[0], server.port())).unwrap();
        let near = topology.client.run(|| bind(CLIENT[0], 0)).unwrap();
        [&far, &near].into_iter().for_each(|socket| socket.set_read_timeout(Some(LOST_AFTER)).unwrap());
        near.connect(server).unwrap();
        let mut buffer = [0; 8];
        while self.goes_on() {
            let number = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
            near.send(&number.to_be_bytes()).unwrap();
            if let Ok((_, from)) = far.recv_from(&mut buffer) {
                far.send_to(&buffer, from).unwrap();
                if near.recv(&mut buffer).is_ok() && u64::from_be_bytes(buffer) == number {
                    self.returned.fetch_add(1, Ordering::Relaxed);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Messages on one connection, each sent back by the server.
    fn messages(&self, mut near: TcpStream, mut far: TcpStream) {
        [&near, &far].into_iter().for_each(|stream| stream.set_read_timeout(Some(PATIENCE)).unwrap());
        let mut bytes = [0; 1000];
        while self.goes_on() {
            let message = [self.echoed.load(Ordering::Relaxed) as u8; 1000];
            near.write_all(&message).unwrap();
            far.read_exact(&mut bytes).unwrap();
            far.write_all(&bytes).unwrap();
            near.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, message);
            self.echoed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Has the hosts' ends of the cables to the first node take what XDP redirects into them, and send whole checksums.
fn prepare_for_xdp(topology: &Topology) {
    for host in [&topology.client, &topology.server] {
        host.run(|| {
            set_offload("to-a", Offload::GenericReceive, true).unwrap();
            set_offload("to-a", Offload::TransmitChecksum, false).unwrap();
        })
        .unwrap();
    }
}

#[test]
fn tcp_passes_the_fast_path_at_xdp_and_at_tc_where_ports_cannot_have_xdp() {
    let Some(topology) = topology() else { return };
    let config =
        config((INTERFACES[0], "af_packet", "10.1.0.1/24"), "af_packet", CLIENT[0]) + "[fast_path]\nhook = \"xdp\"\n";
    let folder = Folder::new("xdp");
    let start = |name| {
        let gateway = Program::start(&topology.nodes[0], &folder, name, "gateway", &config);
        gateway.wait_for_role("active");
        gateway
    };
    // The other ends of the cables would not take what XDP redirects.
    let gateway = start("cables");
    let Some(fast_path) = gateway.status().and_then(|status| status.fast_path) else {
        packet_io::namespace::skip("the kernel does not forward established connections here");
        return;
    };
    assert_eq!(fast_path.hook, "tc");
    let reason = fast_path.hook_reason.unwrap_or_default();
    assert!(reason.contains("the kernel drops what XDP redirects to"), "{reason}");
    assert!(gateway.log().contains(&reason), "{}", gateway.log());
    echo_through(&topology, &topology.client);
    drop(gateway);

    prepare_for_xdp(&topology);
    let gateway = start("redirected");
    let status = || gateway.status().and_then(|status| status.fast_path).expect("it has a fast path");
    assert_eq!((status().hook.as_str(), status().hook_reason), ("xdp", None), "{}", gateway.log());
    echo_through(&topology, &topology.client);
    wait_for("the kernel has forwarded the transfer", || status().bytes > TRANSFER_BYTES as u64);

    // Half the checksum of such a frame is missing when XDP sees it: the gateway forwards these, and none is lost.
    for host in [&topology.client, &topology.server] {
        host.run(|| set_offload("to-a", Offload::TransmitChecksum, true)).unwrap().unwrap();
    }
    echo_through(&topology, &topology.client);
    let partial = status().outcomes.iter().find(|count| count.outcome == "partial").map(|count| count.packets);
    assert!(partial.is_some_and(|packets| packets > 100), "{:?}", status());
}

#[test]
fn established_connections_lose_no_packet_while_a_gateway_without_peer_is_restarted() {
    assert_no_packet_is_lost_in_restarts("tc");
}

#[test]
fn established_connections_at_xdp_lose_no_packet_while_a_gateway_without_peer_is_restarted() {
    assert_no_packet_is_lost_in_restarts("xdp");
}

fn assert_no_packet_is_lost_in_restarts(hook: &str) {
    let Some(topology) = topology() else { return };
    prepare_for_xdp(&topology);
    let node = &topology.nodes[0];
    let (folder, mounted) = (Folder::new(&format!("grace-{hook}")), Folder::new(&format!("bpffs-{hook}")));
    let Some(_bpffs) = Bpffs::mount(&mounted) else {
        packet_io::namespace::skip("a bpffs cannot be mounted");
        return;
    };
    let config = config((INTERFACES[0], "af_packet", "10.1.0.1/24"), "af_packet", CLIENT[0])
        + &format!(
            "[fast_path]\nhook = \"{hook}\"\nrestart_grace = \"30s\"\npin_directory = {:?}\n",
            mounted.join("pins")
        );
    let start = || Program::start(node, &folder, "gateway", "gateway", &config);
    let mut gateway = start();
    gateway.wait_for_role("active");
    if gateway.status().is_some_and(|status| status.fast_path.is_none()) {
        packet_io::namespace::skip("the kernel does not forward established connections here");
        return;
    }
    assert_eq!(gateway.status().and_then(|status| status.fast_path).map(|path| path.hook).as_deref(), Some(hook));
    let server = SocketAddr::new(SERVER[0], 7600);
    let listener = topology.server.run(|| TcpListener::bind(server)).unwrap().unwrap();
    let near = topology.client.run(|| TcpStream::connect_timeout(&server, PATIENCE)).unwrap().unwrap();
    let (far, _) = listener.accept().unwrap();
    let exchange = &Exchange::default();
    let installed = |gateway: &Program| {
        wait_until("both connections are installed", || {
            let path = gateway.status().and_then(|status| status.fast_path);
            let is_installed = path.as_ref().is_some_and(|path| path.forwarding && path.connections == 2);
            if is_installed { Ok(()) } else { Err(format!("{path:?}\n{}", gateway.log())) }
        });
    };
    let log = thread::scope(|scope| {
        scope.spawn(|| exchange.datagrams(&topology, server));
        scope.spawn(|| exchange.messages(near, far));
        let ends: [fn(Program); 2] = [Program::kill, |gateway| drop(gateway.terminate())];
        for end in ends {
            installed(&gateway);
            end(gateway);
            exchange.wait_for_more("the kernel goes on", 200);
            gateway = start();
            gateway.wait_for_role("active");
            exchange.wait_for_more("the gateway goes on", 200);
        }
        installed(&gateway);
        exchange.is_over.store(true, Ordering::Relaxed);
        format!("{:?}\n{}", gateway.status().map(|status| status.drops), gateway.log())
    });
    let [sent, returned] = [&exchange.sent, &exchange.returned].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(returned, sent, "datagrams were lost: {log}");
}
