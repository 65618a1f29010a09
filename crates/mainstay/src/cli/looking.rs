//! Arguments of the commands that look on while a gateway works.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::SocketArgs;
use api::PacketFilterText;

/// Seconds that a command can be asked to look on.
const STREAM_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=control::streams::STREAM_SECONDS_MAX;

pub(super) fn stream_seconds(text: &str) -> Result<f64, String> {
    number_within(text, STREAM_SECONDS)
}

fn number_within(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
}

/// Which packets are looked at.
#[derive(Debug, Args)]
pub struct PacketFilterArgs {
    /// Only this protocol (tcp, udp, icmp, …, or a number)
    #[arg(long)]
    pub protocol: Option<String>,
    /// Only sources in this prefix, as packets come in
    #[arg(long, value_name = "PREFIX")]
    pub source: Option<String>,
    /// Only destinations in this prefix, as packets come in
    #[arg(long, value_name = "PREFIX")]
    pub destination: Option<String>,
    /// Only with this port at either end, as packets come in
    #[arg(long)]
    pub port: Option<u16>,
    /// Only what came in on this port of the gateway
    #[arg(long, value_name = "NAME")]
    pub ingress: Option<String>,
    /// Only what is dropped, for whatever reason or for this one
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "any")]
    pub dropped: Option<String>,
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
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// For so long
    #[arg(long, default_value_t = 60.0, value_parser = stream_seconds)]
    pub seconds: f64,
    /// Print a JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `mainstay capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// The gateway.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Where on their way: ingress, after:FUNCTION, egress or drop
    #[arg(long, value_name = "POINT", default_value = "ingress")]
    pub at: String,
    /// Which packets.
    #[command(flatten)]
    pub packets: PacketFilterArgs,
    /// The file; - for standard output
    #[arg(long, value_name = "FILE")]
    pub write: PathBuf,
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// For so long
    #[arg(long, default_value_t = 60.0, value_parser = stream_seconds)]
    pub seconds: f64,
    /// Keep at most so many bytes of each frame
    #[arg(long, value_name = "BYTES", default_value_t = 65_535)]
    pub snapshot_bytes: u32,
}

/// By what connections are ordered.
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
    /// Seconds between two views
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = stream_seconds)]
    pub interval: f64,
    /// By what connections are ordered
    #[arg(long, value_enum, default_value_t = TopOrder::Packets)]
    pub by: TopOrder,
    /// Look at so many connections at most
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub flows_max: u64,
    /// One view, after one interval
    #[arg(long)]
    pub once: bool,
    /// Print a JSON object a view
    #[arg(long)]
    pub json: bool,
}
