//! Arguments of the commands that show a running gateway.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::SocketArgs;
use api::PacketFilterText;
use config::value::parse_duration_within;
use control::streams::STREAM_SECONDS_MAX;

/// How long a stream of packets or events can be asked for.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a whole number of seconds")]
const STREAM: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(STREAM_SECONDS_MAX as u64);

pub(super) fn stream_seconds(text: &str) -> Result<f64, String> {
    parse_duration_within(text, STREAM).map(|duration| duration.as_secs_f64())
}

/// `mainstay status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// As `mainstay events`.
    #[arg(long, hide = true)]
    pub events: bool,
    /// Show the latencies of batches and functions instead
    #[arg(long, conflicts_with = "events")]
    pub latency: bool,
    /// Show the cluster's members instead, a line each; with --connect each is asked itself
    #[arg(long, conflicts_with_all = ["events", "latency"])]
    pub all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay url`.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Host, or host and path
    #[arg(value_name = "HOST")]
    pub target: String,
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

/// Conditions on packets.
#[derive(Debug, Args)]
pub struct PacketFilterArgs {
    /// Only this protocol (tcp, udp, icmp, …, or a number)
    #[arg(long)]
    pub protocol: Option<String>,
    /// Only sources in this prefix, before or after translation
    #[arg(long, value_name = "PREFIX")]
    pub source: Option<String>,
    /// Only destinations in this prefix, before or after translation
    #[arg(long, value_name = "PREFIX")]
    pub destination: Option<String>,
    /// Only with this port at either end, before or after translation
    #[arg(long)]
    pub port: Option<u16>,
    /// Only packets received on this port of the gateway
    #[arg(long, value_name = "NAME")]
    pub ingress: Option<String>,
    /// Only packets that are dropped, for any reason or for this one
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "any")]
    pub dropped: Option<String>,
    /// Also the frames of nodes and edges among themselves: heartbeats, replication
    #[arg(long)]
    pub own_frames: bool,
}

impl PacketFilterArgs {
    /// The conditions on packets.
    #[must_use]
    pub fn filter(&self) -> PacketFilterText {
        PacketFilterText {
            protocol: self.protocol.clone(),
            source: self.source.clone(),
            destination: self.destination.clone(),
            port: self.port,
            ingress: self.ingress.clone(),
            dropped: self.dropped.clone(),
            own_frames: self.own_frames,
        }
    }
}

/// `mainstay trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Which packets.
    #[command(flatten)]
    pub packets: PacketFilterArgs,
    /// Show at most so many packets
    #[arg(long, alias = "count", value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Look for so long
    #[arg(long = "duration", value_name = "TIME", default_value = "60s", value_parser = stream_seconds)]
    pub seconds: f64,
    /// Print a JSON object a line, one for each packet
    #[arg(long)]
    pub json: bool,
}

/// `mainstay capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Point of their way: ingress, after:FUNCTION, egress or drop
    #[arg(long, value_name = "POINT", default_value = "ingress")]
    pub at: String,
    /// Which packets.
    #[command(flatten)]
    pub packets: PacketFilterArgs,
    /// File that the capture (pcapng) is written to; - is standard output
    #[arg(long, short, alias = "write", value_name = "FILE")]
    pub output: PathBuf,
    /// Write at most so many frames
    #[arg(long, alias = "count", value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Capture for so long
    #[arg(long = "duration", value_name = "TIME", default_value = "60s", value_parser = stream_seconds)]
    pub seconds: f64,
    /// Keep at most so many bytes of each frame
    #[arg(long, value_name = "BYTES", default_value_t = 65_535)]
    pub snapshot_bytes: u32,
}

/// The order of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TopOrder {
    /// Packets a second
    Packets,
    /// Bits a second
    Bytes,
}

/// `mainstay top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Time between two views
    #[arg(long = "interval", value_name = "TIME", default_value = "2s", value_parser = stream_seconds)]
    pub interval_s: f64,
    /// Order of connections
    #[arg(long, value_enum, default_value_t = TopOrder::Packets)]
    pub by: TopOrder,
    /// Compare at most so many connections
    #[arg(long, alias = "flows-max", value_name = "COUNT", default_value_t = 10_000)]
    pub limit: u64,
    /// Show one view, after one interval
    #[arg(long)]
    pub once: bool,
    /// Print a JSON object a line, one for each view
    #[arg(long)]
    pub json: bool,
}
