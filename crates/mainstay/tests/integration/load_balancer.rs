//! Services of two gateways: connections are spread, survive their node on their backends, and follow the backends' health.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use api::{BackendState, BackendStatus};
use lab::testbed::topology::{INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};
use packet_io::netlink::{Netlink, Prefix};

use crate::common::program::{Folder, PATIENCE, Program, mainstay, wait_for, wait_until, write_configuration};

/// The port of the service, and that of its backends.
const PORTS: (u16, u16) = (80, 8080);
const BACKENDS: usize = 3;
const CONNECTIONS: usize = 60;

/// A family of addresses and a mode of the load balancer.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    /// 0 for IPv4, 1 for IPv6.
    family: usize,
    is_full_nat: bool,
    /// More keys of the service.
    keys: &'static str,
}

impl Scenario {
    /// An address in the network of another one, with another last number.
    fn beside(self, address: IpAddr, last: u8) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                [a, b, c, last].into()
            }
            IpAddr::V6(address) => {
                let mut octets = address.octets();
                octets[15] = last;
                octets.into()
            }
        }
    }

    fn service(self) -> IpAddr {
        self.beside(OUTSIDE[self.family], 80)
    }

    fn backend(self, number: usize) -> IpAddr {
        self.beside(INSIDE[self.family], 20 + number as u8)
    }

    /// The address of a node that its checks come from.
    fn node(self, number: usize) -> IpAddr {
        self.beside(INSIDE[self.family], 101 + number as u8)
    }

    /// The configuration of a node, with these weights of the backends.
    fn configuration(self, id: usize, weights: [u8; BACKENDS]) -> String {
        let (inside, outside, bits) = (INSIDE[self.family], OUTSIDE[self.family], PREFIX_BITS[self.family]);
        let mode =
            if self.is_full_nat { format!("mode = \"full-nat\"\nsource = [\"{inside}\"]\n") } else { String::new() };
        let backends = weights.iter().enumerate().map(|(number, weight)| {
            let end = SocketAddr::new(self.backend(number), PORTS.1);
            format!("[[service.backend]]\naddress = \"{end}\"\nweight = {weight}\n")
        });
        format!(
            "[node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
             [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
             [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\", \"{service}/{bits}\"]\n\
             [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
             [[service]]\nname = \"web\"\naddress = \"{service}\"\nprotocol = \"tcp\"\nports = [{port}]\n{mode}{keys}\
             [service.check]\ninterval = \"200ms\"\ntimeout = \"200ms\"\nsource = \"{source}\"\n\
             {backends}\
             [replication]\nlocal = \"{local}:3781\"\n\
             [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
             [replication.security]\nmode = \"plain\"\n\
             [failure_detection]\ninterval = \"50ms\"\n",
            priority = 200 - 100 * id,
            service = self.service(),
            port = PORTS.0,
            keys = self.keys,
            source = self.node(id),
            backends = backends.collect::<String>(),
            local = SYNC[id],
            other = 1 - id,
            peer = SYNC[1 - id],
        )
    }
}

/// A server that sends its number, then each four bytes that it is sent, with its number before them.
struct Server {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(network: &Network, number: usize) -> Self {
        let address = SocketAddr::new(network.scenario.backend(number), PORTS.1);
        let listener =
            network.topology.client.run(|| TcpListener::bind(address)).unwrap().expect("the address is free");
        listener.set_nonblocking(true).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => drop(thread::spawn(move || serve(stream, number as u8))),
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Serves a connection, or a check, until it ends.
fn serve(mut stream: TcpStream, number: u8) {
    let mut bytes = [number; 5];
    if stream.set_nonblocking(false).is_ok() && stream.write_all(&[number]).is_ok() {
        while stream.read_exact(&mut bytes[1..]).is_ok() && stream.write_all(&bytes).is_ok() {}
    }
}

/// The network, and servers in it.
struct Network {
    scenario: Scenario,
    topology: Topology,
}

impl Network {
    /// `None`, and said, where the machine forbids namespaces.
    fn new(scenario: Scenario) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let topology = Topology::build().expect("the network can be built");
        let bits = PREFIX_BITS[scenario.family];
        topology
            .client
            .run(|| {
                let mut netlink = Netlink::open().expect("netlink");
                for number in 0..BACKENDS {
                    let address = Prefix::new(scenario.backend(number), bits);
                    netlink.add_address("bridge", address).expect("an address");
                }
            })
            .unwrap();
        for (number, node) in topology.nodes.iter().enumerate() {
            let address = Prefix::new(scenario.node(number), bits);
            node.run(|| Netlink::open().expect("netlink").add_address(INTERFACES[0], address).expect("an address"))
                .unwrap();
        }
        Some(Self { scenario, topology })
    }

    fn start(&self, folder: &Folder, id: usize) -> Program {
        let text = self.scenario.configuration(id, [1; BACKENDS]);
        Program::start(&self.topology.nodes[id], folder, ["a", "b"][id], "gateway", &text)
    }

    /// A new connection from outside, and the backend that it came to.
    fn connect(&self) -> Connection {
        let service = SocketAddr::new(self.scenario.service(), PORTS.0);
        let stream = self.topology.server.run(|| TcpStream::connect_timeout(&service, PATIENCE)).unwrap();
        let mut stream = stream.expect("the service answers");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut number = [0];
        stream.read_exact(&mut number).expect("the backend sends its number");
        Connection { stream, backend: number[0].into() }
    }

    fn connect_many(&self, count: usize) -> Vec<Connection> {
        (0..count).map(|_| self.connect()).collect()
    }
}

struct Connection {
    stream: TcpStream,
    backend: usize,
}

impl Connection {
    /// Exchanges a few bytes with the backend that the connection began with.
    fn assert_lives(&mut self) {
        self.stream.write_all(b"ping").expect("it is open");
        let mut answer = [0; 5];
        self.stream.read_exact(&mut answer).expect("an answer comes");
        assert_eq!((usize::from(answer[0]), &answer[1..]), (self.backend, &b"ping"[..]), "another backend answered");
    }
}

impl Connection {
    /// The connection has been reset, or is within a short time.
    fn assert_is_reset(&mut self) {
        let began = Instant::now();
        let read = self.stream.read(&mut [0; 8]).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::ConnectionReset), "after {:?}, of backend {}", began.elapsed(), self.backend);
    }
}

