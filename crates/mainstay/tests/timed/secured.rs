//! Gateways whose channel is encrypted, as operators run them, and strangers on their link.

use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Instant;

use crate::common::forwarded::{self, REPLICATION_PORT, connect, echo_inside, exchange};
use crate::common::program::{Folder, Program, until, write_configuration};
use api::{DetectorState, EventKind, NodeRole, PeerStatus, Status};
use lab::testbed::topology::{SYNC, Topology};

/// Questions that are answered under each set of keys, of which there are six.
const ANSWERS_PER_SET_OF_KEYS: u64 = 11;
/// Datagrams that a stranger sends.
const FLOOD_DATAGRAMS: usize = 20_000;

/// Two machines, and a folder with what they are configured by.
struct Site {
    topology: Topology,
    nodes: [Option<Program>; 2],
    folder: Folder,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    /// Nothing, said aloud, where the machine forbids namespaces.
    fn new() -> Option<Self> {
        let turn = crate::take_turn();
        packet_io::namespace::for_tests()?;
        let topology = Topology::build().expect("namespaces can be made");
        Some(Self { topology, nodes: [None, None], folder: Folder::new("secured"), _turn: turn })
    }

    fn configure(&self, id: usize, security: &str, of_peer: &str) {
        let text = forwarded::configuration(id, "", "hold_first_reply = \"250ms\"", of_peer, security);
        write_configuration(&self.folder, &id.to_string(), &text);
    }

    fn configure_keys(&self, id: usize, keys: &[&Path], more: &str) {
        self.configure(id, &format!("pre_shared_keys = {keys:?}\n{more}"), "");
    }

    fn start(&mut self, id: usize) {
        let words = [env!("CARGO_BIN_EXE_mainstay"), "gateway"];
        let node = Program::start_as_configured(&self.topology.nodes[id], &self.folder, &id.to_string(), &words);
        self.nodes[id] = Some(node);
    }

    /// A node that was started.
    fn node(&self, id: usize) -> &Program {
        self.nodes[id].as_ref().expect("it runs")
    }

    fn kill(&mut self, id: usize) {
        self.nodes[id].take().expect("it runs").kill();
    }

    /// The node's status of its peer.
    fn peer(&self, id: usize) -> PeerStatus {
        self.node(id).status().expect("it answers").peers.remove(0)
    }

    fn wait_until_ready(&self) {
        until("the nodes are synchronised", || {
            let statuses = [self.node(0).status()?, self.node(1).status()?];
            let is_active = |status: &&Status| status.node.role == NodeRole::Active;
            let are_ready = statuses.iter().all(|status| status.takeover.ready);
            (are_ready && statuses.iter().filter(is_active).count() == 1).then_some(())
        });
    }

    fn active(&self) -> usize {
        let is_active = |node: &Option<Program>| node.as_ref().is_some_and(|node| node.role() == "active");
        self.nodes.iter().position(is_active).expect("one is active")
    }

    fn reload(&self, id: usize) -> Vec<String> {
        let report = self.node(id).client().reload(false).expect("it can be asked");
        assert!(report.applied, "{report:?}");
        report.changes
    }
}

/// A client that asks again and again.
struct Asking {
    ends: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    client: thread::JoinHandle<TcpStream>,
}

