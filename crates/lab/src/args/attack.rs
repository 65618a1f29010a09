//! `mainstay bench attack`.

use clap::Args;

use super::values::measured_seconds;

/// `mainstay bench attack`.
#[derive(Debug, Args)]
pub struct BenchAttackArgs {
    /// Packets of no connection that one node gets in a second, several rates
    #[arg(long = "rates", value_name = "COUNTS", value_delimiter = ',', default_value = "1000,5000,20000",
          value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub bogus_per_s: Vec<u32>,
    /// Nodes of each cluster
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(3..=8))]
    pub nodes: u8,
    /// How long each rate is measured in a round
    #[arg(long = "duration", value_name = "TIME", default_value = "2s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which every rate is measured once with broadcast and once without
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
