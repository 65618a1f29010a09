//! `mainstay bench redundancy`.

use clap::Args;

/// `mainstay bench redundancy`.
#[derive(Debug, Args)]
pub struct BenchRedundancyArgs {
    /// Megabytes of traffic, half of it redundant, that each subject handles in a round
    #[arg(long, value_name = "MB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub megabytes: u32,
    /// Megabytes of the packet cache
    #[arg(long, value_name = "MB", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub cache_megabytes: u32,
    /// Rounds, in each of which every subject is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
