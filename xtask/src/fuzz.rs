//! `cargo run -p xtask -- fuzz`: builds the fuzz targets with the stable toolchain and runs each from its corpus.
//!
//! What cargo-fuzz asks of a nightly toolchain is but the flags: the compiler's own coverage instrumentation can be had
//! without. Memory errors are not looked for (the code is safe but for `packet-io`); panics, overflows and failed
//! assertions are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The instrumentation that libFuzzer follows: counters on edges, the table of their places, and comparisons.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// How long each target runs in seconds, by default.
const SECONDS_DEFAULT: u32 = 10;
/// Inputs longer than this are not tried, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;
/// A target that needs more has a defect, in megabytes.
const MEMORY_MB_MAX: u32 = 1024;
/// So long may one input take, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// What to fuzz, and how long.
struct Order {
    seconds: u32,
    /// Only this target.
    target: Option<String>,
    /// Run only this input once, instead of fuzzing.
    input: Option<PathBuf>,
    /// Put the smallest inputs that reach what is reached into the corpus.
    keeps: bool,
}

/// Carries out `fuzz` with these arguments.
///
/// # Errors
/// What went wrong and what to do about it: the targets cannot be built, or one of them failed.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let order = order(arguments)?;
    let built = build(root)?;
    let targets: Vec<String> = targets(root)?
        .into_iter()
        .filter(|target| order.target.as_ref().is_none_or(|wanted| wanted == target))
        .collect();
    if targets.is_empty() {
        return Err("there is no such target: see fuzz/fuzz_targets".into());
    }
    let mut failed = Vec::new();
    for target in &targets {
        let is_well = match &order.input {
            Some(input) => replay(&built.join(target), input)?,
            None => fuzz(root, &built, target, &order)?,
        };
        if !is_well {
            failed.push(target.as_str());
        }
    }
    if failed.is_empty() {
        println!("{} passed, 0 failed", targets.len());
        return Ok(());
    }
    Err(format!("failed: {}; docs/testing.md describes how to reproduce it", failed.join(", ")))
}

fn order(arguments: &[String]) -> Result<Order, String> {
    const USAGE: &str = "usage: cargo run -p xtask -- fuzz [--seconds N] [--target NAME [--input FILE]] [--keep]";
    let mut order = Order { seconds: SECONDS_DEFAULT, target: None, input: None, keeps: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n{USAGE}"));
        match argument.as_str() {
            "--seconds" => {
                order.seconds = value()?.parse().map_err(|_| format!("--seconds needs a number\n{USAGE}"))?;
            }
            "--target" => order.target = Some(value()?.clone()),
            "--input" => order.input = Some(value()?.into()),
            "--keep" => order.keeps = true,
            other => return Err(format!("{other} is not known\n{USAGE}")),
        }
    }
    if order.input.is_some() && order.target.is_none() {
        return Err(format!("--input needs a --target\n{USAGE}"));
    }
    Ok(order)
}

/// The targets, by the names of their files.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds all targets. Returns where they are.
fn build(root: &Path) -> Result<PathBuf, String> {
    // A target of its own, so that the instrumentation is not asked of build scripts and procedural macros.
    let triple = host_triple()?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("fuzz");
    let status = Command::new(cargo())
        .args(["build", "--release", "--locked", "--quiet", "--bins", "--target", &triple, "--manifest-path"])
        .arg(root.join("fuzz/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", INSTRUMENTATION)
        .status()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets cannot be built (libFuzzer needs a C++ compiler: Debian's package g++)".into());
    }
    Ok(folder.join(triple).join("release"))
}

pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

fn host_triple() -> Result<String, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().map_err(|error| format!("rustc cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or("rustc does not name the host that it compiles for".into())
}

/// Runs a target from its corpus. What it finds on the way stays in the build folder, unless it is to be kept.
fn fuzz(root: &Path, built: &Path, target: &str, order: &Order) -> Result<bool, String> {
    let program = built.join(target);
    let corpus = root.join("fuzz/corpus").join(target);
    let found = built.join("corpus").join(target);
    let artifacts = root.join("fuzz/artifacts").join(target);
    for folder in [&corpus, &found, &artifacts] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let output = Command::new(&program)
        .args(limits())
        .arg(format!("-max_total_time={}", order.seconds))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args([&found, &corpus])
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        print_failure(target, &output);
        return Ok(false);
    }
    let last = said.lines().rev().find(|line| line.contains(" cov: ")).unwrap_or_default();
    let figures = last.split_once("cov: ").map_or("", |(_, rest)| rest);
    println!("{target:<20} {} s, edges and features reached: {figures}", order.seconds);
    if order.keeps {
        keep(&program, &corpus, &found)?;
    }
    Ok(true)
}

fn limits() -> [String; 7] {
    [
        format!("-max_len={INPUT_BYTES_MAX}"),
        format!("-rss_limit_mb={MEMORY_MB_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        "-detect_leaks=0".into(),
        "-use_value_profile=1".into(),
        // Long inputs are tried early: most targets take a row of events.
        "-len_control=10".into(),
        "-print_final_stats=0".into(),
    ]
}

/// Adds to the corpus those of the inputs found that reach what it does not.
fn keep(program: &Path, corpus: &Path, found: &Path) -> Result<(), String> {
    let output = Command::new(program)
        .args(["-set_cover_merge=1", "-max_len=512", "-rss_limit_mb=1024"])
        .args([corpus, found])
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Runs a target on one input.
fn replay(program: &Path, input: &Path) -> Result<bool, String> {
    let output = Command::new(program)
        .args(limits())
        .arg(input)
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if output.status.success() {
        println!("{name}: nothing wrong with {}", input.display());
    } else {
        print_failure(name, &output);
    }
    Ok(output.status.success())
}

fn print_failure(target: &str, output: &Output) {
    eprintln!("{target}: failed");
    // All but the fuzzer's progress.
    for line in String::from_utf8_lossy(&output.stderr).lines().filter(|line| !line.starts_with('#')) {
        eprintln!("{line}");
    }
}
