//! `mainstay bench pipeline`: what a packet costs a node, without a network.
//!
//! One core; N TCP connections that 50 firewall rules let in and that source NAT translates; every packet is of a
//! connection chosen at random, in a direction chosen at random, in a frame of 64 bytes whose checksums are verified.
//! Three ways are measured in turns:
//!
//! 1. the node's [`Pipeline`](cluster::pipeline::Pipeline): parse, table (looked up a batch at a time), connection
//!    tracking, chain, rewriting with checksums;
//! 2. the same with the connections in a `hashbrown` map, looked up as each packet comes (`one_at_a_time`);
//! 3. the pipeline with replication at its most eager (`replicated`): every packet's connection is told to a peer.
//!
//! Frames are made in a small ring before the clock starts, so that they lie in the cache, as those do that a network
//! card has just delivered. Time is the thread's processor time, so that other programs do not count; what they do to the
//! caches does. Routes, neighbours and the sending of frames and datagrams are not part of it.

mod gateway;
mod one_at_a_time;
mod replicated;
mod report;
mod setting;
pub(super) mod shares;
mod traffic;

use std::time::Duration;

use flow::Connection;
use packet_io::usage;

use self::gateway::Gateway;
use self::one_at_a_time::OneAtATime;
use self::replicated::Replicated;
use self::report::Report;
use self::traffic::{RING_FRAMES, Ring, Traffic};
use super::BenchError;
use super::rounds::Rounds;
use crate::cli::BenchPipelineArgs;
use crate::commands::CommandError;
use crate::output::{self, Progress};

/// Connections that are opened and closed in a round: so many that the first has left the second-level cache before it
/// is closed.
const OPENED_PER_ROUND: u32 = 32 * RING_FRAMES as u32;

/// Measures and prints.
///
/// # Errors
/// Packets got lost, which is a defect, or the result cannot be printed.
pub fn run(args: &BenchPipelineArgs) -> Result<(), CommandError> {
    let report = measure(args)?;
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.describe())?;
    }
    Ok(())
}

/// What is measured, each with a figure a round.
#[derive(Default)]
struct Figures {
    batched: Rounds,
    one_at_a_time: Rounds,
    replicated: Rounds,
    connection: Rounds,
}

fn measure(args: &BenchPipelineArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    progress.show("opening connections");
    let mut ring = Ring::new();
    let mut traffic = Traffic::new(args.connections);
    let resident_before = usage::resident_bytes();
    let mut gateway = Gateway::new(args.connections + OPENED_PER_ROUND);
    gateway.establish(&mut traffic, &mut ring)?;
    let mut replicated = Replicated::new(&mut gateway, &traffic)?;
    let resident_bytes = usage::resident_bytes().saturating_sub(resident_before);

    let records: Vec<Connection> = gateway.pipeline.table().iter().map(|(_, connection)| *connection).collect();
    let mut one_at_a_time = OneAtATime::new(records, gateway.now);
    let mut its_traffic = traffic.clone();
    let mut figures = Figures::default();
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let packets = args.packets;
        let spent = gateway.pass(&mut traffic, &mut ring, packets)?;
        figures.batched.push(nanos_each(spent, packets));
        let spent = one_at_a_time.pass(&mut its_traffic, &mut ring, packets)?;
        figures.one_at_a_time.push(nanos_each(spent, packets));
        let spent = replicated.pass(&mut gateway, &mut traffic, &mut ring, packets)?;
        figures.replicated.push(nanos_each(spent, packets));
        let spent = gateway.open_and_close(args.connections, OPENED_PER_ROUND, &mut ring)?;
        figures.connection.push(nanos_each(spent, u64::from(OPENED_PER_ROUND)));
    }
    let bytes_per_connection = resident_bytes as f64 / f64::from(args.connections);
    Ok(Report::new(args, &figures, bytes_per_connection, replicated.datagram_bytes_per_packet()))
}

fn nanos_each(spent: Duration, number: u64) -> f64 {
    spent.as_secs_f64() * 1e9 / number as f64
}

#[cfg(test)]
mod tests;
