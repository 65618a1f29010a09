//! `mainstay completions` and `mainstay man`: made of the command line's definition.

use std::fs;
use std::io;
use std::path::Path;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::CommandError;
use super::error::PagesNotWritten;
use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Exit;

/// Prints the completions of a shell.
///
/// # Errors
/// The output cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<(), CommandError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::grouped_command(), "mainstay", &mut text);
    Ok(console::print(&String::from_utf8_lossy(&text))?)
}

/// Prints a manual page, or writes all of them to a folder.
///
/// # Errors
/// There is no such command, or the output cannot be written.
pub fn man(args: &ManArgs) -> Result<(), CommandError> {
    let mut command = Cli::grouped_command();
    // Gives each command its full name.
    command.build();
    if let Some(folder) = &args.output {
        return Ok(write_pages(&command, folder)?);
    }
    for name in &args.command {
        let found = command.find_subcommand(name).filter(|found| !found.is_hide_set()).cloned();
        command = found.ok_or_else(|| CommandError::UnknownCommand(args.command.join(" ")))?;
    }
    Ok(console::print(&String::from_utf8_lossy(&page(command)?))?)
}

/// Writes the manual pages of a command and of those below it, each under its full name: `mainstay-sync-ready.1`.
fn write_pages(command: &clap::Command, folder: &Path) -> Result<(), PagesNotWritten> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    let written = page(command.clone()).and_then(|text| fs::write(&path, text));
    written.map_err(|source| PagesNotWritten { path, source })?;
    let mut below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    below.try_for_each(|below| write_pages(below, folder))
}

/// A manual page, with the exit codes at its end, whichever command it is of.
fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let is_of_program = command.get_name() == "mainstay";
    // That of the program is the exit codes, which stand in a section of their own here.
    let has_extra = command.get_after_help().is_some() && !is_of_program;
    let has_commands = command.has_subcommands();
    let man = Man::new(command).source(format!("mainstay {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    if has_extra {
        man.render_extra_section(&mut text)?;
    }
    let mut codes = Roff::new();
    codes.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        codes.control("TP", []).text([roman(exit.code().to_string())]).text([roman(exit.describe())]);
    }
    codes.to_writer(&mut text)?;
    Ok(text)
}
