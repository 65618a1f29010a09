//! `mainstay bench operations` and `worst-packet`.

use clap::Args;

/// `mainstay bench operations`.
#[derive(Debug, Args)]
pub struct BenchOperationsArgs {
    /// Only the operation of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Rounds, in each of which every operation is timed once; 0: instructions alone
    #[arg(long, value_name = "COUNT", default_value_t = 11, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub rounds: u32,
    /// Times alone: instructions take a minute
    #[arg(long)]
    pub no_instructions: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Carry out each operation for callgrind, and print how often: the process whose instructions are counted
    #[arg(long, hide = true)]
    pub counted: bool,
}

/// `mainstay bench worst-packet`.
#[derive(Debug, Args)]
pub struct BenchWorstPacketArgs {
    /// Nanoseconds in place of instructions
    #[arg(long)]
    pub no_instructions: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
