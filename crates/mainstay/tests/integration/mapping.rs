//! Source NAT with one mapping for each inside end point, on a pair of gateways with several workers each.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};

use crate::common::program::{Folder, Program, wait_until};

const PORTS: std::ops::Range<u16> = 7700..7716;

fn configuration(id: usize, key: &str) -> String {
    let (inside, outside, bits) = (INSIDE[0], OUTSIDE[0], PREFIX_BITS[0]);
    format!(
        "chain = [\"firewall\", \"nat\"]\n\
         [node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [workers]\ncount = 2\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\"]\n\
         [[firewall.rule]]\nname = \"out\"\nfrom = \"inside\"\naction = \"accept\"\n\
         [[nat.source]]\nsource = [\"10.1.0.0/24\"]\nto = [\"{outside}\"]\nmapping = \"endpoint-independent\"\n\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\npre_shared_keys = [\"{key}\"]\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        priority = 200 - 100 * id,
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

/// The port that a server sees the client's socket under.
fn seen_by(client: &UdpSocket, port: u16) -> u16 {
    let server = SocketAddr::new(SERVER[0], port);
    wait_until("the server answers", || {
        let mut buffer = [0; 16];
        client.send_to(b"who", server).map_err(|error| error.to_string())?;
        let (bytes, from) = client.recv_from(&mut buffer).map_err(|error| error.to_string())?;
        if from != server {
            return Err(format!("a late answer of {from}"));
        }
        String::from_utf8_lossy(&buffer[..bytes]).parse().map_err(|_| "no port".to_owned())
    })
}

#[test]
fn an_inside_end_point_has_one_outside_port_towards_all_servers_and_across_a_failover() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("mapping");
    let key = folder.make_key("cluster.key").display().to_string();
    for port in PORTS {
        let socket = topology.server.run(|| UdpSocket::bind((SERVER[0], port))).unwrap().expect("a free port");
        thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(from.port().to_string().as_bytes(), from);
            }
        });
    }
    let start =
        |id: usize| Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &configuration(id, &key));
    let a = start(0);
    a.wait_for_role("active");
    let b = start(1);
    wait_until("b is synchronised", || {
        let takeover = a.status().map(|status| status.takeover);
        if takeover.as_ref().is_some_and(|takeover| takeover.ready) { Ok(()) } else { Err(format!("{takeover:?}")) }
    });
    let clients: Vec<UdpSocket> = (0..4)
        .map(|_| {
            let client = topology.client.run(|| UdpSocket::bind((CLIENT[0], 0))).unwrap().expect("a free port");
            client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            client
        })
        .collect();
    let before = PORTS.start..PORTS.end - 4;
    let seen = |ports: std::ops::Range<u16>| -> Vec<BTreeSet<u16>> {
        clients.iter().map(|client| ports.clone().map(|port| seen_by(client, port)).collect()).collect()
    };
    let mapped = seen(before);
    assert!(mapped.iter().all(|ports| ports.len() == 1), "{mapped:?}");
    let all: BTreeSet<_> = mapped.iter().flatten().collect();
    assert_eq!(all.len(), clients.len(), "each has its own");
    // Another host's packet to the mapping does not pass: filtering depends on address and port.
    let stranger = topology.server.run(|| UdpSocket::bind((SERVER[0], 0))).unwrap().expect("a free port");
    let port = *mapped[0].iter().next().expect("one");
    stranger.send_to(b"stranger", (OUTSIDE[0], port)).unwrap();
    assert!(clients[0].recv_from(&mut [0; 16]).is_err());
    wait_until("b has the connections", || {
        let [here, there] = [&a, &b].map(|node| node.status().map(|status| status.connections.count));
        if here == there { Ok(()) } else { Err(format!("{here:?} {there:?}")) }
    });
    a.kill();
    b.wait_for_role("active");
    // Servers that they have spoken to before, and others.
    assert_eq!(seen(PORTS.start..PORTS.start + 2), mapped);
    assert_eq!(seen(PORTS.end - 4..PORTS.end), mapped);
}
