//! Two routers that the kernel makes, between a client and a server, and what replicates their connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use packet_io::af_packet::AfPacketIo;
use packet_io::usage;

use super::conntrackd;
use super::mainstay::SyncDaemon;
use super::replicator::Replicator;
use super::routers::{ACTIVE, STANDBY, Tuning, tracked};
use crate::args::sync_bench::Subject;
use crate::bench::BenchError;
use crate::bench::bulk::load_rules;
use crate::bench::kernel_routers::conntrackd::{ConntrackdError, Daemon, READY_WITHIN};
use crate::bench::kernel_routers::prepared::Prepared;
use crate::bench::kernel_routers::router;
use crate::bench::setup_rate::allow_reuse_of_ports;
use crate::testbed::cluster::Directory;
use crate::testbed::topology::{INTERFACES, Topology};
use crate::testbed::watch::{Waited, Watch};

/// How long the daemons may go on working on what they have received.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// Daemons have settled that need less than the second in a time as long as the first.
const SETTLED: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(4));
/// How long the kernel may take to have all connections that a daemon reports.
const USABLE_WITHIN: Duration = Duration::from_secs(60);

/// How taking over went.
pub(super) struct TakeOver {
    /// From the manager's call until the kernel had the connections.
    pub(super) took: Duration,
    /// The sockets of the announcement. To close these takes the kernel tens of milliseconds.
    _sockets: Vec<AfPacketIo>,
}

/// The routers. Dropping it ends the daemons and removes their files.
pub(super) struct Pair {
    pub(super) topology: Arc<Topology>,
    /// One for each router, or none.
    daemons: Vec<Box<dyn Replicator>>,
    take_over: Option<Prepared>,
    _directory: Directory,
}

impl Pair {
    /// Builds the network, makes routers of its nodes, the first of them active, and starts the daemons.
    ///
    /// # Errors
    /// The machine lacks what it needs.
    pub(super) fn start(subject: Subject, tuning: Tuning) -> Result<Self, BenchError> {
        let topology = Arc::new(Topology::build()?);
        topology.client.run(allow_reuse_of_ports)??;
        let directory = Directory::create()?;
        for node in &topology.nodes {
            router::prepare(node)?;
            if tuning.loss_percent > 0 {
                load_rules(node, &losing_link(tuning.loss_percent)).map_err(ConntrackdError::Unavailable)?;
            }
            if subject == Subject::ConntrackdFewEvents {
                load_rules(node, FEW_EVENTS).map_err(ConntrackdError::Unavailable)?;
            }
        }
        router::take_addresses(&topology.nodes[ACTIVE], None)?;
        let mut daemons: Vec<Box<dyn Replicator>> = Vec::new();
        for (number, node) in topology.nodes.iter().enumerate() {
            match subject {
                Subject::Off => {}
                Subject::Mainstay | Subject::MainstayAllEvents => {
                    let takes_all_events = subject == Subject::MainstayAllEvents;
                    daemons.push(Box::new(SyncDaemon::start(node, &directory, number, takes_all_events, tuning)?));
                }
                Subject::Conntrackd | Subject::ConntrackdFiltered | Subject::ConntrackdFewEvents => {
                    let plan = conntrackd::plan(subject, tuning);
                    daemons.push(Box::new(Daemon::start(node, &directory, number, &plan)?));
                }
            }
        }
        Ok(Self { topology, daemons, take_over: None, _directory: directory })
    }

    /// Starts it, waits until it is ready, and makes ready what takes over.
    ///
    /// # Errors
    /// As for [`Pair::start`], or the daemons do not get ready.
    pub(super) fn start_ready(subject: Subject, tuning: Tuning, watch: &Watch) -> Result<Self, BenchError> {
        let mut pair = Self::start(subject, tuning)?;
        let mut missing = String::new();
        let waited = watch.until(Instant::now() + READY_WITHIN, || -> Result<bool, BenchError> {
            pair.check_running()?;
            let both = pair.daemons.iter().zip(&pair.topology.nodes);
            let ready = both.map(|(daemon, node)| daemon.check_ready(node));
            missing = ready.collect::<Result<Vec<()>, String>>().err().unwrap_or_default();
            Ok(missing.is_empty())
        })?;
        if waited == Waited::TooLate {
            return Err(BenchError::NotReady { what: subject.describe(), reason: missing });
        }
        if let Some(daemon) = pair.daemons.get(STANDBY) {
            pair.take_over = Some(daemon.prepare_take_over(&pair.topology.nodes[STANDBY])?);
        }
        Ok(pair)
    }

    /// Returns an error with the end of a daemon's log if one has ended.
    ///
    /// # Errors
    /// One has.
    pub(super) fn check_running(&mut self) -> Result<(), BenchError> {
        self.daemons.iter_mut().try_for_each(|daemon| daemon.check_running())
    }

    /// As [`Pair::check_running`], of the standby's alone.
    ///
    /// # Errors
    /// It has.
    pub(super) fn check_standby_running(&mut self) -> Result<(), BenchError> {
        self.daemons.get_mut(STANDBY).map_or(Ok(()), |daemon| daemon.check_running())
    }

