//! `mainstay bench failover`: what becomes of many connections on the fast path when the active of two nodes is killed.
//!
//! ```text
//!   begin connections ─► exchange data until the active node's kernel forwards all ─► the standby has acknowledged all
//!   ─► kill ─► the standby announces the addresses ─► one packet each way on every connection ─► exchange data until
//!   the survivor's kernel forwards them
//! ```
//! The connections are TCP. Two hosts send and receive their segments past their own stacks. A connection is broken if no packet
//! of it comes through after the take-over, in either direction, however often it is sent again, or if it comes
//! through with another translation.

mod hosts;
mod report;
mod segment;

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use self::hosts::{Hosts, Outcome, Step};
use self::report::Report;
use super::BenchError;
use super::replication::pair::TakeOver;
use crate::args::BenchFailoverArgs;
use crate::testbed;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::{Cluster, ClusterPlan, SPARE_CONNECTIONS, Tuning};
use crate::testbed::topology::Topology;
use crate::testbed::watch::{Waited, Watch};
use api::{NodeRole, Status};
use config::validated::Backend;
use console::Progress;

/// Connections that are begun and exchange their first data together, so that none waits for long in the midst of its handshake.
const BEGUN_AT_ONCE: usize = 16_384;
/// Exchanges of a connection at its beginning: with the handshake these are the ten packets from which on it can be on the
/// fast path.
const FIRST_EXCHANGES: u32 = 4;
/// Further exchanges until all connections are on the fast path, at most …
const FURTHER_EXCHANGES_MAX: u32 = 40;
/// … and the time after each that acknowledgements by the standby are given.
const EXCHANGE_INTERVAL: Duration = Duration::from_millis(100);
/// How long the standby may take until it has all connections.
const REPLICATED_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take until it announces the addresses.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(10);

const _: () = assert!(FIRST_EXCHANGES + 2 * FURTHER_EXCHANGES_MAX < segment::EXCHANGES_MAX);

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The network cannot be built, connections do not get on the fast path, the standby does not take over, a connection is broken
/// (after the report is printed), or the result cannot be printed.
pub fn run(args: &BenchFailoverArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    console::print_as(args.json, &report, || report.describe())?;
    match report.broken {
        0 => Ok(()),
        broken => Err(BenchError::Broken { broken, connections: args.connections }),
    }
}

fn measure(args: &BenchFailoverArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    progress.show("starting the nodes");
    let mut failover = Failover::prepare(args.connections, &watch)?;
    failover.begin(&progress)?;
    progress.show("exchanging data until all connections are on the fast path");
    let installed_before = failover.exchange_until_installed(args.connections)?;
    if installed_before < args.connections {
        return Err(BenchError::Connections { there: installed_before, expected: args.connections });
    }
    progress.show("waiting until the standby has all connections");
    failover.await_replicated()?;
    progress.show("killing the active node and sending a packet each way on all connections");
    let (killed_at, after) = failover.kill_and_exchange()?;
    progress.show("exchanging data until all connections are on the fast path again");
    let installed_after = failover.exchange_until_installed(args.connections - after.broken)?;
    let take_over = TakeOver::of(&failover.cluster.standby_events(), killed_at);
    let after_kill = |at: Option<Instant>| at.map(|at| killed_at.ms_to(at));
    Ok(Report {
        connections: args.connections,
        installed_before,
        detection_ms: take_over.detected_ms,
        takeover_ms: take_over.announced_ms,
        first_packet_ms: after_kill(after.first_at),
        last_packet_ms: after_kill(after.last_at),
        broken: after.broken,
        installed_after,
    })
}

/// Two nodes with connections through them.
struct Failover<'a> {
    cluster: Cluster,
    hosts: Hosts,
    /// The number of the next exchange.
    next_exchange: u32,
    watch: &'a Watch,
    _topology: Topology,
}

