//! `mainstay bench pipeline`: what a packet costs a node, without a network.
//!
//! One core; N TCP connections that 50 firewall rules let in and that source NAT translates; every packet is of a
//! connection chosen at random, in a direction chosen at random, in a frame of 64 bytes whose checksums are verified.
//! Three ways are measured in turns:
//!
//! 1. the node's [`Pipeline`](cluster::pipeline::Pipeline): parse, table (looked up a batch at a time), connection
//!    tracking, chain, rewriting with checksums;
//! 2. the same with the connections in a `hashbrown` map, looked up as each packet comes (`one_at_a_time`);
//! 3. the pipeline with replication at its most eager (`replicated`): every packet's connection is sent to a peer.
//!
//! Then the pipeline alone is measured among other numbers of connections, under more rules, with IPv6 and with fragments
//! (in the module `variants`).
//!
//! Frames are made in a small ring before the clock starts, so that they lie in the cache, as those do that a network
//! card has just delivered. Time is the thread's processor time, so that other programs do not count; what they do to the
//! caches does. Routes, neighbours and the sending of frames and datagrams are not part of it.

mod fragments;
pub(super) mod gateway;
pub(super) mod load_balancer;
mod one_at_a_time;
pub(super) mod replicated;
mod report;
pub(super) mod setting;
pub(super) mod shares;
pub(super) mod stage;
pub(super) mod traffic;
mod variants;

use flow::{Connection, IpFamily};
use packet_io::usage;

use self::gateway::Gateway;
use self::one_at_a_time::OneAtATime;
use self::replicated::Replicated;
use self::report::{Figures, Report};
use self::setting::FIREWALL_RULES;
use self::stage::{Stage, nanos_each};
use self::traffic::{RING_FRAMES, Ring, Traffic};
use self::variants::Variants;
use super::BenchError;
use super::callgrind;
use super::rounds;
use crate::args::BenchPipelineArgs;
use console::Progress;

/// Connections that are opened and closed in a round: so many that the first has left the second-level cache before it
/// is closed.
const OPENED_PER_ROUND: u32 = 32 * RING_FRAMES as u32;

/// Measures and prints.
///
/// # Errors
/// Packets got lost, which is a defect, or the result cannot be printed.
pub fn run(args: &BenchPipelineArgs) -> Result<(), BenchError> {
    let report = Report { instructions_per_packet: callgrind::count_one("packet_planned"), ..measure(args)? };
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

fn measure(args: &BenchPipelineArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let mut ring = Ring::new();
    // The main measurement gives its memory back before tables of other sizes are made.
    let figures = measure_main(args, &progress, &mut ring)?;
    let variants: Variants = Stage { args, progress: &progress, ring: &mut ring }.measure()?;
    Ok(Report::new(args, &figures, &variants))
}

fn measure_main(args: &BenchPipelineArgs, progress: &Progress, ring: &mut Ring) -> Result<Figures, BenchError> {
    progress.show("opening connections");
    let mut traffic = Traffic::new(IpFamily::V4, args.connections);
    let resident_before = usage::resident_bytes();
    let mut gateway = Gateway::new(args.connections + OPENED_PER_ROUND, FIREWALL_RULES);
    gateway.establish(&mut traffic, ring)?;
    let mut replicated = Replicated::new(&mut gateway, &traffic)?;
    let resident_bytes = usage::resident_bytes().saturating_sub(resident_before);

    let records: Vec<Connection> = gateway.pipeline.table().iter().map(|(_, connection)| *connection).collect();
    let mut one_at_a_time = OneAtATime::new(records, gateway.now);
    let mut its_traffic = traffic.clone();
    let mut figures = Figures::default();
    rounds::repeat(progress, "the main measurement", args.rounds, |_| {
        let packets = args.packets;
        let spent = gateway.pass(&mut traffic, ring, packets)?;
        figures.batched.push(nanos_each(spent, packets));
        let spent = one_at_a_time.pass(&mut its_traffic, ring, packets)?;
        figures.one_at_a_time.push(nanos_each(spent, packets));
        let spent = replicated.pass(&mut gateway, &mut traffic, ring, packets)?;
        figures.replicated.push(nanos_each(spent, packets));
        let [open_time, close_time] = gateway.open_and_close(args.connections, OPENED_PER_ROUND, ring)?;
        figures.connection.push(nanos_each(open_time + close_time, u64::from(OPENED_PER_ROUND)));
        Ok::<_, BenchError>(())
    })?;
    figures.bytes_per_connection = resident_bytes as f64 / f64::from(args.connections);
    figures.replication_bytes_per_packet = replicated.datagram_bytes_per_packet();
    Ok(figures)
}

#[cfg(test)]
mod tests;
