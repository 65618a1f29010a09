//! `mainstay demo`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::values::{milliseconds_within, seconds_within, share};
use crate::testbed::many_nodes::MembersFrom;
use config::validated::Representation;

/// A way to leave, and to return.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A node ends by SIGTERM and stays away
    Stop,
    /// A node ends by SIGTERM and is started at once
    StopStart,
    /// A node ends by SIGTERM and is started four seconds later
    StopStartLater,
    /// A node is drained, ends by SIGTERM and stays away
    DrainStop,
    /// A node is drained, ends by SIGTERM and is started at once
    DrainStopStart,
    /// Each node ends by SIGTERM and is started, one after the other: an upgrade
    Rolling,
    /// A node ends by SIGTERM and is started with another address on the replication link
    Move,
    /// The others lose a running node as a peer and get it back: by reloads, or by its record in etcd
    Remove,
    /// A node is killed, an operator removes it, by reloads or from etcd, and later it is started and a peer again
    KillRemoveStart,
    /// A node does not reach etcd for longer than its lease and the time after which it is forgotten, and then does again
    LeaseLost,
}

impl Way {
    /// Whether nodes with this source of members can leave so.
    #[must_use]
    pub fn is_possible_with(self, members: MembersFrom) -> bool {
        match self {
            Self::Remove | Self::KillRemoveStart => members != MembersFrom::Gossip,
            Self::LeaseLost => members == MembersFrom::Etcd,
            _ => true,
        }
    }
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
    /// Share of the packets that the link between the nodes loses, 0 to 0.9
    #[arg(long, visible_alias = "sync-loss", value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub link_loss: f64,
    /// Round trip between client and nodes, at most 500ms
    #[arg(long = "rtt", value_name = "TIME", default_value = "0ms", value_parser = round_trip_ms, conflicts_with_all = ["rolling_restart", "multi_primary"])]
    pub rtt_ms: f64,
    /// Open so many further connections while the node is killed
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 0, value_parser = ramp)]
    pub ramp: usize,
    /// How long traffic passes, half of it before the kill and half after it
    #[arg(long = "duration", value_name = "TIME", default_value = "3s", value_parser = seconds, conflicts_with = "tunnel")]
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
    /// An edge on either side of two nodes that both forward: with local recovery, and without
    #[arg(long, conflicts_with_all = ["rolling_restart", "multi_primary", "kernel", "tunnel", "report", "failures"])]
    pub edges: bool,
    /// So many nodes that all forward, between an edge on either side (3 to 8): some are killed, and return
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(3..=8),
          conflicts_with_all = ["rolling_restart", "multi_primary", "kernel", "tunnel", "report", "failures", "edges", "functions", "link_loss", "rtt_ms", "representation"])]
    pub nodes: Option<u8>,
    /// With --nodes, how many of them are killed. Each connection has as many backups
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "nodes", value_parser = clap::value_parser!(u8).range(1..=7))]
    pub kill: u8,
    /// With --nodes, so many further nodes join while the connections pass, before nodes are killed (8 nodes in all)
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "nodes", value_parser = clap::value_parser!(u8).range(0..=5))]
    pub add: u8,
    /// With --nodes, the nodes find each other through three members of etcd, of which one is killed before nodes are. Debian has etcd as etcd-server
    #[arg(long, requires = "nodes")]
    pub etcd: bool,
    /// With --nodes, a node leaves in good order instead, by each way and with each source of members, and another one dies after that
    #[arg(long, requires = "nodes", conflicts_with_all = ["kill", "add", "etcd", "ramp"])]
    pub leave: bool,
    /// With --leave, this way alone; may be repeated
    #[arg(long, value_enum, requires = "leave")]
    pub way: Vec<Way>,
    /// With --leave, this source of members alone; may be repeated
    #[arg(long, value_enum, requires = "leave")]
    pub members: Vec<MembersFrom>,
    /// With --nodes, time between the kills; 0ms: at once
    #[arg(long = "kill-interval", value_name = "TIME", default_value = "50ms", requires = "nodes", value_parser = round_trip_ms)]
    pub kill_interval_ms: f64,
    /// One function after the other on the nodes, each with a node killed under its connections: load balancer, SYN proxy under a flood, classifier, URL
    /// filter
    #[arg(long, conflicts_with_all = ["rolling_restart", "multi_primary", "kernel", "tunnel", "report", "failures", "edges", "representation"])]
    pub functions: bool,
    /// Two Linux routers with nftables instead, the kernel's connections replicated by `mainstay sync`
    #[arg(long, conflicts_with_all = ["rolling_restart", "multi_primary", "report", "link_loss", "rtt_ms", "workers"])]
    pub kernel: bool,
    /// With --kernel, let keepalived move the addresses (examples/keepalived); else the demo does, found by BFD
    #[arg(long, requires = "kernel")]
    pub keepalived: bool,
    /// Two sites and a link of 20 Mbit/s, 50 ms and 1 % loss between them: repeated downloads with redundancy elimination and without
    #[arg(long = "wan", conflicts_with_all = ["rolling_restart", "multi_primary", "kernel", "report", "link_loss", "rtt_ms", "ramp", "workers"])]
    pub tunnel: bool,
    /// With --wan, the hosts' congestion control, as Linux calls it (cubic, bbr, reno); else what this machine uses
    #[arg(long, value_name = "NAME", requires = "tunnel")]
    pub congestion_control: Option<String>,
    /// With --wan, how long the downloaded objects are, in MiB. A window of TCP's doubles once a round trip: short downloads are over before it is open
    #[arg(long, value_name = "MIB", default_value_t = 8, requires = "tunnel", value_parser = clap::value_parser!(u8).range(1..=12))]
    pub object_mib: u8,
    /// Make failures that operators meet, one after the other, each on nodes of its own, and hold what comes of them against what is
    /// promised
    #[arg(long, conflicts_with_all = ["rolling_restart", "multi_primary", "kernel", "tunnel", "report", "link_loss", "rtt_ms", "ramp", "seconds", "workers", "representation"])]
    pub failures: bool,
    /// With --failures, one of them alone
    #[arg(long, value_name = "NAME", requires = "failures")]
    pub only: Option<String>,
    /// Attack running processes with real packets, frames, control messages and wrong clocks, and hold what comes of each attack against what is
    /// promised
    #[arg(long, conflicts_with_all = ["rolling_restart", "multi_primary", "kernel", "tunnel", "report", "failures", "edges", "functions", "nodes", "link_loss", "rtt_ms", "ramp", "seconds", "workers", "representation"])]
    pub hostile: bool,
    /// With --hostile, one attack alone
    #[arg(long, value_name = "NAME", requires = "hostile")]
    pub attack: Option<String>,
    /// Workers of each node
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub workers: u8,
    /// Representation of replicated connections: replication.representation of the configuration. A filter goes with
    /// source NAT that is computed (RFC 7422)
    #[arg(long, value_name = "REPRESENTATION", default_value = "precise-selective", value_parser = super::values::representation,
          conflicts_with_all = ["kernel", "rolling_restart", "multi_primary", "tunnel"])]
    pub representation: Representation,
    /// Leave the nodes' configurations and logs where they are, and print where
    #[arg(long)]
    pub keep_logs: bool,
}

/// The most connections that the demo opens: both ends and all their ports are on this machine.
const RAMP_MAX: usize = 50_000;
/// How long traffic of the demo can be asked for.
const TRAFFIC: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// Round trips that the demo can be asked for: it does not wait longer for connections to stand.
const ROUND_TRIP: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(500);

fn ramp(text: &str) -> Result<usize, String> {
    let ramp = text.parse().ok().filter(|ramp| *ramp <= RAMP_MAX);
    ramp.ok_or_else(|| format!("write a number from 0 to {RAMP_MAX}"))
}

fn seconds(text: &str) -> Result<f64, String> {
    seconds_within(text, TRAFFIC)
}

fn round_trip_ms(text: &str) -> Result<f64, String> {
    milliseconds_within(text, ROUND_TRIP)
}