/// How many connections each backend has.
fn spread(connections: &[Connection]) -> [usize; BACKENDS] {
    let mut spread = [0; BACKENDS];
    connections.iter().for_each(|connection| spread[connection.backend] += 1);
    spread
}

fn backends(node: &Program) -> Vec<BackendStatus> {
    node.status()
        .and_then(|status| status.services.into_iter().next())
        .map(|service| service.backends)
        .unwrap_or_default()
}

fn wait_for_state(node: &Program, backend: usize, state: BackendState) {
    wait_until(&format!("backend {backend} is {state}"), || {
        let backends = backends(node);
        if backends.get(backend).is_some_and(|it| it.state == state) {
            Ok(())
        } else {
            Err(format!("{backends:?}\n{}", node.log()))
        }
    });
}

fn reload(node: &Program) -> Output {
    mainstay(&["reload", "--socket"]).arg(node.socket()).output().expect("the program can be run")
}

/// Both nodes, a active and b with all of its connections.
fn started(network: &Network, folder: &Folder) -> [Program; 2] {
    let a = network.start(folder, 0);
    a.wait_for_role("active");
    let b = network.start(folder, 1);
    wait_until("b is synchronised", || {
        let status = a.status();
        let is_ready = status.as_ref().is_some_and(|status| status.takeover.ready);
        if is_ready { Ok(()) } else { Err(format!("{:?}\n{}", status.map(|status| status.takeover), b.log())) }
    });
    [a, b]
}

