//! QUIC packets of a client that changes its port reach the backend that their connection identifier names, on a pair of gateways.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::testbed::topology::{INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};
use packet_io::netlink::{Netlink, Prefix};

use crate::common::program::{Folder, Program, wait_until};

const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 80));
const BACKENDS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 1, 0, 20)), IpAddr::V4(Ipv4Addr::new(10, 1, 0, 21))];
const PORT: u16 = 443;

fn configuration(id: usize) -> String {
    let (inside, outside, bits) = (INSIDE[0], OUTSIDE[0], PREFIX_BITS[0]);
    let backends: String = (1..)
        .zip(BACKENDS)
        .map(|(id, backend)| format!("[[service.backend]]\naddress = \"{backend}:{PORT}\"\nserver_id = \"000{id}\"\n"))
        .collect();
    format!(
        "[node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\", \"{SERVICE}/{bits}\"]\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         [[service]]\nname = \"quic\"\naddress = \"{SERVICE}\"\nprotocol = \"udp\"\nports = [{PORT}]\n\
         [service.quic]\nconfig = 1\nserver_id_bytes = 2\nnonce_bytes = 5\n{backends}\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\nmode = \"plain\"\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        priority = 200 - 100 * id,
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

/// A server that answers each packet by its connection identifier: number of the configuration, its own identifier, and a nonce.
fn serve(socket: UdpSocket, id: u8) {
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&[1 << 5 | 7, 0, id, b'n', b'o', b'n', b'c', b'e'], from);
        }
    });
}

/// Sends a packet from a new port, and returns the connection identifier in the answer.
fn ask(topology: &Topology, packet: &[u8]) -> [u8; 8] {
    let client = topology.server.run(|| UdpSocket::bind((SERVER[0], 0))).unwrap().expect("a free port");
    client.connect((SERVICE, PORT)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    wait_until("a backend answers", || {
        let mut identifier = [0; 8];
        client.send(packet).map_err(|error| error.to_string())?;
        client.recv(&mut identifier).map_err(|error| error.to_string())?;
        Ok(identifier)
    })
}

#[test]
fn a_quic_client_that_changes_its_port_keeps_its_backend_on_both_nodes() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("quic-routing");
    for (id, backend) in (1..).zip(BACKENDS) {
        let add = || Netlink::open()?.add_address("bridge", Prefix::new(backend, PREFIX_BITS[0]));
        topology.client.run(add).unwrap().expect("an address");
        serve(topology.client.run(|| UdpSocket::bind((backend, PORT))).unwrap().expect("a free port"), id);
    }
    let start = |id: usize| Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &configuration(id));
    let a = start(0);
    a.wait_for_role("active");
    let b = start(1);
    wait_until("b is synchronised", || {
        let takeover = a.status().map(|status| status.takeover);
        if takeover.as_ref().is_some_and(|takeover| takeover.ready) { Ok(()) } else { Err(format!("{takeover:?}")) }
    });
    // A client's first packet has an identifier of its own choice.
    let initial = [&[0xc0, 0, 0, 0, 1, 8][..], b"\xffrandom!", &[0; 1200]].concat();
    let short = |identifier: &[u8; 8]| [&[0x40][..], identifier, &[0; 40]].concat();
    let first = ask(&topology, &initial);
    let both = [1, 2].map(|id| [1 << 5 | 7, 0, id, 1, 2, 3, 4, 5]);
    let moves = |times: usize| {
        for _ in 0..times {
            assert_eq!(ask(&topology, &short(&first))[2], first[2]);
            both.iter().for_each(|identifier| assert_eq!(ask(&topology, &short(identifier))[2], identifier[2]));
        }
    };
    moves(10);
    a.kill();
    b.wait_for_role("active");
    moves(10);
}
