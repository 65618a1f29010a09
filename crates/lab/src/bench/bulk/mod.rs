//! `mainstay bench bulk`: how fast bulk TCP passes through a node, beside the kernel doing the node's job.
//!
//! Two networks of the same shape (that of the demo) are built side by side. In the one a node alone (`AF_PACKET`, fast path,
//! firewall and source NAT) stands between client and server, in the other the kernel forwards with stateful rules
//! and masquerading of nftables, or plainly where `nft` is missing, which the result then states. Both are measured in
//! turns, and either rests while the other is measured: with one stream, with four, and with one whose hosts do without
//! segmentation offload, as behind a switch.

mod kernel_router;
mod report;
pub(super) mod streams;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet_io::IoError;
use packet_io::interface::{self, Offload};
use packet_io::namespace::Namespace;

pub(in crate::bench) use self::kernel_router::feed;
pub(crate) use self::kernel_router::load_rules;
pub(super) use self::kernel_router::{KernelRules, forward_only, rules};
use self::report::Report;
use self::streams::Streams;
use super::BenchError;
use super::rounds::{self, Rounds};
use crate::args::BenchBulkArgs;
use crate::testbed;
use crate::testbed::cluster::{Cluster, ClusterPlan, Tuning};
use crate::testbed::topology::Topology;
use crate::testbed::watch::Watch;
use config::validated::Backend;
use console::Progress;

/// Connections that the node has room for.
pub(super) const CONNECTIONS_MAX: usize = 4096;
/// Of either host the bridge and its cable to the node.
const HOST_INTERFACES: [&str; 2] = ["bridge", "to-a"];
/// Time that new streams are given to find their pace before it is measured.
pub(super) const WARM_UP: Duration = Duration::from_millis(300);

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, nothing gets through, or the result cannot be printed.
pub fn run(args: &BenchBulkArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// What the hosts send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    /// One stream.
    Offload1,
    /// Four streams.
    Offload4,
    /// One stream in single segments.
    NoOffload1,
}

impl Case {
    const ALL: [Self; 3] = [Self::Offload1, Self::Offload4, Self::NoOffload1];

    const fn streams(self) -> u16 {
        match self {
            Self::Offload1 | Self::NoOffload1 => 1,
            Self::Offload4 => 4,
        }
    }

    /// Has the hosts do with or without segmentation offload.
    fn set_offload(self, topology: &Topology) -> Result<(), IoError> {
        let is_on = self != Self::NoOffload1;
        let set = || {
            let offloads = [Offload::TcpSegmentation, Offload::GenericSegmentation, Offload::GenericReceive];
            HOST_INTERFACES.iter().try_for_each(|interface| {
                offloads.into_iter().try_for_each(|offload| interface::set_offload(interface, offload, is_on))
            })
        };
        topology.client.run(set)??;
        topology.server.run(set)?
    }
}

/// What is measured of a case, each with a figure a round.
#[derive(Default)]
struct Figures {
    mainstay_gbit_per_s: Rounds,
    kernel_gbit_per_s: Rounds,
    /// Processor time of the node for each gigabyte.
    mainstay_cpu_s_per_gigabyte: Rounds,
}

impl Figures {
    fn measure_mainstay(
        &mut self,
        stage: &Stage<'_>,
        case: Case,
        topology: &Topology,
        cluster: &Cluster,
    ) -> Result<(), BenchError> {
        let mut cpu = Duration::ZERO;
        let passed = stage.pass(topology, case, || {
            // The clock only grows, so that the last reading less the first is what was spent in between.
            cpu = cluster.cpu_times().first().copied().unwrap_or_default().saturating_sub(cpu);
        })?;
        self.mainstay_gbit_per_s.push(passed.gbit_per_s());
        self.mainstay_cpu_s_per_gigabyte.push(cpu.as_secs_f64() / (passed.bytes as f64 * 1e-9));
        Ok(())
    }
}

fn measure(args: &BenchBulkArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let watch = Watch::new()?;
    let progress = Progress::new();
    progress.show("building the networks");
    let (by_mainstay, by_kernel) = (Topology::build()?, Topology::build()?);
    let rules = KernelRules::install(&by_kernel.nodes[0])?;
    let plan = ClusterPlan {
        nodes: 1,
        is_replicated: false,
        connections_max: CONNECTIONS_MAX,
        workers: 1,
        backend: Backend::default(),
        tuning: Tuning::default(),
    };
    let mut cluster = Cluster::start(&by_mainstay, plan)?;
    cluster.wait_until_ready(&watch)?;

    let mut figures = Case::ALL.map(|_| Figures::default());
    let stage = Stage { watch: &watch, args };
    rounds::repeat(&progress, "bulk data", args.rounds, |round| {
        for (case, figures) in Case::ALL.into_iter().zip(&mut figures) {
            case.set_offload(&by_mainstay)?;
            case.set_offload(&by_kernel)?;
            for is_mainstay in rounds::turns(round, [true, false]) {
                if is_mainstay {
                    figures.measure_mainstay(&stage, case, &by_mainstay, &cluster)?;
                } else {
                    figures.kernel_gbit_per_s.push(stage.pass(&by_kernel, case, || ())?.gbit_per_s());
                }
            }
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(Report::new(args, &figures, rules))
}

/// Bytes that arrived, and in which time.
struct Passed {
    bytes: u64,
    took: Duration,
}

impl Passed {
    fn gbit_per_s(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.took.as_secs_f64()
    }
}

struct Stage<'a> {
    watch: &'a Watch,
    args: &'a BenchBulkArgs,
}

impl Stage<'_> {
    /// Sends bulk data from client to server for the time asked for; calls `read_meter` when counting begins and when
    /// it ends.
    fn pass(&self, topology: &Topology, case: Case, mut read_meter: impl FnMut()) -> Result<Passed, BenchError> {
        let (client, server): (&Namespace, &Namespace) = (&topology.client, &topology.server);
        let streams = open_streams(client, server, self.server_address(), case.streams())?;
        self.watch.pass_until(Instant::now() + WARM_UP)?;
        let (begin, bytes_before) = (Instant::now(), streams.received_bytes());
        read_meter();
        self.watch.pass_until(begin + Duration::from_secs_f64(self.args.seconds))?;
        let (took, bytes_after) = (begin.elapsed(), streams.received_bytes());
        read_meter();
        let bytes = bytes_after - bytes_before;
        if bytes == 0 {
            return Err(BenchError::NothingPassed);
        }
        Ok(Passed { bytes, took })
    }

    fn server_address(&self) -> SocketAddr {
        Topology::server_addresses()[usize::from(self.args.ipv6)]
    }
}

/// As [`Streams::open`], which may have to be tried once more: a busy machine lets handshakes time out.
fn open_streams(
    client: &Namespace,
    server: &Namespace,
    address: SocketAddr,
    count: u16,
) -> Result<Streams, BenchError> {
    Streams::open(client, server, address, count)
        .or_else(|_| Streams::open(client, server, address, count))
        .map_err(|error| BenchError::Unreachable { address, source: Box::new(error) })
}

#[cfg(test)]
mod tests;
