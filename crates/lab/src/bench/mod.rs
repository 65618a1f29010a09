//! `mainstay bench`: side-by-side measurements against what one would use instead.
//!
//! Machines are noisy, so whatever is compared is measured in turns (A B C A B C …), and medians over the rounds are
//! reported. Both sides of every ratio are reported with it.

pub mod attack_recovery;
pub mod bulk;
pub mod encryption;
mod error;
pub mod failover;
pub mod filters;
pub mod kernel_routers;
pub mod lazy;
pub mod packets;
pub mod pipeline;
mod port_pairs;
pub mod redundancy;
pub mod replication;
mod rounds;
pub mod setup_rate;
pub mod sync;
pub mod workers;

pub use self::error::BenchError;
use crate::args::BenchCommand;

/// Measures what the command line asks for.
///
/// # Errors
/// There is no result.
pub fn run(command: &BenchCommand) -> Result<(), BenchError> {
    match command {
        BenchCommand::Pipeline(args) => pipeline::run(args),
        BenchCommand::AttackRecovery(args) => attack_recovery::run(args),
        BenchCommand::Bulk(args) => bulk::run(args),
        BenchCommand::Workers(args) => workers::run(args),
        BenchCommand::Packets(args) => packets::run(args),
        BenchCommand::Encryption(args) => encryption::run(args),
        BenchCommand::Failover(args) => failover::run(args),
        BenchCommand::Filters(args) => filters::run(args),
        BenchCommand::Lazy(args) => lazy::run(args),
        BenchCommand::SetupRate(args) => setup_rate::run(args),
        BenchCommand::Replication(args) => replication::run(args),
        BenchCommand::Sync(args) => sync::run(args),
        BenchCommand::Redundancy(args) => redundancy::run(args),
    }
}
