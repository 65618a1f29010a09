//! What operators use today in a gateway's place: two Linux routers with a stateful firewall, whose connections conntrackd
//! replicates, and whose addresses a manager moves.
//!
//! The harness is the manager (keepalived, as a rule). It knows of the death after the time that Mainstay's nodes take to
//! notice it, and then does what the documentation of conntrackd has a backup do that becomes primary: commits the
//! connections to the kernel, takes the addresses, announces them, and has conntrackd begin as a primary.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use packet_io::af_packet::AfPacketIo;
use packet_io::sysctl;

use super::network::{Network, Route};
use super::pair::{Pair, TakeOver};
use crate::bench::BenchError;
use crate::bench::kernel_routers::conntrackd::{BEGIN_AS_PRIMARY, COMMIT, Daemon, DaemonPlan, READY_WITHIN};
pub use crate::bench::kernel_routers::conntrackd::{ConntrackdError, Mode, available};
use crate::bench::kernel_routers::prepared::Prepared;
use crate::bench::kernel_routers::router;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::Directory;
use crate::testbed::topology::Topology;
use crate::testbed::watch::{Waited, Watch};

/// How long the survivor's first forwarded packet is waited for.
const FIRST_PACKET_WITHIN: Duration = Duration::from_secs(1);
/// What Mainstay's nodes take to notice that a peer is dead: ten times ten milliseconds.
pub const DETECTION_DEFAULT: Duration = Duration::from_millis(100);

/// How the pair is to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConntrackdPlan {
    /// How the daemons talk to each other.
    pub mode: Mode,
    /// The backup keeps the other's connections in its own memory and commits them to the kernel when it takes over. Without,
    /// it gives them to the kernel as they come: taking over does not wait for the commit, which grows with the
    /// connections, and the backup works more.
    pub has_external_cache: bool,
    /// From the death until the manager knows of it.
    pub detection: Duration,
}

impl Default for ConntrackdPlan {
    /// As conntrackd's documentation recommends, but for a manager that is as quick as Mainstay.
    fn default() -> Self {
        Self { mode: Mode::Ftfw, has_external_cache: true, detection: DETECTION_DEFAULT }
    }
}

/// When the survivor had announced its addresses, and the sockets used.
struct Announced {
    at: Instant,
    _sockets: Vec<AfPacketIo>,
}

/// The two routers. Dropping it ends the daemons and removes their files; what it did to the network's namespaces stays.
pub struct ConntrackdPair {
    topology: Arc<Topology>,
    route: Option<Route>,
    plan: ConntrackdPlan,
    daemons: [Daemon; 2],
    active: usize,
    /// Has the backup commit what it knows.
    commit: Option<Prepared>,
    _directory: Directory,
}

impl ConntrackdPair {
    /// Makes routers of the network's nodes, the first of them active, and starts the daemons. The dedicated link has to be
    /// there, with its addresses.
    ///
    /// # Errors
    /// The machine lacks what it needs, or the network is not as it should be.
    pub fn start(network: &Network, plan: ConntrackdPlan) -> Result<Self, BenchError> {
        available().map_err(ConntrackdError::Unavailable)?;
        let (topology, route) = (network.topology().clone(), network.route());
        let directory = Directory::create()?;
        for node in &topology.nodes {
            router::prepare(node)?;
        }
        router::take_addresses(&topology.nodes[0], route)?;
        let daemon_plan =
            DaemonPlan { mode: plan.mode, has_external_cache: plan.has_external_cache, ..DaemonPlan::default() };
        let start = |number: usize| Daemon::start(&topology.nodes[number], &directory, number, &daemon_plan);
        let daemons = [start(0)?, start(1)?];
        Ok(Self { topology, route, plan, daemons, active: 0, commit: None, _directory: directory })
    }

