//! Gateways with several workers, as operators run them: real packets through real threads.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use api::{EventKind, FlowFilterText, Status};
use control::client::Client;
use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE, SYNC, Topology};
use packet_io::namespace::{NamespaceSupport, probe};
use packet_io::signal::die_with_parent;

/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The port that clients outside connect to, and the one that they reach inside.
const FORWARDED: (u16, u16) = (443, 8443);
/// Connections through the gateway: so many that no worker is left without.
const CONNECTIONS: usize = 40;

/// One network at a time: several would take each other's processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Gateway {
    child: Child,
    folder: PathBuf,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A key that all gateways of this process have in common.
fn key_file() -> PathBuf {
    static MADE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let make = || {
        let path = std::env::temp_dir().join(format!("mainstay-workers-{}.key", std::process::id()));
        let made = Command::new(env!("CARGO_BIN_EXE_mainstay")).arg("key").arg("--output").arg(&path).output();
        assert!(made.is_ok_and(|made| made.status.success()), "a key can be made");
        path
    };
    MADE.get_or_init(make).clone()
}

impl Gateway {
    fn start(topology: &Topology, id: usize, workers: u8) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let nth = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("mainstay-workers-{}-{nth}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary directory");
        let other = 1 - id;
        let (inside, outside, client) = (INSIDE[0], OUTSIDE[0], CLIENT[0]);
        let text = format!(
            "[node]\nid = {id}\nnodes = 2\npriority = {}\ncontrol_socket = {:?}\n\
             [workers]\ncount = {workers}\npin = true\n\
             [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/24\"]\n\
             [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/24\"]\n\
             [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
             [[nat.destination]]\ndestination = \"{outside}\"\nprotocol = \"tcp\"\nport = {}\nto = \"{client}:{}\"\n\
             [replication]\nlocal = \"{}:3781\"\n[[replication.peer]]\nid = {other}\naddress = \"{}:3781\"\n\
             [replication.security]\npre_shared_keys = [{:?}]\n",
            200 - 100 * id,
            folder.join("socket"),
            FORWARDED.0,
            FORWARDED.1,
            SYNC[id],
            SYNC[other],
            key_file(),
        );
        let config = folder.join("node.toml");
        fs::write(&config, text).expect("the configuration can be written");
        let log = fs::File::create(folder.join("log")).expect("the log can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command.arg("gateway").arg("--config").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        die_with_parent(&mut command);
        let child = topology.nodes[id].spawn_command(command).expect("the program can be run");
        Self { child, folder }
    }

    fn client(&self) -> Option<Client> {
        Client::connect(&self.folder.join("socket")).ok()
    }

    fn status(&self) -> Option<Status> {
        self.client()?.status().ok()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn terminate(&mut self) -> ExitStatus {
        let killed = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(killed.is_ok_and(|status| status.success()));
        until("the gateway ends", || self.child.try_wait().expect("it is a child"))
    }
}

fn take_turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The network and its two gateways, node 0 active; nothing where the machine forbids namespaces, which is printed.
fn start(workers: [u8; 2]) -> Option<(Topology, [Gateway; 2])> {
    if probe() != NamespaceSupport::Available {
        packet_io::namespace::skip(format_args!("{:?}", probe()));
        return None;
    }
    let topology = Topology::build().expect("namespaces can be made");
    let active = Gateway::start(&topology, 0, workers[0]);
    // A node that starts more than the startup hold before its peer becomes active whatever its priority is. On a busy
    // machine that can be either of two that start together.
    until("node 0 is active", || active.status().filter(|status| status.node.role == "active"));
    let standby = Gateway::start(&topology, 1, workers[1]);
    Some((topology, [active, standby]))
}

/// Waits until `gateway` has `role` and a take-over is ready; its status and its log say why it never is.
fn ready(gateway: &Gateway, role: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = gateway.status();
        if status.as_ref().is_some_and(|status| status.node.role == role && status.takeover.ready) {
            return;
        }
        assert!(Instant::now() < deadline, "never {role} and ready: {status:#?}\n{}", gateway.log());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A host inside that sends back what it is sent.
fn echo_inside(topology: &Topology) {
    let address = SocketAddr::new(CLIENT[0], FORWARDED.1);
    let listener = topology.client.run(|| TcpListener::bind(address).expect("the address is free")).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut writer = stream.try_clone().expect("descriptors are left");
                // It ends with its connection, or with the test.
                let _ = io::copy(&mut &stream, &mut writer);
            });
        }
    });
}

