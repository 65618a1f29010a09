//! Real clients beyond a rate of bytes, of new connections, and beyond quotas, before and after a node is killed.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use api::RateLimitStatus;
use api::metrics::Sample;
use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};

use crate::common::program::{Folder, Program, wait_until};

const STREAM_PORT: u16 = 9000;
const CONNECTION_PORT: u16 = 9001;
/// What may pass: 500 kB/s, a quarter of a second of it at once.
const BYTES_PER_S: f64 = 500_000.0;
const BURST_BYTES: f64 = 125_000.0;
/// A datagram, and its IPv4 packet.
const PAYLOAD_BYTES: usize = 972;
const PACKET_BYTES: f64 = 1000.0;
/// The client sends so many times more than may pass.
const OVERLOAD: f64 = 4.0;
const LASTS: Duration = Duration::from_secs(4);
/// By how much less than the rate may pass: a machine with other work delays the sender. More than the rate never does.
const TOLERANCE: f64 = 0.15;
/// A source may send so many datagrams in an hour, and a connection to another port so many.
const QUOTA_PORTS: [u16; 2] = [9002, 9003];
const QUOTA_PACKETS: usize = 640;
/// What a failover may lose of a quota.
const STEP_PACKETS: usize = QUOTA_PACKETS / 64;
const CONNECTIONS_AT_ONCE: usize = 5;

fn configuration(id: usize) -> String {
    let (inside, outside, bits) = (INSIDE[0], OUTSIDE[0], PREFIX_BITS[0]);
    format!(
        "[node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\"]\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         [[rate_limit.rule]]\nname = \"stream\"\nprotocol = \"udp\"\ndestination_ports = [{STREAM_PORT}]\n\
         [[rate_limit.rule.limit]]\nper = \"source\"\nbytes_per_s = {BYTES_PER_S:.0}\nburst_bytes = {BURST_BYTES:.0}\n\
         [[rate_limit.rule]]\nname = \"connections\"\nprotocol = \"tcp\"\ndestination_ports = [{CONNECTION_PORT}]\n\
         [[rate_limit.rule.limit]]\nper = \"source\"\nconnections_per_s = 1\nburst_connections = {CONNECTIONS_AT_ONCE}\n\
         [[rate_limit.rule]]\nname = \"per-source\"\nprotocol = \"udp\"\ndestination_ports = [{of_source}]\n\
         [[rate_limit.rule.limit]]\nper = \"source\"\nquota_packets = {QUOTA_PACKETS}\nperiod = \"8760h\"\n\
         [[rate_limit.rule]]\nname = \"per-connection\"\nprotocol = \"udp\"\ndestination_ports = [{of_connection}]\n\
         [[rate_limit.rule.limit]]\nper = \"connection\"\nquota_packets = {QUOTA_PACKETS}\nperiod = \"8760h\"\n\
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
        of_source = QUOTA_PORTS[0],
        of_connection = QUOTA_PORTS[1],
    )
}

fn limit(node: &Program, rule: &str) -> RateLimitStatus {
    let status = node.status().unwrap_or_default();
    status.rate_limits.into_iter().find(|limit| limit.rule == rule).unwrap_or_default()
}

/// A client's datagrams to a server outside.
struct Stream {
    client: UdpSocket,
    server: UdpSocket,
}

impl Stream {
    fn new(topology: &Topology, port: u16) -> Self {
        let server = topology.server.run(|| UdpSocket::bind((SERVER[0], port))).unwrap().expect("a free port");
        server.set_nonblocking(true).unwrap();
        let connect = || {
            let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            client.connect((SERVER[0], port))?;
            Ok::<_, std::io::Error>(client)
        };
        Self { client: topology.client.run(connect).unwrap().expect("a socket"), server }
    }

    fn received(&self) -> usize {
        let mut buffer = [0; 2048];
        let mut count = 0;
        while self.server.recv(&mut buffer).is_ok() {
            count += 1;
        }
        count
    }

    /// Sends one datagram until one arrives.
    fn wait_until_open(&self) {
        wait_until("datagrams pass", || {
            let _ = self.client.send(&[0; PAYLOAD_BYTES]);
            if self.received() > 0 { Ok(()) } else { Err("none has arrived".to_owned()) }
        });
    }

    /// Sends datagrams one by one until `most` have arrived, or `lost_max` in a row have not.
    fn send_until(&self, most: usize, lost_max: usize) -> usize {
        let (mut arrived, mut lost) = (self.received(), 0);
        while arrived < most && lost < lost_max {
            let _ = self.client.send(&[0; PAYLOAD_BYTES]);
            let began = Instant::now();
            let mut received = 0;
            while received == 0 && began.elapsed() < Duration::from_millis(50) {
                received = self.received();
            }
            arrived += received;
            lost = if received == 0 { lost + 1 } else { 0 };
        }
        arrived
    }

