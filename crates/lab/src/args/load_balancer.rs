//! `mainstay bench load-balancer`.

use clap::Args;

/// `mainstay bench load-balancer`.
#[derive(Debug, Args)]
pub struct BenchLoadBalancerArgs {
    /// Connections in each table
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    pub connections: u32,
    /// Packets that each side handles in a round
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub packets: u64,
    /// Rounds, in each of which either side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
