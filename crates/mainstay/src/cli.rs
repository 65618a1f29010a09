//! The command line.

mod encryption;
mod filters;
mod key;
mod lazy;
mod link;
mod looking;
mod redundancy;
mod replication;
mod study;
mod study_redundancy;
mod sync;
mod sync_bench;
mod synthesize;
mod target;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::validated::Representation;
use crate::control::types::{FlowFilterText, flows_limit_default};

use crate::replay::PortMapping;
pub use encryption::BenchEncryptionArgs;
pub use filters::BenchFiltersArgs;
pub use key::KeyArgs;
pub use lazy::BenchLazyArgs;
pub use link::LinkArgs;
use looking::stream_seconds;
pub use looking::{CaptureArgs, PacketFilterArgs, TopArgs, TopOrder, TraceArgs};
pub use redundancy::BenchRedundancyArgs;
pub use replication::BenchReplicationArgs;
pub use study::{ChecksumsChoice, StudyCommand, StudyReplicationArgs, admission};
pub use study_redundancy::StudyRedundancyArgs;
pub use sync::{HookArgs, ImportArgs, ReadyArgs, SyncArgs, SyncCommand};
pub use sync_bench::BenchSyncArgs;
pub use synthesize::{SynthesizeCommand, SynthesizeOutputArgs, SynthesizeRedundancyArgs, SynthesizeReplicationArgs};
pub use target::SocketArgs;

/// A network gateway whose connections outlive the machine that carries them.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Kills a node under real traffic, on this machine, and shows what survives
    Demo(DemoArgs),
    /// One node of a gateway cluster
    Gateway(GatewayArgs),
    /// Replicates the kernel's connection tracking, in conntrackd's place
    Sync(SyncArgs),
    /// How a running gateway is: its role, its peers, what goes through and what is dropped
    Status(StatusArgs),
    /// The connections of a running gateway
    Flows(FlowsArgs),
    /// What goes through a running gateway, from moment to moment: rates, connections that carry most, drops, times, peers
    Top(TopArgs),
    /// The ways of packets through a running gateway: lookup, rules, translation, route, and why they were dropped
    Trace(TraceArgs),
    /// Frames at a point of their way through a running gateway, written as pcapng
    Capture(CaptureArgs),
    /// The firewall's rules, and how many connections each has decided on
    Rules(RulesArgs),
    /// Has a running gateway read its configuration file again, without losing a connection
    Reload(ReloadArgs),
    /// Takes a node out of service: another takes its addresses over, and its connections go on
    Drain(DrainArgs),
    /// Takes a drained node back into service
    Undrain(UndrainArgs),
    /// Plays a capture through a configured gateway and says what becomes of its packets
    Replay(ReplayArgs),
    /// Plays clusters under faults, each from a seed, and checks that what is promised holds
    Simulate(SimulateArgs),
    /// What captures show: what replication would cost on their traffic
    #[command(subcommand)]
    Study(StudyCommand),
    /// Makes traffic of stated statistics, as a capture, for studies where none is to be had
    #[command(subcommand)]
    Synthesize(SynthesizeCommand),
    /// A link of known delay, rate, loss and cuts between two network namespaces, for tests
    Link(LinkArgs),
    /// Makes a key that nodes authenticate each other by
    Key(KeyArgs),
    /// Side-by-side measurements against what one would use instead
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// `mainstay replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Capture, pcap or pcapng
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// Configuration file of the gateway (docs/configuration.md); its peers are left out
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Write what the gateway sends to a pcapng file, with an interface for each of its ports
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Ports that interfaces of the capture stand for, an interface by name or number [default: by name, by order, or by
    /// the packets' sources]
    #[arg(long, value_name = "INTERFACE=PORT", value_delimiter = ',')]
    pub port_map: Vec<PortMapping>,
    /// Pick TCP connections up in the middle, whatever tracking.loose says
    #[arg(long)]
    pub loose: bool,
    /// Believe checksums, which are unfinished in captures from the sending host
    #[arg(long)]
    pub ignore_checksums: bool,
    /// At most so many packets
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// How many seeds to play [default: 200, or 1 if --seed is given]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// What may go wrong: default, all, or some of kill, kill-standby, leave, partition, host-link, node-link, one-way,
    /// heartbeats, replication, detection, control-port, flapping, slow-node, slow-link, pause-active, pause-standby,
    /// clock-jump, clock-speed, other-version, newer-peer, long-partition, small-memory, needed-empty, both-dead,
    /// rolling-restart, leave-pause (docs/simulation.md)
    #[arg(long, value_name = "NAMES", default_value_t)]
    pub faults: simulator::scenario::FaultSet,
    /// How connections are told, if not precisely: host-aggregate, flow-digest, multi-level, multi-level-least-load, d-left or
    /// counting-bloom
    #[arg(long, value_name = "NAME", value_parser = simulator::scenario::representation_named)]
    pub representation: Option<::replication::compact::Representation>,
    /// Play what is written in a file, as a seed that broke a promise leaves it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "seed", "faults", "representation", "json"])]
    pub scenario: Option<PathBuf>,
    /// Write the shortest schedule that still breaks the promise to a file, for --scenario
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    pub write: Option<PathBuf>,
    /// Seeds played at once
    #[arg(long, value_name = "THREADS", default_value = "2")]
    pub jobs: std::num::NonZeroUsize,
    /// Print all that happens in the run of --seed or --scenario
    #[arg(long, conflicts_with_all = ["seeds", "json"])]
    pub trace: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// What a packet and a connection cost a node, without a network, beside a hashbrown map
    Pipeline(BenchPipelineArgs),
    /// How fast bulk TCP passes through a node, beside the kernel with nftables
    Bulk(BenchBulkArgs),
    /// What several workers of a node move, beside one
    Workers(BenchWorkersArgs),
    /// What a small packet costs the machine to forward, by AF_XDP, by AF_PACKET and by the kernel with nftables
    Packets(BenchPacketsArgs),
    /// What it costs that nodes encrypt what they say to each other
    Encryption(BenchEncryptionArgs),
    /// What compact filters of connections cost and how often they are wrong, beside what one would take instead
    Filters(BenchFiltersArgs),
    /// What passes under a flood of short connections: none told, each told, and put off as the load demands
    Lazy(BenchLazyArgs),
    /// How many connections a second can be made through a pair of nodes, with replication and without
    SetupRate(BenchSetupRateArgs),
    /// What recovers when the active of two gateways dies, by what carries the changes: native protocol, UDP, TCP
    Replication(BenchReplicationArgs),
    /// What it costs to replicate the kernel's connections, and what that saves, beside conntrackd
    Sync(BenchSyncArgs),
    /// How fast redundant bytes are found and put back, and how many, beside zstd, LZ4, FastCDC and memcpy
    Redundancy(BenchRedundancyArgs),
}

