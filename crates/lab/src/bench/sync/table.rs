//! A table of many connections: how long taking over takes, and how much memory the daemons need for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::entries;
use super::pair::Pair;
use super::routers::{ACTIVE, STANDBY, Tuning};
use super::setting::Setting;
use crate::args::sync_bench::Subject;
use crate::bench::BenchError;
use crate::bench::rounds::{self, Rounds};
use crate::testbed::watch::Waited;

/// Connections that the standby may be behind while the table is filled: so that the daemons' own speed decides how long that
/// takes, and not the size of their buffers what they miss.
const BEHIND_MAX: u64 = 4000;
/// Connections put into the kernel at a time.
const AT_ONCE: u32 = 2000;
/// How long the standby may take to know more of them.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);
/// From the death until the manager knows of it.
const DETECTION: Duration = Duration::from_millis(100);

/// Figures of what is compared, one a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// From the manager's call until the kernel has all connections, in milliseconds.
    pub(super) take_over_ms: Rounds,
    /// Memory in RAM with the whole table, in bytes: the active router's daemon, and the standby's.
    pub(super) resident_bytes: [Rounds; 2],
    /// The same without a connection.
    pub(super) resident_empty_bytes: [Rounds; 2],
}

/// Measures it.
///
/// # Errors
/// The routers do not get ready, the standby does not get to know the table, or does not take over.
pub(super) fn measure(setting: &Setting<'_>) -> Result<BTreeMap<Subject, Figures>, BenchError> {
    let mut figures = BTreeMap::<Subject, Figures>::new();
    rounds::repeat(&setting.progress, "a large table", setting.args.tables(), |_| {
        setting.principals().try_for_each(|subject| fill_once(setting, subject, figures.entry(subject).or_default()))
    })?;
    Ok(figures)
}

fn fill_once(setting: &Setting<'_>, subject: Subject, into: &mut Figures) -> Result<(), BenchError> {
    let (watch, count) = (setting.watch, setting.args.entries());
    let mut pair = Pair::start_ready(subject, Tuning::default(), watch)?;
    let empty_bytes = pair.resident_bytes();
    let mut filled = 0;
    while filled < count {
        let more = AT_ONCE.min(count - filled);
        entries::create(&pair.topology.nodes[ACTIVE], filled, more)?;
        filled += more;
        let behind_max = if filled == count { 0 } else { BEHIND_MAX };
        await_known(setting, &mut pair, u64::from(filled), behind_max)?;
    }
    pair.settle(watch)?;
    let full_bytes = pair.resident_bytes();
    for side in [ACTIVE, STANDBY] {
        into.resident_empty_bytes[side].push(empty_bytes[side] as f64);
        into.resident_bytes[side].push(full_bytes[side] as f64);
    }
    let killed_at = pair.kill_active()?;
    watch.pass_until(killed_at + DETECTION)?;
    let taken_over = pair.take_over(count.into(), watch)?;
    into.take_over_ms.push(taken_over.took.as_secs_f64() * 1e3);
    Ok(())
}

/// Waits until the standby is not further behind than that.
fn await_known(setting: &Setting<'_>, pair: &mut Pair, filled: u64, behind_max: u64) -> Result<(), BenchError> {
    let waited = setting.watch.until(Instant::now() + KNOWN_WITHIN, || -> Result<bool, BenchError> {
        pair.check_running()?;
        Ok(pair.known_to_standby()? + behind_max >= filled)
    })?;
    if waited == Waited::TooLate {
        let there = pair.known_to_standby()?;
        return Err(BenchError::Connections { there: there as u32, expected: filled as u32 });
    }
    Ok(())
}
