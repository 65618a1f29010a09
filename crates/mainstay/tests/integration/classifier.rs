//! Traffic classes of two gateways: connections keep their classes through a killed node, marks are on the wire, and rules by class hold.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use api::ClassStatus;
use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};
use network_functions::inspect::tls;

use crate::common::program::{Folder, PATIENCE, Program, wait_until};

const CONNECTIONS: usize = 20;

/// The configuration of a node, with these further sections.
fn configuration(id: usize, sections: &str) -> String {
    let (inside, outside, bits) = (INSIDE[0], OUTSIDE[0], PREFIX_BITS[0]);
    format!(
        "[node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\"]\n\
         {sections}\
         [[nat.source]]\nsource = [\"{client}\"]\nto = [\"{outside}\"]\n\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\nmode = \"plain\"\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        priority = 200 - 100 * id,
        client = CLIENT[0],
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

const CLASSES: &str = "[classifier]\n\
    [[classifier.rule]]\nclass = \"video\"\nnames = [\"films.example\"]\n\
    [[classifier.rule]]\nclass = \"p2p\"\nnames = [\"swarm.example\"]\n\
    [[firewall.rule]]\nname = \"no-swarms\"\nclass = [\"p2p\"]\naction = \"drop\"\n\
    [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n";

/// A server outside that sends back what it receives, on each of these ports.
fn serve(topology: &Topology, ports: &[u16]) {
    for port in ports {
        let address = SocketAddr::new(SERVER[0], *port);
        let listener = topology.server.run(|| TcpListener::bind(address)).unwrap().expect("the port is free");
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..bytes]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }
}

/// A client's connection to a port of the server.
struct Talk(TcpStream);

impl Talk {
    fn begin(topology: &Topology, port: u16) -> Self {
        let address = SocketAddr::new(SERVER[0], port);
        let stream = topology.client.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
        let stream = stream.expect("the server answers");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends bytes and receives them back.
    fn exchange(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it is open");
        let mut back = vec![0; bytes.len()];
        self.0.read_exact(&mut back).expect("they come back");
        assert_eq!(back, bytes);
    }
}

/// A ClientHello as browsers send it: larger than a segment.
fn hello(server: &str) -> Vec<u8> {
    let extensions = [(51, &[7; 1800][..]), (0, &tls::server_name_bytes(server))];
    tls::in_records(&tls::client_hello_bytes(&extensions), 1 << 14)
}

fn class(node: &Program, name: &str) -> ClassStatus {
    let status = node.status().unwrap_or_default();
    status.classes.into_iter().find(|class| class.name == name).unwrap_or_default()
}

/// How many connections a node has of the classes video and web.
fn wait_for_classes(what: &str, node: &Program, video: usize, web: usize) {
    wait_until(what, || {
        let found = [class(node, "video").connections, class(node, "web").connections];
        if found == [video as u64, web as u64] { Ok(()) } else { Err(format!("{found:?}\n{}", node.log())) }
    });
}

fn start(topology: &Topology, folder: &Folder, sections: &str) -> [Program; 2] {
    let program = |id: usize| {
        Program::start(&topology.nodes[id], folder, ["a", "b"][id], "gateway", &configuration(id, sections))
    };
    let a = program(0);
    a.wait_for_role("active");
    let b = program(1);
    wait_until("b is synchronised", || {
        let status = a.status();
        let is_ready = status.as_ref().is_some_and(|status| status.takeover.ready);
        if is_ready { Ok(()) } else { Err(format!("{:?}\n{}", status.map(|status| status.takeover), b.log())) }
    });
    [a, b]
}

#[test]
fn connections_keep_their_classes_through_a_killed_node() {
    if packet_io::namespace::for_tests().is_none() {
        return;
    }
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("classes");
    let [a, b] = start(&topology, &folder, CLASSES);
    serve(&topology, &[443, 80]);

    let mut talks = Vec::new();
    for number in 0..CONNECTIONS {
        let (port, first) = match number % 2 {
            0 => (443, hello(&format!("cdn{number}.films.example"))),
            _ => (80, b"GET / HTTP/1.1\r\nHost: www.example\r\n\r\n".to_vec()),
        };
        let mut talk = Talk::begin(&topology, port);
        talk.exchange(&first);
        talks.push(talk);
    }
    wait_for_classes("a has found the classes", &a, CONNECTIONS / 2, CONNECTIONS / 2);
    wait_for_classes("b knows the classes", &b, CONNECTIONS / 2, CONNECTIONS / 2);
    assert!(class(&a, "video").packets > CONNECTIONS as u64, "{:?}", class(&a, "video"));
    assert_eq!(class(&b, "video").packets, 0, "b has forwarded none");

    a.kill();
    b.wait_for_role("active");
    talks.iter_mut().for_each(|talk| talk.exchange(b"the rest"));
    wait_for_classes("b has kept the classes", &b, CONNECTIONS / 2, CONNECTIONS / 2);
    let counted = class(&b, "video");
    // Each of them sent a segment, and got one back.
    assert!(counted.packets >= CONNECTIONS as u64 && counted.bytes >= 48 * counted.packets, "{counted:?}");
    let mut flows = Vec::new();
    b.client().flows(api::FlowFilterText::default(), 1000, |flow| flows.push(flow)).expect("it answers");
    let films = flows.iter().filter(|flow| flow.class.as_deref() == Some("video")).count();
    assert_eq!(films, CONNECTIONS / 2, "{flows:?}");

    // A rule by class denies a connection when its name shows, and not before.
    let mut denied = Talk::begin(&topology, 443);
    denied.0.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    denied.0.write_all(&hello("a.swarm.example")).expect("it is open");
    let answer = denied.0.read(&mut [0; 16]);
    assert!(answer.is_err(), "{answer:?}");
    let drops = b.status().expect("it answers").drops;
    assert!(drops.iter().any(|drop| drop.reason == "firewall_denied" && drop.packets > 0), "{drops:?}");
    talks.iter_mut().for_each(|talk| talk.exchange(b"others go on"));
}
