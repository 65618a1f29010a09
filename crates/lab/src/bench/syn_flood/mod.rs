//! `mainstay bench syn-flood`: what a flood of spoofed SYNs costs, and what becomes of real connections beside it.
//!
//! Two networks of the same shape are built. In the one a node alone stands between client and server, with its SYN proxy; in the other
//! the kernel does, with nftables' `synproxy`. Where the kernel lacks it, the result states so.
//!
//! The node's processor time is that of its process. The kernel works in soft interrupts: its processor time is that of the machine's soft
//! interrupts, less that of the same flood to a link address of nobody. For the node, too, soft interrupts carry the frames to its process and
//! back. They are reported beside it. So the machine should do nothing else.

mod in_memory;
mod report;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flow::wire::MacAddress;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, sysctl, usage};

use self::report::{Report, Side, Sides};
use super::BenchError;
use super::bulk::{forward_only, load_rules};
use super::rounds::rounded;
use crate::args::BenchSynFloodArgs;
use crate::testbed;
use crate::testbed::cluster::{Cluster, ClusterPlan, Function, Tuning};
use crate::testbed::syn_flood::{Flood, FloodPacket, FloodPlan};
use crate::testbed::topology::{BRIDGE, CLIENT, INTERFACES, Topology, link_address};
use crate::testbed::watch::Watch;
use config::validated::Backend;
use console::Progress;

/// Connections that the node has room for: many more than are real, so that spoofed ones would show.
const CONNECTIONS_MAX: usize = 262_144;
/// The link address of nobody.
const NOBODY: MacAddress = MacAddress([2, 0, 0, 0, 0xff, 0xff]);
/// Clients that connect at the same time.
const CLIENTS: u32 = 16;
/// How long a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that a flood is given before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, the node does not start, or the result cannot be printed.
pub fn run(args: &BenchSynFloodArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

fn measure(args: &BenchSynFloodArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    progress.show("answering SYNs in memory");
    let answer_ns = in_memory::answer_ns();
    progress.show("building the networks");
    let (by_mainstay, by_kernel) = (Topology::build()?, Topology::build()?);
    let plan = ClusterPlan {
        nodes: 1,
        is_replicated: false,
        connections_max: CONNECTIONS_MAX,
        workers: 1,
        backend: Backend::default(),
        tuning: Tuning { function: Function::SynProxy, believes_all_sources: true, ..Tuning::default() },
    };
    let mut cluster = Cluster::start(&by_mainstay, plan)?;
    cluster.wait_until_ready(&watch)?;

    progress.show("flooding the node");
    let mut sizes_bytes = Vec::new();
    let of_process = || cluster.cpu_times().first().copied();
    let mainstay = side(&by_mainstay, args, &watch, of_process, || sizes_bytes.push(cluster.resident_bytes()))?;
    let memory_bytes = match sizes_bytes[..] {
        [before, after] => after.saturating_sub(before),
        _ => 0,
    };
    let table = cluster.statuses().first().map_or(0, |status| status.connections.count);

    progress.show("flooding the kernel");
    let kernel = match kernel_proxy(&by_kernel)? {
        Ok(()) => Ok(side(&by_kernel, args, &watch, || None, || ())?),
        Err(reason) => Err(reason),
    };
    Ok(Report::new(args, Sides { mainstay, kernel }, [memory_bytes, table], answer_ns))
}

/// Makes the kernel of the node's namespace a router with a SYN proxy for all servers. The inner error is why it cannot be.
fn kernel_proxy(topology: &Topology) -> Result<Result<(), String>, BenchError> {
    let node = &topology.nodes[0];
    forward_only(node)?;
    node.run(|| -> Result<(), IoError> {
        // Answers go to where the spoofed sources would be.
        let spoofed = Prefix::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 15);
        Netlink::open()?.add_route(spoofed, CLIENT[0])?;
        // As nft(8) describes: acknowledgements of cookies are no connections in the middle.
        let _ = sysctl::write("net/netfilter/nf_conntrack_tcp_loose", "0");
        Ok(())
    })??;
    let [inside, outside, _] = INTERFACES;
    let rules = format!(
        "table ip gateway {{
            chain before {{
                type filter hook prerouting priority raw;
                iifname \"{inside}\" tcp flags & (fin | syn | rst | ack) == syn notrack
            }}
            chain forward {{
                type filter hook forward priority filter; policy drop;
                iifname \"{inside}\" ip protocol tcp ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
                ct state invalid drop
                ct state established,related accept
                iifname \"{inside}\" accept
            }}
            chain after {{
                type nat hook postrouting priority srcnat;
                oifname \"{outside}\" masquerade
            }}
        }}"
    );
    Ok(load_rules(node, &rules))
}

