//! The gateway as an operator runs it, on each kind of port, with real TCP through it.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::program::{Folder, PATIENCE, Program};
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
