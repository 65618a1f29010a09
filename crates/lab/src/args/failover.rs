//! `mainstay bench failover`.

use clap::Args;

/// `mainstay bench failover`.
#[derive(Debug, Args)]
pub struct BenchFailoverArgs {
    /// Established TCP connections that the kernel forwards when the active node is killed
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
