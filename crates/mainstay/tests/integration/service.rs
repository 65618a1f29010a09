//! The gateway as a service: its notifications to the service manager, and that it needs no more than its unit gives it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::common::program::{Folder, PATIENCE, mainstay};
use crate::common::sync::SyncPair;
use crate::common::{Host, SOUND, gateway};
use packet_io::signal::{self, Signal, die_with_parent};

/// The user and group "nobody" of every distribution.
const NOBODY: &str = "65534";
/// The most that `systemd-analyze security` may find exposed, of 100.
const EXPOSURE_MAX: u32 = 30;

/// What the watchdog is fed with.
const WATCHDOG: &str = "WATCHDOG=1";

/// The service manager of one gateway.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    /// The messages that came while the watchdog was waited for.
    states: RefCell<VecDeque<String>>,
}

impl Manager {
    fn new(host: &Host) -> Self {
        let path = host.folder.join("notify.sock");
        let socket = UnixDatagram::bind(&path).expect("a free path");
        socket.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        // Any user that the gateway runs as must reach it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        Self { socket, path, states: RefCell::default() }
    }

    /// Waits for a message that contains all of `parts`. Messages before it are taken as read, but those of the watchdog,
    /// which come between the others at any time.
    fn wait_for(&self, parts: &[&str]) {
        let is_it = |text: &str| parts.iter().all(|part| text.contains(part));
        let mut passed = Vec::new();
        while let Some(text) = self.states.borrow_mut().pop_front().or_else(|| self.receive(|text| text != WATCHDOG)) {
            if is_it(&text) {
                return;
            }
            passed.push(text);
        }
        panic!("waited for {parts:?} and received {passed:?}");
    }

    /// Waits for the next message of the watchdog. The others stay to be waited for.
    fn wait_for_watchdog(&self) {
        let fed = self.receive(|text| {
            if text != WATCHDOG {
                self.states.borrow_mut().push_back(text.to_owned());
            }
            text == WATCHDOG
        });
        assert!(fed.is_some(), "waited for the watchdog and received {:?}", self.states.borrow());
    }

    /// The next message from the socket that `is_awaited`; none if it does not come in time.
    fn receive(&self, is_awaited: impl Fn(&str) -> bool) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = [0; 1024];
        while Instant::now() < deadline {
            let length = self.socket.recv(&mut bytes).ok()?;
            let text = String::from_utf8_lossy(&bytes[..length]);
            if is_awaited(&text) {
                return Some(text.into_owned());
            }
        }
        None
    }

    /// Starts `command` under this manager in the host's namespace.
    fn start(&self, host: &Host, mut command: Command) -> Child {
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "600000").env_remove("WATCHDOG_PID");
        command.stderr(Stdio::piped());
        die_with_parent(&mut command);
        host.namespace.spawn_command(command).expect("it starts")
    }
}

/// Waits for the gateway to end well, and gives what it logged.
fn ended(child: Child) -> String {
    let output = child.wait_with_output().expect("it is our child");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    log
}

fn unit(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    let text = fs::read_to_string(&path).expect("the unit is there");
    (path, text)
}

/// Whether the program is installed; prints a message if not.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        packet_io::namespace::skip(format_args!("{program} is not installed"));
    }
    found
}

#[test]
fn a_service_manager_is_notified_from_start_to_stop() {
    let Some(host) = Host::new("service") else { return };
    let manager = Manager::new(&host);
    let path = host.file(&SOUND.replace("nodes = 2", "nodes = 2\nlog_format = \"json\""));
    let gateway = manager.start(&host, gateway(&path));
    manager.wait_for(&["READY=1", "STATUS=init; 0 of 1 peers up"]);
    manager.wait_for_watchdog();
    manager.wait_for(&["STATUS=active; 0 of 1 peers up"]);
    signal::send(gateway.id(), Signal::Reload).expect("it runs");
    manager.wait_for(&["RELOADING=1", "MONOTONIC_USEC="]);
    manager.wait_for(&["READY=1", "STATUS=active"]);
    manager.wait_for_watchdog();
    signal::send(gateway.id(), Signal::Terminate).expect("it runs");
    manager.wait_for(&["STOPPING=1"]);
    let log = ended(gateway);
    for line in log.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect("each line is a JSON object");
        assert!(entry["level"].is_string() && entry["message"].is_string(), "{line}");
    }
    assert!(log.lines().count() >= 3, "{log}");
}

