//! `mainstay bench`: side-by-side measurements against what one would use instead.
//!
//! Machines are noisy, so whatever is compared is measured in turns (A B C A B C …), and medians over the rounds are
//! reported. Both sides of every ratio are reported with it.

pub mod attack;
pub mod attack_recovery;
mod balanced_connections;
pub mod bulk;
mod callgrind;
pub mod cluster;
pub mod edge;
pub mod encryption;
mod error;
pub mod failover;
pub mod filters;
pub mod kernel_routers;
pub mod lazy;
pub mod operations;
pub mod packets;
pub mod pipeline;
mod port_pairs;
pub mod redundancy;
pub mod replication;
mod rounds;
pub mod setup_rate;
pub mod syn_flood;
pub mod sync;
pub mod workers;
pub mod worst_packet;

pub use self::error::BenchError;
use crate::args::SideBySideCommand;

/// Measures what the command line asks for.
///
/// # Errors
/// There is no result.
pub fn run(command: &SideBySideCommand) -> Result<(), BenchError> {
    match command {
        SideBySideCommand::Pipeline(args) => pipeline::run(args),
        SideBySideCommand::Attack(args) => attack::run(args),
        SideBySideCommand::Cluster(args) => cluster::run(args),
        SideBySideCommand::AttackRecovery(args) => attack_recovery::run(args),
        SideBySideCommand::Bulk(args) => bulk::run(args),
        SideBySideCommand::Edge(args) => edge::run(args),
        SideBySideCommand::Workers(args) => workers::run(args),
        SideBySideCommand::Packets(args) => packets::run(args),
        SideBySideCommand::Encryption(args) => encryption::run(args),
        SideBySideCommand::Failover(args) => failover::run(args),
        SideBySideCommand::Filters(args) => filters::run(args),
        SideBySideCommand::Lazy(args) => lazy::run(args),
        SideBySideCommand::Operations(args) => operations::run(args),
        SideBySideCommand::WorstPacket(args) => worst_packet::run(args),
        SideBySideCommand::LoadBalancer(args) => pipeline::load_balancer::run(args),
        SideBySideCommand::SetupRate(args) => setup_rate::run(args),
        SideBySideCommand::Replication(args) => replication::run(args),
        SideBySideCommand::Sync(args) => sync::run(args),
        SideBySideCommand::SynFlood(args) => syn_flood::run(args),
        SideBySideCommand::Redundancy(args) => redundancy::run(args),
    }
}