    /// Sends more than may pass, for a while. Returns by what part of the allowed bytes arrive.
    fn overload(&self) -> f64 {
        let per_s = OVERLOAD * BYTES_PER_S / PACKET_BYTES;
        let (began, mut sent) = (Instant::now(), 0.0);
        let mut received = 0;
        while began.elapsed() < LASTS {
            while sent < began.elapsed().as_secs_f64() * per_s {
                // A full queue of the socket loses datagrams, as a limit does.
                let _ = self.client.send(&[0; PAYLOAD_BYTES]);
                sent += 1.0;
            }
            received += self.received();
            thread::sleep(Duration::from_millis(2));
        }
        let allowed = BYTES_PER_S * began.elapsed().as_secs_f64() + BURST_BYTES;
        thread::sleep(Duration::from_millis(50));
        received += self.received();
        received as f64 * PACKET_BYTES / allowed
    }
}

fn check_rate(stream: &Stream, node: &Program) {
    let before = limit(node, "stream").beyond;
    let part = stream.overload();
    // A bucket may be overdrawn by a packet, and the client's clock begins before the gateway's.
    assert!(part <= 1.02, "{part} of the allowed bytes passed\n{}", node.log());
    assert!(part >= 1.0 - TOLERANCE, "only {part} of the allowed bytes passed\n{}", node.log());
    let beyond = limit(node, "stream").beyond;
    assert!(beyond.packets > before.packets + 1000 && beyond.connections == 0, "{beyond:?}");
    let status = node.status().expect("it answers");
    let dropped = status.drops.iter().find(|drop| drop.reason == "rate_limited").map_or(0, |drop| drop.packets);
    assert!(dropped >= beyond.packets, "{dropped} of {beyond:?}");
}

#[test]
fn rates_and_quotas_hold_through_a_killed_node() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("rate-limit");
    let start = |id: usize| Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &configuration(id));
    let a = start(0);
    a.wait_for_role("active");
    let b = start(1);
    wait_until("b is synchronised", || {
        let ready = a.status().is_some_and(|status| status.takeover.ready);
        if ready { Ok(()) } else { Err(b.log()) }
    });

    let stream = Stream::new(&topology, STREAM_PORT);
    stream.wait_until_open();
    check_rate(&stream, &a);
    let (limits, samples) = (a.status().expect("it answers").rate_limits, a.client().counters().expect("counters"));
    assert_eq!(
        limits.iter().map(|limit| limit.per.as_str()).collect::<Vec<_>>(),
        ["source", "source", "source", "connection"]
    );
    let is_of_stream = |sample: &Sample| {
        sample.name.ends_with("rate_limited_packets_total")
            && sample.labels.get("rule").is_some_and(|rule| rule == "stream")
    };
    assert!(samples.iter().any(|sample| is_of_stream(sample) && sample.value > 1000.0), "{samples:?}");

    // Each client's first SYN comes at once; no time is left for a second one.
    let address = SocketAddr::new(SERVER[0], CONNECTION_PORT);
    let _listener = topology.server.run(|| TcpListener::bind(address)).unwrap().expect("a free port");
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok();
    let connected: Vec<TcpStream> = thread::scope(|scope| {
        let clients: Vec<_> = (0..20).map(|_| scope.spawn(|| topology.client.run(connect).unwrap())).collect();
        clients.into_iter().filter_map(|client| client.join().expect("it does not panic")).collect()
    });
    // One more for each second that it took.
    let range = CONNECTIONS_AT_ONCE..=CONNECTIONS_AT_ONCE + 3;
    assert!(range.contains(&connected.len()), "{} connected\n{}", connected.len(), a.log());
    assert!(limit(&a, "connections").beyond.connections >= 10);

    // Half of each quota is used at the first node.
    let quotas = QUOTA_PORTS.map(|port| Stream::new(&topology, port));
    let before: Vec<usize> = quotas.iter().map(|stream| stream.send_until(QUOTA_PACKETS / 2 + 7, 20)).collect();
    assert_eq!(before, [QUOTA_PACKETS / 2 + 7; 2], "{}", a.log());
    wait_until("b has acknowledged all that passed", || {
        let peers = a.status().map_or(Vec::new(), |status| status.peers);
        let is_left = peers.iter().any(|peer| peer.queued + peer.in_flight > 0);
        if peers.is_empty() || is_left { Err(format!("{peers:?}")) } else { Ok(()) }
    });

    a.kill();
    b.wait_for_role("active");
    stream.wait_until_open();
    check_rate(&stream, &b);

    // The other node goes on with them. What is lost is less than a step, and a few datagrams in flight.
    for (stream, before) in quotas.iter().zip(before) {
        let total = before + stream.send_until(2 * QUOTA_PACKETS, 20);
        let range = QUOTA_PACKETS - 2..=QUOTA_PACKETS + STEP_PACKETS;
        assert!(range.contains(&total), "{total} packets passed of {QUOTA_PACKETS}, {before} before\n{}", b.log());
    }
    let status = b.status().expect("it answers");
    let dropped = status.drops.iter().find(|drop| drop.reason == "quota_exceeded").map_or(0, |drop| drop.packets);
    assert!(dropped >= 40, "{dropped}");
    // Another connection has a quota of its own, and the same source none.
    let [of_source, of_connection] = QUOTA_PORTS.map(|port| {
        let client = topology.client.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().expect("a socket");
        client.connect((SERVER[0], port)).unwrap();
        client
    });
    let [first, second] = quotas;
    let first = Stream { client: of_source, server: first.server };
    let second = Stream { client: of_connection, server: second.server };
    assert_eq!((first.send_until(5, 5), second.send_until(5, 5)), (0, 5));
}
