//! Connections that go through the routers in every way, and whether they go on.

use std::net::SocketAddr;
use std::time::Instant;

use lab::demo::kernel::network::{Path, listening, targets};
use lab::demo::kernel::routers::Routers;
use lab::testbed::session::Session;
use lab::testbed::traffic::Kind;
use lab::testbed::traffic::client::{Plan, Progress};
use lab::testbed::traffic::outcome::Outcome;

use super::wait_for;

/// Connections of every kind.
const MIX: [(Kind, usize); 5] =
    [(Kind::Download, 4), (Kind::Upload, 4), (Kind::Ticks, 20), (Kind::Idle, 20), (Kind::Udp, 10)];
const BULK_BYTES_PER_S: u64 = 1_000_000;

/// Running traffic.
pub(crate) struct Traffic {
    session: Session,
}

impl Traffic {
    /// Connections of every kind, all of them established and answered.
    pub(crate) fn mixed(routers: &Routers) -> Self {
        Self::start(routers, MIX.to_vec(), 1)
    }

    /// The same, and so many others that begin at a rate.
    pub(crate) fn with_churn(routers: &Routers, connections: usize, per_s: u64) -> Self {
        let churn = (Kind::Ramp, connections);
        Self::start(routers, MIX.iter().copied().chain([churn]).collect(), per_s)
    }

    fn start(routers: &Routers, connections: Vec<(Kind, usize)>, ramp_per_s: u64) -> Self {
        let servers: Vec<SocketAddr> = targets().into_iter().map(|(_, address)| address).collect();
        let plan = Plan { servers, connections, bulk_bytes_per_s: BULK_BYTES_PER_S, ramp_per_s };
        let session = Session::start_behind(routers.topology(), plan, &listening()).expect("sockets can be opened");
        let traffic = Self { session };
        let planned: usize = MIX.iter().map(|(_, number)| number).sum();
        wait_for("all connections to be established", routers, || traffic.progress().established >= planned);
        traffic
    }

    pub(crate) fn progress(&self) -> Progress {
        self.session.progress()
    }

    /// Waits until every connection has had progress after now: silent ones are made to ask.
    pub(crate) fn all_go_on(&self, routers: &Routers) {
        let now = Instant::now();
        let wakes = self.progress().wakes;
        self.session.wake_silent().expect("the client runs");
        wait_for("every connection to go on", routers, || {
            let progress = self.progress();
            assert_eq!(progress.broken, 0, "connections broke\n{}", routers.logs());
            let have_answered = progress.wakes > wakes && progress.unanswered == 0;
            have_answered && progress.all_progressed_since.is_some_and(|at| at > now)
        });
    }

    /// Waits until all connections have begun that begin at a rate.
    pub(crate) fn await_churn(&self, routers: &Routers, connections: usize) {
        wait_for("the last connection to begin", routers, || self.progress().ramped >= connections);
    }

    /// Makes silent connections ask.
    pub(crate) fn wake_silent(&self) {
        self.session.wake_silent().expect("the client runs");
    }

    /// Ends the traffic; returns each connection's outcome, and which way it took.
    pub(crate) fn finish(self) -> Vec<(Path, Outcome)> {
        let outcomes = self.session.finish().expect("the client has run").outcomes;
        outcomes.into_iter().zip(targets().into_iter().cycle()).map(|(outcome, (path, _))| (path, outcome)).collect()
    }

    /// Ends the traffic, of which nothing may have broken, and prints the longest pause.
    pub(crate) fn finish_whole(self) {
        let outcomes = self.finish();
        let broken: Vec<_> =
            outcomes.iter().filter_map(|(path, outcome)| Some((path, outcome.broken.as_ref()?))).collect();
        assert!(broken.is_empty(), "{broken:?}");
        let gap = outcomes.iter().map(|(_, outcome)| outcome.longest_gap.as_millis()).max().unwrap_or_default();
        println!("longest pause of a connection: {gap} ms");
    }
}
