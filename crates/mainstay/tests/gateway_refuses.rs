//! What keeps a gateway from starting is said in one sentence that names it, and the process ends with a failure.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use packet_io::namespace::{self, Namespace, NamespaceSupport};
use packet_io::netlink::{Netlink, Prefix};
use packet_io::udp::{UdpOptions, UdpSocket};

/// A configuration that starts in a namespace with the interfaces `in0`, `out0` and `sync` (10.99.0.1).
const SOUND: &str = r#"
chain = ["firewall"]
[node]
id = 0
name = "a"
nodes = 2
control_socket = "CONTROL"
[[port]]
name = "inside"
interface = "in0"
addresses = ["10.1.0.1/24"]
[[port]]
name = "outside"
interface = "out0"
addresses = ["198.51.100.1/24"]
[[firewall.rule]]
name = "out"
from = "inside"
action = "accept"
[replication]
local = "10.99.0.1:3781"
[[replication.peer]]
id = 1
address = "10.99.0.2:3781"
"#;

struct Host {
    namespace: Namespace,
    folder: PathBuf,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Host {
    /// `None`, and said, where the machine forbids namespaces.
    fn new(name: &str) -> Option<Self> {
        if !matches!(namespace::probe(), NamespaceSupport::Available) {
            println!("skipped: this user cannot make network namespaces");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("mainstay-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary directory");
        let namespace = Namespace::new().expect("they can be made");
        let host = Self { namespace, folder };
        host.inside(|| {
            let mut netlink = Netlink::open().expect("netlink");
            let here = Namespace::current().expect("a namespace");
            for (one, other) in [("in0", "in1"), ("out0", "out1"), ("sync", "sync1")] {
                netlink.create_veth(one, other, &here).expect("veth");
                netlink.set_up(one, true).expect("up");
            }
            netlink.add_address("sync", Prefix::new([10, 99, 0, 1], 30)).expect("an address");
            netlink.set_up("lo", true).expect("up");
        });
        Some(host)
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).expect("the namespace is there")
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.join("mainstay.toml");
        let control = self.folder.join("control.sock");
        fs::write(&path, text.replace("CONTROL", &control.to_string_lossy())).expect("a temporary file");
        path
    }

    /// What the gateway says when it cannot start.
    fn refusal(&self, text: &str) -> String {
        let path = self.file(text);
        self.inside(|| refusal_of(&path))
    }
}

fn gateway(path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.arg("gateway").arg("--config").arg(path);
    command
}

fn refusal_of(path: &Path) -> String {
    let Output { status, stderr, .. } = gateway(path).output().expect("the program is there");
    assert!(!status.success());
    let text = String::from_utf8(stderr).expect("text");
    let last = text.trim_end().lines().last().unwrap_or_default().to_owned();
    assert!(!last.contains("panicked"), "{text}");
    last
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(host) = Host::new("interface") else { return };
    let said = host.refusal(&SOUND.replace("out0", "eth7"));
    assert!(said.starts_with("there is no interface \"eth7\""), "{said}");
}

#[test]
fn an_address_that_no_interface_has_is_named() {
    let Some(host) = Host::new("address") else { return };
    let said = host.refusal(&SOUND.replace("10.99.0.1", "10.98.0.1"));
    assert!(said.contains("no interface of this network namespace has the address 10.98.0.1"), "{said}");
}

#[test]
fn a_replication_port_that_is_taken_is_named() {
    let Some(host) = Host::new("port") else { return };
    let address = "10.99.0.1:3781".parse().expect("an address");
    let _other = host.inside(|| UdpSocket::bind(address, &UdpOptions::default()).expect("a free port"));
    let said = host.refusal(SOUND);
    assert!(said.starts_with("UDP port 3781 of 10.99.0.1 is taken by another program"), "{said}");
}

#[test]
fn a_metrics_port_that_is_taken_is_named() {
    let Some(host) = Host::new("metrics") else { return };
    let _other = host.inside(|| TcpListener::bind("127.0.0.1:9464").expect("a free port"));
    let said = host.refusal(&SOUND.replace("nodes = 2", "nodes = 2\nmetrics = \"127.0.0.1:9464\""));
    assert!(said.contains("127.0.0.1:9464") && said.contains("node.metrics"), "{said}");
}

#[test]
fn a_missing_file_and_a_mistake_in_it_are_named() {
    let folder = std::env::temp_dir().join(format!("mainstay-mistake-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary directory");
    let said = refusal_of(&folder.join("nowhere.toml"));
    assert!(said.contains("nowhere.toml"), "{said}");
    let path = folder.join("mistaken.toml");
    fs::write(&path, SOUND.replace("CONTROL", "/run/mainstay.sock").replace("id = 0", "id = 7"))
        .expect("a temporary file");
    let said = refusal_of(&path);
    assert!(said.contains("mistaken.toml:4:"), "{said}");
    fs::remove_dir_all(&folder).expect("it is ours");
}
