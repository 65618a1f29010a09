//! `cargo run -p xtask -- bpf`: compiles the programs that run in the kernel. `bpf --check` compares the committed objects with what
//! the compiler makes.
//!
//! The objects are committed, so that nobody needs clang to build the workspace. One compiler makes the same object anywhere: paths
//! are mapped, debugging information is stripped, and the source includes no headers. Another major version makes another object, so
//! the version is recorded beside it, and `--check` compares only under that version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source, from the root.
const SOURCE: &str = "crates/fast-path/bpf/fast_path.c";
/// The object, from the root.
const OBJECT: &str = "crates/fast-path/object/fast_path.o";
/// The compiler's major version, from the root.
const VERSION: &str = "crates/fast-path/object/clang-version";
/// The remedy where a tool is missing.
const REMEDY: &str = "install Debian's packages clang and llvm";

/// Carries out `bpf` with these arguments.
///
/// # Errors
/// The compiler is missing or fails, or the committed object is another one than the compiler makes.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => {
            let version = clang_version().ok_or_else(|| format!("bpf: clang cannot be run: {REMEDY}"))?;
            build(root, &root.join(OBJECT))?;
            write(&root.join(VERSION), format!("{version}\n").as_bytes())?;
            println!("bpf: {OBJECT} was made by clang {version}");
            Ok(())
        }
        [option] if option == "--check" => check(root),
        _ => Err("usage: cargo run -p xtask -- bpf [--check]".into()),
    }
}

fn check(root: &Path) -> Result<(), String> {
    let recorded = String::from_utf8_lossy(&read(&root.join(VERSION))?).trim().to_owned();
    match clang_version() {
        None => println!("bpf: not compared, as clang is not installed here"),
        Some(version) if version != recorded => {
            println!("bpf: not compared, as {OBJECT} was made by clang {recorded}, and this is clang {version}");
        }
        Some(version) => {
            let folder = std::env::temp_dir().join(format!("mainstay-bpf-{}", std::process::id()));
            fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let made = build(root, &folder.join("fast_path.o")).and_then(|()| read(&folder.join("fast_path.o")));
            let _ = fs::remove_dir_all(&folder);
            if made? != read(&root.join(OBJECT))? {
                return Err(format!(
                    "bpf: {OBJECT} is not what clang {version} makes of {SOURCE}: run cargo run -p xtask -- bpf, and commit it"
                ));
            }
            println!("bpf: {OBJECT} is what clang {version} makes");
        }
    }
    Ok(())
}

/// Compiles the source into `object`, which keeps the type information of maps and functions.
fn build(root: &Path, object: &Path) -> Result<(), String> {
    let mut compiler = Command::new("clang");
    compiler.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg(format!("-ffile-prefix-map={}=.", root.display()));
    compiler.args(["-c", SOURCE, "-o"]).arg(object).current_dir(root);
    run_tool("clang", &mut compiler)?;
    run_tool("llvm-strip", Command::new("llvm-strip").arg("-g").arg(object))
}

fn run_tool(name: &str, command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("bpf: {name} failed on {SOURCE}: {status}")),
        Err(error) => Err(format!("bpf: {name} cannot be run ({error}): {REMEDY}")),
    }
}

/// The major version of the compiler; `None` if there is none.
fn clang_version() -> Option<String> {
    let output = Command::new("clang").arg("--version").output().ok().filter(|output| output.status.success())?;
    major_version(&String::from_utf8_lossy(&output.stdout))
}

/// The major version in what `clang --version` prints.
fn major_version(printed: &str) -> Option<String> {
    let (_, behind) = printed.split_once("version ")?;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &PathBuf, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_distributions_print() {
        let debian = "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n";
        assert_eq!(major_version(debian).as_deref(), Some("14"));
        let fedora = "clang version 19.1.0 (Fedora 19.1.0-1.fc41)\n";
        assert_eq!(major_version(fedora).as_deref(), Some("19"));
        assert_eq!(major_version("something else"), None);
    }
}