#[test]
fn an_ordinary_user_runs_the_gateway_with_the_capabilities_of_the_unit() {
    if !is_installed("setpriv") {
        return;
    }
    let Some(host) = Host::new("capabilities") else { return };
    let manager = Manager::new(&host);
    let path = host.file(SOUND);
    fs::set_permissions(&*host.folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    // Where the program was built may be closed to others.
    let program = host.folder.join("mainstay");
    fs::copy(env!("CARGO_BIN_EXE_mainstay"), &program).expect("there is room");

    let (_, unit) = unit("mainstay.service");
    let granted = unit.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).expect("they are listed");
    let bounded = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("they are listed");
    assert_eq!(granted, bounded);
    let granted: Vec<String> =
        granted.split(' ').map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase())).collect();
    let granted = format!("-all,{}", granted.join(","));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"]);
    command.args(["--inh-caps", &granted, "--ambient-caps", &granted, "--bounding-set", &granted]);
    command.arg(&program).arg("gateway").arg("--config").arg(path);
    let gateway = manager.start(&host, command);
    manager.wait_for(&["READY=1"]);
    manager.wait_for(&["STATUS=active"]);
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned();
    assert!(line("Uid:").starts_with(NOBODY), "{status}");
    // capabilities(7): CAP_NET_ADMIN is 12, CAP_NET_RAW 13. CAP_PERFMON and CAP_BPF have been given up after loading the fast path.
    for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
        assert_eq!(line(set), format!("{:016x}", 1_u64 << 12 | 1 << 13), "{set}");
    }
    let asked = mainstay(&["status", "--socket"]).arg(host.control_socket()).output();
    assert!(asked.expect("the program is there").status.success());
    signal::send(gateway.id(), Signal::Terminate).expect("it runs");
    manager.wait_for(&["STOPPING=1"]);
    let log = ended(gateway);
    // Two warnings are due: the channel is in plain text, and the node ends without a peer that takes over.
    let due = ["not encrypted", "no peer holds them"];
    let is_due = |line: &str| due.iter().any(|text| line.contains(text));
    let is_wrong = |line: &&str| (line.contains("WARN") && !is_due(line)) || line.contains("ERROR");
    assert_eq!(log.lines().find(is_wrong), None, "{log}");
    assert!(
        log.contains("the kernel forwards established connections"),
        "the unit's capabilities suffice for the fast path: {log}"
    );
}

#[test]
fn an_ordinary_user_replicates_the_kernels_connections_with_the_capability_of_the_unit() {
    if !is_installed("setpriv") {
        return;
    }
    let Some(host) = Host::new("sync-capabilities") else { return };
    let manager = Manager::new(&host);
    let path = host.file(&SyncPair::configuration(0, ""));
    fs::set_permissions(&*host.folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let program = host.folder.join("mainstay");
    fs::copy(env!("CARGO_BIN_EXE_mainstay"), &program).expect("there is room");
    let (_, unit) = unit("mainstay-sync.service");
    assert!(unit.contains("\nAmbientCapabilities=CAP_NET_ADMIN\nCapabilityBoundingSet=CAP_NET_ADMIN\n"));
    let granted = "-all,+net_admin";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"]);
    command.args(["--inh-caps", granted, "--ambient-caps", granted, "--bounding-set", granted]);
    command.arg(&program).args(["sync", "--config"]).arg(path);
    let daemon = manager.start(&host, command);
    manager.wait_for(&["READY=1", "STATUS=backup; 0 of 1 peers up; a failover now would not be safe: "]);
    manager.wait_for_watchdog();
    signal::send(daemon.id(), Signal::Terminate).expect("it runs");
    manager.wait_for(&["STOPPING=1"]);
    let log = ended(daemon);
    assert!(!log.contains("ERROR") && !log.contains("CAP_"), "{log}");
}

#[test]
fn the_units_are_right_and_expose_little() {
    if !is_installed("systemd-analyze") {
        return;
    }
    for name in ["mainstay.service", "mainstay-sync.service"] {
        let (_, text) = unit(name);
        let folder = Folder::new("unit");
        let path = folder.join(name);
        fs::write(&path, text.replace("/usr/bin/mainstay", env!("CARGO_BIN_EXE_mainstay"))).expect("a temporary file");
        let analyze = |arguments: &[&str]| {
            let output = Command::new("systemd-analyze").args(arguments).arg(&path).output().expect("it is installed");
            (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        let (is_right, said) = analyze(&["verify"]);
        assert!(is_right && !said.contains(name), "{said}");
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        let (exposes_little, said) = analyze(&["security", "--offline=true", "--no-pager", &threshold]);
        if said.contains("unrecognized option") || said.contains("not supported") {
            packet_io::namespace::skip("this systemd-analyze cannot check a file");
            return;
        }
        assert!(exposes_little, "{said}");
    }
}
