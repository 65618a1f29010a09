//! Two Linux routers: nftables in front of the kernel's connection tracking, `mainstay sync` beside each, and the
//! program that moves the shared addresses.

use std::collections::HashSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet_io::ctnetlink::{Dump, DumpFilter, DumpProgress};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, signal, sysctl};

use super::program::Program;
use super::{example, network, sync};
use crate::bench::bulk::load_rules;
use crate::bench::kernel_routers::router;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::{ClusterError, Directory, NAMES};
use crate::testbed::topology::{INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, Topology};
use api::{Status, SyncOrder, SyncReadiness};
use control::client::Client;

/// What lets the kernel forward, IPv4 and IPv6.
const FORWARDING: [&str; 2] = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];

/// The routers in the demo's network. Dropping the value ends the programs and removes their files.
pub struct Routers {
    topology: Arc<Topology>,
    program: PathBuf,
    sync: [Option<Program>; 2],
    keepalived: [Option<Program>; 2],
    directory: Directory,
}

impl Routers {
    /// Builds the network and makes routers of its nodes: without programs, and without the shared addresses. `program` is
    /// this program's own file.
    ///
    /// # Errors
    /// The machine lacks what they need, such as nftables.
    pub fn build(program: &Path) -> Result<Self, ClusterError> {
        let topology = Topology::build()?;
        network::build(&topology)?;
        for (node, name) in topology.nodes.iter().zip(NAMES) {
            load_rules(node, &example::rules()).map_err(|reason| ClusterError::Refused { name, reason })?;
            node.run(|| {
                // What the rules have loaded. A connection whose state is lost is lost: none is picked up in the middle.
                sysctl::write("net/netfilter/nf_conntrack_tcp_loose", "0")?;
                // Off by default in some kernels: without events nothing is replicated.
                sysctl::write("net/netfilter/nf_conntrack_events", "1")?;
                set_forwarding(true)
            })??;
        }
        let directory = Directory::create()?;
        Ok(Self {
            topology: Arc::new(topology),
            program: program.to_owned(),
            sync: [None, None],
            keepalived: [None, None],
            directory,
        })
    }

    /// The network.
    #[must_use]
    pub const fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Leaves configurations and logs where they are; returns where.
    pub fn keep_files(&mut self) -> PathBuf {
        self.directory.keep()
    }

