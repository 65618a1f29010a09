//! A seeded simulation of a cluster: the very same [`cluster::node::Node`] values as in the daemon, in a simulated
//! network with simulated hosts, on a simulated clock.
//!
//! Everything that happens in a run is drawn from one number, the seed: what clients and servers say, what links lose,
//! delay, double, reorder and damage, when nodes die and start again. [`scenario`] draws it, the `world` plays it, and
//! the `checkers` hold what happens against what Mainstay promises. A seed that breaks a promise breaks it again.
//!
//! The simulator knows no clock, socket or thread of the operating system except for [`run_many`], which runs several
//! seeds at once.
//!
//! ```
//! let outcome = simulator::run(1, simulator::Options::default());
//! assert!(outcome.is_sound(), "{:?}", outcome.problems);
//! ```

mod checkers;
mod dialect;
mod host;
mod link;
mod many;
mod node_config;
mod options;
pub mod random;
pub mod report;
mod sabotage;
pub mod scenario;
mod schedule;
pub mod shrink;
mod stream;
#[cfg(test)]
mod tests;
mod topology;
mod trace;
mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flow::Instant;

pub use link::LinkConfig;
pub use many::run_many;
pub use options::Options;
use report::{Outcome, Problem};
pub use sabotage::Sabotage;
use scenario::Scenario;

/// Runs the scenario of a seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    run_scenario(&Scenario::generate(seed, options.faults).told_by(options.representation), options)
}

/// Runs a scenario. A panic is caught: it is one of the things that must not happen.
#[must_use]
pub fn run_scenario(scenario: &Scenario, options: Options) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| world::World::new(scenario, options).run())).unwrap_or_else(|panic| {
        let mut outcome = Outcome::new(scenario);
        outcome.problem(Instant::ZERO, Problem::Panic, panic_text(&*panic));
        outcome
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
