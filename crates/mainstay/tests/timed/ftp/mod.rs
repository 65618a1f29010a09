//! FTP through real nodes: data connections that no rule allows pass because they were announced, translated both ways, and
//! also when the node that received the announcement is dead.

mod client;
mod server;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use crate::common::program::PATIENCE;
use crate::common::program::{Folder, Program, wait_until};
use api::{FlowFilterText, NodeRole, PathState};
use client::{FtpClient, Mode};
use packet_io::netlink::Netlink;

use lab::testbed::topology::{CLIENT, INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const FILE_BYTES: usize = 1 << 20;
const FTP_PORT: u16 = 21;
/// Where the server inside listens, which is reached from outside by the shared address and [`FTP_PORT`].
const FORWARDED_PORT: u16 = 2121;

/// The bytes of every file.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|position| (position.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// The next connection, if one comes in time.
pub(crate) fn accept_within(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                thread::sleep(POLL_INTERVAL);
            }
            Err(error) => return Err(error),
        }
    }
}

fn configuration(number: usize, workers: u8, security: &str) -> String {
    let mut text = format!(
        "chain = [\"firewall\", \"nat\", \"ftp\"]\n[node]\nid = {number}\nnodes = 2\npriority = {}\n\
         control_socket = \"CONTROL\"\n[workers]\ncount = {workers}\n[ftp]\nports = [{FTP_PORT}]\n",
        200 - number
    );
    for (name, shared) in [(INTERFACES[0], INSIDE), (INTERFACES[1], OUTSIDE)] {
        let [v4, v6] = [0, 1].map(|family| format!("{}/{}", shared[family], PREFIX_BITS[family]));
        let _ = writeln!(text, "[[port]]\nname = \"{name}\"\ninterface = \"{name}\"\naddresses = [\"{v4}\", \"{v6}\"]");
    }
    // Control connections and nothing else, so that data connections pass for their announcement alone.
    for name in &INTERFACES[..2] {
        let rule =
            format!("name = \"{name}\"\nfrom = \"{name}\"\nprotocol = \"tcp\"\ndestination_ports = [{FTP_PORT}]");
        let _ = writeln!(text, "[[firewall.rule]]\n{rule}\naction = \"accept\"");
    }
    for (inside, shared) in CLIENT.into_iter().zip(OUTSIDE) {
        let to = SocketAddr::new(inside, FORWARDED_PORT);
        let _ = writeln!(text, "[[nat.source]]\nsource = [\"{inside}\"]\nto = [\"{shared}\"]");
        let _ = writeln!(
            text,
            "[[nat.destination]]\ndestination = \"{shared}\"\nprotocol = \"tcp\"\nport = {FTP_PORT}\nto = \"{to}\""
        );
    }
    let (own, other) = (SYNC[number], SYNC[1 - number]);
    let _ = writeln!(text, "[replication]\nlocal = \"{own}:3781\"");
    let _ = writeln!(text, "[replication.security]\n{security}");
    let _ = writeln!(text, "[[replication.peer]]\nid = {}\naddress = \"{other}:3781\"", 1 - number);
    text
}

/// Two gateways, the first of them active, both of them ready.
fn start(topology: &Topology, folder: &Folder, workers: u8, security: &str) -> [Program; 2] {
    let nodes = [0, 1].map(|number| {
        let text = configuration(number, workers, security);
        let node = Program::start(&topology.nodes[number], folder, &number.to_string(), "gateway", &text);
        // The first that is ready becomes active, and no other takes that from it.
        if number == 0 {
            node.wait_for_role("active");
        }
        node
    });
    wait_until("both nodes are ready", || {
        let statuses = [0, 1].map(|number: usize| nodes[number].status());
        let [Some(first), Some(second)] = &statuses else { return Err("one does not answer".to_owned()) };
        let have_roles = first.node.role == NodeRole::Active && second.node.role == NodeRole::Standby;
        if have_roles && first.peers[0].synchronised { Ok(()) } else { Err(format!("{statuses:#?}")) }
    });
    nodes
}