    /// Starts a router's `mainstay sync`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_sync(&mut self, number: usize) -> Result<(), ClusterError> {
        self.start_sync_with(number, "")
    }

    /// As [`Routers::start_sync`], with further sections in its configuration.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_sync_with(&mut self, number: usize, sections: &str) -> Result<(), ClusterError> {
        let config = self.file(number, "sync.toml");
        let text = sync::configuration(number, &self.control_socket(number), &self.directory.key()) + sections;
        fs::write(&config, text).map_err(|source| self.directory.error(source))?;
        let mut command = Command::new(&self.program);
        command.arg("sync").arg("--config").arg(&config);
        let started = Program::start(self.node(number), &self.directory, number, "sync", command)?;
        self.sync[number] = Some(started);
        Ok(())
    }

    /// Starts a router's keepalived with the example's configuration, in which `options` replaces pieces.
    ///
    /// # Errors
    /// It cannot be started, for example if it is not installed.
    pub fn start_keepalived(&mut self, number: usize, options: &[(&str, &str)]) -> Result<(), ClusterError> {
        let config = self.file(number, "keepalived.conf");
        let text = example::keepalived(number, &self.program, &self.control_socket(number), options);
        fs::write(&config, text).map_err(|source| self.directory.error(source))?;
        let worker = self.file(number, "keepalived-vrrp.pid");
        // What a keepalived left that was killed: its worker's number, and what it logged.
        let _ = fs::remove_file(&worker);
        let _ = fs::remove_file(self.directory.path.join(format!("{}-keepalived.log", NAMES[number])));
        let mut command = Command::new("keepalived");
        command.args(["--dont-fork", "--log-console", "--log-detail", "--vrrp"]);
        command.arg("--use-file").arg(&config).arg("--vrrp_pid").arg(&worker);
        command.arg("--pid").arg(self.file(number, "keepalived.pid"));
        let started = Program::start(self.node(number), &self.directory, number, "keepalived", command)?;
        self.keepalived[number] = Some(started.with_worker(&worker));
        Ok(())
    }

    /// Has a router's keepalived end in good order: it gives the addresses away.
    pub fn stop_keepalived(&mut self, number: usize) {
        self.keepalived[number].take().into_iter().for_each(Program::terminate);
    }

    /// Kills a router's `mainstay sync` alone.
    pub fn kill_sync(&mut self, number: usize) {
        self.sync[number] = None;
    }

    /// Has a router's `mainstay sync` stand still, or go on.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause_sync(&self, number: usize, is_paused: bool) -> Result<(), IoError> {
        let Some(program) = &self.sync[number] else { return Err(IoError::Misuse("it does not run".into())) };
        if is_paused { signal::pause(program.id()) } else { signal::resume(program.id()) }
    }

    /// Checks that the programs that were started still run.
    ///
    /// # Errors
    /// One has ended: the end of its log.
    pub fn check_running(&mut self) -> Result<(), ClusterError> {
        self.sync.iter_mut().chain(&mut self.keepalived).flatten().try_for_each(Program::check_running)
    }

    /// A router dies of a power cut: from now on it forwards nothing and sends nothing.
    ///
    /// # Errors
    /// Its interfaces cannot be switched off.
    pub fn kill(&mut self, number: usize) -> Result<Epoch, IoError> {
        let killed_at = Epoch::now();
        let topology = Arc::clone(&self.topology);
        let node = &topology.nodes[number];
        // Switching interfaces off takes the kernel a while, and meanwhile the programs would close their sessions.
        node.run(|| set_forwarding(false))??;
        self.sync[number] = None;
        self.keepalived[number] = None;
        router::unplug(node)?;
        self.set_dedicated_link(number, false)?;
        Ok(killed_at)
    }

    /// A dead router is switched on: it knows no connection, has only its own addresses and runs no programs yet.
    ///
    /// # Errors
    /// The system refuses.
    pub fn revive(&self, number: usize) -> Result<(), IoError> {
        self.drop_addresses(number)?;
        self.node(number).run(sync::forget_connections)??;
        let interfaces = INTERFACES;
        self.node(number).run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            interfaces.iter().try_for_each(|interface| netlink.set_up(interface, true))?;
            set_forwarding(true)
        })??;
        network::add_own_addresses(&self.topology, number)
    }

    /// Cuts the link between the routers at a router's end, or joins it again.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_dedicated_link(&self, number: usize, is_up: bool) -> Result<(), IoError> {
        self.set_interface(number, INTERFACES[2], is_up)
    }

    /// Switches one of a router's interfaces off, or on again with its own addresses.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn set_interface(&self, number: usize, interface: &str, is_up: bool) -> Result<(), IoError> {
        self.node(number).run(|| Netlink::open()?.set_up(interface, is_up))??;
        if is_up { network::add_own_addresses(&self.topology, number) } else { Ok(()) }
    }

    /// Gives a router the shared addresses, and announces them.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take_addresses(&self, number: usize) -> Result<(), IoError> {
        router::take_addresses(self.node(number), None)?;
        router::announce(self.node(number)).map(drop)
    }

    /// Takes the shared addresses from a router that may have them.
    ///
    /// # Errors
    /// The system refuses.
    pub fn drop_addresses(&self, number: usize) -> Result<(), IoError> {
        self.node(number).run(|| {
            let mut netlink = Netlink::open()?;
            for (interface, shared) in INTERFACES.into_iter().zip([INSIDE, OUTSIDE]) {
                for (address, bits) in shared.into_iter().zip(PREFIX_BITS) {
                    // One that is not there need not be taken.
                    let _ = netlink.delete_address(interface, Prefix::new(address, bits));
                }
            }
            Ok(())
        })?
    }

    /// The connections that a router's kernel tracks, by their two ends as the client sees them, its own first.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn tracked(&self, number: usize) -> Result<HashSet<(SocketAddr, SocketAddr)>, IoError> {
        let read = || -> Result<HashSet<(SocketAddr, SocketAddr)>, IoError> {
            let mut found = HashSet::new();
            let mut dump = Dump::connections(DumpFilter::default())?;
            let mut note = |entry: flow::netfilter::Entry| {
                let (source, destination) = entry.original.ports();
                let ends = (entry.original.source, entry.original.destination);
                found.insert((SocketAddr::new(ends.0, source), SocketAddr::new(ends.1, destination)));
            };
            while dump.receive(&mut note)? == DumpProgress::More {}
            Ok(found)
        };
        self.node(number).run(read)?
    }

    /// Whether a router has all shared addresses.
    #[must_use]
    pub fn holds_addresses(&self, number: usize) -> bool {
        self.node(number).run(holds_addresses).unwrap_or_default()
    }

    /// Runs the hook by which `mainstay sync` of a router learns what the router is: `primary`, `backup` or `fault`. Returns
    /// how long it took.
    ///
    /// # Errors
    /// It reports that the state is not usable, or there is no daemon.
    pub fn hook(&self, number: usize, role: &str) -> Result<Duration, ClusterError> {
        run_hook(&self.program, &self.control_socket(number), role, NAMES[number])
    }

    /// Where a router's `mainstay sync` is asked.
    #[must_use]
    pub fn control_socket(&self, number: usize) -> PathBuf {
        self.file(number, "sock")
    }

    /// The status of a router's `mainstay sync`; `None` when it does not answer.
    #[must_use]
    pub fn status(&self, number: usize) -> Option<Status> {
        Client::connect(&self.control_socket(number)).and_then(|mut client| client.status()).ok()
    }

    /// Whether a router's `mainstay sync` reports that it could take over; nothing when it does not answer.
    #[must_use]
    pub fn readiness(&self, number: usize) -> SyncReadiness {
        let client = Client::connect(&self.control_socket(number));
        client.and_then(|mut client| client.sync(SyncOrder::Nothing)).unwrap_or_default()
    }

    /// Whether both routers are synchronised, and either could go on.
    #[must_use]
    pub fn are_ready(&self) -> bool {
        [0, 1].into_iter().all(|number| {
            let peers = self.status(number).map(|status| status.peers).unwrap_or_default();
            let is_synchronised = !peers.is_empty() && peers.iter().all(|peer| peer.synchronised);
            is_synchronised && self.readiness(number).may_take_over
        })
    }

    /// What a router's keepalived has logged so far.
    #[must_use]
    pub fn keepalived_log(&self, number: usize) -> String {
        self.keepalived[number].as_ref().map(Program::log).unwrap_or_default()
    }

    /// The ends of all logs.
    #[must_use]
    pub fn logs(&self) -> String {
        let programs = self.sync.iter().chain(&self.keepalived).flatten();
        programs.map(Program::log_tail).collect::<Vec<_>>().join("--\n")
    }

    /// This program's own file.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    fn node(&self, number: usize) -> &Namespace {
        &self.topology.nodes[number]
    }

    fn file(&self, number: usize, what: &str) -> PathBuf {
        self.directory.path.join(format!("{}.{what}", NAMES[number]))
    }
}

/// Runs `mainstay sync ROLE` and waits until it reports that the state is usable.
pub(super) fn run_hook(
    program: &Path,
    control_socket: &Path,
    role: &str,
    name: &'static str,
) -> Result<Duration, ClusterError> {
    let begun = Instant::now();
    let mut command = Command::new(program);
    command.args(["sync", role, "--socket"]).arg(control_socket).stdin(Stdio::null());
    let refused = |reason: String| ClusterError::Refused { name, reason: format!("mainstay sync {role}: {reason}") };
    let output = command.output().map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        Ok(begun.elapsed())
    } else {
        Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// Whether the calling thread's namespace has all shared addresses: only then can sockets be bound to them.
pub(super) fn holds_addresses() -> bool {
    INSIDE.into_iter().chain(OUTSIDE).all(|address| UdpSocket::bind((address, 0)).is_ok())
}

fn set_forwarding(is_on: bool) -> Result<(), IoError> {
    FORWARDING.iter().try_for_each(|name| sysctl::write(name, if is_on { "1" } else { "0" }))
}
