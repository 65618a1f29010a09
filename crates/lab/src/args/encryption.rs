//! `mainstay bench encryption`.

use clap::Args;

/// `mainstay bench encryption`.
#[derive(Debug, Args)]
pub struct BenchEncryptionArgs {
    /// Connections that one node replicates to the other in a round, on each side and in each way
    #[arg(long, value_name = "COUNT", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub connections: u32,
    /// Rounds, in each of which either side is measured once in each way
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
