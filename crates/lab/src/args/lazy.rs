//! `mainstay bench lazy`.

use clap::Args;

use super::values::measured_seconds;

/// `mainstay bench lazy`.
#[derive(Debug, Args)]
pub struct BenchLazyArgs {
    /// Short connections a second that the flood begins
    #[arg(long, value_name = "COUNT", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub rate: u32,
    /// Streams of TCP whose throughput is measured
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub streams: u16,
    /// Connections that live longer than the threshold and are to survive the failover
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub long_connections: u16,
    /// How long each side is measured in a round
    #[arg(long = "duration", value_name = "TIME", default_value = "2s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// How long the flood lasts before it is measured, so that the threshold finds its level
    #[arg(long = "settle", value_name = "TIME", default_value = "4s", value_parser = measured_seconds)]
    pub settle_seconds: f64,
    /// Rounds, in each of which every side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Leave it to the machine which processors the nodes run on, instead of keeping both on one
    #[arg(long)]
    pub spread: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
