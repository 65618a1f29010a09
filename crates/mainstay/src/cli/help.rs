//! The help of the whole program: its commands by group, made of the enumerations that they are in.

use std::fmt::Write;

use clap::builder::{StyledStr, Styles};
use clap::{CommandFactory, Subcommand};

use super::{Cli, InspectCommand, OperateCommand, PlanCommand, RunCommand, ShellCommand};
use crate::exit::Exit;

/// A group of commands: its heading, and itself.
type Group = (&'static str, clap::Command);

/// The groups in the order of the help.
fn groups() -> Vec<Group> {
    fn group<C: Subcommand>(heading: &'static str) -> Group {
        (heading, C::augment_subcommands(clap::Command::new("group")))
    }
    vec![
        group::<RunCommand>("Run"),
        group::<InspectCommand>("Inspect"),
        group::<OperateCommand>("Operate"),
        group::<PlanCommand>("Plan"),
        #[cfg(feature = "lab")]
        group::<super::TryCommand>("Try and measure"),
        group::<ShellCommand>("Shell and manual"),
    ]
}

impl Cli {
    /// The command line, its help by group.
    #[must_use]
    pub fn grouped_command() -> clap::Command {
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{{options}}{{after-help}}",
            commands_by_group(&groups())
        );
        let more = "`mainstay COMMAND --help` shows the options of a command.";
        let command = Self::command().help_template(StyledStr::from(template));
        command.after_help(format!("{more}\n\n{}", Exit::describe_all()))
    }
}

/// All groups, each with its heading, and the heading of the options, which stand behind them.
fn commands_by_group(groups: &[Group]) -> String {
    let styles = Styles::default();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let names = groups.iter().flat_map(|(_, group)| group.get_subcommands()).map(|command| command.get_name().len());
    let width = names.max().unwrap_or_default();
    let mut text = String::new();
    for (heading, group) in groups {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for command in group.get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{:<width$}{literal:#}  {about}", command.get_name());
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{header}Options:{header:#}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group_of_the_help() {
        let in_groups: Vec<String> = groups()
            .iter()
            .flat_map(|(_, group)| {
                group.get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>()
            })
            .collect();
        let command = Cli::command();
        let all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(in_groups, all);
        let help = Cli::grouped_command().render_help().to_string();
        for name in all {
            assert_eq!(
                help.lines().filter(|line| line.starts_with(&format!("  {name} "))).count(),
                1,
                "{name}: {help}"
            );
        }
    }

    #[test]
    fn the_help_ends_with_the_exit_codes() {
        let help = Cli::grouped_command().render_help().to_string();
        assert!(help.trim_end().ends_with(Exit::describe_all().trim_end()), "{help}");
    }
}
