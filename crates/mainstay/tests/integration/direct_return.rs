//! Services with direct return: clients' packets reach the backends in tunnels, the backends answer past the gateways, and all connections
//! outlive the node that carries them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::testbed::direct_return::{DirectReturn, DirectReturnPlan};
use lab::testbed::topology::{INSIDE, NETWORKS, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};
use packet_io::netlink::{Netlink, Prefix};

use crate::common::program::{Folder, PATIENCE, Program, wait_for, wait_until};

const SERVICES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 80)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x80))];
const PORT: u16 = 8080;
const BACKENDS: usize = 3;
const CONNECTIONS: usize = 40;
/// What a client sends at once: many segments, of which the kernel makes frames for segmentation offload.
const BULK_BYTES: usize = 400_000;
/// A datagram that its sender has to cut.
const LARGE_DATAGRAM_BYTES: usize = 5000;

/// A family of services, a family of backends (0 for IPv4, 1 for IPv6), and the tunnel between them.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    service: usize,
    backend: usize,
    encapsulation: &'static str,
}

impl Scenario {
    fn backends(self) -> Vec<IpAddr> {
        let beside = |last| match INSIDE[self.backend] {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                IpAddr::from([a, b, c, last])
            }
            IpAddr::V6(address) => {
                let mut octets = address.octets();
                octets[15] = last;
                octets.into()
            }
        };
        (0..BACKENDS as u8).map(|number| beside(20 + number)).collect()
    }

    fn end(self) -> SocketAddr {
        SocketAddr::new(SERVICES[self.service], PORT)
    }

    fn configuration(self, id: usize) -> String {
        let shared =
            |both: [IpAddr; 2]| format!("\"{}/{}\", \"{}/{}\"", both[0], PREFIX_BITS[0], both[1], PREFIX_BITS[1]);
        let backends: String =
            self.backends().iter().map(|backend| format!("[[service.backend]]\naddress = \"{backend}\"\n")).collect();
        let services = ["tcp", "udp"].map(|protocol| {
            format!(
                "[[service]]\nname = \"{protocol}\"\naddress = \"{}\"\nprotocol = \"{protocol}\"\nports = [{PORT}]\n\
                 mode = \"direct_return\"\nencapsulation = \"{}\"\n{backends}",
                SERVICES[self.service], self.encapsulation
            )
        });
        format!(
            "[node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
             [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [{inside}]\n\
             [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [{outside}, {services_held}]\n\
             [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
             {services}\
             [replication]\nlocal = \"{local}:3781\"\n\
             [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
             [replication.security]\nmode = \"plain\"\n\
             [failure_detection]\ninterval = \"50ms\"\n",
            priority = 200 - 100 * id,
            inside = shared(INSIDE),
            outside = shared(OUTSIDE),
            services_held = shared(SERVICES),
            services = services.concat(),
            local = SYNC[id],
            other = 1 - id,
            peer = SYNC[1 - id],
        )
    }
}

/// Servers of TCP and UDP at the service's address that send back what they are sent.
fn serve(topology: &Topology, scenario: Scenario) {
    let end = scenario.end();
    let listener = topology.client.run(|| TcpListener::bind(end)).unwrap().expect("the host has the address");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..read]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let socket = topology.client.run(|| UdpSocket::bind(end)).unwrap().expect("the host has the address");
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    });
}

fn connect(topology: &Topology, scenario: Scenario) -> TcpStream {
    let end = scenario.end();
    let stream = topology.server.run(|| TcpStream::connect_timeout(&end, PATIENCE)).unwrap();
    let stream = stream.expect("the service answers");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends some bytes, which come back.
fn exchange(stream: &mut TcpStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut writer = stream.try_clone().expect("descriptors are left");
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy));
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).expect("an answer comes");
    writing.join().expect("no panic").expect("it is open");
    assert!(answer == sent, "other bytes came back");
}

/// A client of datagrams.
fn datagrams(topology: &Topology, scenario: Scenario) -> UdpSocket {
    let from = SocketAddr::new(SERVER[scenario.service], 0);
    let socket = topology.server.run(|| UdpSocket::bind(from)).unwrap().expect("a free port");
    socket.connect(scenario.end()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

fn echo(socket: &UdpSocket, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 17) as u8).collect();
    wait_until("a datagram comes back", || {
        let mut answer = vec![0; 64 * 1024];
        socket.send(&sent).map_err(|error| error.to_string())?;
        let length = socket.recv(&mut answer).map_err(|error| error.to_string())?;
        if answer[..length] == sent[..] { Ok(()) } else { Err(format!("{length} other bytes")) }
    });
}