/// Floods a network, and opens real connections beside the flood. `of_process` is the processor time so far of the process that answers;
/// `None`: the kernel does. `note` is called before and after.
fn side(
    topology: &Topology,
    args: &BenchSynFloodArgs,
    watch: &Watch,
    of_process: impl Fn() -> Option<Duration>,
    mut note: impl FnMut(),
) -> Result<Side, BenchError> {
    let server = SocketAddrV4::new(server_address(), 9000);
    let listener = topology.server.run(|| TcpListener::bind(server))?.map_err(BenchError::Output)?;
    thread::spawn(move || serve(&listener));
    let next_hop = link_address(&topology.nodes[0], INTERFACES[0])?;
    let plan = |next_hop| -> Result<FloodPlan, IoError> {
        Ok(FloodPlan {
            source: link_address(&topology.client, BRIDGE)?,
            next_hops: vec![next_hop],
            destination: server,
            packet: FloodPacket::Syn,
            packets_per_s: args.syns_per_s,
            seed: 1,
        })
    };
    // Connections learn their neighbours before.
    let _ = connects(topology, server);
    let nothing = cost(topology, plan(NOBODY)?, (args, watch), &of_process)?;
    note();
    let all = cost(topology, plan(next_hop)?, (args, watch), &of_process)?;
    let flood = Flood::start(&topology.client, BRIDGE, plan(next_hop)?)?;
    watch.pass_until(Instant::now() + WARM_UP)?;
    let (accepted, median_ms) = open(topology, server, args.connections);
    drop(flood);
    note();
    Ok(Side {
        cpu_share: all.of_process.map_or_else(|| all.softirq_beyond(&nothing), |share| Some(rounded(share, 4))),
        softirq_share: all.softirq_beyond(&nothing),
        syns_per_s: all.syns_per_s,
        accepted_share: f64::from(accepted) / f64::from(args.connections),
        connect_ms: median_ms,
    })
}

const fn server_address() -> Ipv4Addr {
    match crate::testbed::topology::SERVER[0] {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// What a flood costs, as shares of one processor.
struct Cost {
    /// Of the process that answers, if there is one.
    of_process: Option<f64>,
    /// Of the machine's soft interrupts; `None` where `/proc` lacks them.
    softirq: Option<f64>,
    /// SYNs that were sent a second.
    syns_per_s: f64,
}

impl Cost {
    /// The share of soft interrupts beyond that of another flood.
    fn softirq_beyond(&self, other: &Self) -> Option<f64> {
        Some(rounded((self.softirq? - other.softirq?).max(0.0), 4))
    }
}

fn cost(
    topology: &Topology,
    plan: FloodPlan,
    (args, watch): (&BenchSynFloodArgs, &Watch),
    of_process: &impl Fn() -> Option<Duration>,
) -> Result<Cost, BenchError> {
    let flood = Flood::start(&topology.client, BRIDGE, plan)?;
    watch.pass_until(Instant::now() + WARM_UP)?;
    let read = || [of_process(), usage::soft_interrupts_cpu_time()];
    let (begin, before, sent_before) = (Instant::now(), read(), flood.sent());
    watch.pass_until(begin + Duration::from_secs_f64(args.seconds))?;
    let (took, after, sent) = (begin.elapsed().as_secs_f64(), read(), flood.sent());
    let share = |which: usize| Some(after[which]?.saturating_sub(before[which]?).as_secs_f64() / took);
    Ok(Cost { of_process: share(0), softirq: share(1), syns_per_s: (sent - sent_before) as f64 / took })
}

/// Opens connections that are of use; returns how many, and the median of the time that one took, in milliseconds.
fn open(topology: &Topology, server: SocketAddrV4, connections: u32) -> (u32, Option<f64>) {
    let next = AtomicU32::new(0);
    let mut times: Vec<f64> = thread::scope(|scope| {
        let client = || {
            let mut times = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < connections {
                times.extend(connects(topology, server).map(|time| time.as_secs_f64() * 1e3));
            }
            times
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect()
    });
    times.sort_unstable_by(f64::total_cmp);
    (times.len() as u32, times.get(times.len() / 2).copied())
}

/// Opens a connection and exchanges data on it; how long that took, or `None`.
fn connects(topology: &Topology, server: SocketAddrV4) -> Option<Duration> {
    let began = Instant::now();
    let connect = || TcpStream::connect_timeout(&SocketAddr::V4(server), PATIENCE);
    let mut stream = topology.client.run(connect).ok()?.ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.write_all(b"ping").ok()?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).ok()?;
    (&answer == b"ping").then(|| began.elapsed())
}

/// Answers each four bytes by the same.
fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || {
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
        });
    }
}