    /// Processor time of the daemons so far: that of the active router, that of the standby. Zero where there are none.
    pub(super) fn processor_times(&self) -> [Duration; 2] {
        self.of_daemons(|process| usage::cpu_time_of(process).unwrap_or_default())
    }

    /// Memory of the daemons that is in RAM, in bytes.
    pub(super) fn resident_bytes(&self) -> [u64; 2] {
        self.of_daemons(|process| usage::resident_bytes_of(process).unwrap_or_default())
    }

    fn of_daemons<T: Default>(&self, figure: impl Fn(u32) -> T) -> [T; 2] {
        [ACTIVE, STANDBY].map(|side| self.daemons.get(side).map(|daemon| figure(daemon.process())).unwrap_or_default())
    }

    /// Connections that the standby could go on with.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn known_to_standby(&self) -> Result<u64, BenchError> {
        self.daemons.get(STANDBY).map_or(Ok(0), |daemon| daemon.known(&self.topology.nodes[STANDBY]))
    }

    /// Waits until the daemons have worked off what they have received: only then is the cost of one known.
    ///
    /// # Errors
    /// A signal came, or a daemon ended.
    pub(super) fn settle(&mut self, watch: &Watch) -> Result<(), BenchError> {
        let (period, work) = SETTLED;
        let deadline = Instant::now() + SETTLED_WITHIN;
        while !self.daemons.is_empty() && Instant::now() < deadline {
            let before = self.processor_times();
            watch.pass_until(Instant::now() + period)?;
            let after = self.processor_times();
            if before.iter().zip(after).all(|(before, after)| after.saturating_sub(*before) <= work) {
                break;
            }
        }
        self.check_running()
    }

    /// From now on the active router forwards nothing and sends nothing.
    ///
    /// # Errors
    /// Its daemon had ended before.
    pub(super) fn kill_active(&mut self) -> Result<Instant, BenchError> {
        self.check_running()?;
        let killed_at = Instant::now();
        router::stop_forwarding(&self.topology.nodes[ACTIVE])?;
        self.daemons.get_mut(ACTIVE).map_or(Ok(()), |daemon| daemon.kill())?;
        router::unplug(&self.topology.nodes[ACTIVE])?;
        Ok(killed_at)
    }

    /// Does what a manager has the standby do that becomes active: has the daemon see to it that the connections are in the kernel,
    /// takes the addresses, announces them.
    ///
    /// # Errors
    /// The daemon does not do it, or the kernel has fewer than `connections_min` connections a minute later.
    pub(super) fn take_over(&mut self, connections_min: u64, watch: &Watch) -> Result<TakeOver, BenchError> {
        let topology = Arc::clone(&self.topology);
        let node = &topology.nodes[STANDBY];
        let called_at = Instant::now();
        let mut usable_at = called_at;
        if let (Some(daemon), Some(prepared)) = (self.daemons.get(STANDBY), self.take_over.take()) {
            daemon.take_over(prepared)?;
            usable_at = Instant::now();
            let mut there = tracked(node)?;
            // The daemon's word is not believed: it is usable when the kernel has it.
            while there < connections_min {
                if usable_at > called_at + USABLE_WITHIN {
                    let (there, expected) = (there as u32, connections_min as u32);
                    return Err(BenchError::Connections { there, expected });
                }
                watch.pass_until(Instant::now() + Duration::from_millis(1))?;
                (there, usable_at) = (tracked(node)?, Instant::now());
            }
        }
        router::take_addresses(node, None)?;
        let sockets = router::announce(node)?;
        Ok(TakeOver { took: usable_at - called_at, _sockets: sockets })
    }

    /// What a manager calls once the addresses have moved.
    ///
    /// # Errors
    /// The daemon does not do it.
    pub(super) fn begin_as_primary(&self) -> Result<(), BenchError> {
        let standby = self.daemons.get(STANDBY);
        standby.map_or(Ok(()), |daemon| daemon.begin_as_primary(&self.topology.nodes[STANDBY]))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.take_over.take().into_iter().for_each(Prepared::discard);
    }
}

/// Loses a share of what comes over the dedicated link, before anything looks at it. With the rule in both routers, packets
/// are lost in both directions.
fn losing_link(percent: u8) -> String {
    let link = INTERFACES[2];
    format!(
        "table inet loss {{
            chain received {{
                type filter hook prerouting priority -400;
                iifname \"{link}\" numgen random mod 100 < {percent} drop
            }}
        }}"
    )
}

/// Of a TCP connection the kernel makes events when it is established, when it ends, and when what is rare changes (a helper, the
/// mark, sequence adjustment, labels, a SYN proxy); of its other states it makes none.
const FEW_EVENTS: &str = "table inet few_events {
    chain forwarded {
        type filter hook prerouting priority -199;
        tcp flags syn / syn,ack,fin,rst ct event set 0xdd4
    }
}";
