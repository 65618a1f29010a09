//! Connections that go through the cluster, and whether they go on.

use std::time::Instant;

use lab::testbed::session::Session;
use lab::testbed::topology::Topology;
use lab::testbed::traffic::Kind;
use lab::testbed::traffic::client::Plan;
use lab::testbed::traffic::outcome::Outcome;

use super::cluster::Cluster;
use super::wait_for;

/// Connections of every kind.
const MIX: [(Kind, usize); 5] =
    [(Kind::Download, 2), (Kind::Upload, 2), (Kind::Ticks, 8), (Kind::Idle, 16), (Kind::Udp, 2)];
const BULK_BYTES_PER_S: u64 = 1_000_000;

/// Running traffic.
pub(crate) struct Traffic {
    session: Session,
}

impl Traffic {
    /// Connections of every kind, all of them established.
    pub(crate) fn mixed(cluster: &Cluster) -> Self {
        let planned = MIX.iter().map(|(_, number)| number).sum();
        Self::start(cluster, MIX.to_vec(), 1, planned)
    }

    /// The same, and others that begin at a rate.
    pub(crate) fn with_churn(cluster: &Cluster, connections: usize, per_s: u64) -> Self {
        let planned = MIX.iter().map(|(_, number)| number).sum();
        let churn = (Kind::Ramp, connections);
        Self::start(cluster, MIX.iter().copied().chain([churn]).collect(), per_s, planned)
    }

    /// Silent connections only, so many of them, all established and answered once.
    pub(crate) fn silent(cluster: &Cluster, number: usize) -> Self {
        let traffic = Self::start(cluster, vec![(Kind::Ramp, number)], 1000, number);
        let all_answered = || traffic.session.progress().unanswered == 0;
        wait_for("the first answers", all_answered, || format!("{:?}", traffic.session.progress()));
        traffic
    }

    fn start(cluster: &Cluster, connections: Vec<(Kind, usize)>, ramp_per_s: u64, established: usize) -> Self {
        let plan =
            Plan { servers: Topology::server_addresses(), connections, bulk_bytes_per_s: BULK_BYTES_PER_S, ramp_per_s };
        let session = Session::start(&cluster.topology, plan).expect("sockets can be opened");
        let traffic = Self { session };
        let stand = || traffic.session.progress().established >= established;
        wait_for("all connections to be established", stand, || {
            format!("{:?}\n{}", traffic.session.progress(), cluster.story())
        });
        traffic
    }

    /// Connections that have been established so far.
    pub(crate) fn established(&self) -> usize {
        self.session.progress().established
    }

    /// Waits until every connection has had progress after now: silent ones are made to ask.
    pub(crate) fn all_go_on(&self, cluster: &Cluster) {
        let now = Instant::now();
        let wakes = self.session.progress().wakes;
        self.session.wake_silent().expect("the client runs");
        let go_on = || {
            let progress = self.session.progress();
            let answered = progress.wakes > wakes && progress.unanswered == 0;
            assert_eq!(progress.broken, 0, "connections broke\n{}", cluster.story());
            answered && progress.all_progressed_since.is_some_and(|at| at > now)
        };
        wait_for("every connection to go on", go_on, || {
            let progress = self.session.progress();
            let slowest = progress.all_progressed_since.map(|at| at.elapsed());
            format!("{progress:?}, the slowest had progress {slowest:?} ago\n{}", cluster.story())
        });
    }

    /// Makes silent connections ask, and gives those that still live the time to be answered.
    pub(crate) fn survivors_answer(&self, survivors_min: usize) {
        let before = self.session.progress();
        self.session.wake_silent().expect("the client runs");
        let answered = || self.session.progress().answered >= before.answered + survivors_min;
        wait_for("the survivors to answer", answered, || format!("{before:?}, now {:?}", self.session.progress()));
    }

    /// Ends the traffic; returns the outcomes of the connections.
    pub(crate) fn finish(self) -> Vec<Outcome> {
        self.session.finish().expect("the client has run").outcomes
    }

    /// Ends the traffic, of which nothing may have broken, and prints the longest pause.
    pub(crate) fn finish_whole(self) -> Vec<Outcome> {
        let outcomes = self.finish();
        let broken: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.broken.as_ref()).collect();
        assert!(broken.is_empty(), "{broken:?}");
        let gap = outcomes.iter().map(|outcome| outcome.longest_gap.as_millis()).max().unwrap_or_default();
        println!("longest pause of a connection: {gap} ms");
        outcomes
    }
}
