//! `mainstay bench packets`: processor time for each small packet forwarded, by a node with `AF_XDP`, by a node with
//! `AF_PACKET`, and by the kernel with nftables in a node's place. All three track connections, filter and translate
//! sources.
//!
//! On virtual cables much of a packet's way is walked in its sender's time alone: the time of a node's
//! process is a small part of it. So what is counted is all that anybody spends on the packets: the sender with what
//! the kernel does in its midst (soft interrupts included), the node's process, and the kernel's threads for what is
//! left over. The same is counted with nothing but a cable between sender and receiver, and what a packet costs there
//! is taken off all sides alike. What remains is the forwarding and one cable more.
//!
//! Each side is given as much as it can do, with some hundred packets underway: enough that none runs out of work or wakes
//! up for single packets, not so many that any has to drop (the share that arrived is reported). At a lower pace, which
//! can be asked for, a node wakes up more often for fewer packets, and each costs more. As a check, the same is worked
//! out from the time that the machine's processors were not idle, which on a quiet machine comes to the same.
//!
//! Then the fast path and the kernel with nftables are measured once more, with a million established connections each. Real packets
//! begin them, and bring those of the node to its fast path. The packets that are measured go round all of them in a random order, so
//! that each finds nothing of its connection in the processor's caches. The kernel's table gets a bucket for each connection, as an
//! operator of so many would give it.

mod conntrack_room;
mod datagram;
mod generator;
mod report;
mod side;

use std::time::Duration;

use self::conntrack_room::ConntrackRoom;
use self::report::Report;
use self::side::{Cost, Network, SideKind};
use super::BenchError;
use super::bulk::KernelRules;
use super::rounds::{self, Rounds};
use crate::args::BenchPacketsArgs;
use crate::testbed;
use crate::testbed::watch::Watch;
use config::validated::Backend;
use console::Progress;

/// What is compared once more, with full tables.
const FULL_WAYS: [SideKind; 3] = [SideKind::Cable, SideKind::FastPath, SideKind::Kernel];

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

/// The figures of the sides, in the order of [`SideKind::ALL`]; none of those that were not measured.
type AllFigures = [Figures; SideKind::ALL.len()];

/// A comparison of several sides.
struct Comparison {
    figures: AllFigures,
    /// What the kernel does beside forwarding.
    kernel_rules: KernelRules,
    /// The node has a fast path.
    has_fast_path: bool,
}

impl Comparison {
    /// Measures these ways in turns, with packets of so many connections.
    fn measure(
        ways: &[SideKind],
        connections: u32,
        args: &BenchPacketsArgs,
        watch: &Watch,
        progress: &Progress,
    ) -> Result<Self, BenchError> {
        let mut networks = Vec::new();
        for way in ways {
            progress.show(&format!("beginning {connections} connections"));
            let mut network = Network::build(*way, connections, watch)?;
            if !network.is_at_its_hook() {
                continue;
            }
            network.warm_up(args.packets_per_second, watch)?;
            networks.push(network);
        }
        let mut figures = AllFigures::default();
        rounds::repeat(progress, &format!("packets of {connections} connections"), args.rounds, |round| {
            let mut costs = [None; SideKind::ALL.len()];
            for turn in 0..networks.len() {
                // No side is always the first: what warms up or wears off within a round favours no side.
                let at = (turn + round as usize) % networks.len();
                let duration = Duration::from_secs_f64(args.seconds);
                costs[networks[at].way() as usize] =
                    Some(networks[at].pass(duration, args.packets_per_second, watch)?);
            }
            note(&mut figures, &costs);
            Ok::<_, BenchError>(())
        })?;
        let kernel_rules = networks.iter().find_map(Network::kernel_rules).unwrap_or(KernelRules::Nftables);
        let has_fast_path = networks.iter().any(|network| network.on_fast_path().is_some());
        Ok(Self { figures, kernel_rules, has_fast_path })
    }

    /// Makes the kernel's tables large enough for so many connections. Returns why full tables cannot be compared on this host.
    fn make_room(&self, connections: u32) -> Result<ConntrackRoom, String> {
        if let KernelRules::None { reason } = &self.kernel_rules {
            return Err(reason.clone());
        }
        if !self.has_fast_path {
            return Err(BenchError::NoFastPath.to_string());
        }
        ConntrackRoom::make(side::table_size(connections))
    }
}

fn measure(args: &BenchPacketsArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    let few = Comparison::measure(&SideKind::ALL, args.flows, args, &watch, &progress)?;
    let full = match few.make_room(args.connections) {
        Ok(_room) => Ok(Comparison::measure(&FULL_WAYS, args.connections, args, &watch, &progress)?.figures),
        Err(reason) => Err(reason),
    };
    Ok(Report::new(args, &few.figures, full.as_ref(), few.kernel_rules))
}

/// Takes down a round.
fn note(figures: &mut AllFigures, costs: &[Option<Cost>; SideKind::ALL.len()]) {
    let cable = costs[SideKind::Cable as usize].unwrap_or_default();
    for ((figures, cost), way) in figures.iter_mut().zip(costs).zip(SideKind::ALL) {
        let Some(cost) = cost else { continue };
        let off = if way == SideKind::Cable { Cost::default() } else { cable };
        figures.ns_per_packet.push(cost.ns_per_packet - off.ns_per_packet);
        figures.machine_ns_per_packet.push(cost.machine_ns_per_packet - off.machine_ns_per_packet);
        figures.arrived.push(cost.arrived);
    }
}

#[cfg(test)]
mod tests;
