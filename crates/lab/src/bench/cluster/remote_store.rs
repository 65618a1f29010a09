//! A cluster whose gateways keep their state in a remote store: a store on the switch between the nodes, and a gateway in each node's
//! namespace. The nodes' own gateways drop all packets; they answer the edges and hold the shared addresses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::signal::die_with_parent;

use super::super::BenchError;
use super::resp::Store;
use crate::testbed::many_nodes::ManyNodes;
use crate::testbed::topology::{BRIDGE, INTERFACES, NETWORKS, OUTSIDE, PREFIX_BITS, link_address, v4};
use crate::testbed::watch::{Waited, Watch};

/// Where the store listens.
const ADDRESS: SocketAddr = SocketAddr::new(v4(10, 99, 0, 100), 6379);
/// Programs that can be the store, and their packages.
const PROGRAMS: [(&str, &str); 2] = [("valkey-server", "valkey-server"), ("redis-server", "redis-server")];
/// How long the store may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and need not be.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The store and the gateways that use it.
pub(super) struct RemoteStore {
    gateways: Vec<Process>,
    _store: Process,
    _namespace: Namespace,
}

/// The program that can be the store.
///
/// # Errors
/// None is installed: the packages.
pub(super) fn program() -> Result<&'static str, String> {
    let runs = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    };
    let found = PROGRAMS.into_iter().find(|(program, _)| runs(program));
    found.map(|(program, _)| program).ok_or_else(|| {
        let packages = PROGRAMS.map(|(_, package)| package).join(" or ");
        format!("there is no remote store to compare with: install the package {packages}")
    })
}

impl RemoteStore {
    /// Starts the store, and a gateway in the namespace of each node.
    pub(super) fn start(program: &str, many: &ManyNodes, watch: &Watch) -> Result<Self, BenchError> {
        let topology = &many.topology;
        let namespace = Namespace::new()?;
        topology.join_switch("to-store", &namespace, ADDRESS.ip())?;
        let store = Process(namespace.spawn_command(store_command(program))?);
        let waited = watch.until(Instant::now() + READY_WITHIN, || -> Result<bool, BenchError> {
            let connect = || Store::connect(ADDRESS).and_then(|mut store| store.get(&["none"])).is_ok();
            Ok(topology.nodes[0].run(connect)?)
        })?;
        if waited == Waited::TooLate {
            return Err(BenchError::NotReady { what: "the remote store", reason: "it does not answer".into() });
        }
        // The gateways translate nothing: answers go to the client's own address.
        topology.server.run(|| -> Result<(), IoError> {
            Netlink::open()?.add_route(Prefix::new(NETWORKS[0][0], PREFIX_BITS[0]), OUTSIDE[0])
        })??;
        let hosts = [&topology.client, &topology.server].map(|host| link_address(host, BRIDGE));
        let [client, server] = hosts;
        let hosts = [client?.to_string(), server?.to_string()];
        let gateway = |node: &Namespace| Ok(Process(node.spawn_command(gateway_command(&hosts)?)?));
        let gateways = topology.nodes.iter().map(gateway).collect::<Result<_, BenchError>>()?;
        Ok(Self { gateways, _store: store, _namespace: namespace })
    }

    /// How many records the gateways have read, asked from a node's namespace.
    pub(super) fn reads(node: &Namespace) -> Result<u64, BenchError> {
        node.run(|| Store::connect(ADDRESS).and_then(|mut store| store.reads()))?.map_err(BenchError::Socket)
    }

    /// Ends the gateway of a node.
    pub(super) fn kill(&mut self, node: usize) {
        // One that has ended already cannot be killed, and need not be.
        let _ = self.gateways[node].0.kill();
        let _ = self.gateways[node].0.wait();
    }
}

/// The store keeps all in memory.
fn store_command(program: &str) -> Command {
    let mut command = Command::new(program);
    let (address, port) = (ADDRESS.ip().to_string(), ADDRESS.port().to_string());
    command.args(["--bind", &address, "--port", &port, "--save", "", "--appendonly", "no"]);
    command.args(["--protected-mode", "no", "--daemonize", "no"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    die_with_parent(&mut command);
    command
}

fn gateway_command(hosts: &[String; 2]) -> Result<Command, BenchError> {
    let program: PathBuf = std::env::current_exe().map_err(BenchError::Socket)?;
    let mut command = Command::new(program);
    command.args(["lab", "store-gateway", "--store", &ADDRESS.to_string(), "--interfaces"]);
    command.args(&INTERFACES[..2]).arg("--hosts").args(hosts);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    die_with_parent(&mut command);
    Ok(command)
}
