//! Real clients behind two gateways with a URL filter: blocked hosts are answered by the gateway, allowed connections survive a killed node,
//! and lists change by reload.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::thread;
use std::time::Duration;

use api::UrlFilterStatus;
use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};
use network_functions::inspect::quic::Version;
use network_functions::inspect::quic::decryption::client_initial_bytes;
use network_functions::inspect::tls;

use crate::common::program::{Folder, PATIENCE, Program, mainstay, wait_until};

pub(super) const WEB: u16 = 80;
pub(super) const TLS: u16 = 443;
const DNS: u16 = 53;
/// Allowed connections that live through the kill.
const CONNECTIONS: usize = 10;

/// The configuration of a node with these sections of the URL filter.
fn configuration(id: usize, family: usize, sections: &str) -> String {
    let (inside, outside, bits) = (INSIDE[family], OUTSIDE[family], PREFIX_BITS[family]);
    format!(
        "chain = [\"firewall\", \"url_filter\", \"nat\"]\n\
         [node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\"]\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         {sections}\
         [[nat.source]]\nsource = [\"{client}\"]\nto = [\"{outside}\"]\n\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\nmode = \"plain\"\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        priority = 200 - 100 * id,
        client = CLIENT[family],
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

/// A node with these sections of the URL filter.
pub(super) fn start_node(topology: &Topology, folder: &Folder, id: usize, family: usize, sections: &str) -> Program {
    let text = configuration(id, family, sections);
    Program::start(&topology.nodes[id], folder, ["a", "b"][id], "gateway", &text)
}

/// Two nodes with these sections of the URL filter: a is active, and b is ready to take over.
pub(super) fn start_pair(topology: &Topology, folder: &Folder, family: usize, sections: &str) -> [Program; 2] {
    let a = start_node(topology, folder, 0, family, sections);
    a.wait_for_role("active");
    let b = start_node(topology, folder, 1, family, sections);
    wait_until("b is synchronised", || {
        let ready = a.status().is_some_and(|status| status.takeover.ready);
        if ready { Ok(()) } else { Err(b.log()) }
    });
    [a, b]
}

/// A server outside that sends back what it receives over TCP.
pub(super) fn serve(topology: &Topology, address: IpAddr) {
    for port in [WEB, TLS] {
        let listener = topology.server.run(|| TcpListener::bind((address, port))).unwrap().expect("the port is free");
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

/// A server outside that sends back the datagrams that it receives on the port of QUIC.
fn serve_datagrams(topology: &Topology, address: IpAddr) {
    let socket = topology.server.run(|| UdpSocket::bind((address, TLS))).unwrap().expect("the port is free");
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..bytes], from);
        }
    });
}

/// Sends the first datagrams of a QUIC connection, and returns whether the last one comes back within `patience`.
fn begin_quic(topology: &Topology, address: IpAddr, name: &str, patience: Duration) -> bool {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = topology.client.run(|| UdpSocket::bind(any)).unwrap().expect("a socket");
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.connect((address, TLS)).unwrap();
    let message = tls::client_hello_bytes(&[(51, &[7; 1216]), (0, &tls::server_name_bytes(name))]);
    let mut last = Vec::new();
    for range in [0..700, 700..message.len()] {
        last = client_initial_bytes(Version::V1, &[7; 8], 0, &[(range.start, &message[range])]).expect("it fits");
        socket.send(&last).unwrap();
    }
    let mut back = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut back).ok().map(|bytes| back[..bytes] == last)).any(|is_last| is_last)
}

/// A client's connection.
pub(super) struct Talk(TcpStream);

impl Talk {
    pub(super) fn begin(topology: &Topology, address: IpAddr, port: u16) -> Self {
        let end = SocketAddr::new(address, port);
        let stream = topology.client.run(|| TcpStream::connect_timeout(&end, PATIENCE)).unwrap();
        let stream = stream.expect("the server answers");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends bytes and receives them back.
    pub(super) fn exchange(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it is open");
        let mut back = vec![0; bytes.len()];
        self.0.read_exact(&mut back).expect("they come back");
        assert_eq!(back, bytes);
    }

    /// Sends bytes; true if they come back.
    pub(super) fn try_exchange(&mut self, bytes: &[u8]) -> bool {
        let mut back = vec![0; bytes.len()];
        self.0.write_all(bytes).is_ok() && self.0.read_exact(&mut back).is_ok() && back == bytes
    }

    /// Sends bytes and reads to the end of the stream.
    pub(super) fn ask(mut self, bytes: &[u8]) -> Result<String, ErrorKind> {
        self.0.write_all(bytes).expect("it is open");
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).map(|_| answer).map_err(|error| error.kind())
    }
}

