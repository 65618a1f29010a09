//! `mainstay bench recovery`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::milliseconds_within;
use config::edge::RecoveryPolicy;
use config::value::parse_duration_within;

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// Where the kernel lists its congestion controls that namespaces may use, and names the one in use.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const IN_USE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// `mainstay bench recovery`.
#[derive(Debug, Args)]
pub struct BenchRecoveryArgs {
    /// Times from the failure until the edges find it, 20ms to 10s
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "50ms,100ms,300ms,1s,5s", value_parser = outage)]
    pub outages: Vec<Duration>,
    /// Round trips between client and edge, at most 500ms
    #[arg(long = "rtts", value_name = "TIMES", value_delimiter = ',', default_value = "0ms,40ms", value_parser = round_trip_ms)]
    pub rtts_ms: Vec<f64>,
    /// Policies of the edges: recovery.policy of their configuration
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "always,off", value_parser = policy)]
    pub policies: Vec<String>,
    /// Whether the hosts use selective acknowledgements
    #[arg(long = "sack", value_name = "CHOICES", value_delimiter = ',', default_value = "on")]
    pub sacks: Vec<Switch>,
    /// The hosts' congestion control, of those in /proc/sys/net/ipv4/tcp_allowed_congestion_control [default: the host's]
    #[arg(long = "congestion-control", value_name = "NAMES", value_delimiter = ',', value_parser = congestion_control)]
    pub congestion_controls: Vec<String>,
    /// Runs of each combination
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Write a page with plots
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl BenchRecoveryArgs {
    /// The congestion controls: those asked for, or the host's.
    #[must_use]
    pub fn congestion_controls(&self) -> Vec<String> {
        if self.congestion_controls.is_empty() {
            vec![host_congestion_control()]
        } else {
            self.congestion_controls.clone()
        }
    }
}

/// The congestion control that the host uses.
pub(super) fn host_congestion_control() -> String {
    fs::read_to_string(IN_USE).unwrap_or_default().trim().to_owned()
}

pub(super) fn congestion_control(text: &str) -> Result<String, String> {
    let allowed = fs::read_to_string(ALLOWED).unwrap_or_default();
    let allowed = allowed.trim();
    if allowed.split_whitespace().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "one of {allowed}; `sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{allowed} {text}\"` permits it, if the kernel has it"
    ))
}

fn outage(text: &str) -> Result<Duration, String> {
    parse_duration_within(text, Duration::from_millis(20)..=Duration::from_secs(10))
}

fn round_trip_ms(text: &str) -> Result<f64, String> {
    milliseconds_within(text, Duration::ZERO..=Duration::from_millis(500))
}

pub(super) fn policy(text: &str) -> Result<String, String> {
    let names = RecoveryPolicy::ALL.map(|(name, _)| name);
    if names.contains(&text) { Ok(text.to_owned()) } else { Err(format!("one of {}", names.join(", "))) }
}