fn connections(node: &Program) -> Vec<u64> {
    let service = node.status().and_then(|status| status.services.into_iter().next());
    service.map(|service| service.backends.iter().map(|backend| backend.connections).collect()).unwrap_or_default()
}

fn outlive_their_node(scenario: Scenario) {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Topology::build().expect("the network can be built");
    let backends = scenario.backends();
    let bits = PREFIX_BITS[scenario.backend];
    let add = || -> Result<(), packet_io::IoError> {
        let mut netlink = Netlink::open()?;
        backends.iter().try_for_each(|backend| netlink.add_address("bridge", Prefix::new(*backend, bits)))
    };
    topology.client.run(add).unwrap().expect("addresses");
    let networks: Vec<Prefix> =
        NETWORKS[1].into_iter().zip(PREFIX_BITS).map(|(address, bits)| Prefix::new(address, bits)).collect();
    let hosts = DirectReturn::start(&DirectReturnPlan {
        clients: &topology.server,
        client_networks: &networks,
        servers: &topology.client,
        services: &SERVICES,
        ends: &backends,
    })
    .expect("tunnels and a link");
    serve(&topology, scenario);

    let folder = Folder::new(scenario.name);
    let start = |id: usize| {
        let text = scenario.configuration(id);
        Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &text)
    };
    let a = start(0);
    a.wait_for_role("active");
    let b = start(1);
    wait_until("b is synchronised", || {
        let ready = a.status().is_some_and(|status| status.takeover.ready);
        if ready { Ok(()) } else { Err(b.log()) }
    });

    // Connections are spread. Small and large packets, and frames for segmentation offload, reach the backends.
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&topology, scenario)).collect();
    streams.iter_mut().for_each(|stream| exchange(stream, 100));
    streams.iter_mut().take(4).for_each(|stream| exchange(stream, BULK_BYTES));
    let socket = datagrams(&topology, scenario);
    echo(&socket, 100);
    echo(&socket, LARGE_DATAGRAM_BYTES);
    let spread = connections(&a);
    assert_eq!(spread.iter().sum::<u64>(), CONNECTIONS as u64, "{spread:?}\n{}", a.log());
    assert!(spread.len() == BACKENDS && spread.iter().all(|count| *count >= 3), "{spread:?}");
    assert!(hosts.packets() > CONNECTIONS as u64 * 2);
    wait_for("the standby node has all connections", || connections(&b) == spread);

    // The node is killed: all connections go on, on their backends.
    a.kill();
    b.wait_for_role("active");
    streams.iter_mut().for_each(|stream| exchange(stream, 100));
    streams.iter_mut().rev().take(4).for_each(|stream| exchange(stream, BULK_BYTES));
    echo(&socket, 100);
    echo(&socket, LARGE_DATAGRAM_BYTES);
    assert_eq!(hosts.moved(), 0, "a connection came to another backend");
    assert_eq!(connections(&b), spread);
    exchange(&mut connect(&topology, scenario), 100);

    // Clients that close end their connections, though nothing is seen of the backends.
    drop(streams);
    wait_until("no connection is established", || {
        let mut states = Vec::new();
        let flows = b.client().flows(api::FlowFilterText::default(), u64::MAX, |flow| {
            if flow.protocol == "tcp" {
                states.push(flow.state);
            }
        });
        flows.map_err(|error| error.to_string())?;
        let is_over = states.iter().all(|state| state != "ESTABLISHED");
        if is_over { Ok(()) } else { Err(format!("{states:?}")) }
    });
}

#[test]
fn connections_in_ip_in_ip_outlive_their_node() {
    outlive_their_node(Scenario { name: "direct-ipip", service: 0, backend: 0, encapsulation: "ipip" });
}

#[test]
fn connections_in_gue_outlive_their_node() {
    outlive_their_node(Scenario { name: "direct-gue", service: 0, backend: 0, encapsulation: "gue" });
}

#[test]
fn connections_over_ipv6_in_ip_in_ip_outlive_their_node() {
    outlive_their_node(Scenario { name: "direct-ipip6", service: 1, backend: 1, encapsulation: "ipip" });
}

#[test]
fn connections_over_ipv4_in_gue_over_ipv6_outlive_their_node() {
    outlive_their_node(Scenario { name: "direct-gue46", service: 0, backend: 1, encapsulation: "gue" });
}