pub(super) fn get(host: &str) -> Vec<u8> {
    format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// A ClientHello as browsers send it: larger than a segment.
pub(super) fn hello(server: &str) -> Vec<u8> {
    let extensions = [(51, &[7; 1800][..]), (0, &tls::server_name_bytes(server))];
    tls::in_records(&tls::client_hello_bytes(&extensions), 1 << 14)
}

fn query(name: &str) -> Vec<u8> {
    let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend(b"\0\0\x01\0\x01");
    query
}

/// The response code of the answer to a question.
fn response_code(topology: &Topology, address: IpAddr, name: &str) -> u8 {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = topology.client.run(|| UdpSocket::bind(any)).unwrap().expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect((address, DNS)).unwrap();
    socket.send(&query(name)).unwrap();
    let mut answer = [0; 512];
    let bytes = socket.recv(&mut answer).expect("an answer comes");
    assert!(bytes > 12 && answer[..2] == [0x12, 0x34] && answer[2] & 0x80 != 0, "{:?}", &answer[..bytes]);
    answer[3] & 0xf
}

pub(super) fn filter(node: &Program) -> UrlFilterStatus {
    node.status().and_then(|status| status.url_filter).map(|filter| *filter).unwrap_or_default()
}

pub(super) fn decided(node: &Program, category: &str, outcome: &str) -> u64 {
    let rules = filter(node).rules;
    let decisions = rules.iter().flat_map(|rule| &rule.decisions);
    decisions.filter(|it| it.category == category && it.outcome == outcome).map(|it| it.count).sum()
}

fn reload(node: &Program) -> Output {
    mainstay(&["reload", "--socket"]).arg(node.socket()).output().expect("the program can be run")
}

/// Blocked and allowed connections, as clients see them.
fn check(topology: &Topology, address: IpAddr, blocked: &str, allowed: &str) {
    let page = Talk::begin(topology, address, WEB).ask(&get(blocked)).expect("a page comes");
    assert!(page.starts_with("HTTP/1.1 403 Forbidden\r\n") && page.contains("<b>ads</b>"), "{page}");
    assert_eq!(Talk::begin(topology, address, TLS).ask(&hello(blocked)), Err(ErrorKind::ConnectionReset));
    assert_eq!(response_code(topology, address, blocked), 3, "the name does not exist");
    assert!(!begin_quic(topology, address, blocked, Duration::from_millis(300)), "the second datagram is dropped");
    assert!(begin_quic(topology, address, allowed, PATIENCE), "both datagrams pass");
    Talk::begin(topology, address, WEB).exchange(&get(allowed));
    Talk::begin(topology, address, TLS).exchange(&hello(allowed));
}

fn filter_through_a_failover_and_a_reload(family: usize) {
    if packet_io::namespace::for_tests().is_none() {
        return;
    }
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("url-filter");
    let list = folder.join("ads.txt");
    fs::write(&list, "# advertisements\nads.example\n").expect("a list");
    let address = SERVER[family];
    serve(&topology, address);
    serve_datagrams(&topology, address);
    let sections = format!(
        "[[url_filter.list]]\ncategory = \"ads\"\npath = \"{}\"\n\
         [[url_filter.rule]]\nname = \"web\"\nports = [{WEB}, {TLS}]\nblock = [\"ads\"]\naction = \"block-page\"\ndns = \"nxdomain\"\nquic = true\n",
        list.display()
    );
    let [a, b] = start_pair(&topology, &folder, family, &sections);

    check(&topology, address, "www.ads.example", "www.example.org");
    assert_eq!(decided(&a, "ads", "blocked"), 4, "{:?}", filter(&a));
    assert_eq!(decided(&a, "uncategorised", "allowed"), 3, "{:?}", filter(&a));

    let url =
        mainstay(&["url", "www.ads.example", "--socket"]).arg(a.socket()).output().expect("the program can be run");
    let shown = String::from_utf8_lossy(&url.stdout).into_owned();
    assert!(
        shown.contains("is in ads") && shown.lines().any(|row| row.contains("web") && row.contains("blocked")),
        "{url:?}"
    );

    // Allowed connections survive the node, and node b does not decide about them again.
    let mut talks: Vec<Talk> = (0..CONNECTIONS)
        .map(|number| {
            let (port, first) = if number % 2 == 0 { (WEB, get("a.example")) } else { (TLS, hello("a.example")) };
            let mut talk = Talk::begin(&topology, address, port);
            talk.exchange(&first);
            talk
        })
        .collect();
    wait_until("b has the verdicts", || {
        let status = a.status().map(|status| status.peers.iter().all(|peer| peer.queued + peer.in_flight == 0));
        if status == Some(true) { Ok(()) } else { Err(a.log()) }
    });
    a.kill();
    b.wait_for_role("active");
    talks.iter_mut().for_each(|talk| talk.exchange(&get("www.ads.example")));
    assert_eq!(decided(&b, "uncategorised", "allowed") + decided(&b, "ads", "blocked"), 0, "{:?}", filter(&b));
    check(&topology, address, "ads.example", "example.org");

    // A list changes by a reload, and one with a mistake changes nothing.
    fs::write(&list, "other.example\n").expect("a list");
    let reloaded = reload(&b);
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert!(
        String::from_utf8_lossy(&reloaded.stdout).contains("entries of url_filter lists: 1 before, 1 now"),
        "{reloaded:?}"
    );
    check(&topology, address, "other.example", "ads.example");
    fs::write(&list, "ads.example\nnot a host\n").expect("a list");
    let refused = reload(&b);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(!refused.status.success() && said.contains("ads.txt: line 2: there is more than one word"), "{refused:?}");
    check(&topology, address, "other.example", "ads.example");
    fs::remove_file(&list).expect("it is there");
    assert!(!reload(&b).status.success(), "a list that is gone");
    talks.iter_mut().for_each(|talk| talk.exchange(b"the rest"));
    assert_eq!(decided(&b, "ads", "blocked"), 12, "{:?}", filter(&b));
}

#[test]
fn blocked_hosts_are_refused_and_allowed_connections_survive_over_ipv4() {
    filter_through_a_failover_and_a_reload(0);
}

#[test]
fn blocked_hosts_are_refused_and_allowed_connections_survive_over_ipv6() {
    filter_through_a_failover_and_a_reload(1);
}