impl<'a> Failover<'a> {
    fn prepare(connections: u32, watch: &'a Watch) -> Result<Self, BenchError> {
        let topology = Topology::build()?;
        let connections_max = connections as usize + SPARE_CONNECTIONS;
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated: true,
            connections_max,
            workers: 1,
            backend: Backend::AfPacket,
            tuning: Tuning {
                holds_first_reply: false,
                fast_path_connections_max: connections_max as u32,
                ..Tuning::default()
            },
        };
        let mut cluster = Cluster::start(&topology, plan)?;
        cluster.wait_until_ready(watch)?;
        let hosts = Hosts::open(&topology, 1 - cluster.standby(), connections)?;
        let new = Self { cluster, hosts, next_exchange: 0, watch, _topology: topology };
        if new.status(NodeRole::Active).is_some_and(|status| status.fast_path.is_none()) {
            return Err(BenchError::NoFastPath);
        }
        Ok(new)
    }

    /// The status of the node with this role.
    fn status(&self, role: NodeRole) -> Option<Status> {
        self.cluster.statuses().into_iter().find(|status| status.node.role == role)
    }

    /// Begins all connections, each with the packets that it needs to be on the fast path.
    fn begin(&mut self, progress: &Progress) -> Result<(), BenchError> {
        let count = self.hosts.connections();
        for first in (0..count).step_by(BEGUN_AT_ONCE) {
            progress.show(&format!("{first} of {count} connections begun"));
            let connections = first..count.min(first + BEGUN_AT_ONCE as u32);
            let exchanges = (0..FIRST_EXCHANGES).map(Step::Exchange);
            for step in [Step::Handshake].into_iter().chain(exchanges) {
                let Outcome { broken, .. } = self.hosts.step(step, connections.clone(), self.watch)?;
                if broken > 0 {
                    let reason = format!("no answer to {step:?} before there was a failover");
                    return Err(BenchError::Failed { failed: broken.into(), connections: count.into(), reason });
                }
            }
        }
        self.next_exchange = FIRST_EXCHANGES;
        Ok(())
    }

    /// Has data exchanged on all connections.
    fn exchange(&mut self) -> Result<Outcome, BenchError> {
        let step = Step::Exchange(self.next_exchange);
        self.next_exchange += 1;
        self.hosts.step(step, 0..self.hosts.connections(), self.watch)
    }

    /// Kills the active node, and has data exchanged on all connections as soon as the other announces the addresses.
    fn kill_and_exchange(&mut self) -> Result<(Epoch, Outcome), BenchError> {
        let step = Step::Exchange(self.next_exchange);
        self.next_exchange += 1;
        let Self { cluster, hosts, watch, .. } = self;
        thread::scope(|scope| {
            // In a thread of its own: the kernel takes a while to release a process with many connections.
            let killing = scope.spawn(|| cluster.kill_active());
            let is_announced = hosts.await_announcement(Instant::now() + TAKEN_OVER_WITHIN, watch);
            let outcome = is_announced.and_then(|is_announced| match is_announced {
                true => hosts.step(step, 0..hosts.connections(), watch),
                false => Err(BenchError::NothingPassed),
            });
            let killed_at = killing.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok((killed_at, outcome?))
        })
    }

    /// Has data exchanged until the active node's kernel forwards so many connections, or that takes too long. Returns how many it
    /// forwards.
    fn exchange_until_installed(&mut self, expected: u32) -> Result<u32, BenchError> {
        for _ in 0..FURTHER_EXCHANGES_MAX {
            if self.installed() >= expected {
                break;
            }
            self.exchange()?;
            self.watch.pass_until(Instant::now() + EXCHANGE_INTERVAL)?;
        }
        Ok(self.installed())
    }

    /// Connections on the active node's fast path.
    fn installed(&self) -> u32 {
        let fast_path = self.status(NodeRole::Active).and_then(|status| status.fast_path);
        fast_path.map_or(0, |fast_path| fast_path.connections as u32)
    }

    /// Waits until the standby has all connections and has acknowledged all changes.
    fn await_replicated(&self) -> Result<(), BenchError> {
        let expected = self.hosts.connections();
        let mut there = 0;
        let waited = self.watch.until(Instant::now() + REPLICATED_WITHIN, || -> Result<bool, BenchError> {
            there = self.status(NodeRole::Standby).map_or(0, |status| status.connections.count as u32);
            let is_acknowledged = self.status(NodeRole::Active).is_some_and(|status| {
                status.peers.iter().all(|peer| peer.synchronised && peer.queued == 0 && peer.in_flight == 0)
            });
            Ok(there >= expected && is_acknowledged)
        })?;
        match waited {
            Waited::Met => Ok(()),
            Waited::TooLate => Err(BenchError::Connections { there, expected }),
        }
    }
}
