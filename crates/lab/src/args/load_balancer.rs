//! `mainstay bench load-balancer`.

use clap::Args;

use super::values::measured_seconds;

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
    /// Rounds in a network, in each of which connections are made through either side once; 0: none
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub network_rounds: u32,
    /// How long each side makes connections in a round in a network
    #[arg(long = "duration", value_name = "TIME", default_value = "1s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Connections in the network that are open at a time
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub in_flight: u16,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