/// `mainstay bench bulk`.
#[derive(Debug, Args)]
pub struct BenchBulkArgs {
    /// Seconds that each side is measured in a round
    #[arg(long, default_value_t = 1.0, value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which either side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Streams at once
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub streams: u16,
    /// Over IPv6
    #[arg(long)]
    pub ipv6: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay bench packets`.
#[derive(Debug, Args)]
pub struct BenchPacketsArgs {
    /// Seconds that each side is measured in a round
    #[arg(long, default_value_t = 1.0, value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which every side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Packets sent a second [default: as many as arrive]
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1000..=5_000_000))]
    pub packets_per_second: Option<u32>,
    /// Connections that the packets belong to, in turns
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub flows: u16,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay bench setup-rate`.
#[derive(Debug, Args)]
pub struct BenchSetupRateArgs {
    /// Seconds that each side is measured in a round
    #[arg(long, default_value_t = 1.0, value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which either side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Connections that the client has open at a time
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub in_flight: u16,
    /// Both nodes carry connections, half each
    #[arg(long)]
    pub multi_primary: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay bench workers`.
#[derive(Debug, Args)]
pub struct BenchWorkersArgs {
    /// Workers that are measured beside one
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=32))]
    pub workers: u8,
    /// Connections in the tables
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    pub connections: u32,
    /// Packets that each side's pipeline handles in a round
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub packets: u64,
    /// Rounds, in each of which either side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds that each side's node is measured in a round
    #[arg(long, default_value_t = 1.0, value_parser = measured_seconds)]
    pub seconds: f64,
    /// Streams at once through the node
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub streams: u16,
    /// Without a network
    #[arg(long)]
    pub pipeline_only: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay bench pipeline`.
#[derive(Debug, Args)]
pub struct BenchPipelineArgs {
    /// Connections in the table
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub connections: u32,
    /// Packets that each variant handles in a round
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub packets: u64,
    /// Rounds, in each of which every variant is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Connections in the largest of the tables (64k, 1m, 8m) that show how a packet's cost grows; 8m take 4 GB
    #[arg(long, value_name = "COUNT", default_value_t = 8_000_000)]
    pub largest: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Share of the datagrams between the nodes that is lost, 0 to 0.9
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub sync_loss: f64,
    /// Share of the packets that the link between the nodes loses, 0 to 0.9; unlike --sync-loss, on the link itself
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, conflicts_with = "rolling_restart")]
    pub link_loss: f64,
    /// Milliseconds that the way between client and nodes takes, there and back, 0 to 500
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = round_trip_ms, conflicts_with_all = ["rolling_restart", "multi_primary"])]
    pub rtt_ms: f64,
    /// Open so many further connections while the node is killed
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 0, value_parser = ramp)]
    pub ramp: usize,
    /// Seconds of traffic, half before the kill and half after it
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Kill nothing: reload, drain and restart the nodes one after the other instead
    #[arg(long, conflicts_with_all = ["ramp", "report"])]
    pub rolling_restart: bool,
    /// Both nodes carry connections, half each; then measure what replication costs in sessions a second
    #[arg(long, conflicts_with = "report")]
    pub multi_primary: bool,
    /// With --multi-primary, keep each connection to one node: else half of them pass through both, one direction each
    #[arg(long, requires = "multi_primary")]
    pub symmetric: bool,
    /// Two Linux routers with nftables instead, the kernel's connections replicated by `mainstay sync`
    #[arg(long, conflicts_with_all = ["rolling_restart", "multi_primary", "report", "sync_loss", "link_loss", "rtt_ms", "workers"])]
    pub kernel: bool,
    /// With --kernel, let keepalived move the addresses (examples/keepalived); else the demo does, found by BFD
    #[arg(long, requires = "kernel")]
    pub keepalived: bool,
    /// Two sites and a link of 20 Mbit/s, 50 ms and 1 % loss between them: repeated downloads with redundancy elimination and without
    #[arg(long, conflicts_with_all = ["rolling_restart", "multi_primary", "kernel", "report", "sync_loss", "link_loss", "rtt_ms", "ramp", "workers"])]
    pub wan: bool,
    /// Workers of each node
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub workers: u8,
    /// How connections are told to the other node: replication.representation of its configuration. A filter goes with
    /// source NAT that is computed (RFC 7422)
    #[arg(long, value_name = "REPRESENTATION", default_value = "precise-selective", value_parser = representation,
          conflicts_with_all = ["kernel", "rolling_restart", "multi_primary"])]
    pub representation: Representation,
    /// Leave the nodes' configurations and logs where they are, and say where
    #[arg(long)]
    pub keep_logs: bool,
}

