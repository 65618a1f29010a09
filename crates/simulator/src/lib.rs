//! A seeded simulation of a cluster: the same [`cluster::node::Node`] values as in the daemon, in a simulated network
//! with simulated hosts, on a simulated clock.
//!
//! Everything that happens in a run is drawn from one number, the RNG seed: the data of clients and servers, the
//! losses, delays, duplicates, reordering and damage of links, and the failures and restarts of nodes. [`scenario`]
//! draws it, the `world` plays it, and the `checkers` verify Mainstay's guarantees. A seed that violates a guarantee
//! always violates it.
//!
//! [`many_nodes`] simulates the state service of larger clusters, without the processing of packets.
//!
//! The simulator knows no clock, socket or thread of the operating system, except in [`run_many`], which runs several
//! seeds at once.
//!
//! ```
//! let outcome = simulator::run(1, simulator::Options::default());
//! assert!(outcome.is_sound(), "{:?}", outcome.problems);
//! ```

mod checkers;
mod clocks;
mod dialect;
mod host;
mod leaving;
mod link;
mod many;
pub mod many_nodes;
mod node_config;
mod options;
pub mod pair;
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

/// Runs the scenario of an RNG seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    run_scenario(&Scenario::generate(seed, options.faults).with_representation(options.representation), options)
}

/// Runs a scenario. A panic is caught and counts as a violation.
#[must_use]
pub fn run_scenario(scenario: &Scenario, options: Options) -> Outcome {
    let run = || {
        let mut outcome = world::World::new(scenario, options).run();
        clocks::check(scenario, options.sabotage, &mut outcome);
        leaving::check(scenario, options.sabotage, &mut outcome);
        outcome
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let mut outcome = Outcome::new(scenario);
        outcome.problem(Instant::ZERO, Problem::Panic, panic_text(&*panic));
        outcome
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
