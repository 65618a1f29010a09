//! The program's face: the command line, and what each command prints.
//!
//! The processes are in `daemon`, the configuration in `config`, the control API in `api` and `control`; what shows and
//! measures is in `lab`, which packages leave out.

pub mod cli;
pub mod commands;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, StudyCommand};
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
        Command::Gateway(args) if args.check.check => commands::check::run(args),
        Command::Gateway(args) => Ok(daemon::gateway::run(&args.config)?),
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
        Command::Replay(args) => commands::replay::run(args),
        Command::Study(StudyCommand::Replication(args)) => commands::study::replication::run(args),
        Command::Study(StudyCommand::Redundancy(args)) => commands::study::redundancy::run(args),
        #[cfg(feature = "lab")]
        Command::Lab(command) => Ok(lab::run(command)?),
        Command::Key(args) => commands::key::run(args),
    }
}
