//! `mainstay bench workers`: what several workers of a node move, beside one.
//!
//! Twice, with the two sides in turns:
//!
//! 1. the pipeline over memory, as in `mainstay bench pipeline`: one thread with all connections, then as many threads at
//!    once as there are workers, each with the connections that are steered to it. Rates are packets a second of each
//!    thread's processor time, added up: what other programs take does not count, what the threads do to each other's
//!    caches does;
//! 2. bulk TCP through a node on virtual links, as in `mainstay bench bulk`: by the wall clock. The end points need
//!    processors, too: where there are no more of them than workers, there is little to gain. The node forwards without a
//!    fast path.
//!
//! Beside it stands what a packet costs that came to the wrong worker.

mod report;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::report::Report;
use super::BenchError;
use super::bulk::{CONNECTIONS_MAX, WARM_UP, streams::Streams};
use super::pipeline::shares::Shares;
use super::rounds::{self, Rounds};
use crate::args::BenchWorkersArgs;
use crate::testbed;
use crate::testbed::cluster::{Cluster, ClusterPlan, Tuning};
use crate::testbed::topology::Topology;
use crate::testbed::watch::Watch;
use config::validated::Backend;
use console::Progress;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// Packets got lost, the networks cannot be built, nothing gets through, or the result cannot be printed.
pub fn run(args: &BenchWorkersArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    console::print_as(args.json, &report, || report.describe())?;
    Ok(())
}

/// What is measured, each with a figure a round.
#[derive(Default)]
struct Figures {
    /// Packets a second.
    pipeline: [Rounds; 2],
    /// Nanoseconds of a packet at the right worker, and of one handed over.
    handed_over: [Rounds; 2],
    /// Gigabits a second.
    bulk: [Rounds; 2],
    /// Of the packets that the node forwarded, those that were handed over.
    handed_share: f64,
}

fn measure(args: &BenchWorkersArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let mut figures = Figures::default();
    if args.pipeline_only {
        measure_pipeline(args, &mut figures, &progress)?;
    } else {
        // Before there is a thread: an ordinary user gets networks of his own only then.
        testbed::gain_namespaces()?;
        let watch = Watch::new()?;
        measure_pipeline(args, &mut figures, &progress)?;
        measure_bulk(args, &mut figures, &watch, &progress)?;
    }
    Ok(Report::new(args, &figures))
}

fn measure_pipeline(args: &BenchWorkersArgs, figures: &mut Figures, progress: &Progress) -> Result<(), BenchError> {
    progress.show("opening connections");
    let mut shares = Shares::new(args.connections, args.workers)?;
    rounds::repeat(progress, "pipeline", args.rounds, |_| {
        figures.pipeline[0].push(shares.rate_alone(args.packets)?);
        figures.pipeline[1].push(shares.rate_together(args.packets)?);
        if let Some(nanos) = shares.nanos_handed_over(args.packets / 4 + 1)? {
            figures.handed_over.iter_mut().zip(nanos).for_each(|(rounds, nanos)| rounds.push(nanos));
        }
        Ok(())
    })
}

fn measure_bulk(
    args: &BenchWorkersArgs,
    figures: &mut Figures,
    watch: &Watch,
    progress: &Progress,
) -> Result<(), BenchError> {
    progress.show("building the networks");
    let mut networks = Vec::new();
    for workers in [1, args.workers] {
        let topology = Topology::build()?;
        let plan = ClusterPlan {
            nodes: 1,
            is_replicated: false,
            connections_max: CONNECTIONS_MAX,
            workers,
            backend: Backend::default(),
            // Established connections are no worker's work in the kernel.
            tuning: Tuning { fast_path_connections_max: 0, ..Tuning::default() },
        };
        let mut cluster = Cluster::start(&topology, plan)?;
        cluster.wait_until_ready(watch)?;
        networks.push((topology, cluster));
    }
    rounds::repeat(progress, "bulk data", args.rounds, |round| {
        for side in rounds::turns(round, [0, 1]) {
            figures.bulk[side].push(pass_bulk(args, watch, &networks[side].0)?);
        }
        Ok::<_, BenchError>(())
    })?;
    let status = networks[1].1.statuses().into_iter().next().unwrap_or_default();
    let sum = |count: fn(&api::WorkerStatus) -> u64| status.workers.iter().map(count).sum::<u64>();
    figures.handed_share = sum(|worker| worker.handed_over) as f64 / (sum(|worker| worker.forwarded).max(1)) as f64;
    Ok(())
}

/// Gigabits a second that pass through the node.
fn pass_bulk(args: &BenchWorkersArgs, watch: &Watch, topology: &Topology) -> Result<f64, BenchError> {
    let server: SocketAddr = Topology::server_addresses()[0];
    let streams = Streams::open(&topology.client, &topology.server, server, args.streams)?;
    watch.pass_until(Instant::now() + WARM_UP)?;
    let (begin, before) = (Instant::now(), streams.received_bytes());
    watch.pass_until(begin + Duration::from_secs_f64(args.seconds))?;
    let (took, bytes) = (begin.elapsed(), streams.received_bytes() - before);
    if bytes == 0 { Err(BenchError::NothingPassed) } else { Ok(bytes as f64 * 8e-9 / took.as_secs_f64()) }
}

#[cfg(test)]
mod tests;
