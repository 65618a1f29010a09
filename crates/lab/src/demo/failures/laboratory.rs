//! Where a row is played: a network, two nodes, traffic, and what was found out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::run::RunError;
use super::network;
use super::rows::{Beginning, Row};
use super::words::{NodeStatus, StatusWords};
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::{Cluster, ClusterPlan, Identity, NAMES, SPARE_CONNECTIONS, Tuning};
use crate::testbed::session::Session;
use crate::testbed::topology::{SERVER, Topology};
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::traffic::outcome::Outcome;
use crate::testbed::watch::{Waited, Watch};
use api::EventKind;
use config::validated::Backend;
use packet_io::netlink::Prefix;

/// Connections of each kind.
const MIX: [(Kind, usize); 5] =
    [(Kind::Download, 4), (Kind::Upload, 4), (Kind::Ticks, 8), (Kind::Idle, 16), (Kind::Udp, 2)];
/// Rate of each bulk transfer, in bytes a second: so much that a window is far behind after some seconds.
const BULK_BYTES_PER_S: u64 = 2_000_000;
/// How long anything may take before a row gives it up. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often nodes are asked for their status.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// A network behind the server, so that the server is a next hop.
const BEHIND_SERVER: [u8; 4] = [203, 0, 113, 0];
const BEHIND_SERVER_BITS: u8 = 24;
/// How often nodes announce their addresses again where a row waits for that.
const ANNOUNCE_REFRESH: Duration = Duration::from_secs(5);
/// Time between two attempts of an operator.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// Where a row is played.
pub(super) struct Laboratory<'a> {
    watch: &'a Watch,
    pub(super) topology: Arc<Topology>,
    pub(super) cluster: Cluster,
    session: Session,
    /// When the failure began.
    failed_at: Epoch,
    /// From when on progress shows that a connection outlived everything.
    last_step_at: Instant,
    unkept: Vec<String>,
    words: Vec<StatusWords>,
}

/// What was found out in a row.
pub(super) struct RowResult {
    /// The stories of the connections that were established before the failure.
    pub(super) outcomes: Vec<Outcome>,
    /// From when on progress shows that a connection outlived everything.
    pub(super) last_step_at: Instant,
    /// Promises that were not kept.
    pub(super) unkept: Vec<String>,
    /// What the nodes said of themselves during the failure.
    pub(super) words: Vec<StatusWords>,
}

