//! Connections that are over and that the survivor of a failover holds for established.
//!
//! Short connections pass the active router. When the last of them is closed, the daemons finish their work, the active router
//! dies and the other takes over. A connection that is established in the survivor's kernel, and was not any more in
//! the dead one's, is stale: an assured entry that stays for days and is not dropped early when the table is full.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flow::netfilter::{Entry, TcpState};

use super::entries;
use super::pair::Pair;
use super::rate::server_addresses;
use super::routers::{ACTIVE, STANDBY, Tuning};
use super::setting::Setting;
use crate::args::sync_bench::Subject;
use crate::bench::BenchError;
use crate::bench::rounds;
use crate::bench::setup_rate::client::Client;
use crate::bench::setup_rate::server::Server;

/// How long the server may take to close its side.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);
/// From the death until the manager knows of it.
const DETECTION: Duration = Duration::from_millis(100);

/// What one take-over showed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Connections that were over when the router died.
    pub(super) closed: usize,
    /// Of those, the ones that the survivor holds for established.
    pub(super) stale: usize,
}

/// Measures it.
///
/// # Errors
/// The routers do not get ready, connections fail, or a daemon does not take over.
pub(super) fn measure(setting: &Setting<'_>) -> Result<BTreeMap<Subject, Vec<Outcome>>, BenchError> {
    let mut outcomes = BTreeMap::<Subject, Vec<Outcome>>::new();
    rounds::repeat(&setting.progress, "closed connections", setting.args.kills(), |_| {
        for subject in setting.principals() {
            let outcome = take_over_once(setting, subject)?;
            outcomes.entry(subject).or_default().push(outcome);
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(outcomes)
}

fn is_established(entry: &Entry) -> bool {
    entry.tcp().is_some_and(|info| info.state == TcpState::Established)
}

fn take_over_once(setting: &Setting<'_>, subject: Subject) -> Result<Outcome, BenchError> {
    let watch = setting.watch;
    let mut pair = Pair::start_ready(subject, Tuning::default(), watch)?;
    let _server = Server::start(&pair.topology.server, &server_addresses())?;
    let client = Client::start(&pair.topology, server_addresses(), setting.args.in_flight)?;
    watch.pass_until(Instant::now() + Duration::from_secs_f64(setting.args.seconds()))?;
    client.finish()?;
    let topology = std::sync::Arc::clone(&pair.topology);
    let established = || entries::read_where(&topology.nodes[ACTIVE], is_established);
    watch.until(Instant::now() + CLOSED_WITHIN, || Ok::<_, BenchError>(established()?.is_empty()))?;
    pair.settle(watch)?;
    let alive = established()?;
    let closed = entries::read(&topology.nodes[ACTIVE])?.len() - alive.len();
    let killed_at = pair.kill_active()?;
    watch.pass_until(killed_at + DETECTION)?;
    pair.take_over(0, watch)?;
    let survivor = entries::read_where(&topology.nodes[STANDBY], is_established)?;
    Ok(Outcome { closed, stale: survivor.difference(&alive).count() })
}
