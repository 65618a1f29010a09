//! `mainstay bench edge`: what a packet and a connection cost an edge, without a network, beside the gateway's pipeline.
//!
//! One core; N established TCP connections; every packet is a data packet of a connection chosen at random, in a direction chosen at
//! random. An edge with the policy `always` and the pipeline of `mainstay bench pipeline` (firewall and source NAT) handle packets
//! of 60 bytes and full-sized ones in turns, batch by batch, from rings of frames that lie in the cache. Checksums are verified. Time is
//! the thread's processor time. Then edges of each policy are filled, each in a process of its own, and their resident memory is read.

mod memory;
mod report;
pub(super) mod subject;
#[cfg(test)]
mod tests;

use config::edge::RecoveryPolicy;
use flow::IpFamily;

use self::report::{Figures, Report};
use self::subject::{FULL_FRAME_BYTES, MeasuredEdge, SHORT_FRAME_BYTES};
use super::BenchError;
use super::callgrind;
use super::pipeline::gateway::Gateway;
use super::pipeline::setting::FIREWALL_RULES;
use super::pipeline::stage::nanos_each;
use super::pipeline::traffic::{Ring, Traffic};
use super::rounds;
use crate::args::BenchEdgeArgs;
use console::Progress;

/// Measures and prints.
///
/// # Errors
/// Packets got lost, which is a defect, or the result cannot be printed.
pub fn run(args: &BenchEdgeArgs) -> Result<(), BenchError> {
    if let Some(policy) = &args.filled {
        let policy =
            RecoveryPolicy::ALL.into_iter().find(|(name, _)| name == policy).map_or_else(Default::default, |it| it.1);
        let (bytes, held) = memory::fill(policy, args.memory_connections.first().copied().unwrap_or(1))?;
        return Ok(console::print(&format!("{bytes} {held}\n"))?);
    }
    let progress = Progress::new();
    let figures = measure(args, &progress)?;
    let rows = memory::measure(&args.memory_connections, |policy, connections| {
        progress.show(&format!("memory of {connections} connections, {policy}"));
    })?;
    let instructions_per_packet = callgrind::count_one("edge_packet");
    let report = Report::new(args, &figures, instructions_per_packet, rows);
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// Measures packets.
fn measure(args: &BenchEdgeArgs, progress: &Progress) -> Result<Figures, BenchError> {
    progress.show("opening connections");
    let mut rings = [SHORT_FRAME_BYTES, FULL_FRAME_BYTES].map(Ring::of_frames);
    let mut traffic = Traffic::new(IpFamily::V4, args.connections);
    let mut gateways_traffic = traffic.clone();
    let mut edge = MeasuredEdge::new(args.connections, RecoveryPolicy::Always);
    edge.establish(&mut traffic, &mut rings[0])?;
    let mut gateway = Gateway::new(args.connections, FIREWALL_RULES);
    gateway.establish(&mut gateways_traffic, &mut rings[0])?;
    let mut figures = Figures::default();
    rounds::repeat(progress, "packets", args.rounds, |round| {
        for (ring, [of_edge, of_gateway]) in rings.iter_mut().zip(&mut figures.nanos) {
            for is_edge in rounds::turns(round, [true, false]) {
                let packets = args.packets;
                if is_edge {
                    of_edge.push(nanos_each(edge.pass(&mut traffic, ring, packets)?, packets));
                } else {
                    of_gateway.push(nanos_each(gateway.pass(&mut gateways_traffic, ring, packets)?, packets));
                }
            }
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(figures)
}
