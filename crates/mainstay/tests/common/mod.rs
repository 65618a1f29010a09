//! A machine of its own for a gateway: a network namespace with interfaces, and a folder.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub(crate) mod forwarded;
pub(crate) mod lateness;
pub(crate) mod program;
pub(crate) mod sync;

use std::path::{Path, PathBuf};
use std::process::Command;

use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use program::{Folder, Program, mainstay, write_configuration};

/// A configuration that starts in a namespace with the interfaces `in0`, `out0` and `sync` (10.99.0.1).
pub(crate) const SOUND: &str = r#"
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
[replication.security]
mode = "plain"
"#;

/// A network namespace with a gateway's interfaces, and a folder for its files.
pub(crate) struct Host {
    /// Where the interfaces are.
    pub(crate) namespace: Namespace,
    /// Where the files are.
    pub(crate) folder: Folder,
}

impl Host {
    /// `None`, and said, where the machine forbids namespaces.
    pub(crate) fn new(name: &str) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let namespace = Namespace::new().expect("they can be made");
        let host = Self { namespace, folder: Folder::new(name) };
        host.inside(|| {
            let mut netlink = Netlink::open().expect("netlink");
            let here = Namespace::current().expect("a namespace");
            for (one, other) in [("in0", "in1"), ("out0", "out1"), ("sync", "sync1")] {
                netlink.create_veth(one, other, &here).expect("veth");
                netlink.set_up(one, true).expect("up");
            }
            netlink.add_address("sync", Prefix::new([10, 99, 0, 1].into(), 30)).expect("an address");
            netlink.set_up("lo", true).expect("up");
        });
        Some(host)
    }

    /// Runs `work` in the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).expect("the namespace is there")
    }

    /// Where the gateway's control socket is.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.folder.join("mainstay.sock")
    }

    /// Writes the configuration file, for a control socket in the folder.
    pub(crate) fn file(&self, text: &str) -> PathBuf {
        write_configuration(&self.folder, "mainstay", text)
    }

    /// Starts a gateway with this configuration.
    pub(crate) fn start(&self, text: &str) -> Program {
        Program::start(&self.namespace, &self.folder, "mainstay", "gateway", text)
    }
}

/// A gateway with the configuration in `path`, to be started.
pub(crate) fn gateway(path: &Path) -> Command {
    let mut command = mainstay(&["gateway", "--config"]);
    command.arg(path);
    command
}
