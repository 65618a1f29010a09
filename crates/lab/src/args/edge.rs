//! `mainstay bench edge`.

use clap::Args;

/// `mainstay bench edge`.
#[derive(Debug, Args)]
pub struct BenchEdgeArgs {
    /// Connections in the tables of the edge and of the gateway
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub connections: u32,
    /// Packets that each side handles in a round, of either length
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub packets: u64,
    /// Rounds, in each of which every side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Numbers of connections whose memory is measured by policy
    #[arg(
        long = "memory",
        value_name = "COUNTS",
        value_delimiter = ',',
        default_value = "1000,10000,100000,250000",
        value_parser = clap::value_parser!(u32).range(1..=2_000_000)
    )]
    pub memory_connections: Vec<u32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Fill an edge of this policy and print its memory: a process of its own has no memory of others
    #[arg(long, hide = true, value_name = "POLICY", value_parser = super::recovery::policy)]
    pub filled: Option<String>,
}
