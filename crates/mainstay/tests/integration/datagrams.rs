//! Flows of datagrams have no end of their own: those of what a reload removes end at the reload, on a pair of gateways, whatever their
//! clients send.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::testbed::topology::{INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};
use packet_io::netlink::{Netlink, Prefix};

use crate::common::program::{Folder, Program, wait_until, write_configuration};

const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 80));
const BACKENDS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 1, 0, 20)), IpAddr::V4(Ipv4Addr::new(10, 1, 0, 21))];
const PORT: u16 = 7600;

/// A node of a pair with a service of these backends, which translates the inside to `outside`.
fn configuration(id: usize, (backends, outside): (&[IpAddr], IpAddr), more: &str) -> String {
    let (inside, first, bits) = (INSIDE[0], OUTSIDE[0], PREFIX_BITS[0]);
    let second = Ipv4Addr::new(198, 51, 100, 2);
    let backends: String =
        backends.iter().map(|backend| format!("[[service.backend]]\naddress = \"{backend}:{PORT}\"\n")).collect();
    format!(
        "chain = [\"firewall\", \"load_balancer\", \"nat\"]\n\
         [node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\n\
         addresses = [\"{first}/{bits}\", \"{second}/{bits}\", \"{SERVICE}/{bits}\"]\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         [[nat.source]]\nsource = [\"10.1.0.0/24\"]\nto = [\"{outside}\"]\n\
         [[service]]\nname = \"echo\"\naddress = \"{SERVICE}\"\nprotocol = \"udp\"\nports = [{PORT}]\non_failure = \"end\"\n{backends}\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\nmode = \"plain\"\n\
         [failure_detection]\ninterval = \"50ms\"\n{more}",
        priority = 200 - 100 * id,
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

/// Answers each datagram by the sender's address as it is seen, and by its own.
fn answer(socket: UdpSocket, own: IpAddr) {
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(format!("{} {own}", from.ip()).as_bytes(), from);
        }
    });
}

fn socket_to(namespace: &packet_io::namespace::Namespace, from: IpAddr, to: IpAddr) -> UdpSocket {
    let socket = namespace.run(|| UdpSocket::bind((from, 0))).unwrap().expect("a free port");
    socket.connect(SocketAddr::new(to, PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket
}

/// Sends a datagram on the same flow, and again while none is answered. Returns the text of the answer.
fn ask(socket: &UdpSocket) -> String {
    wait_until("an answer comes", || {
        let mut buffer = [0; 64];
        socket.send(b"who").map_err(|error| error.to_string())?;
        let bytes = socket.recv(&mut buffer).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
    })
}

fn reload(folder: &Folder, nodes: &[Program], translation: (&[IpAddr], IpAddr), more: &str) {
    for (id, node) in nodes.iter().enumerate() {
        write_configuration(folder, ["a", "b"][id], &configuration(id, translation, more));
        node.order("reload");
    }
}

fn follows_reloads(name: &str, more: &str) {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new(name);
    for backend in BACKENDS {
        let add = || Netlink::open()?.add_address("bridge", Prefix::new(backend, PREFIX_BITS[0]));
        topology.client.run(add).unwrap().expect("an address");
        answer(topology.client.run(|| UdpSocket::bind((backend, PORT))).unwrap().expect("a free port"), backend);
    }
    answer(topology.server.run(|| UdpSocket::bind((SERVER[0], PORT))).unwrap().expect("a free port"), SERVER[0]);
    let outside: [IpAddr; 2] = [OUTSIDE[0], Ipv4Addr::new(198, 51, 100, 2).into()];
    let start = |id: usize| {
        let text = configuration(id, (&BACKENDS, outside[0]), more);
        Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &text)
    };
    let a = start(0);
    a.wait_for_role("active");
    let nodes = [a, start(1)];
    wait_until("b is synchronised", || {
        let takeover = nodes[0].status().map(|status| status.takeover);
        if takeover.as_ref().is_some_and(|takeover| takeover.ready) { Ok(()) } else { Err(format!("{takeover:?}")) }
    });
    let client = socket_to(&topology.server, SERVER[0], SERVICE);
    let inside = socket_to(&topology.client, "10.1.0.10".parse().unwrap(), SERVER[0]);
    let of_backend = |address: IpAddr| format!("{} {address}", SERVER[0]);
    let seen_as = |address: IpAddr| format!("{address} {}", SERVER[0]);
    let first = ask(&client);
    // Long enough that whatever forwards established flows by itself has them.
    (0..40).for_each(|_| assert_eq!((ask(&client), ask(&inside)), (first.clone(), seen_as(outside[0]))));
    let kept = BACKENDS.into_iter().find(|address| of_backend(*address) != first).expect("there are two");
    reload(&folder, &nodes, (&[kept], outside[1]), more);
    assert_eq!(ask(&client), of_backend(kept), "the removed backend has no flows");
    assert_eq!(ask(&inside), seen_as(outside[1]), "the removed address has no flows");
    // The other node continues the new flows, not the old ones.
    let [a, b] = nodes;
    a.kill();
    b.wait_for_role("active");
    assert_eq!((ask(&client), ask(&inside)), (of_backend(kept), seen_as(outside[1])));
}

#[test]
fn flows_of_datagrams_of_a_removed_backend_or_address_end_at_the_reload() {
    follows_reloads("datagrams", "");
}

#[test]
fn flows_of_datagrams_that_the_kernel_forwards_end_at_the_reload_too() {
    follows_reloads("datagrams-fast", "[fast_path]\nenabled = true\n");
}
