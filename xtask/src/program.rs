//! The program as it is shipped: how it is built, and what its benchmarks print.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Builds the release of the workspace in `folder`, and returns the program's path. Both revisions of a comparison use one folder for
/// what is built, so that libraries are built once.
///
/// # Errors
/// The build fails.
pub(crate) fn build_release(root: &Path, folder: &Path) -> Result<PathBuf, String> {
    let target = target_folder(root);
    let status = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
        .args(["build", "--release", "--locked", "--quiet", "--package", "mainstay"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(folder)
        .status()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if status.success() {
        Ok(target.join("release/mainstay"))
    } else {
        Err(format!("the release build of {} failed", folder.display()))
    }
}

/// Where cargo leaves what it builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// The JSON object that a benchmark of the program prints.
///
/// # Errors
/// The program cannot be run, fails, or prints something else.
pub(crate) fn bench(program: &Path, arguments: &[&str]) -> Result<Value, String> {
    bench_with(Command::new(program), arguments)
}

/// As [`bench()`], but the program finds no other programs: an older revision's benchmark counts instructions each time that it finds
/// valgrind.
///
/// # Errors
/// As for [`bench()`].
pub(crate) fn bench_alone(program: &Path, arguments: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(program);
    command.env("PATH", "");
    bench_with(command, arguments)
}

fn bench_with(mut command: Command, arguments: &[&str]) -> Result<Value, String> {
    command.args(["lab", "bench"]).args(arguments).arg("--json").stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{:?} cannot be run: {error}", command.get_program()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("bench {} failed: {}", arguments.join(" "), said.trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("bench {}: {error}", arguments.join(" ")))
}

/// Whether the program has a benchmark of this name.
pub(crate) fn has_bench(program: &Path, name: &str) -> bool {
    let status = Command::new(program)
        .args(["lab", "bench", name, "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// The compiler's version, as it names itself.
///
/// # Errors
/// It cannot be run.
pub(crate) fn compiler() -> Result<String, String> {
    let output = Command::new("rustc").arg("--version").output();
    let output = output.map_err(|error| format!("rustc cannot be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