fn connect(topology: &Topology) -> TcpStream {
    let address = SocketAddr::new(OUTSIDE[0], FORWARDED.0);
    let stream = topology.server.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
    let stream = stream.expect("the connection is let through");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).expect("an answer comes");
    assert_eq!(answer, text);
}

#[test]
fn connections_whose_replies_come_to_another_worker_pass_and_outlive_their_node() {
    let _turn = take_turn();
    let Some((topology, [mut active, standby])) = start([2, 2]) else { return };
    echo_inside(&topology);
    ready(&active, "active");
    ready(&standby, "standby");
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&topology)).collect();
    streams.iter_mut().for_each(|stream| exchange(stream, b"before"));

    let status = active.status().expect("it answers");
    let [first, second] = &status.workers[..] else { panic!("two workers: {status:?}") };
    assert!(first.connections > 5 && second.connections > 5, "{status:#?}");
    assert_eq!(status.connections.count, first.connections + second.connections);
    assert!(first.redirects > 0 && second.redirects > 0 && first.taken > 0 && second.taken > 0, "{status:#?}");
    let mut flows = 0;
    let mut client = active.client().expect("it answers");
    client
        .flows(FlowFilterText { port: Some(FORWARDED.1), ..FlowFilterText::default() }, 1000, |_| flows += 1)
        .unwrap();
    assert_eq!(flows, CONNECTIONS, "the flows of all workers are listed");
    let samples = client.counters().unwrap();
    let connections = samples.iter().find(|sample| sample.name == "mainstay_connections").expect("it is counted");
    assert!(connections.value >= CONNECTIONS as f64);
    until("the standby has all copies, and knows where their replies come to", || {
        let copies = standby.status()?;
        let redirects = |status: &Status| status.workers.iter().map(|worker| worker.redirects).collect::<Vec<_>>();
        (copies.connections.count == status.connections.count && redirects(&copies) == redirects(&status)).then_some(())
    });

    active.child.kill().unwrap();
    streams.iter_mut().for_each(|stream| exchange(stream, b"after"));
    let status = standby.status().expect("it answers");
    assert_eq!(status.node.role, "active");
    assert!(status.workers.iter().all(|worker| worker.forwarded > 0 && worker.taken > 0), "{status:#?}");
    let events = standby.client().expect("it answers").events().unwrap();
    let first_packets = events.iter().filter(|event| event.kind == EventKind::FirstPacketForwarded).count();
    assert_eq!(first_packets, 1, "whichever worker it came to: {events:#?}");
}

#[test]
fn nodes_with_different_numbers_of_workers_say_so_and_end_in_good_order() {
    let _turn = take_turn();
    let Some((_topology, [mut active, standby])) = start([2, 1]) else { return };
    let why_not = until("the nodes refuse each other", || {
        let [first, second] = [active.status()?, standby.status()?];
        let is_told = first.takeover.why_not.iter().any(|why| why.contains("workers.count"));
        (first.node.role == "active" && is_told && !second.takeover.ready).then_some(first.takeover.why_not)
    });
    assert!(!why_not.is_empty());
    let events = active.client().expect("it answers").events().unwrap();
    let is_told = events.iter().any(|event| event.detail.contains("node 1 runs 1 workers, this node 2"));
    assert!(is_told, "{events:#?}");
    assert!(active.log().contains("workers.count"), "{}", active.log());

    assert!(active.terminate().success(), "all workers end: {}", active.log());
    until("the other node has the addresses", || standby.status().filter(|status| status.node.role == "active"));
}

#[test]
fn reloads_and_a_rolling_restart_reach_every_worker_and_lose_no_connection() {
    let _turn = take_turn();
    if let NamespaceSupport::Forbidden(why) = probe() {
        packet_io::namespace::skip(format_args!("{why}"));
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--rolling-restart", "--workers", "2", "--seconds", "2", "--json"])
        .output()
        .expect("the program can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(result["connections"].as_u64() > Some(60), "{result:#}");
    assert_eq!(result["survived"], result["connections"], "{result:#}");
}
