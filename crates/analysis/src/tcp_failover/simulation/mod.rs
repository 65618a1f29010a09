//! A sender and a receiver that exchange segments over a path with an outage: what the formulas are checked against.
//!
//! The path is a delay and a loss rate, without a bottleneck. The cut is at the receiver's end, as in \[HALR\] section 7.1. So a segment
//! that passes it is acknowledged through it at the same time, and T_down is measured as the formulas assume. In the outage, the
//! edge keeps what it cannot pass on. Acknowledgements are not lost at random.

mod path;
mod sender;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::config::{Arrival, ConfigError, FailoverConfig, Kind, RecoveryPolicy};
use super::model::{Estimate, Model, WithAndWithout, median};
use path::{Outage, Run, run};

/// The most runs of one simulation.
pub const SEEDS_MAX: u32 = 10_000;
/// What distinguishes the random numbers of an outage's beginning from those of losses.
const PHASE_STREAM: u64 = 0x9e37_79b9_7f4a_7c15;

/// Medians over `seeds` runs of each figure, the first run with seed `first_seed`; at least one and at most [`SEEDS_MAX`] runs.
///
/// # Errors
/// A parameter is out of its range.
pub fn simulate(config: &FailoverConfig, kind: Kind, first_seed: u64, seeds: u32) -> Result<Estimate, ConfigError> {
    let model = Model::new(config)?;
    let runs = (0..seeds.clamp(1, SEEDS_MAX)).map(|index| one(&model, config, kind, first_seed + u64::from(index)));
    Ok(median(runs.collect()))
}

/// The same flow three times with the same losses: undisturbed, interrupted, and with local recovery.
fn one(model: &Model, config: &FailoverConfig, kind: Kind, seed: u64) -> Estimate {
    let undisturbed = run(model, config, kind, seed, None);
    let phase = match config.arrival {
        Arrival::Start => 0.0,
        Arrival::Uniform => SmallRng::seed_from_u64(seed ^ PHASE_STREAM).random(),
    };
    // The outage ends when it has interrupted the flow for T_down, whichever part of it passed before.
    let ends_s = undisturbed.interrupted_at_s + model.down_s(kind, phase);
    let across = |recovery: Option<RecoveryPolicy>| -> Run {
        let outage = Outage { from_s: undisturbed.interrupted_at_s, until_s: ends_s, recovery };
        run(model, config, kind, seed, Some(outage))
    };
    let (with, without) = (across(Some(config.recovery)), across(None));
    Estimate {
        stall_s: WithAndWithout { with: with.stall_s, without: without.stall_s },
        completion_s: WithAndWithout { with: with.completion_s, without: without.completion_s },
        undisturbed_s: undisturbed.completion_s,
    }
}
