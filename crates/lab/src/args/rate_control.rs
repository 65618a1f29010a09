//! `mainstay bench rate-control`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::recovery::{congestion_control, host_congestion_control};
use super::values::{measured_seconds, milliseconds_within};

/// `mainstay bench rate-control`.
#[derive(Debug, Args)]
pub struct BenchRateControlArgs {
    /// Transfers, about half of them through each node
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = transfers)]
    pub connections: usize,
    /// What each node can forward, in Mbit/s
    #[arg(long, value_name = "MBIT/S", default_value_t = 80, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub node_mbit_per_s: u64,
    /// Round trip between the inside edge and the nodes, at most 500ms
    #[arg(long = "rtt", value_name = "TIME", default_value = "100ms", value_parser = round_trip_ms)]
    pub rtt_ms: f64,
    /// Packets that wait for a node at most
    #[arg(long, value_name = "PACKETS", default_value_t = 330)]
    pub queue_packets: usize,
    /// How long is measured after the switch-over
    #[arg(long = "duration", value_name = "TIME", default_value = "5s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Runs of each way, in turns
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// The hosts' congestion control, of those in /proc/sys/net/ipv4/tcp_allowed_congestion_control [default: the host's]
    #[arg(long, value_name = "NAME", value_parser = congestion_control)]
    pub congestion_control: Option<String>,
    /// Write a page with the course of goodput, fairness and queue
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl BenchRateControlArgs {
    /// The congestion control: that asked for, or the host's.
    #[must_use]
    pub fn congestion_control(&self) -> String {
        self.congestion_control.clone().unwrap_or_else(host_congestion_control)
    }
}

fn round_trip_ms(text: &str) -> Result<f64, String> {
    milliseconds_within(text, Duration::ZERO..=Duration::from_millis(500))
}

fn transfers(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| "write a number".to_owned())?;
    if (2..=1000).contains(&count) { Ok(count) } else { Err("choose a number from 2 to 1000".to_owned()) }
}
