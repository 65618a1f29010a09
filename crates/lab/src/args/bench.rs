//! `mainstay bench`: its commands, and the arguments of those that have no file of their own.

use clap::{Args, Subcommand};
use config::validated::Representation;

use super::values::measured_seconds;
use super::{
    BenchAttackArgs, BenchAttackRecoveryArgs, BenchClusterArgs, BenchEdgeArgs, BenchEncryptionArgs, BenchFailoverArgs,
    BenchFiltersArgs, BenchLazyArgs, BenchLoadBalancerArgs, BenchOperationsArgs, BenchRateControlArgs,
    BenchRecoveryArgs, BenchRedundancyArgs, BenchReplicationArgs, BenchSynFloodArgs, BenchSyncArgs,
    BenchWorstPacketArgs,
};

/// `mainstay bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Those that measure side by side with something else.
    #[command(flatten)]
    SideBySide(SideBySideCommand),
    /// Stalls of TCP after edges have switched over, by outage, round trip and policy of local recovery
    Recovery(BenchRecoveryArgs),
    /// Goodput, fairness and queue of many transfers after a node of limited capacity has failed, with rate control and without
    RateControl(BenchRateControlArgs),
}

/// Benchmarks that measure side by side with something else.
#[derive(Debug, Subcommand)]
pub enum SideBySideCommand {
    /// Messages between nodes under packets of no connection, with broadcast of indexes and without
    Attack(BenchAttackArgs),
    /// Legitimate throughput during a flood of bogus replies after a take-over
    AttackRecovery(BenchAttackRecoveryArgs),
    /// Latency and throughput through many nodes before a failure and after it, beside nodes without replication and nodes with a remote store
    Cluster(BenchClusterArgs),
    /// Cost of a packet and of a connection, without a network, beside a hashbrown map
    Pipeline(BenchPipelineArgs),
    /// Cost of a packet and memory of a connection at an edge, without a network, beside the gateway's pipeline
    Edge(BenchEdgeArgs),
    /// Throughput of bulk TCP through a node, beside the kernel with nftables
    Bulk(BenchBulkArgs),
    /// Throughput of several workers of a node, beside one
    Workers(BenchWorkersArgs),
    /// Cost of forwarding a small packet by the fast path, AF_XDP, AF_PACKET and the kernel with nftables; by the fast path and by
    /// the kernel also with a million connections
    Packets(BenchPacketsArgs),
    /// Cost of encrypted replication, beside plain text
    Encryption(BenchEncryptionArgs),
    /// Connections on the fast path that survive when the active of two nodes is killed
    Failover(BenchFailoverArgs),
    /// Cost and error rates of compact filters of connections, beside other filters
    Filters(BenchFiltersArgs),
    /// Throughput under a flood of short connections: not replicated, replicated, deferred by load
    Lazy(BenchLazyArgs),
    /// Instructions and nanoseconds of hot operations, each by itself, without a network
    Operations(BenchOperationsArgs),
    /// Cost of the packet that costs most in each parser of first bytes, beside an ordinary one
    WorstPacket(BenchWorstPacketArgs),
    /// Cost of a packet of a balanced connection, beside source NAT; evenness and steadiness of the choice of backends
    LoadBalancer(BenchLoadBalancerArgs),
    /// Connections a second through a pair of nodes, with replication and without
    SetupRate(BenchSetupRateArgs),
    /// Flows that recover when the active of two gateways dies, by protocol of replication
    Replication(BenchReplicationArgs),
    /// Cost and benefit of replicating the kernel's connections, beside conntrackd
    Sync(BenchSyncArgs),
    /// Cost of a flood of spoofed SYNs, and real connections beside it, with the SYN proxy and with nftables' `synproxy`
    SynFlood(BenchSynFloodArgs),
    /// Speed and savings of redundancy elimination, beside zstd, LZ4, FastCDC and memcpy
    Redundancy(BenchRedundancyArgs),
}

/// `mainstay bench bulk`.
#[derive(Debug, Args)]
pub struct BenchBulkArgs {
    /// How long each side is measured in a round
    #[arg(long = "duration", value_name = "TIME", default_value = "1s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which either side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
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
    /// How long each side is measured in a round
    #[arg(long = "duration", value_name = "TIME", default_value = "1s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which every side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Packets sent a second [default: as many as arrive]
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1000..=5_000_000))]
    pub packets_per_second: Option<u32>,
    /// Connections that the packets belong to, in a random order, on the sides with few connections
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub flows: u32,
    /// Connections that the packets belong to on the sides with full tables
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub connections: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay bench setup-rate`.
#[derive(Debug, Args)]
pub struct BenchSetupRateArgs {
    /// How long each side is measured in a round
    #[arg(long = "duration", value_name = "TIME", default_value = "1s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which either side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Connections that the client has open at a time
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub in_flight: u16,
    /// Both nodes carry connections, half each
    #[arg(long, conflicts_with = "representation")]
    pub multi_primary: bool,
    /// Measure this representation of replicated connections beside precise-selective and none: replication.representation of the
    /// configuration. A filter goes with source NAT that is computed (RFC 7422)
    #[arg(long, value_name = "REPRESENTATION", value_parser = super::values::representation)]
    pub representation: Option<Representation>,
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
    /// How long each side's node is measured in a round
    #[arg(long = "duration", value_name = "TIME", default_value = "1s", value_parser = measured_seconds)]
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
