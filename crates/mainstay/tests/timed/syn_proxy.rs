//! Real clients connect through a flood of spoofed SYNs, and through the node that is killed meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use api::{EventKind, SynProxyStatus};
use lab::testbed::syn_flood::{Flood, FloodPacket, FloodPlan};
use lab::testbed::topology::{self, INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, SYNC, Topology};
use packet_io::netlink::{Netlink, Prefix};

use crate::common::program::{Folder, LOOK_EVERY, PATIENCE, Program, wait_until};

const SERVICE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 80);
const BACKENDS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 1, 0, 20)), IpAddr::V4(Ipv4Addr::new(10, 1, 0, 21))];
const PORTS: (u16, u16) = (80, 8080);
const SYNS_PER_S: u32 = 8_000;
/// Clients that connect at the same time.
const CLIENTS: usize = 8;
/// Connections of each client before the kill, and beyond.
const CONNECTIONS: usize = 25;
/// SYNs of the flood that the first node answers before it is killed.
const SYNS_ANSWERED_MIN: u64 = 20_000;
/// A flood takes no memory. What connections take is allowed for.
const GROWTH_BYTES_MAX: u64 = 4 << 20;

fn configuration(id: usize, key: &str) -> String {
    let (inside, outside, bits) = (INSIDE[0], OUTSIDE[0], PREFIX_BITS[0]);
    let [first, second] = BACKENDS.map(|backend| SocketAddr::new(backend, PORTS.1));
    format!(
        "[node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\", \"{SERVICE}/{bits}\"]\nreverse_path = \"off\"\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         [[syn_proxy.rule]]\nname = \"web\"\ndestination = [\"{SERVICE}\"]\nports = [{port}]\nmode = \"auto\"\nsyn_rate = 1000\nhold = \"2s\"\n\
         [[service]]\nname = \"web\"\naddress = \"{SERVICE}\"\nprotocol = \"tcp\"\nports = [{port}]\n\
         [[service.backend]]\naddress = \"{first}\"\n[[service.backend]]\naddress = \"{second}\"\n\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\npre_shared_keys = [\"{key}\"]\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        priority = 200 - 100 * id,
        port = PORTS.0,
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

/// Answers each four bytes by the same.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        thread::spawn(move || {
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
        });
    }
}

fn start_servers(topology: &Topology) {
    for backend in BACKENDS {
        let add = || Netlink::open()?.add_address("bridge", Prefix::new(backend, PREFIX_BITS[0]));
        topology.client.run(add).unwrap().expect("an address");
        let listener = topology.client.run(|| TcpListener::bind((backend, PORTS.1))).unwrap().expect("a free port");
        thread::spawn(move || serve(&listener));
    }
}

/// A new connection from outside that was of use.
fn connect(topology: &Topology) -> TcpStream {
    let service = SocketAddr::from((SERVICE, PORTS.0));
    let stream = topology.server.run(|| TcpStream::connect_timeout(&service, PATIENCE)).unwrap();
    let mut stream = stream.expect("the service answers");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    exchange(&mut stream);
    stream
}

fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"ping").expect("it is open");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("an answer comes");
    assert_eq!(&answer, b"ping");
}

fn rule(node: &Program) -> SynProxyStatus {
    node.status().and_then(|status| status.syn_proxy.into_iter().next()).unwrap_or_default()
}

fn resident_bytes(node: &Program) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{}/statm", node.id())).expect("the process lives");
    pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

fn wait_for_activity(node: &Program, is_active: bool) {
    wait_until("the rule follows the flood", || {
        let rule = rule(node);
        if rule.active == is_active { Ok(()) } else { Err(format!("{rule:?}\n{}", node.log())) }
    });
}

