//! Checks of the house that no compiler makes: `cargo run -p xtask -- layers`, `… words` (see [`words`]), `… docs` (see
//! [`docs`]), `… fuzz` (see [`fuzz`]), `… bpf` (see [`bpf`]), `… performance` (see [`performance`]), `… compare` (see [`compare`]) and
//! `… mutants` (see [`mutants`]).
//!
//! `layers` checks:
//!
//! * Each crate uses only crates below it.
//! * In a crate, neither modules at the top nor more than two files use each other, directly or through others (see [`modules`]).
//! * Pure crates are `no_std`, and deny `unsafe` but for named exceptions.
//! * Each source file begins with what it is (`//!`), but for the tests of the file beside them.

mod bpf;
mod compare;
mod docs;
mod fuzz;
mod modules;
mod mutants;
mod performance;
mod program;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use modules::Crate;

/// The crates from the ground up: each may use only those before it. The second field: whether the crate is pure.
const LAYERS: [(&str, bool); 24] = [
    ("filters", true),
    ("flow", true),
    ("packet-io", false),
    ("fast-path", false),
    ("network-functions", true),
    ("redundancy", true),
    ("replication", true),
    ("tunnel", true),
    ("state-service", true),
    ("membership", true),
    ("cluster", true),
    ("edge", true),
    ("conntrack-sync", true),
    ("placement", false),
    ("analysis", false),
    ("simulator", false),
    ("console", false),
    ("report-derive", false),
    ("api", false),
    ("config", false),
    ("control", false),
    ("daemon", false),
    ("lab", false),
    ("mainstay", false),
];

/// Files of pure crates that may hold `unsafe`, each for one named reason.
const UNSAFE_EXCEPTIONS: [&str; 7] = [
    "crates/filters/src/multi_level/wide.rs",
    "crates/filters/src/prefetch.rs",
    "crates/filters/src/scan.rs",
    "crates/redundancy/src/fingerprint/mod.rs",
    "crates/redundancy/src/fingerprint/vector.rs",
    "crates/redundancy/src/scan/mod.rs",
    "crates/redundancy/src/scan/x86.rs",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    match arguments.split_first() {
        Some((command, [])) if command == "layers" => layers(root),
        Some((command, rest)) if command == "words" => exit_code(words::run(root, rest)),
        Some((command, rest)) if command == "docs" => exit_code(docs::run(root, rest)),
        Some((command, rest)) if command == "fuzz" => exit_code(fuzz::run(root, rest)),
        Some((command, rest)) if command == "bpf" => exit_code(bpf::run(root, rest)),
        Some((command, rest)) if command == "performance" => exit_code(performance::run(root, rest)),
        Some((command, rest)) if command == "mutants" => exit_code(mutants::run(root, rest)),
        Some((command, rest)) if command == "compare" => exit_code(compare::run(root, rest)),
        _ => exit_code(Err(
            "usage: cargo run -p xtask -- layers | words [--update] [PATH …] | docs [--check] | fuzz | bpf [--check] | \
             performance [--write] | compare REVISION [OTHER] | mutants [NAME …]"
                .to_owned(),
        )),
    }
}

/// Prints the error of a command that failed.
fn exit_code(result: Result<(), String>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("{error}");
    ExitCode::FAILURE
}

fn layers(root: &Path) -> ExitCode {
    let faults = check_layers(root);
    for fault in &faults {
        eprintln!("{fault}");
    }
    println!("layers: {} crates checked, {} faults", LAYERS.len(), faults.len());
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The files of a crate of the workspace.
fn load(root: &Path, name: &str) -> Result<Crate, String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| error.to_string());
    Crate::load(&root.join("crates").join(name).join("src/lib.rs"), &read)
}

/// No modules at the top of a crate use each other, nor do more than two of its files.
fn check_modules(root: &Path, name: &str) -> Vec<String> {
    let loaded = match load(root, name) {
        Ok(loaded) => loaded,
        Err(error) => return vec![error],
    };
    let (modules, files) = (loaded.module_cycles(), loaded.file_cycles());
    modules.iter().chain(&files).map(|cycle| format!("crates/{name}: {cycle}")).collect()
}

fn check_layers(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, (name, is_pure)) in LAYERS.iter().enumerate() {
        let folder = root.join("crates").join(name);
        faults.extend(check_dependencies(&folder, index));
        faults.extend(check_modules(root, name));
        for file in source_files(&folder.join("src")) {
            faults.extend(check_file(root, &file, *is_pure));
        }
        if *is_pure {
            faults.extend(check_purity(&folder));
        }
    }
    faults
}

/// A crate's dependencies are crates before it; a pure crate's, pure ones.
fn check_dependencies(folder: &Path, index: usize) -> Vec<String> {
    let manifest = folder.join("Cargo.toml");
    let parsed = match fs::read_to_string(&manifest)
        .map_err(|error| error.to_string())
        .and_then(|text| text.parse::<toml::Table>().map_err(|error| error.to_string()))
    {
        Ok(parsed) => parsed,
        Err(error) => return vec![format!("{}: {error}", manifest.display())],
    };
    let used = parsed.get("dependencies").and_then(toml::Value::as_table).map(|table| table.keys().cloned());
    used.into_iter()
        .flatten()
        .filter_map(|name| LAYERS.iter().position(|(known, _)| *known == name).map(|position| (name, position)))
        .filter(|(_, position)| *position >= index || (LAYERS[index].1 && !LAYERS[*position].1))
        .map(|(name, _)| {
            format!("{}: uses `{name}`, which is not a crate below it that it may use", manifest.display())
        })
        .collect()
}

fn check_purity(folder: &Path) -> Vec<String> {
    let library = folder.join("src/lib.rs");
    let text = fs::read_to_string(&library).unwrap_or_default();
    ["#![no_std]", "#![deny(unsafe_code)]"]
        .into_iter()
        .filter(|attribute| !text.contains(attribute))
        .map(|attribute| format!("{}: a pure crate has {attribute}", library.display()))
        .collect()
}

fn check_file(root: &Path, file: &Path, is_pure: bool) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
    let mut faults = Vec::new();
    // Tests are of the module beside them, which describes itself.
    let is_tests = file.file_name().is_some_and(|name| name == "tests.rs");
    if !is_tests && !text.trim_start().starts_with("//!") {
        faults.push(format!("{name}: does not begin with what it is (`//!`)"));
    }
    if is_pure && text.contains("allow(unsafe_code)") && !UNSAFE_EXCEPTIONS.contains(&name.as_str()) {
        faults.push(format!("{name}: `unsafe` in a pure crate; exceptions are listed in xtask"));
    }
    faults
}

fn source_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(source_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
