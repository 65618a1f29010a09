//! The program's face: the command line, and what each command prints.
//!
//! The processes are in `daemon`, the configuration in `config`, the control API in `api` and `control`; what shows and
//! measures is in `lab`, which packages leave out.

pub mod cli;
pub mod commands;
pub mod exit;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::ColorChoice;
use console::color::{self, When};

use cli::{Cli, Command, InspectCommand, OperateCommand, PlanCommand, RunCommand, ShellCommand};
#[cfg(feature = "studies")]
use cli::{ModelCommand, StudyCommand};
use commands::CommandError;
use exit::Exit;

/// Runs the program with the arguments of its process.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // There is no other place to report it.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    color::choose(match cli.color {
        ColorChoice::Auto => When::Auto,
        ColorChoice::Always => When::Always,
        ColorChoice::Never => When::Never,
    });
    match dispatch(&cli.command) {
        Ok(()) => Exit::Success.into(),
        Err(error) => {
            report(&error);
            Exit::from(&error).into()
        }
    }
}

/// Prints why a command failed. A terminal shows mistakes of a configuration with their lines; a log gets one line for each.
fn report(error: &CommandError) {
    match error.config_mistakes() {
        Some(found) if std::io::stderr().is_terminal() => {
            eprintln!("{}", commands::snippet::render(found, color::on_standard_error()));
        }
        _ => eprintln!("{}", color::failure(error)),
    }
}

fn dispatch(command: &Command) -> Result<(), CommandError> {
    match command {
        Command::Run(RunCommand::Gateway(args)) if args.check.check => commands::check::run(args),
        Command::Run(RunCommand::Gateway(args)) => Ok(daemon::gateway::run(&args.config)?),
        Command::Run(RunCommand::Edge(args)) => commands::edge::run(args),
        Command::Run(RunCommand::Sync(args)) => commands::sync::run(args),
        Command::Inspect(command) => inspect(command),
        Command::Operate(OperateCommand::Reload(args)) => commands::reload::run(args),
        Command::Operate(OperateCommand::Drain(args)) => commands::drain::drain(args),
        Command::Operate(OperateCommand::Undrain(args)) => commands::drain::undrain(args),
        Command::Operate(OperateCommand::Key(args)) => commands::key::run(args),
        Command::Plan(PlanCommand::Replay(args)) => commands::replay::run(args),
        #[cfg(feature = "studies")]
        Command::Plan(PlanCommand::Study(StudyCommand::Replication(args))) => commands::study::replication::run(args),
        #[cfg(feature = "studies")]
        Command::Plan(PlanCommand::Study(StudyCommand::Redundancy(args))) => commands::study::redundancy::run(args),
        #[cfg(feature = "studies")]
        Command::Plan(PlanCommand::Model(ModelCommand::Failover(args))) => commands::model::failover::run(args),
        #[cfg(feature = "lab")]
        Command::Try(cli::TryCommand::Demo(args)) => Ok(lab::demo::run(args).map_err(lab::LabError::from)?),
        #[cfg(feature = "lab")]
        Command::Try(cli::TryCommand::Lab(command)) => Ok(lab::run(command)?),
        Command::Shell(ShellCommand::Completions(args)) => commands::shell::completions(args),
        Command::Shell(ShellCommand::Man(args)) => commands::shell::man(args),
    }
}

fn inspect(command: &InspectCommand) -> Result<(), CommandError> {
    match command {
        InspectCommand::Status(args) => commands::status::run(args),
        InspectCommand::Flows(args) => commands::flows::run(args),
        InspectCommand::Top(args) => commands::top::run(args),
        InspectCommand::Trace(args) => commands::trace::run(args),
        InspectCommand::Capture(args) => commands::capture::run(args),
        InspectCommand::Rules(args) => commands::rules::run(args),
        InspectCommand::Events(args) => commands::events::run(args.socket.target(), args.json),
        InspectCommand::Url(args) => commands::url::run(args.socket.target(), &args.target, args.json),
    }
}
