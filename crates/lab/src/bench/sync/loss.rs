//! Connections that break when the router dies that they pass, at the end of a ramp during which the dedicated link lost packets.
//!
//! Each connection asks something when it is established and then is silent. When so many are established, the router dies;
//! the other takes over as its manager has it, and every connection asks again. What was established and gets no answer is
//! broken. Of those, the ones that were replicated to the standby, or should have been, were promised.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::entries;
use super::pair::Pair;
use super::routers::{STANDBY, Tuning};
use super::setting::Setting;
use crate::args::sync_bench::Subject;
use crate::bench::BenchError;
use crate::bench::rounds;
use crate::testbed::session::Session;
use crate::testbed::topology::Topology;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::traffic::outcome::Outcome;
use crate::testbed::watch::Waited;

/// Share of the packets on the dedicated link that are lost, in either direction, in hundredths.
pub(super) const LOSS_PERCENT: u8 = 20;
/// From the death until the manager knows of it: what Mainstay's gateways take.
const DETECTION: Duration = Duration::from_millis(100);
/// Time that connections have to be established beyond what the ramp takes.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);
/// How long answers are waited for: several retransmissions of TCP.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Not used by a ramp.
const BULK_BYTES_PER_S: u64 = 1;

/// Connections that broke by one kill.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Broken {
    /// All of them.
    pub(super) all: usize,
    /// Those that replication promises to keep: see [`Outcome::is_promised`].
    pub(super) promised: usize,
}

/// One figure a round.
pub(super) type Figures = Vec<Broken>;

/// Measures it.
///
/// # Errors
/// The routers do not get ready, connections cannot be established, or a daemon does not take over.
pub(super) fn measure(setting: &Setting<'_>) -> Result<BTreeMap<Subject, Figures>, BenchError> {
    let mut figures = BTreeMap::<Subject, Figures>::new();
    rounds::repeat(&setting.progress, "loss on the dedicated link", setting.args.kills(), |_| {
        for subject in setting.principals() {
            let broken = kill_once(setting, subject)?;
            figures.entry(subject).or_default().push(broken);
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(figures)
}

fn kill_once(setting: &Setting<'_>, subject: Subject) -> Result<Broken, BenchError> {
    let (watch, args) = (setting.watch, setting.args);
    let tuning = Tuning { loss_percent: LOSS_PERCENT, ..Tuning::default() };
    let mut pair = Pair::start_ready(subject, tuning, watch)?;
    let connections = args.connections() as usize;
    let plan = Plan {
        servers: Topology::server_addresses(),
        connections: vec![(Kind::Ramp, connections)],
        bulk_bytes_per_s: BULK_BYTES_PER_S,
        ramp_per_s: args.ramp_per_s.into(),
    };
    let traffic = Session::start(&pair.topology, plan)?;
    let takes = Duration::from_secs_f64(connections as f64 / f64::from(args.ramp_per_s));
    let ramped = watch.until(Instant::now() + takes * 2 + ESTABLISHED_WITHIN, || {
        Ok::<_, BenchError>(traffic.progress().ramped >= connections)
    })?;
    if ramped == Waited::TooLate {
        let there = traffic.progress().ramped;
        let reason = "not established in time".to_owned();
        return Err(BenchError::Failed {
            failed: (connections - there) as u64,
            connections: connections as u64,
            reason,
        });
    }
    let killed_at = pair.kill_active()?;
    let replicated = entries::read_ends(&pair.topology.nodes[STANDBY])?;
    watch.pass_until(killed_at + DETECTION)?;
    let taken_over = pair.take_over(0, watch)?;
    let asked_at = Instant::now();
    traffic.wake_silent()?;
    pair.begin_as_primary()?;
    watch.until(asked_at + ANSWERED_WITHIN, || {
        let progress = traffic.progress();
        Ok::<_, BenchError>(progress.wakes > 0 && progress.unanswered == 0)
    })?;
    pair.check_standby_running()?;
    let outcomes = traffic.finish()?.outcomes;
    drop(taken_over);
    let is_broken = |outcome: &&Outcome| outcome.was_established_before(killed_at) && !outcome.survived(asked_at);
    let broken: Vec<&Outcome> = outcomes.iter().filter(is_broken).collect();
    let promised = broken.iter().filter(|outcome| outcome.is_promised(killed_at, &replicated)).count();
    Ok(Broken { all: broken.len(), promised })
}