impl<'a> Laboratory<'a> {
    /// Builds the network, starts the nodes as the row begins, and traffic through them.
    pub(super) fn build(row: &Row, watch: &'a Watch, keep_logs: bool) -> Result<Self, RunError> {
        let topology = Topology::build()?;
        let mut tuning = Tuning::default();
        if row.beginning == Beginning::PairWithNextHop {
            network::prepare_next_hop(&topology)?;
            tuning.route = Some((Prefix::new(BEHIND_SERVER.into(), BEHIND_SERVER_BITS), SERVER[0]));
        }
        if row.beginning == Beginning::PairThatAnnounces {
            tuning.announce_refresh = Some(ANNOUNCE_REFRESH);
        }
        let topology = Arc::new(topology);
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated: true,
            connections_max: SPARE_CONNECTIONS,
            workers: 1,
            backend: Backend::default(),
            tuning,
        };
        let is_alone = row.beginning == Beginning::FirstAlone;
        let mut cluster =
            if is_alone { Cluster::start_first(&topology, plan)? } else { Cluster::start(&topology, plan)? };
        if keep_logs {
            eprintln!("{}: configurations and logs are in {}", row.failure, cluster.keep_files().display());
        }
        if is_alone {
            let is_active = || Ok::<_, RunError>(NodeStatus(cluster.raw_status(0)).role() == "active");
            watch.until(Instant::now() + PATIENCE, is_active)?;
        } else {
            cluster.wait_until_ready(watch)?;
        }
        let session = start_traffic(&topology, watch)?;
        let now = Epoch::now();
        let mut laboratory = Self {
            watch,
            topology,
            cluster,
            session,
            failed_at: now,
            last_step_at: now.instant(),
            unkept: Vec::new(),
            words: Vec::new(),
        };
        if !is_alone {
            // What began last must have reached the standby, for what a failure takes is not to be what was never replicated.
            laboratory
                .wait(|nodes| nodes.iter().all(NodeStatus::is_synchronised) && nodes[0].is_ready() == Some(true))?;
        }
        Ok(laboratory)
    }

    /// The failure begins now, of nodes whose roles are still what they were.
    pub(super) fn fail(&mut self, is_pair: bool) -> Result<(), RunError> {
        if is_pair {
            self.cluster.check_roles()?;
        }
        self.failed_at = Epoch::now();
        Ok(())
    }

    /// The numbers of the active node and of the other.
    pub(super) const fn roles(&self) -> (usize, usize) {
        let standby = self.cluster.standby();
        (1 - standby, standby)
    }

    /// Notes a promise that is not kept.
    pub(super) fn promise(&mut self, is_kept: bool, otherwise: &str) {
        if !is_kept {
            self.unkept.push(otherwise.to_owned());
        }
    }

    /// The nodes' status.
    pub(super) fn statuses(&self) -> [NodeStatus; 2] {
        [0, 1].map(|number| NodeStatus(self.cluster.raw_status(number)))
    }

    /// Notes the nodes' present status, for the report.
    pub(super) fn note_status(&mut self) {
        let nodes = self.statuses();
        self.words = nodes.iter().zip(NAMES).map(|(status, name)| status.words(name)).collect();
    }

    /// Waits until a condition on the nodes' status holds; false when it does not in time.
    pub(super) fn wait(&mut self, holds: impl FnMut(&[NodeStatus; 2]) -> bool) -> Result<bool, RunError> {
        self.wait_within(PATIENCE, holds)
    }

    /// As [`Laboratory::wait`], with another time.
    pub(super) fn wait_within(
        &mut self,
        within: Duration,
        mut holds: impl FnMut(&[NodeStatus; 2]) -> bool,
    ) -> Result<bool, RunError> {
        let mut next_look = Instant::now();
        let waited = self.watch.until(Instant::now() + within, || -> Result<bool, RunError> {
            if Instant::now() < next_look {
                return Ok(false);
            }
            next_look = Instant::now() + LOOK_EVERY;
            Ok(holds(&self.statuses()))
        })?;
        Ok(waited == Waited::Met)
    }

    /// Waits until one node is active, the other stands by, and either could go on alone; notes it as a broken promise if
    /// that does not come.
    pub(super) fn wait_until_whole(&mut self) -> Result<(), RunError> {
        let is_whole = self.wait(|nodes| {
            let active = nodes.iter().filter(|status| status.role() == "active").count();
            let standby = nodes.iter().filter(|status| status.role() == "standby").count();
            (active, standby) == (1, 1)
                && nodes.iter().all(NodeStatus::is_synchronised)
                && nodes.iter().any(|status| status.is_ready() == Some(true))
        })?;
        let roles = self.statuses().map(|status| status.role().to_owned()).join(" and ");
        self.promise(is_whole, &format!("afterwards the nodes are not one active and one ready standby, but {roles}"));
        Ok(())
    }

    /// Lets time pass.
    pub(super) fn pass(&self, time: Duration) -> Result<(), RunError> {
        Ok(self.watch.pass_until(Instant::now() + time)?)
    }

    /// Waits until every connection has had progress from now on, silent ones made to ask; notes a broken promise, `when`
    /// it was, if not.
    pub(super) fn all_go_on(&mut self, when: &str) -> Result<(), RunError> {
        let now = Instant::now();
        self.last_step_at = now;
        let wakes = self.session.progress().wakes;
        self.session.wake_silent()?;
        let mut is_whole = false;
        self.watch.until(now + PATIENCE, || -> Result<bool, RunError> {
            let progress = self.session.progress();
            let answered = progress.wakes > wakes && progress.unanswered == 0;
            is_whole = answered && progress.broken == 0 && progress.all_progressed_since.is_some_and(|at| at > now);
            Ok(is_whole || progress.broken > 0)
        })?;
        self.promise(is_whole, &format!("connections did not go on {when}"));
        Ok(())
    }

    /// Whether a node has announced the addresses since the failure began.
    pub(super) fn has_announced(&self, number: usize) -> bool {
        let since = self.failed_at;
        let events = self.cluster.events_of(number);
        events.iter().any(|event| event.kind == EventKind::Announced && since.ms_to_event(event.monotonic_ns) >= 0.0)
    }

    /// Drains a node as an operator would, again while it refuses; returns why it does to the end, or nothing.
    pub(super) fn drain(&mut self, number: usize) -> Result<String, RunError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let drained = self.cluster.drain_by_command(number)?;
            if drained.status.success() {
                return Ok(String::new());
            }
            if Instant::now() >= deadline {
                return Ok(String::from_utf8_lossy(&drained.stderr).trim().to_owned());
            }
            self.pass(TRY_EVERY)?;
        }
    }

    /// Starts the second node, in place of what ran there.
    pub(super) fn start_second(&mut self, identity: Identity) -> Result<(), RunError> {
        let topology = Arc::clone(&self.topology);
        Ok(self.cluster.start_second(&topology, identity)?)
    }

    /// Ends the traffic; what was found out.
    pub(super) fn finish(self) -> Result<RowResult, RunError> {
        let mut outcomes = self.session.finish()?.outcomes;
        outcomes.retain(|outcome| outcome.was_established_before(self.failed_at.instant()));
        let Self { last_step_at, unkept, words, .. } = self;
        Ok(RowResult { outcomes, last_step_at, unkept, words })
    }
}

fn start_traffic(topology: &Arc<Topology>, watch: &Watch) -> Result<Session, RunError> {
    let plan = Plan {
        servers: Topology::server_addresses(),
        connections: MIX.to_vec(),
        bulk_bytes_per_s: BULK_BYTES_PER_S,
        ramp_per_s: 1,
    };
    let planned: usize = MIX.iter().map(|(_, number)| number).sum();
    let session = Session::start(topology, plan)?;
    let waited = watch.until(Instant::now() + PATIENCE, || -> Result<bool, RunError> {
        let progress = session.progress();
        Ok(progress.established >= planned && progress.unanswered == 0)
    })?;
    if waited == Waited::Met {
        return Ok(session);
    }
    let (established, within_s) = (session.progress().established, PATIENCE.as_secs());
    Err(RunError::NotEstablished { established, planned, within_s })
}
