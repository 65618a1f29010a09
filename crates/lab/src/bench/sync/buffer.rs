//! What two kernels differ by in the end when the buffer for the kernel's events is far too small.
//!
//! Short connections pass the active router as fast as they can while the daemons get their events through a buffer
//! that has room for a dozen events. Then half of them end at once, as when the kernel finds that their time is over.
//! Then all is quiet; whatever the daemons do about what they have missed, they have time to. In the end the standby
//! takes over, and the two tables are laid side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entries;
use super::pair::Pair;
use super::rate::server_addresses;
use super::routers::{ACTIVE, STANDBY, Tuning, tracked};
use super::setting::Setting;
use crate::args::sync_bench::Subject;
use crate::bench::BenchError;
use crate::bench::rounds;
use crate::bench::setup_rate::client::Client;
use crate::bench::setup_rate::server::Server;

/// Size of the buffer, in bytes; the kernel doubles it for what it needs itself.
const EVENT_BUFFER_BYTES: u32 = 8192;
/// Time that the daemons have to find out what they have missed: conntrackd reads the whole table 30 seconds after a loss
/// (conntrackd.conf(5), `NetlinkOverrunResync`).
const REPAIRED_WITHIN: Duration = Duration::from_secs(45);

/// What is different in the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Connections of the active router's kernel.
    pub(super) there: usize,
    /// Connections of the active router that the standby does not have, and the other way round.
    pub(super) missing: usize,
    pub(super) superfluous: usize,
    /// From the end of the load until as many were known, in seconds, or the end of all patience.
    pub(super) repaired_s: f64,
}

/// Measures it.
///
/// # Errors
/// The routers do not get ready, or connections fail.
pub(super) fn measure(setting: &Setting<'_>) -> Result<BTreeMap<Subject, Vec<Outcome>>, BenchError> {
    let mut outcomes = BTreeMap::<Subject, Vec<Outcome>>::new();
    rounds::repeat(&setting.progress, "a small buffer for events", setting.args.overruns(), |_| {
        for subject in setting.principals() {
            let outcome = overrun_once(setting, subject)?;
            outcomes.entry(subject).or_default().push(outcome);
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(outcomes)
}

fn overrun_once(setting: &Setting<'_>, subject: Subject) -> Result<Outcome, BenchError> {
    let (watch, args) = (setting.watch, setting.args);
    let tuning = Tuning { event_buffer_bytes: Some(EVENT_BUFFER_BYTES), ..Tuning::default() };
    let mut pair = Pair::start_ready(subject, tuning, watch)?;
    let _server = Server::start(&pair.topology.server, &server_addresses())?;
    let client = Client::start(&pair.topology, server_addresses(), args.in_flight)?;
    watch.pass_until(Instant::now() + Duration::from_secs_f64(args.overrun_seconds()))?;
    client.finish()?;
    // What is lost of a connection's beginning is made good by what comes after. Nothing comes after its end.
    let active = Arc::clone(&pair.topology);
    entries::delete_half(&active.nodes[ACTIVE], &entries::read(&active.nodes[ACTIVE])?)?;
    let quiet_at = Instant::now();
    watch.until(quiet_at + REPAIRED_WITHIN, || -> Result<bool, BenchError> {
        pair.check_running()?;
        Ok(pair.known_to_standby()? == tracked(&pair.topology.nodes[ACTIVE])?)
    })?;
    let repaired_s = quiet_at.elapsed().as_secs_f64();
    pair.settle(watch)?;
    // Read before the addresses move: the standby's own packets are not to count.
    let there = entries::read(&pair.topology.nodes[ACTIVE])?;
    pair.take_over(0, watch)?;
    let with_standby = entries::read(&pair.topology.nodes[STANDBY])?;
    Ok(Outcome {
        there: there.len(),
        missing: there.difference(&with_standby).count(),
        superfluous: with_standby.difference(&there).count(),
        repaired_s,
    })
}
