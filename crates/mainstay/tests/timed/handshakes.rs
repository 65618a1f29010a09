//! Real clients and servers around a SYN proxy: a client that reuses its port, and a path that takes smaller packets than its ends know.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use lab::testbed::topology::{CLIENT, INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, SERVER, Topology};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;

use crate::common::program::{Folder, PATIENCE, Program};

const PORT: u16 = 8080;
/// The port that the client always connects from.
const CLIENT_PORT: u16 = 40_000;
/// Connections one after another from that port.
const CONNECTIONS: usize = 10;
/// A client's SYN may be lost once, which costs a second.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// What the server sends over the small link, and what that takes.
const DOWNLOAD_BYTES: usize = 300_000;
const SMALL_MTU_BYTES: u32 = 1000;
/// The network behind a router on the client's side.
const BEHIND: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2))];

fn configuration() -> String {
    let (inside, outside, client, server, bits) = (INSIDE[0], OUTSIDE[0], CLIENT[0], SERVER[0], PREFIX_BITS[0]);
    format!(
        "[node]\nid = 0\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\"]\n\
         [[route]]\nto = \"10.9.0.0/24\"\nvia = \"{client}\"\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         [[nat.source]]\nsource = [\"10.0.0.0/8\"]\nto = [\"{outside}\"]\n\
         [[syn_proxy.rule]]\nname = \"all\"\ndestination = [\"{server}\"]\nports = [{PORT}]\nmode = \"always\"\n"
    )
}

/// Has each client of a listener in the server's namespace served by `serve`.
fn listen(topology: &Topology, serve: fn(TcpStream)) {
    let listener = topology.server.run(|| TcpListener::bind((SERVER[0], PORT))).unwrap().expect("a free port");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            thread::spawn(move || serve(stream));
        }
    });
}

fn start(topology: &Topology, folder: &Folder) -> Program {
    let gateway = Program::start(&topology.nodes[0], folder, "a", "gateway", &configuration());
    gateway.wait_for_role("active");
    gateway
}

fn connect(from: &Namespace, gateway: &Program) -> TcpStream {
    let server = SocketAddr::new(SERVER[0], PORT);
    let stream = from.run(|| TcpStream::connect_timeout(&server, CONNECT_MAX)).unwrap();
    let stream = stream.unwrap_or_else(|error| panic!("the server answers: {error}\n{}", gateway.log()));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a client something, waits until it has sent something, and closes without reading: the kernel resets the client.
fn serve_and_reset(mut stream: TcpStream) {
    let _ = stream.write_all(b"hello").and_then(|()| stream.peek(&mut [0; 1]));
}

#[test]
fn a_client_whose_connection_was_reset_connects_once_more_from_the_same_port() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("same-port");
    let gateway = start(&topology, &folder);
    listen(&topology, serve_and_reset);
    let only_port = || sysctl::write("net/ipv4/ip_local_port_range", &format!("{CLIENT_PORT} {CLIENT_PORT}"));
    topology.client.run(only_port).unwrap().expect("the port range can be set");
    for number in 0..CONNECTIONS {
        let mut stream = connect(&topology.client, &gateway);
        assert_eq!(stream.local_addr().unwrap().port(), CLIENT_PORT);
        let mut hello = [0; 5];
        let read = stream.read_exact(&mut hello);
        assert!(read.is_ok() && &hello == b"hello", "connection {number}: {read:?}\n{}", gateway.log());
        stream.write_all(b"bye").unwrap();
        // The reset frees the port at once.
        let ended = stream.read(&mut hello);
        assert!(ended.is_err(), "connection {number} is reset: {ended:?}");
    }
    let rule = gateway.status().expect("it answers").syn_proxy.into_iter().next().expect("a rule");
    assert_eq!(rule.accepted, CONNECTIONS as u64, "{rule:?}");
}

/// Sends the whole download to a client that has asked for it.
fn upload(mut stream: TcpStream) {
    let mut question = [0; 4];
    let _ = stream.read_exact(&mut question).and_then(|()| stream.write_all(&vec![7; DOWNLOAD_BYTES]));
}

fn download(from: &Namespace, gateway: &Program, what: &str) {
    let mut stream = connect(from, gateway);
    stream.write_all(b"send").unwrap();
    let (mut bytes, mut received) = (vec![0; 65_536], 0);
    while received < DOWNLOAD_BYTES {
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => received += count,
            end => panic!("{what}: {received} bytes, then {end:?}\n{}", gateway.log()),
        }
    }
}

/// A host behind the client, which becomes a router. The link between them takes less than the host knows.
fn build_host_behind(topology: &Topology) -> Namespace {
    let host = Namespace::new().expect("a namespace");
    let lay = || {
        let mut netlink = Netlink::open()?;
        netlink.create_veth("to-host", "eth", &host)?;
        netlink.set_mtu("to-host", SMALL_MTU_BYTES)?;
        netlink.add_address("to-host", Prefix::new(BEHIND[0], 24))?;
        netlink.set_up("to-host", true)?;
        sysctl::write("net/ipv4/ip_forward", "1")
    };
    topology.client.run(lay).unwrap().expect("a link");
    let address = || {
        let mut netlink = Netlink::open()?;
        netlink.add_address("eth", Prefix::new(BEHIND[1], 24))?;
        netlink.set_up("eth", true)?;
        netlink.add_route(Prefix::DEFAULT_V4, BEHIND[0])
    };
    host.run(address).unwrap().expect("an address");
    host
}

#[test]
fn a_download_through_a_smaller_link_arrives_whole() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("small-link");
    let host = build_host_behind(&topology);
    listen(&topology, upload);
    {
        let gateway = start(&topology, &folder);
        download(&host, &gateway, "a router behind the gateway reports its link");
    }
    // What the server has learnt of the path to the translated address is forgotten before it is learnt from the gateway.
    let forget = || sysctl::write("net/ipv4/route/flush", "1");
    topology.server.run(forget).unwrap().expect("routes can be flushed");
    let shrink = || Netlink::open()?.set_mtu(INTERFACES[0], SMALL_MTU_BYTES);
    topology.nodes[0].run(shrink).unwrap().expect("an MTU");
    let gateway = start(&topology, &folder);
    download(&topology.client, &gateway, "the gateway reports its own link");
}
