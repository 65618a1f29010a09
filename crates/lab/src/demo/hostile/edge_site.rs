//! Three gateways between two edges, with connections that pass all the time.

use std::time::Instant;

use super::site::PATIENCE;
use crate::demo::many_nodes::open;
use crate::demo::run::RunError;
use crate::testbed::cluster::BackupsPlan;
use crate::testbed::etcd;
use crate::testbed::many_nodes::{ManyNodes, ManyNodesPlan, MembersFrom};
use crate::testbed::session::Session;
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::traffic::Kind;
use crate::testbed::watch::{Waited, Watch};
use api::Status;

const NODES: usize = 3;
/// Connections that pass all the time.
const MIX: [(Kind, usize); 4] = [(Kind::Download, 1), (Kind::Upload, 1), (Kind::Ticks, 8), (Kind::Idle, 16)];

/// Gateways between two edges.
pub(super) struct EdgeSite<'a> {
    pub(super) watch: &'a Watch,
    pub(super) many: ManyNodes,
    session: Session,
    /// Which nodes each edge sends flows to.
    flows: Vec<bool>,
}

impl<'a> EdgeSite<'a> {
    pub(super) fn build(watch: &'a Watch, keep_logs: bool) -> Result<Self, RunError> {
        let plan = ManyNodesPlan {
            nodes: NODES,
            is_replicated: true,
            accepts: true,
            backups: Some(BackupsPlan { count: 1, broadcast: true }),
            connections: MIX.iter().map(|(_, number)| number).sum(),
            workers: 1,
            may_join: 0,
            members: if etcd::is_installed() { MembersFrom::Etcd } else { MembersFrom::Static },
            believes_all_sources: true,
        };
        let mut many = ManyNodes::start(plan, watch)?;
        if keep_logs {
            many.keep_files();
        }
        let session = open(&many, watch, &SERVER_PORTS[..2], MIX.to_vec())?;
        let mut site = Self { watch, many, session, flows: Vec::new() };
        site.flows = site.flows_now();
        Ok(site)
    }

    /// The edges' status: inside, outside.
    pub(super) fn edges(&self) -> Vec<Status> {
        self.many.edges.statuses().collect()
    }

    fn flows_now(&self) -> Vec<bool> {
        let edges = self.edges();
        let nodes = edges.iter().filter_map(|status| status.edge.as_ref()).flat_map(|edge| &edge.nodes);
        nodes.map(|node| node.forwards).collect()
    }

    /// Waits until a condition holds. False when it does not in time.
    pub(super) fn until(&self, mut condition: impl FnMut() -> bool) -> Result<bool, RunError> {
        let waited = self.watch.until(Instant::now() + PATIENCE, || -> Result<bool, RunError> { Ok(condition()) })?;
        Ok(waited == Waited::Met)
    }

    /// What is wrong after an attack: nodes that an edge sends no flows to, flows that were moved, connections that do not go on.
    pub(super) fn faults(&self) -> Result<Vec<String>, RunError> {
        let mut faults = Vec::new();
        let flows = self.flows_now();
        if flows != self.flows {
            faults.push(format!("edges send flows to {flows:?}, not to {:?}", self.flows));
        }
        let (now, wakes) = (Instant::now(), self.session.progress().wakes);
        self.session.wake_silent()?;
        let go_on = self.until(|| {
            let progress = self.session.progress();
            let answered = progress.wakes > wakes && progress.unanswered == 0;
            answered && progress.all_progressed_since.is_some_and(|at| at > now)
        })?;
        let broken = self.session.progress().broken;
        if !go_on || broken > 0 {
            faults.push(format!("connections do not go on; {broken} broke"));
        }
        Ok(faults)
    }
}