#[test]
fn real_clients_connect_through_a_flood_and_a_killed_node() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("syn-proxy");
    let key = folder.make_key("cluster.key").display().to_string();
    start_servers(&topology);
    let start =
        |id: usize| Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &configuration(id, &key));
    let a = start(0);
    a.wait_for_role("active");
    let b = start(1);
    wait_until("b is synchronised", || {
        let ready = a.status().is_some_and(|status| status.takeover.ready);
        if ready { Ok(()) } else { Err(b.log()) }
    });

    let mut before: Vec<TcpStream> = (0..20).map(|_| connect(&topology)).collect();
    assert_eq!((rule(&a).answered, rule(&a).active), (0, false));

    let mac = |namespace, interface: &str| topology::link_address(namespace, interface).expect("an interface");
    let plan = FloodPlan {
        source: mac(&topology.server, "bridge"),
        next_hops: topology.nodes.iter().map(|node| mac(node, INTERFACES[1])).collect(),
        destination: SocketAddrV4::new(SERVICE, PORTS.0),
        packet: FloodPacket::Syn,
        packets_per_s: SYNS_PER_S,
        seed: 1,
    };
    let flood = Flood::start(&topology.server, "bridge", plan).expect("the flood begins");
    wait_for_activity(&a, true);
    let (memory, answered) = (resident_bytes(&a), rule(&a).answered);

    // Each client connects again and again; the node is killed in the midst.
    let (connected, goes_on) = (AtomicUsize::new(0), AtomicBool::new(false));
    let began = Instant::now();
    let wait_for_connections = |a: &Program, count: usize| {
        wait_until("clients have connected", || {
            let connected = connected.load(Ordering::Relaxed);
            if connected >= count { Ok(()) } else { Err(format!("{connected} of {count}\n{}", a.log())) }
        });
    };
    let mut during = thread::scope(|scope| {
        let client = || {
            let connections = (0..2 * CONNECTIONS).map(|number| {
                // Not for ever: a test that has failed is over when its clients are.
                while number >= CONNECTIONS && !goes_on.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
                    thread::sleep(LOOK_EVERY);
                }
                let stream = connect(&topology);
                connected.fetch_add(1, Ordering::Relaxed);
                stream
            });
            connections.collect::<Vec<_>>()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        wait_for_connections(&a, CLIENTS * CONNECTIONS);
        wait_until("many SYNs are answered", || {
            let flooded = rule(&a).answered - answered;
            if flooded >= SYNS_ANSWERED_MIN { Ok(()) } else { Err(format!("{flooded} are")) }
        });
        let grown = resident_bytes(&a).saturating_sub(memory);
        assert!(grown < GROWTH_BYTES_MAX, "the node grew by {grown} bytes in a flood of {SYNS_ANSWERED_MIN} SYNs");
        let table = a.status().expect("it answers").connections.count;
        assert!(table < 1500, "{table} connections: spoofed SYNs have none");
        goes_on.store(true, Ordering::Relaxed);
        wait_for_connections(&a, CLIENTS * CONNECTIONS + CLIENTS);
        a.kill();
        clients.into_iter().flat_map(|client| client.join().expect("all connect")).collect::<Vec<_>>()
    });
    b.wait_for_role("active");
    assert_eq!(during.len(), CLIENTS * 2 * CONNECTIONS);
    before.iter_mut().chain(&mut during).for_each(exchange);
    wait_for_activity(&b, true);
    let seen = rule(&b);
    assert!(seen.answered > 1000 && seen.accepted >= 1, "{seen:?}");

    // The flood ends, and clients reach the servers directly again.
    assert!(flood.sent() > 10_000);
    drop(flood);
    wait_for_activity(&b, false);
    let accepted = rule(&b).accepted;
    exchange(&mut connect(&topology));
    assert_eq!(rule(&b).accepted, accepted, "the proxy is not concerned any more");
    before.iter_mut().chain(&mut during).for_each(exchange);
    // The status is that of the moment; the node reports a change when it looks next.
    wait_until("both changes of the rule are events", || {
        let events = b.client().events().expect("events");
        let of = |kind| events.iter().any(|event| event.kind == kind && event.detail.starts_with("rule web: "));
        if of(EventKind::SynProxyActive) && of(EventKind::SynProxyInactive) {
            Ok(())
        } else {
            Err(format!("{events:?}"))
        }
    });
}