/// What a node counts under this name of the FTP helper.
fn counter(node: &Program, event: &str) -> f64 {
    let samples = node.client().counters().unwrap();
    let is_it = |sample: &api::metrics::Sample| {
        let labels = format!("{:?}", sample.labels);
        labels.contains("\"ftp\"") && labels.contains(&format!("{event:?}"))
    };
    samples.iter().find(|sample| is_it(sample)).expect(event).value
}

/// Files go both ways in a mode that the address's family has.
fn transfer(server: SocketAddr, mode: Mode) {
    let mut client = FtpClient::connect(server);
    let announced = client.announce(mode);
    client.fetch(announced, FILE_BYTES);
    let announced = client.announce(mode);
    client.store(announced, FILE_BYTES);
    assert_eq!(client.command("QUIT").0, 221);
}

fn modes(server: SocketAddr) -> &'static [Mode] {
    if server.is_ipv4() {
        &[Mode::Port, Mode::ExtendedPort, Mode::Passive, Mode::ExtendedPassive]
    } else {
        &[Mode::ExtendedPort, Mode::ExtendedPassive]
    }
}

/// Python's client, where there is one: an implementation that is not ours.
fn pythons_client_agrees(topology: &Topology, server: SocketAddr) {
    let script = format!(
        "import ftplib\nftp = ftplib.FTP()\nftp.connect('{}', {})\nftp.login()\n\
         for passive in (True, False):\n ftp.set_pasv(passive)\n parts = []\n\
         \x20ftp.retrbinary('RETR 100000', parts.append)\n assert sum(map(len, parts)) == 100000\nftp.quit()\n",
        server.ip(),
        server.port()
    );
    let mut command = Command::new("python3");
    command.arg("-c").arg(script).stdin(Stdio::null());
    match topology.client.spawn_command(command) {
        Ok(mut child) => assert!(child.wait().unwrap().success(), "ftplib with {server}"),
        Err(error) => packet_io::namespace::skip(format_args!("Python's client: {error}")),
    }
}

#[test]
fn data_connections_follow_their_announcements_through_translation_and_failover() {
    follow_their_announcements(1);
}

#[test]
fn data_connections_follow_their_announcements_to_whichever_worker_they_come() {
    follow_their_announcements(2);
}

/// Through nodes of so many workers.
fn follow_their_announcements(workers: u8) {
    // One network at a time: what is waited for has a limit.
    let _turn = crate::take_turn();
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Topology::build().unwrap();
    for server in SERVER.map(|address| SocketAddr::new(address, FTP_PORT)) {
        topology.server.run(|| server::serve(TcpListener::bind(server).unwrap())).unwrap();
    }
    for server in CLIENT.map(|address| SocketAddr::new(address, FORWARDED_PORT)) {
        topology.client.run(|| server::serve(TcpListener::bind(server).unwrap())).unwrap();
    }
    let folder = Folder::new("ftp");
    let [active, standby] = start(&topology, &folder, workers, "mode = \"plain\"");

    // A client inside, behind source NAT.
    for server in SERVER.map(|address| SocketAddr::new(address, FTP_PORT)) {
        for mode in modes(server) {
            topology.client.run(|| transfer(server, *mode)).unwrap();
        }
        pythons_client_agrees(&topology, server);
    }
    // A server inside, forwarded to.
    for server in OUTSIDE.map(|address| SocketAddr::new(address, FTP_PORT)) {
        for mode in modes(server) {
            topology.server.run(|| transfer(server, *mode)).unwrap();
        }
    }
    assert!(counter(&active, "rewritten") >= 8.0);
    assert_eq!(counter(&active, "addresses_refused"), 0.0);
    nothing_else_passes(&topology);

    // Announced, and then the node dies.
    let server = SocketAddr::new(SERVER[0], FTP_PORT);
    let mut client = topology.client.run(|| FtpClient::connect(server)).unwrap();
    let announced = topology.client.run(|| client.announce(Mode::Port)).unwrap();
    active.kill();
    standby.wait_for_role("active");
    client.fetch(announced, FILE_BYTES);
    let flows = related_flows(&standby);
    assert!(flows.iter().any(|master| master.ends_with(":21")), "{flows:?}");
    let announced = topology.client.run(|| client.announce(Mode::Port)).unwrap();
    client.fetch(announced, FILE_BYTES);
}

