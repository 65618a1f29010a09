//! The one binary: what stands around the gateway's data path.
//!
//! [`config`] turns a file into what the daemon runs with; [`control`] lets operators look into a running node;
//! [`metrics`] serves its counters; [`cli`] and [`commands`] are the program's face. None of them touches a packet.

pub mod bench;
pub mod cli;
pub mod commands;
mod compression;
pub mod config;
pub mod control;
pub mod demo;
pub mod emulator;
pub mod gateway;
pub mod logging;
pub mod metrics;
pub mod output;
pub mod replay;
pub mod secret_file;
pub mod sync;

use std::process::ExitCode;

use clap::Parser;

use cli::{BenchCommand, Cli, Command, StudyCommand};
use commands::CommandError;

/// Runs the program with the arguments of its process.
#[must_use]
pub fn run() -> ExitCode {
    match dispatch(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: &Cli) -> Result<(), CommandError> {
    match &cli.command {
        Command::Demo(args) => Ok(demo::run(args)?),
        Command::Gateway(args) if args.check => commands::check::run(args),
        Command::Gateway(args) => gateway::run(&args.config),
        Command::Sync(args) => commands::sync::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Flows(args) if args.follow => commands::follow::run(args),
        Command::Flows(args) => commands::flows::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Capture(args) => commands::capture::run(args),
        Command::Rules(args) => commands::rules::run(args),
        Command::Reload(args) => commands::reload::run(args),
        Command::Drain(args) => commands::drain::drain(args),
        Command::Undrain(args) => commands::drain::undrain(args),
        Command::Replay(args) => replay::run(args),
        Command::Simulate(args) => commands::simulate::run(args),
        Command::Study(StudyCommand::Replication(args)) => commands::study::replication::run(args),
        Command::Study(StudyCommand::Redundancy(args)) => commands::study::redundancy::run(args),
        Command::Synthesize(command) => commands::synthesize::run(command),
        Command::Link(args) => Ok(emulator::run(args)?),
        Command::Key(args) => commands::key::run(args),
        Command::Bench(BenchCommand::Pipeline(args)) => bench::pipeline::run(args),
        Command::Bench(BenchCommand::AttackRecovery(args)) => bench::attack_recovery::run(args),
        Command::Bench(BenchCommand::Bulk(args)) => bench::bulk::run(args),
        Command::Bench(BenchCommand::Workers(args)) => bench::workers::run(args),
        Command::Bench(BenchCommand::Packets(args)) => bench::packets::run(args),
        Command::Bench(BenchCommand::Encryption(args)) => bench::encryption::run(args),
        Command::Bench(BenchCommand::Filters(args)) => bench::filters::run(args),
        Command::Bench(BenchCommand::Lazy(args)) => bench::lazy::run(args),
        Command::Bench(BenchCommand::SetupRate(args)) => bench::setup_rate::run(args),
        Command::Bench(BenchCommand::Replication(args)) => bench::replication::run(args),
        Command::Bench(BenchCommand::Sync(args)) => bench::sync::run(args),
        Command::Bench(BenchCommand::Redundancy(args)) => bench::redundancy::run(args),
    }
}