impl Asking {
    fn begin(mut stream: TcpStream) -> Self {
        let (ends, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = thread::spawn({
            let (ends, answers) = (Arc::clone(&ends), Arc::clone(&answers));
            move || {
                while !ends.load(Ordering::Relaxed) {
                    exchange(&mut stream, b"are you there?");
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                stream
            }
        });
        Self { ends, answers, client }
    }

    /// Waits for so many more answers.
    fn wait_for_answers(&self, more: u64) {
        let before = self.answers.load(Ordering::Relaxed);
        until("the client is answered", || (self.answers.load(Ordering::Relaxed) >= before + more).then_some(()));
    }

    fn end(self) -> TcpStream {
        self.ends.store(true, Ordering::Relaxed);
        self.client.join().expect("every question was answered")
    }
}

#[test]
fn connections_outlive_their_node_and_keys_are_exchanged_under_traffic() {
    let Some(mut site) = Site::new() else { return };
    let [old, new] = ["old.key", "new.key"].map(|name| site.folder.make_key(name));
    (0..2).for_each(|id| site.configure_keys(id, &[&old], "rotate_interval = \"5s\""));
    (0..2).for_each(|id| site.start(id));
    echo_inside(&site.topology);
    site.wait_until_ready();
    let first = site.peer(0).channel;
    assert!(first.secured_by.starts_with("pre-shared key ") && first.is_secured(), "{first:?}");

    let asking = Asking::begin(connect(&site.topology));
    let [both, both_new, only_new] = [vec![&*old, &*new], vec![&*new, &*old], vec![&*new]];
    for (id, keys) in [(0, &both), (1, &both), (0, &both_new), (1, &both_new), (0, &only_new), (1, &only_new)] {
        site.configure_keys(id, keys, "rotate_interval = \"5s\"");
        let changes = site.reload(id);
        assert!(changes.iter().any(|change| change.contains("pre-shared key")), "{changes:?}");
        // Under each set of keys, however busy the machine is.
        asking.wait_for_answers(ANSWERS_PER_SET_OF_KEYS);
    }
    let second = until("both nodes use the new key, and its session keys were exchanged once more", || {
        let [left, right] = [site.peer(0).channel, site.peer(1).channel];
        let is_new = left.secured_by == right.secured_by && left.secured_by != first.secured_by;
        (is_new && left.handshakes >= 4).then_some(left)
    });
    assert!(second.is_secured());
    asking.wait_for_answers(ANSWERS_PER_SET_OF_KEYS);
    let mut stream = asking.end();
    for id in 0..2 {
        let events = site.node(id).client().events().unwrap();
        let is_trouble = |kind: &EventKind| matches!(kind, EventKind::PeerDown | EventKind::ReplicationDown);
        assert!(!events.iter().any(|event| is_trouble(&event.kind)), "{events:#?}");
        let shown = format!("{:?} {}", site.node(id).status(), site.node(id).log());
        let secret = fs::read_to_string(&new).unwrap();
        assert!(!shown.contains(secret.trim()), "no secret is shown");
    }
    let active = site.active();
    site.kill(active);
    exchange(&mut stream, b"after");
    assert_eq!(site.active(), 1 - active);
    let samples = site.node(1 - active).client().counters().unwrap();
    assert!(samples.iter().any(|sample| sample.name == "mainstay_channel_secured" && sample.value == 1.0));
}

/// Processor time that a process has used, in clock ticks of a hundredth of a second.
fn processor_ticks(node: &Program) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", node.id())).expect("it runs");
    let fields: Vec<&str> = text.rsplit_once(')').expect("the name is in brackets").1.split_whitespace().collect();
    fields[11..=12].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn a_stranger_who_floods_the_port_in_the_peers_name_gets_nowhere() {
    let Some(mut site) = Site::new() else { return };
    let key = site.folder.make_key("cluster.key");
    (0..2).for_each(|id| site.configure_keys(id, &[&key], ""));
    (0..2).for_each(|id| site.start(id));
    echo_inside(&site.topology);
    site.wait_until_ready();
    let active = site.active();
    let mut stream = connect(&site.topology);
    exchange(&mut stream, b"before");
    // The stranger has the dead peer's address and port, which no peer is closer to having.
    site.kill(1 - active);
    let socket = site.topology.nodes[1 - active].run(|| UdpSocket::bind((SYNC[1 - active], REPLICATION_PORT))).unwrap();
    let socket = socket.expect("the port is free");
    let target = SocketAddr::new(SYNC[active], REPLICATION_PORT);
    until("the dead peer is found dead", || (site.peer(active).detector == DetectorState::Down).then_some(()));
    let before = (site.peer(active).channel, processor_ticks(site.node(active)));
    let began = Instant::now();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for number in 0..FLOOD_DATAGRAMS {
        let mut datagram = vec![0; [68, 60, 200, 24, 1400][number % 5]];
        for bytes in datagram.chunks_mut(8) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.copy_from_slice(&random.to_be_bytes()[..bytes.len()]);
        }
        // The channel's kinds of datagrams, plain replication, heartbeats and anything.
        datagram[0] = [0xe1, 0xe2, 0xe4, 0xf1, 0x00][number % 5];
        datagram[1] = 1;
        // A link that is full loses them, which is as good.
        let _ = socket.send_to(&datagram, target);
        if number % 100 == 0 {
            exchange(&mut stream, b"meanwhile");
        }
    }
    let elapsed = began.elapsed();
    let after = until("all was looked at", || {
        let peer = site.peer(active);
        let refused: u64 = peer.channel.refused.iter().map(|refused| refused.datagrams).sum();
        (refused > FLOOD_DATAGRAMS as u64 / 2).then_some(peer)
    });
    assert_eq!((after.channel.handshakes, &after.channel.secured_by), (before.0.handshakes, &before.0.secured_by));
    assert_eq!((after.detector, site.active()), (DetectorState::Down, active));
    let ticks = processor_ticks(site.node(active)) - before.1;
    let share = ticks as f64 / 100.0 / elapsed.as_secs_f64();
    println!("{FLOOD_DATAGRAMS} datagrams in {elapsed:?}: {ticks} hundredths of a second, {share:.2} of a processor");
    assert!(ticks < 300, "150 µs for each datagram would be far too much: {ticks} ticks");
    drop(socket);
    site.start(1 - active);
    site.wait_until_ready();
    exchange(&mut stream, b"after");
}

#[test]
fn a_node_with_another_key_is_not_believed_and_the_log_has_the_reason() {
    let Some(mut site) = Site::new() else { return };
    for id in 0..2 {
        let key = site.folder.make_key(&format!("{id}.key"));
        site.configure_keys(id, &[&key], "");
        site.start(id);
    }
    until("both log the reason", || {
        let said = |id| site.node(id).log().contains("pre_shared_keys of both nodes have a key in common");
        (said(0) && said(1)).then_some(())
    });
    let peer = site.peer(0);
    assert_eq!((peer.channel.secured_by.as_str(), peer.detector), ("establishing", DetectorState::Down));
    assert!(!site.node(0).status().expect("it answers").takeover.ready);
}

/// Runs openssl in the folder; false where there is none.
fn openssl(folder: &Path, arguments: &str) -> bool {
    let run = Command::new("openssl").current_dir(folder).args(arguments.split_whitespace()).output();
    match run {
        Ok(output) => {
            assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(_) => false,
    }
}

/// The steps for operators in docs/security.md.
fn make_authority(folder: &Path, name: &str) -> bool {
    openssl(
        folder,
        &format!(
            "req -x509 -newkey ed25519 -nodes -days 3650 -subj /CN={name} -addext basicConstraints=critical,CA:TRUE \
             -addext keyUsage=critical,keyCertSign -keyout {name}.key -out {name}.pem"
        ),
    )
}

fn make_certificate(folder: &Path, authority: &str, name: &str, key: &str) {
    let host = format!("{name}.example");
    let made = openssl(
        folder,
        &format!(
            "req -x509 -newkey {key} -nodes -days 365 -subj /CN={host} -addext subjectAltName=DNS:{host} \
             -addext basicConstraints=critical,CA:FALSE -CA {authority}.pem -CAkey {authority}.key -keyout {name}.key \
             -out {name}.pem"
        ),
    );
    assert!(made);
}

fn certificate_section(site: &Site, name: &str) -> String {
    let [certificate, key, authority] =
        [format!("{name}.pem"), format!("{name}.key"), "authority.pem".to_owned()].map(|file| site.folder.join(file));
    format!("certificate = {certificate:?}\nkey = {key:?}\nauthority = {authority:?}\nrotate_interval = \"5s\"")
}

#[test]
fn nodes_authenticate_by_certificates_that_openssl_made() {
    let Some(mut site) = Site::new() else { return };
    if !make_authority(&site.folder, "authority") {
        packet_io::namespace::skip("there is no openssl");
        return;
    }
    make_certificate(&site.folder, "authority", "left", "ed25519");
    make_certificate(&site.folder, "authority", "right", "ec -pkeyopt ec_paramgen_curve:P-256");
    site.configure(0, &certificate_section(&site, "left"), "certificate_name = \"right.example\"");
    site.configure(1, &certificate_section(&site, "right"), "certificate_name = \"left.example\"");
    (0..2).for_each(|id| site.start(id));
    echo_inside(&site.topology);
    site.wait_until_ready();
    assert_eq!(site.peer(0).channel.secured_by, "certificate right.example");
    assert_eq!(site.peer(1).channel.secured_by, "certificate left.example");
    let mut stream = connect(&site.topology);
    exchange(&mut stream, b"before");
    until("session keys were exchanged", || (site.peer(0).channel.handshakes >= 2).then_some(()));

    // Somebody else's authority.
    let active = site.active();
    let standby = 1 - active;
    site.kill(standby);
    assert!(make_authority(&site.folder, "stranger"));
    make_certificate(&site.folder, "stranger", "forged", "ed25519");
    let genuine = ["left", "right"];
    let name = format!("certificate_name = \"{}.example\"", genuine[active]);
    site.configure(standby, &certificate_section(&site, "forged"), &name);
    site.start(standby);
    until("the log has the reason", || site.node(active).log().contains("not issued by the authority").then_some(()));
    until("the node that was killed is found dead", || {
        (site.peer(active).detector == DetectorState::Down).then_some(())
    });
    exchange(&mut stream, b"meanwhile");
    assert_eq!(site.peer(active).detector, DetectorState::Down, "the forged one is not accepted");

    site.kill(standby);
    site.configure(standby, &certificate_section(&site, genuine[standby]), &name);
    site.start(standby);
    site.wait_until_ready();
    site.kill(active);
    exchange(&mut stream, b"after");
}

#[test]
fn a_key_that_others_may_read_keeps_a_gateway_from_starting() {
    use std::os::unix::fs::PermissionsExt;
    let Some(mut site) = Site::new() else { return };
    let key = site.folder.make_key("cluster.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    site.configure_keys(0, &[&key], "");
    site.start(0);
    let node = site.nodes[0].as_mut().expect("it was started");
    let status = until("it ends", || node.has_ended());
    let log = site.node(0).log();
    assert!(!status.success() && log.contains(&format!("chmod 600 {}", key.display())), "{log}");
}

#[test]
fn plain_text_is_said_so() {
    let Some(mut site) = Site::new() else { return };
    site.configure(0, "mode = \"plain\"", "");
    site.start(0);
    let status = until("it answers", || site.node(0).status());
    assert_eq!(status.peers[0].channel.secured_by, "plain");
    let events = site.node(0).client().events().unwrap();
    let warned =
        events.iter().filter(|event| event.kind == EventKind::Warning && event.detail.contains("not encrypted"));
    assert_eq!(warned.count(), 1, "{events:#?}");
    assert!(site.node(0).log().contains("not encrypted"));
}