#[test]
fn a_download_begun_while_the_replication_link_is_down_outlives_its_node() {
    downloads_outlive_a_node_without_its_replication_link(1);
}

#[test]
fn a_download_begun_while_the_replication_link_is_down_outlives_its_node_whichever_worker_has_it() {
    downloads_outlive_a_node_without_its_replication_link(2);
}

/// Through nodes of so many workers. The files are larger than all buffers, so that a download lasts until its client has read.
fn downloads_outlive_a_node_without_its_replication_link(workers: u8) {
    const LARGE_FILE_BYTES: usize = 32 << 20;
    let _turn = crate::take_turn();
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Topology::build().unwrap();
    let server = SocketAddr::new(SERVER[0], FTP_PORT);
    topology.server.run(|| server::serve(TcpListener::bind(server).unwrap())).unwrap();
    let folder = Folder::new("ftp-link-down");
    let key = folder.make_key("cluster.key");
    let [active, standby] = start(&topology, &folder, workers, &format!("pre_shared_keys = [{key:?}]"));
    let paths =
        |node: &Program| node.status().and_then(|status| status.peers.into_iter().next()).unwrap_or_default().paths;
    wait_until("all paths are up", || {
        let found = [paths(&active), paths(&standby)];
        let are_up = found.iter().all(|paths| paths.len() == 3 && paths.iter().all(|path| path.state == PathState::Up));
        if are_up { Ok(()) } else { Err(format!("{found:?}")) }
    });
    topology.nodes[0].run(|| Netlink::open()?.set_up(INTERFACES[2], false)).unwrap().unwrap();
    wait_until("the cut is noticed", || {
        let found = paths(&active);
        let is_down = found.iter().any(|path| path.path == "replication" && path.state == PathState::Down);
        if is_down { Ok(()) } else { Err(format!("{found:?}")) }
    });

    let mut client = topology.client.run(|| FtpClient::connect(server)).unwrap();
    let mut waiting = topology.client.run(|| FtpClient::connect(server)).unwrap();
    let announced = topology.client.run(|| client.announce(Mode::Port)).unwrap();
    let awaited = topology.client.run(|| waiting.announce(Mode::Port)).unwrap();
    client.fetch_around(announced, LARGE_FILE_BYTES, || {
        wait_until("the standby has all connections", || {
            let status = active.status().unwrap();
            let covered = status.peers[0].uncovered == 0 && status.takeover.ready;
            if covered { Ok(()) } else { Err(format!("{:?} {:?}", status.peers, status.takeover)) }
        });
        active.kill();
        standby.wait_for_role("active");
    });
    // Announced before the death.
    waiting.fetch(awaited, FILE_BYTES);
}

/// A connection from outside that was not announced begins nothing.
fn nothing_else_passes(topology: &Topology) {
    let listener = topology.client.run(|| TcpListener::bind(SocketAddr::new(CLIENT[0], 0)).unwrap()).unwrap();
    let target = SocketAddr::new(OUTSIDE[0], listener.local_addr().unwrap().port());
    let refused = topology.server.run(|| TcpStream::connect_timeout(&target, Duration::from_millis(300))).unwrap();
    assert!(refused.is_err());
}

/// Where the masters of related connections go to.
fn related_flows(node: &Program) -> Vec<String> {
    let mut masters = Vec::new();
    node.client()
        .flows(FlowFilterText::default(), 100, |flow| masters.extend(flow.related_to.map(|ends| ends.destination)))
        .unwrap();
    masters
}
