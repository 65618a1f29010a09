//! Writes the reference pages under `docs/reference` from the code, or checks them: `cargo run -p xtask -- docs [--check]`.
//!
//! An example of the crate `mainstay` prints what the running code knows, as JSON: metrics, commands with their help, exit codes,
//! ranges and defaults of keys. Names, types and meanings of keys and of API fields come from doc comments in the source.

mod api;
mod configuration;
mod schema;
mod source;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::{fuzz, program};

/// The folder of the pages.
const FOLDER: &str = "docs/reference";
/// The paragraph below the title of each page.
const NOTICE: &str = "This page is generated from the code by `cargo run -p xtask -- docs`. Changes belong in the comments and help texts there.";

/// What the example prints.
#[derive(Deserialize)]
struct Reference {
    gateway: Vec<Setting>,
    sync: Vec<Setting>,
    edge: Vec<Setting>,
    metrics: Vec<Metric>,
    commands: Vec<Subcommand>,
    exits: Vec<Exit>,
}

/// Range and default of a key.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct Setting {
    key: String,
    default: Option<String>,
    range: String,
    is_refused: bool,
}

#[derive(Deserialize)]
struct Metric {
    name: String,
    kind: String,
    labels: Vec<String>,
    help: String,
}

#[derive(Deserialize)]
struct Subcommand {
    name: String,
    about: Option<String>,
    help: String,
}

#[derive(Deserialize)]
struct Exit {
    code: u8,
    meaning: String,
}

/// Runs the command with the arguments behind `docs`.
///
/// # Errors
/// The crates do not build, a page cannot be written, or a page differs from the code.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let is_check = match arguments {
        [] => false,
        [option] if option == "--check" => true,
        _ => return Err("usage: cargo run -p xtask -- docs [--check]".to_owned()),
    };
    let reference = ask(root)?;
    let pages = [
        ("configuration.md", configuration::gateway(root, &reference.gateway)?),
        ("sync-configuration.md", configuration::sync(root, &reference.sync)?),
        ("edge-configuration.md", configuration::edge(root, &reference.edge)?),
        ("metrics.md", metrics(&reference.metrics)),
        ("commands.md", commands(&reference.commands, &reference.exits)),
        ("api.md", api::page(root)?),
    ];
    let mut outdated = Vec::new();
    for (name, page) in &pages {
        let path = format!("{FOLDER}/{name}");
        let written = fs::read_to_string(root.join(&path)).unwrap_or_default();
        if written == *page {
            continue;
        }
        if is_check {
            outdated.push(format!("{path}: {}", first_difference(&written, page)));
        } else {
            fs::create_dir_all(root.join(FOLDER)).map_err(|error| format!("{FOLDER}: {error}"))?;
            fs::write(root.join(&path), page).map_err(|error| format!("{path}: {error}"))?;
            println!("docs: {path} written");
        }
    }
    if outdated.is_empty() {
        println!("docs: {} pages agree with the code", pages.len());
        return Ok(());
    }
    Err(format!("docs: pages differ from the code: run `cargo run -p xtask -- docs`\n{}", outdated.join("\n")))
}

/// Builds and runs the example that prints the reference. Of the whole workspace, crates are built with the features that tests use,
/// and so once for both.
fn ask(root: &Path) -> Result<Reference, String> {
    let mut build = Command::new(fuzz::cargo());
    build.current_dir(root).args(["build", "--locked", "--quiet", "--workspace", "--example", "reference"]);
    printed(&mut build)?;
    let reference = printed(&mut Command::new(program::target_folder(root).join("debug/examples/reference")))?;
    serde_json::from_slice(&reference).map_err(|error| format!("docs: what the example prints: {error}"))
}

/// What a command prints, once it has succeeded.
fn printed(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| format!("docs: {command:?} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("docs: {command:?} failed\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// The first line of a page that is not as the code has it.
fn first_difference(written: &str, page: &str) -> String {
    let (mut written, mut expected) = (written.lines(), page.lines());
    for line in 1.. {
        match (written.next(), expected.next()) {
            (None, None) => break,
            (there, here) if there == here => {}
            (_, here) => return format!("line {line} is, of the code: {}", here.unwrap_or("no line")),
        }
    }
    "the last line has no end".to_owned()
}

/// The page of all metrics.
fn metrics(metrics: &[Metric]) -> String {
    let mut page = format!(
        "# Metrics\n\n{NOTICE}\n\n[Operations](../operations.md#what-to-watch) lists which to watch. \
         [Control API](../control-api.md#metrics) describes how they are served.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n"
    );
    for Metric { name, kind, labels, help } in metrics {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {} |", labels.join(", "), cell(help));
    }
    page
}

/// The page of all commands and exit codes.
fn commands(commands: &[Subcommand], exits: &[Exit]) -> String {
    let mut page = format!(
        "# Command line\n\n{NOTICE}\n\n[Commands](../commands.md) lists them by purpose.\n\n\
         | command | does |\n|---|---|\n"
    );
    for Subcommand { name, about, .. } in commands {
        let about = about.as_deref().unwrap_or_default();
        let _ = writeln!(page, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), cell(about));
    }
    page.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for Exit { code, meaning } in exits {
        let _ = writeln!(page, "| {code} | {} |", cell(meaning));
    }
    for Subcommand { name, help, .. } in commands {
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n"));
    }
    page
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_a_row() {
        let metric = Metric {
            name: "a_total".to_owned(),
            kind: "counter".to_owned(),
            labels: vec!["b".to_owned(), "c".to_owned()],
            help: "This | that.".to_owned(),
        };
        let page = metrics(&[metric]);
        assert!(page.ends_with("|---|---|---|---|\n| `a_total` | counter | `b`, `c` | This \\| that. |\n"), "{page}");
    }

    #[test]
    fn a_command_is_a_row_and_a_section() {
        let about = Some("Does it".to_owned());
        let command = Subcommand { name: "x do".to_owned(), about, help: "Does it \n\nUsage\n".to_owned() };
        let page = commands(&[command], &[Exit { code: 3, meaning: "three".to_owned() }]);
        assert!(page.contains("| [`x do`](#x-do) | Does it |\n") && page.contains("| 3 | three |\n"), "{page}");
        assert!(page.ends_with("\n## x do\n\n```text\nDoes it\n\nUsage\n```\n"), "{page}");
    }

    #[test]
    fn the_first_difference_is_named_by_its_line() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2 is, of the code: c");
        assert_eq!(first_difference("a\nb\n", "a\n"), "line 2 is, of the code: no line");
        assert_eq!(first_difference("a", "a\n"), "the last line has no end");
    }
}