fn survive_and_follow_health(scenario: Scenario) {
    let Some(network) = Network::new(scenario) else { return };
    let folder = Folder::new(scenario.name);
    let mut servers: Vec<Server> = (0..BACKENDS).map(|number| Server::start(&network, number)).collect();
    let [a, b] = started(&network, &folder);

    // Connections are spread.
    let mut connections = network.connect_many(CONNECTIONS);
    let before = spread(&connections);
    assert!(before.iter().all(|count| *count >= 5), "{before:?}");
    assert_eq!(backends(&a).iter().map(|backend| backend.connections as usize).collect::<Vec<_>>(), before);
    wait_for("the standby node has all connections", || {
        backends(&b).iter().map(|backend| backend.connections as usize).eq(before)
    });

    // The node is killed: all established connections survive on their backends.
    a.kill();
    b.wait_for_role("active");
    connections.iter_mut().for_each(Connection::assert_lives);
    let after = network.connect_many(CONNECTIONS);
    assert!(spread(&after).iter().all(|count| *count >= 5), "{:?}", spread(&after));

    // A backend is drained: it gets no new connections, and keeps its own.
    write_configuration(&folder, "b", &scenario.configuration(1, [0, 1, 1]));
    let reloaded = reload(&b);
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert_eq!(backends(&b)[0].state, BackendState::Drained);
    assert_eq!(spread(&network.connect_many(20))[0], 0);
    connections.iter_mut().for_each(Connection::assert_lives);

    // A file with a mistake changes nothing.
    let wrong = scenario.configuration(1, [0, 1, 1]).replace("weight = 0", "weight = 101");
    write_configuration(&folder, "b", &wrong);
    let refused = reload(&b);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(!refused.status.success() && said.contains("service.backend.weight: 101 is out of range"), "{refused:?}");
    assert_eq!(backends(&b)[0].state, BackendState::Drained);

    // A backend fails: new connections go elsewhere, until it is back.
    drop(servers.remove(1));
    wait_for_state(&b, 1, BackendState::Down);
    let elsewhere = spread(&network.connect_many(20));
    assert_eq!(elsewhere, [0, 0, 20]);
    connections.iter_mut().for_each(Connection::assert_lives);
    servers.push(Server::start(&network, 1));
    wait_for_state(&b, 1, BackendState::Up);
    assert!(spread(&network.connect_many(20))[1] > 0);
    let events = b.client().events().expect("events");
    let detail =
        |kind| events.iter().find(|event| event.kind == kind).map(|event| event.detail.clone()).unwrap_or_default();
    let end = SocketAddr::new(scenario.backend(1), PORTS.1);
    assert!(detail(api::EventKind::BackendDown).starts_with(&format!("{end} of service web: ")), "{events:?}");
    assert_eq!(detail(api::EventKind::BackendUp), format!("{end} of service web"));

    // Without a backend, the service refuses new connections at once.
    drop(servers);
    for backend in 0..BACKENDS {
        wait_for_state(&b, backend, BackendState::Down);
    }
    let service = SocketAddr::new(scenario.service(), PORTS.0);
    let refused = network.topology.server.run(|| TcpStream::connect_timeout(&service, PATIENCE).map(drop)).unwrap();
    assert_eq!(refused.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionRefused));
    connections.iter_mut().for_each(Connection::assert_lives);
}

#[test]
fn connections_survive_their_node_on_their_backends_with_nat() {
    survive_and_follow_health(Scenario { name: "balance-nat", family: 0, is_full_nat: false, keys: "" });
}

#[test]
fn connections_survive_their_node_on_their_backends_with_full_nat() {
    let keys = "scheduler = \"least-connections\"\n";
    survive_and_follow_health(Scenario { name: "balance-full-nat", family: 0, is_full_nat: true, keys });
}

#[test]
fn connections_survive_their_node_on_their_backends_over_ipv6() {
    survive_and_follow_health(Scenario { name: "balance-ipv6", family: 1, is_full_nat: false, keys: "" });
}

