//! `mainstay bench packets`: processor time for each small packet forwarded, by a node with `AF_XDP`, by a node with
//! `AF_PACKET`, and by the kernel with nftables in a node's place. All three track connections, filter and translate
//! sources.
//!
//! On virtual cables much of a packet's way is walked in its sender's time, and nobody else's: the time of a node's
//! process is a small part of it. So what is counted is all that anybody spends on the packets: the sender with what
//! the kernel does in its midst (soft interrupts included), the node's process, and the kernel's threads for what is
//! left over. The same is counted with nothing but a cable between sender and receiver, and what a packet costs there
//! is taken off all sides alike. What remains is the forwarding and one cable more.
//!
//! Each side is given as much as it can do, with some hundred packets underway: enough that none runs out of work or wakes
//! up for single packets, not so many that any has to drop (the share that arrived is reported). At a lower pace, which
//! can be asked for, a node wakes up more often for fewer packets, and each costs more. As a check, the same is worked
//! out from the time that the machine's processors were not idle, which on a quiet machine comes to the same.

mod generator;
mod report;
mod side;

use std::time::Duration;

use self::report::Report;
use self::side::{Cost, Network, Way};
use super::BenchError;
use super::bulk::KernelRules;
use super::rounds::{self, Rounds};
use crate::args::BenchPacketsArgs;
use crate::testbed;
use crate::testbed::watch::Watch;
use config::validated::Backend;
use console::Progress;

/// How long each side is warmed up: connections begin, tables are touched.
const WARM_UP: Duration = Duration::from_millis(500);

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, nothing gets through, or the result cannot be printed.
pub fn run(args: &BenchPacketsArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    console::print_as(args.json, &report, || report.describe())?;
    Ok(())
}

/// What is measured of one side, each with a figure a round.
#[derive(Default)]
struct Figures {
    /// Time for each packet that arrived, what the cable costs taken off (but for the cable itself).
    ns_per_packet: Rounds,
    /// The same from the time that the machine was not idle.
    machine_ns_per_packet: Rounds,
    /// Share of the packets that arrived.
    arrived: Rounds,
}

/// The figures of the sides, in the order of [`Way::ALL`].
type AllFigures = [Figures; Way::ALL.len()];

fn measure(args: &BenchPacketsArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let watch = Watch::new()?;
    let progress = Progress::new();
    progress.show("building the networks");
    let mut networks = Vec::new();
    for way in Way::ALL {
        networks.push(Network::build(way, args.flows, &watch)?);
    }
    for network in &mut networks {
        network.pass(WARM_UP, args.packets_per_second, &watch)?;
    }
    let mut figures = AllFigures::default();
    rounds::repeat(&progress, "packets", args.rounds, |round| {
        // No side is always the first: what warms up or wears off within a round favours nobody.
        let mut costs = [Cost::default(); Way::ALL.len()];
        for turn in 0..networks.len() {
            let at = (turn + round as usize) % networks.len();
            costs[at] = networks[at].pass(Duration::from_secs_f64(args.seconds), args.packets_per_second, &watch)?;
        }
        note(&mut figures, &costs);
        Ok::<_, BenchError>(())
    })?;
    let rules = networks.iter().find_map(Network::kernel_rules).unwrap_or(KernelRules::Nftables);
    Ok(Report::new(args, &figures, rules))
}

/// Takes down a round.
fn note(figures: &mut AllFigures, costs: &[Cost; Way::ALL.len()]) {
    let cable = costs[Way::Cable as usize];
    for ((figures, cost), way) in figures.iter_mut().zip(costs).zip(Way::ALL) {
        let off = if way == Way::Cable { Cost::default() } else { cable };
        figures.ns_per_packet.push(cost.ns_per_packet - off.ns_per_packet);
        figures.machine_ns_per_packet.push(cost.machine_ns_per_packet - off.machine_ns_per_packet);
        figures.arrived.push(cost.arrived);
    }
}

#[cfg(test)]
mod tests;