/// The most connections that the demo opens: both ends and all their ports are on this machine.
const RAMP_MAX: usize = 50_000;
/// Seconds of traffic that the demo can be asked for.
const DEMO_SECONDS: std::ops::RangeInclusive<f64> = 1.0..=300.0;

/// Round trips that the demo can be asked for, in milliseconds: it does not wait longer for connections to stand.
const DEMO_ROUND_TRIP_MS: std::ops::RangeInclusive<f64> = 0.0..=500.0;

/// Seconds that a measurement's turn can be asked to last.
const MEASURED_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=60.0;

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=0.9).contains(share));
    share.ok_or_else(|| "write a number from 0 to 0.9".into())
}

/// A representation under which connections can survive.
fn representation(text: &str) -> Result<Representation, String> {
    let known = Representation::ALL.into_iter().filter(|(_, representation)| *representation != Representation::None);
    let found = known.clone().find(|(name, _)| *name == text);
    found.map(|(_, representation)| representation).ok_or_else(|| {
        let names: Vec<&str> = known.map(|(name, _)| name).collect();
        format!("write {}", names.join(", "))
    })
}

fn ramp(text: &str) -> Result<usize, String> {
    let ramp = text.parse().ok().filter(|ramp| *ramp <= RAMP_MAX);
    ramp.ok_or_else(|| format!("write a number from 0 to {RAMP_MAX}"))
}

