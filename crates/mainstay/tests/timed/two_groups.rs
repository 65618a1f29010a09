//! Both nodes at work with peer filters: each holds a group of addresses, and restores the other's connections when it is killed.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use api::NodeRole;
use lab::testbed::topology::{INSIDE, OUTSIDE, PREFIX_BITS, SECOND_SERVER, SERVER, SYNC, Topology};
use packet_io::netlink::{Netlink, Prefix};

use crate::common::program::{Folder, PATIENCE, Program, wait_until};

const PORT: u16 = 7600;
const CONNECTIONS_PER_GROUP: usize = 30;
/// The shared addresses of the second group, which the client's route to the second server names.
const INSIDE_OF_SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));
const OUTSIDE_OF_SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
const GROUPS: [&str; 2] = ["left", "right"];

/// A node that is preferred for one group. Connections appear to a server under the address of the group that they came by.
fn configuration(id: usize, key: &str, representation: &str) -> String {
    let bits = PREFIX_BITS[0];
    let port = |name: &str, addresses: [IpAddr; 2]| {
        let group = |number: usize| {
            format!("[[port.group]]\nname = \"{}\"\naddresses = [\"{}/{bits}\"]\n", GROUPS[number], addresses[number])
        };
        format!("[[port]]\nname = \"{name}\"\ninterface = \"{name}\"\n{}{}", group(0), group(1))
    };
    let group = |number: usize| {
        let priority = if number == id { 200 } else { 100 };
        format!("[[group]]\nname = \"{}\"\npriority = {priority}\n", GROUPS[number])
    };
    let translation = |server: IpAddr, outside: IpAddr| {
        format!(
            "[[nat.source]]\nsource = [\"10.1.0.0/24\"]\ndestination = [\"{server}/32\"]\nto = [\"{outside}\"]\n\
             mapping = \"deterministic\"\n"
        )
    };
    format!(
        "chain = [\"firewall\", \"nat\"]\n\
         [node]\nid = {id}\nnodes = 2\ncontrol_socket = \"CONTROL\"\n{}{}{}{}\
         [[firewall.rule]]\nname = \"out\"\nfrom = \"inside\"\naction = \"accept\"\n{}{}\
         [replication]\nlocal = \"{local}:3781\"\nsymmetric = true\n{representation}\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\npre_shared_keys = [\"{key}\"]\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        group(0),
        group(1),
        port("inside", [INSIDE[0], INSIDE_OF_SECOND]),
        port("outside", [OUTSIDE[0], OUTSIDE_OF_SECOND]),
        translation(SERVER[0], OUTSIDE[0]),
        translation(SECOND_SERVER[0], OUTSIDE_OF_SECOND),
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

/// Answers each four bytes by the same, at both addresses of the server.
fn serve(topology: &Topology) {
    for server in [SERVER[0], SECOND_SERVER[0]] {
        let listener = topology.server.run(|| TcpListener::bind((server, PORT))).unwrap().expect("a free port");
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut bytes = [0; 4];
                    while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
                });
            }
        });
    }
}

fn exchange(stream: &mut TcpStream) -> Result<(), ErrorKind> {
    let mut answer = [0; 4];
    let exchanged = stream.write_all(b"ping").and_then(|()| stream.read_exact(&mut answer));
    exchanged.map_err(|error| error.kind())?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

fn connect(topology: &Topology, server: IpAddr) -> TcpStream {
    let server = SocketAddr::new(server, PORT);
    let stream = topology.client.run(|| TcpStream::connect_timeout(&server, PATIENCE)).unwrap();
    let mut stream = stream.expect("the server answers");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    assert_eq!(exchange(&mut stream), Ok(()));
    stream
}

/// The second server, and the client's way to it by the second group.
fn add_second_way(topology: &Topology) {
    let second = Prefix::new(SECOND_SERVER[0], PREFIX_BITS[0]);
    topology.server.run(|| Netlink::open()?.add_address("bridge", second)).unwrap().expect("an address");
    let to_second = Prefix::new(SECOND_SERVER[0], 32);
    topology.client.run(|| Netlink::open()?.add_route(to_second, INSIDE_OF_SECOND)).unwrap().expect("a route");
}

/// Waits until the node holds these groups and no others, and its peer has everything.
fn wait_for_groups(node: &Program, groups: &[&str]) {
    wait_until(&format!("the node holds {groups:?}"), || {
        let Some(status) = node.status() else { return Err(node.log()) };
        let active = status.node.groups.iter().filter(|group| group.role == NodeRole::Active);
        let active: Vec<&str> = active.map(|group| group.name.as_str()).collect();
        let is_ready = groups.len() == GROUPS.len() || status.takeover.ready;
        if active == groups && is_ready {
            Ok(())
        } else {
            Err(format!("{active:?} {:?}\n{}", status.takeover, node.log()))
        }
    });
}

fn connections_of_both_groups_survive(name: &str, representation: &str) {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new(name);
    let key = folder.make_key("cluster.key").display().to_string();
    add_second_way(&topology);
    serve(&topology);
    let start = |id: usize| {
        let text = configuration(id, &key, representation);
        Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &text)
    };
    let [a, b] = [0, 1].map(start);
    wait_for_groups(&a, &["left"]);
    wait_for_groups(&b, &["right"]);
    let servers = [SERVER[0], SECOND_SERVER[0]];
    let connect_all = |server: &IpAddr| (0..CONNECTIONS_PER_GROUP).map(|_| connect(&topology, *server)).collect();
    let mut connections: [Vec<TcpStream>; 2] = servers.each_ref().map(connect_all);
    for node in [&a, &b] {
        // The other group's connections are entries of the peer's filter. In the table are the few whose computed port was in use.
        let count = node.status().expect("it answers").connections.count;
        let own = CONNECTIONS_PER_GROUP as u64;
        assert!((own..own * 3 / 2).contains(&count), "{count} connections\n{}", node.log());
    }
    let mut all_go_on = |what: &str| {
        let outcomes: Vec<_> = connections.iter_mut().flatten().map(exchange).collect();
        let broken = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        assert_eq!(broken, 0, "{name}, {what}: {outcomes:?}\n{}", a.log());
    };
    b.kill();
    wait_for_groups(&a, &GROUPS);
    all_go_on("b was killed");
    let b = start(1);
    wait_for_groups(&b, &["right"]);
    wait_for_groups(&a, &["left"]);
    all_go_on("b has its group again");
}

#[test]
fn with_a_multi_level_filter_connections_of_both_groups_survive_a_killed_node() {
    connections_of_both_groups_survive("groups-multi-level", "representation = \"multi-level\"");
}

#[test]
fn with_a_flow_digest_connections_of_both_groups_survive_a_killed_node() {
    let representation = "representation = \"flow-digest\"\nexperimental = true";
    connections_of_both_groups_survive("groups-flow-digest", representation);
}
