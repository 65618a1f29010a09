//! `mainstay reload`: the configuration file read again.

use std::fmt::Write;

use super::error::{CommandError, NotReloaded};
use crate::cli::ReloadArgs;
use api::ReloadReport;
use control::client::Client;

/// Has the gateway read its file and prints the outcome.
///
/// # Errors
/// The gateway does not answer, the file was not put in force, or the output cannot be written.
pub fn run(args: &ReloadArgs) -> Result<(), CommandError> {
    let report = Client::open(args.socket.target())?.reload(args.check)?;
    console::print_as(args.json, &report, || describe(&report))?;
    if !report.mistakes.is_empty() {
        return Err(NotReloaded::Mistakes.into());
    }
    if report.needs_restart.is_empty() { Ok(()) } else { Err(NotReloaded::NeedsRestart.into()) }
}

/// The report as people read it.
#[must_use]
pub fn describe(report: &ReloadReport) -> String {
    let mut text = String::new();
    for line in report.mistakes.iter().chain(&report.warnings) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    for (head, phrases) in [("needs a restart:", &report.needs_restart), ("changes:", &report.changes)] {
        if !phrases.is_empty() {
            let _ = writeln!(text, "{head}");
            phrases.iter().for_each(|phrase| text.push_str(&format!("  {phrase}\n")));
        }
    }
    let nothing = if report.changes.is_empty() { ", which changes nothing" } else { "" };
    let verdict = match report {
        _ if !report.is_possible() => return text,
        ReloadReport { check_only: true, .. } => "could be reloaded",
        _ => "reloaded",
    };
    let _ = writeln!(text, "{verdict}{nothing}: configuration {}", report.configuration);
    if report.reevaluates {
        text.push_str("connections are being held against the rules; those that they do not allow end\n");
    }
    text
}
