//! `mainstay bench cluster`.

use clap::Args;

use super::values::measured_seconds;

/// `mainstay bench cluster`.
#[derive(Debug, Args)]
pub struct BenchClusterArgs {
    /// Nodes of each cluster
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(3..=8))]
    pub nodes: u8,
    /// Nodes that are killed at once. Each connection has as many backups
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub kill: u8,
    /// Connections, on which requests are made in turn
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u16).range(8..=1024))]
    pub connections: u16,
    /// How long each side is measured in a round, before the failure and after it
    #[arg(long = "duration", value_name = "TIME", default_value = "2s", value_parser = measured_seconds)]
    pub seconds: f64,
    /// Rounds, in each of which every side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `mainstay lab store-gateway`: a gateway that keeps its state in a remote store, for comparison.
#[derive(Debug, Args)]
pub struct StoreGatewayArgs {
    /// Where the store listens
    #[arg(long, value_name = "ADDRESS")]
    pub store: std::net::SocketAddr,
    /// Interfaces that frames pass between
    #[arg(long, value_name = "NAME", num_args = 2, required = true)]
    pub interfaces: Vec<String>,
    /// Link addresses of the hosts behind them
    #[arg(long, value_name = "ADDRESS", num_args = 2, required = true)]
    pub hosts: Vec<String>,
}
