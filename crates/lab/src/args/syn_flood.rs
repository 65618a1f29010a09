//! `mainstay bench syn-flood`.

use clap::Args;

use super::values::measured_seconds;

/// `mainstay bench syn-flood`.
#[derive(Debug, Args)]
pub struct BenchSynFloodArgs {
    /// Spoofed SYNs a second
    #[arg(long, value_name = "COUNT", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub syns_per_s: u32,
    /// Real connections that are opened beside the flood
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub connections: u32,
    /// How long each side is flooded without real connections, to measure its cost
    #[arg(long = "duration", value_name = "TIME", default_value = "5s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
