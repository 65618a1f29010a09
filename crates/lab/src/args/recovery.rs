//! `mainstay bench recovery`.

use std::time::Duration;

use clap::Args;

use super::values::milliseconds_within;
use config::edge::RecoveryPolicy;
use config::value::parse_duration_within;

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
    /// Runs of each outage, round trip and policy
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
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