    /// Connections that the backup could go on with.
    ///
    /// # Errors
    /// It does not answer.
    pub fn known_to_backup(&self) -> Result<u64, BenchError> {
        let backup = 1 - self.active;
        let node = &self.topology.nodes[backup];
        if self.plan.has_external_cache {
            return Ok(self.daemons[backup].external_cache_entries(node)?);
        }
        let count = node.run(|| sysctl::read("net/netfilter/nf_conntrack_count"))??;
        Ok(count.parse().unwrap_or_default())
    }

    fn check_running(&mut self) -> Result<(), ConntrackdError> {
        self.daemons.iter_mut().try_for_each(Daemon::check_running)
    }

    /// What the backup does that becomes primary, until the addresses are with it.
    fn take_over(&mut self, survivor: usize) -> Result<Announced, BenchError> {
        let (node, daemon) = (&self.topology.nodes[survivor], &self.daemons[survivor]);
        match self.commit.take() {
            Some(commit) => daemon.ask_prepared(commit, COMMIT)?,
            None => drop(daemon.ask(node, COMMIT)?),
        }
        router::take_addresses(node, self.route)?;
        let sockets = router::announce(node)?;
        Ok(Announced { at: Instant::now(), _sockets: sockets })
    }

    /// Has conntrackd begin as a primary: flush its external cache, read the kernel's connections, and send them.
    fn begin_as_primary(&self, survivor: usize) -> Result<(), ConntrackdError> {
        let (node, daemon) = (&self.topology.nodes[survivor], &self.daemons[survivor]);
        BEGIN_AS_PRIMARY.into_iter().try_for_each(|request| daemon.ask(node, request).map(drop))
    }
}

impl Drop for ConntrackdPair {
    fn drop(&mut self) {
        self.commit.take().into_iter().for_each(Prepared::discard);
    }
}

impl Pair for ConntrackdPair {
    fn wait_until_ready(&mut self, watch: &Watch) -> Result<(), BenchError> {
        let mut missing = String::new();
        let waited = watch.until(Instant::now() + READY_WITHIN, || -> Result<bool, BenchError> {
            self.check_running()?;
            let both = self.daemons.iter().zip(&self.topology.nodes);
            let checks = both.map(|(daemon, node)| daemon.check_receives_from_peer(node, self.plan.mode));
            missing = checks.collect::<Result<Vec<()>, String>>().err().unwrap_or_default();
            Ok(missing.is_empty())
        })?;
        if waited == Waited::TooLate {
            return Err(ConntrackdError::NotReady { reason: missing }.into());
        }
        if self.commit.is_none() {
            let survivor = 1 - self.active;
            self.commit = Some(self.daemons[survivor].prepare(&self.topology.nodes[survivor], COMMIT)?);
        }
        Ok(())
    }

    fn check_roles(&mut self) -> Result<(), BenchError> {
        Ok(self.check_running()?)
    }

    fn kill_active(&mut self) -> Result<Epoch, BenchError> {
        self.check_running()?;
        let killed_at = Epoch::now();
        router::stop_forwarding(&self.topology.nodes[self.active])?;
        self.daemons[self.active].kill()?;
        router::unplug(&self.topology.nodes[self.active])?;
        Ok(killed_at)
    }

    fn await_take_over(&mut self, watch: &Watch, killed_at: Epoch) -> Result<TakeOver, BenchError> {
        let (survivor, topology) = (1 - self.active, Arc::clone(&self.topology));
        let node = &topology.nodes[survivor];
        let forwarded_before = node.run(router::forwarded_packets)?;
        watch.pass_until(killed_at.instant() + self.plan.detection)?;
        let detected_ms = Some(killed_at.ms_to(Instant::now()));
        let announced = self.take_over(survivor)?;
        let announced_ms = Some(killed_at.ms_to(announced.at));
        let first_packet = node.run(|| router::await_forwarding(forwarded_before, FIRST_PACKET_WITHIN))?;
        let first_packet_ms = first_packet.map(|at| killed_at.ms_to(at));
        drop(announced);
        self.begin_as_primary(survivor)?;
        self.active = survivor;
        Ok(TakeOver { detected_ms, announced_ms, first_packet_ms })
    }
}
