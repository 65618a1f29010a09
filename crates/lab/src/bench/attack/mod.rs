//! `mainstay bench attack`: what packets of no connection cost the other nodes, with broadcast of indexes and without \[TRIPOD, figure 16\].
//!
//! Two clusters are built that differ in this alone. Acknowledgements with random ports and spoofed sources reach one node of each, past its
//! edge, at several rates. A message is one of the state service that any node sends: queries, answers, pulls and advertisements.
//! Connections of real clients pass the cluster meanwhile.

mod report;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::report::{Figures, Report, Sides};
use super::BenchError;
use super::rounds;
use crate::args::BenchAttackArgs;
use crate::testbed;
use crate::testbed::cluster::BackupsPlan;
use crate::testbed::many_nodes::{ManyNodes, ManyNodesPlan, MembersFrom, StateService};
use crate::testbed::session::Session;
use crate::testbed::syn_flood::{Flood, FloodPacket, FloodPlan};
use crate::testbed::topology::{INTERFACES, SERVER_PORTS, TO_NODES, link_address};
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::watch::{Waited, Watch};
use crate::testbed::ways;
use console::Progress;

/// Real connections beside the attack.
const LEGITIMATE: [(Kind, usize); 2] = [(Kind::Ticks, 16), (Kind::Download, 4)];
/// Rate of a download, in bytes a second.
const BULK_BYTES_PER_S: u64 = 200_000;
/// Time that an attack is given before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long connections may take until they stand.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(5);
/// The node that is attacked.
const ATTACKED: usize = 0;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, a node does not run as it should, or the result cannot be printed.
pub fn run(args: &BenchAttackArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

fn measure(args: &BenchAttackArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    progress.show("building the networks");
    let sides = [Side::start(args, true, &watch)?, Side::start(args, false, &watch)?];
    let rates: Vec<u32> = [0].into_iter().chain(args.bogus_per_s.iter().copied()).collect();
    let mut figures: Vec<Sides> = rates.iter().map(|_| Sides::default()).collect();
    rounds::repeat(&progress, "packets of no connection", args.rounds, |round| {
        for (bogus_per_s, of_rate) in rates.iter().zip(&mut figures) {
            for which in rounds::turns(round, [0, 1]) {
                let measured = sides[which].measure(*bogus_per_s, Duration::from_secs_f64(args.seconds), &watch)?;
                of_rate.push(which, measured);
            }
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(Report::new(args, &rates, &figures))
}

/// A cluster with real connections.
struct Side {
    session: Session,
    many: ManyNodes,
}

impl Side {
    fn start(args: &BenchAttackArgs, broadcast: bool, watch: &Watch) -> Result<Self, BenchError> {
        let planned: usize = LEGITIMATE.iter().map(|(_, number)| number).sum();
        let plan = ManyNodesPlan {
            nodes: args.nodes.into(),
            is_replicated: true,
            accepts: true,
            backups: Some(BackupsPlan { count: 1, broadcast }),
            connections: planned,
            workers: 1,
            may_join: 0,
            members: MembersFrom::Static,
            believes_all_sources: true,
        };
        let many = ManyNodes::start(plan, watch)?;
        let plan = Plan {
            servers: ways::server_addresses(ways::chosen(false), SERVER_PORTS),
            connections: LEGITIMATE.to_vec(),
            bulk_bytes_per_s: BULK_BYTES_PER_S,
            ramp_per_s: 1,
        };
        let session = Session::start(&many.topology, plan)?;
        let waited = watch.until(Instant::now() + ESTABLISHED_WITHIN, || -> Result<bool, BenchError> {
            Ok(session.progress().established >= planned)
        })?;
        if waited == Waited::TooLate {
            return Err(BenchError::NothingPassed);
        }
        Ok(Self { session, many })
    }

    /// The figures under an attack of this rate; of 0 without one.
    fn measure(&self, bogus_per_s: u32, lasting: Duration, watch: &Watch) -> Result<Figures, BenchError> {
        let attack = (bogus_per_s > 0).then(|| self.attack(bogus_per_s)).transpose()?;
        let sent = || attack.as_ref().map_or(0, Flood::sent);
        watch.pass_until(Instant::now() + WARM_UP)?;
        let (began, before, sent_before) = (Instant::now(), self.read(), sent());
        watch.pass_until(began + lasting)?;
        let (took, after, sent) = (began.elapsed().as_secs_f64(), self.read(), sent() - sent_before);
        let rate = |of: fn(&Reading) -> u64| of(&after).saturating_sub(of(&before)) as f64 / took;
        Ok(Figures {
            sent_per_s: sent as f64 / took,
            messages_per_s: rate(|reading| reading.messages),
            datagrams_per_s: rate(|reading| reading.datagrams),
            legitimate_bytes_per_s: rate(|reading| reading.legitimate_bytes),
        })
    }

    /// Sends from the inside edge's port to the node, so that all packets reach this one.
    fn attack(&self, packets_per_s: u32) -> Result<Flood, BenchError> {
        let topology = &self.many.topology;
        let (edge, interface) = (&topology.edges[0], TO_NODES[ATTACKED]);
        let server =
            ways::server_addresses(ways::chosen(false), SERVER_PORTS).into_iter().find_map(|server| match server {
                SocketAddr::V4(server) => Some(server),
                SocketAddr::V6(_) => None,
            });
        let plan = FloodPlan {
            source: link_address(edge, interface)?,
            next_hops: vec![link_address(&topology.nodes[ATTACKED], INTERFACES[0])?],
            destination: server.ok_or(BenchError::NothingPassed)?,
            packet: FloodPacket::Acknowledgement,
            packets_per_s,
            seed: u64::from(packets_per_s),
        };
        Ok(Flood::start(edge, interface, plan)?)
    }

    fn read(&self) -> Reading {
        let state_service = StateService::of(&self.many.cluster);
        Reading {
            messages: state_service.messages,
            datagrams: self.many.passed().control.frames,
            legitimate_bytes: self.session.progress().verified_bytes,
        }
    }
}

/// What has passed so far.
struct Reading {
    messages: u64,
    datagrams: u64,
    legitimate_bytes: u64,
}