fn seconds(text: &str) -> Result<f64, String> {
    number_within(text, DEMO_SECONDS)
}

fn round_trip_ms(text: &str) -> Result<f64, String> {
    number_within(text, DEMO_ROUND_TRIP_MS)
}

fn measured_seconds(text: &str) -> Result<f64, String> {
    number_within(text, MEASURED_SECONDS)
}

fn number_within(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
}

/// `mainstay gateway`.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Configuration file (docs/configuration.md)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Only say whether the configuration is right, and what this host can do of it
    #[arg(long)]
    pub check: bool,
    /// With --check, print one JSON object
    #[arg(long, requires = "check")]
    pub json: bool,
}

/// `mainstay status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// What happened lately instead
    #[arg(long)]
    pub events: bool,
    /// How long batches and functions take instead
    #[arg(long, conflicts_with = "events")]
    pub latency: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Only say what would change, and whether it could
    #[arg(long)]
    pub check_only: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Even if no peer can take over: connections are lost
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay undrain`.
#[derive(Debug, Args)]
pub struct UndrainArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay flows`.
#[derive(Debug, Args)]
pub struct FlowsArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Only this protocol (tcp, udp, icmp, …, or a number)
    #[arg(long)]
    pub protocol: Option<String>,
    /// Only this state (ESTABLISHED, SYN_SENT, …)
    #[arg(long)]
    pub state: Option<String>,
    /// Only sources in this prefix, before or after translation
    #[arg(long, value_name = "PREFIX")]
    pub source: Option<String>,
    /// Only destinations in this prefix, before or after translation
    #[arg(long, value_name = "PREFIX")]
    pub destination: Option<String>,
    /// Only with this port at either end, before or after translation
    #[arg(long)]
    pub port: Option<u16>,
    /// Only those that the node is master or backup of
    #[arg(long, value_name = "master|backup")]
    pub role: Option<String>,
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = flows_limit_default())]
    pub limit: u64,
    /// Only how many there are, by protocol, state and role
    #[arg(long, conflicts_with_all = ["limit", "follow"])]
    pub count: bool,
    /// As they begin, change and end, from now on
    #[arg(long, conflicts_with_all = ["state", "role"])]
    pub follow: bool,
    /// Follow for so long
    #[arg(long, requires = "follow", default_value_t = 3600.0, value_parser = stream_seconds)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl FlowsArgs {
    /// The conditions on flows.
    #[must_use]
    pub fn filter(&self) -> FlowFilterText {
        FlowFilterText {
            protocol: self.protocol.clone(),
            state: self.state.clone(),
            source: self.source.clone(),
            destination: self.destination.clone(),
            port: self.port,
            role: self.role.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_the_demo_cannot_do_is_refused_with_what_it_can() {
        let refused = [
            ("--sync-loss 1.5", "a number from 0 to 0.9"),
            ("--ramp 1000000", "a number from 0 to 50000"),
            ("--seconds 0", "a number from 1 to 300"),
        ];
        for (option, remedy) in refused {
            let error = Cli::try_parse_from(format!("mainstay demo {option}").split(' ')).expect_err(option);
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }

    #[test]
    fn filters_of_flows_reach_the_request() {
        let line = "mainstay flows --protocol tcp --source 10.0.0.0/8 --port 443 --role master --limit 5 --json";
        let Command::Flows(args) = Cli::try_parse_from(line.split(' ')).expect("it is right").command else {
            panic!("another command was understood");
        };
        let filter = args.filter();
        assert_eq!((filter.protocol.as_deref(), filter.port), (Some("tcp"), Some(443)));
        assert_eq!((filter.source.as_deref(), filter.role.as_deref()), (Some("10.0.0.0/8"), Some("master")));
        assert_eq!((args.limit, args.json), (5, true));
    }
}
