//! `mainstay bench filters`.

use clap::Args;

/// `mainstay bench filters`.
#[derive(Debug, Args)]
pub struct BenchFiltersArgs {
    /// Items in each structure
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=50_000_000))]
    pub items: u64,
    /// Items in the filter that is looked up in batches; 10 million take 300 MB
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..=50_000_000))]
    pub large: u64,
    /// Rounds, in each of which every structure is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Times that each of the paper's simulations is repeated
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub trials: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