#[test]
fn datagrams_of_a_failed_backend_go_to_another_one_where_the_service_ends_its_connections() {
    let scenario = Scenario { name: "balance-end", family: 0, is_full_nat: false, keys: "on_failure = \"end\"\n" };
    let Some(network) = Network::new(scenario) else { return };
    let folder = Folder::new(scenario.name);
    // The TCP port of each backend is checked, and its UDP port serves.
    let mut servers: Vec<Option<Server>> = (0..BACKENDS).map(|number| Some(Server::start(&network, number))).collect();
    for number in 0..BACKENDS {
        let address = SocketAddr::new(scenario.backend(number), PORTS.1);
        let socket = network.topology.client.run(|| UdpSocket::bind(address)).unwrap().expect("the address is free");
        thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&[number as u8], from);
            }
        });
    }
    let text =
        scenario.configuration(0, [1; BACKENDS]).replace("protocol = \"tcp\"\nports", "protocol = \"udp\"\nports");
    let gateway = Program::start(&network.topology.nodes[0], &folder, "a", "gateway", &text);
    gateway.wait_for_role("active");
    let client = network.topology.server.run(|| UdpSocket::bind((SERVER[0], 0))).unwrap().expect("a free port");
    client.connect((scenario.service(), PORTS.0)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let ask = || {
        wait_until("a backend answers", || {
            let mut answer = [0];
            client.send(b"who").map_err(|error| error.to_string())?;
            client.recv(&mut answer).map_err(|error| format!("{error}\n{}", gateway.log()))?;
            Ok(usize::from(answer[0]))
        })
    };
    let first = ask();
    assert_eq!(ask(), first, "a connection stays");
    drop(servers[first].take());
    wait_for_state(&gateway, first, BackendState::Down);
    wait_for("another backend answers the same client", || ask() != first);
    let ended = gateway.status().expect("it answers").services[0].backends[first].connections;
    assert_eq!(ended, 0, "the failed backend has no connections left");
}

#[test]
fn clients_of_a_failed_backend_are_reset_where_the_service_ends_its_connections_also_by_a_survivor() {
    let keys = "on_failure = \"end\"\n";
    let scenario = Scenario { name: "balance-reset", family: 0, is_full_nat: false, keys };
    let Some(network) = Network::new(scenario) else { return };
    let folder = Folder::new(scenario.name);
    let mut servers: Vec<Option<Server>> = (0..BACKENDS).map(|number| Some(Server::start(&network, number))).collect();
    let [a, b] = started(&network, &folder);
    let mut connections = network.connect_many(CONNECTIONS);
    connections.iter_mut().for_each(Connection::assert_lives);

    // Idle clients learn it at once. The backend's port is closed, and the connections that it has are still open there.
    drop(servers[0].take());
    let (mut failed, mut others): (Vec<_>, Vec<_>) =
        connections.into_iter().partition(|connection| connection.backend == 0);
    assert!(!failed.is_empty() && !others.is_empty());
    failed.iter_mut().for_each(Connection::assert_is_reset);
    others.iter_mut().for_each(Connection::assert_lives);
    assert_eq!(spread(&network.connect_many(20))[0], 0, "they go to the other backends");
    wait_for("the standby node has the end of the connections", || backends(&b)[0].connections == 0);

    // The node is killed. The survivor does not know the numbers of idle connections: their next segment is answered.
    wait_for("the standby node has all other connections", || {
        let held = backends(&b).iter().map(|backend| backend.connections).sum::<u64>();
        held == backends(&a).iter().map(|backend| backend.connections).sum::<u64>()
    });
    a.kill();
    b.wait_for_role("active");
    drop(servers[1].take());
    wait_for_state(&b, 1, BackendState::Down);
    wait_for("the connections of the failed backend have ended", || backends(&b)[1].connections == 0);
    let (mut failed, mut others): (Vec<_>, Vec<_>) = others.into_iter().partition(|connection| connection.backend == 1);
    assert!(!failed.is_empty() && !others.is_empty());
    for connection in &mut failed {
        connection.stream.write_all(b"ping").expect("the client does not know yet");
        connection.assert_is_reset();
    }
    others.iter_mut().for_each(Connection::assert_lives);
    assert_eq!(spread(&network.connect_many(20))[..2], [0, 0], "they go to the backend that is left");
}
