//! `mainstay bench attack-recovery`.

use clap::Args;

/// `mainstay bench attack-recovery`.
#[derive(Debug, Args)]
pub struct BenchAttackRecoveryArgs {
    /// Bogus replies that come in a second
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: u32,
    /// Connections that have come back, whose packets are the legitimate ones; as many more have not
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub connections: u32,
    /// Legitimate packets that are measured in a turn
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub packets: u64,
    /// Rounds, in each of which either side is measured once
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
