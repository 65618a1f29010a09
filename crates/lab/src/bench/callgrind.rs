//! Instructions of operations, counted by callgrind.
//!
//! Processors' own counters are often withheld from virtual machines. Callgrind counts exactly, and alike on every machine. It runs this
//! program again as `mainstay lab bench operations --counted`, which calls [`counted_run`] once for each operation. Callgrind counts
//! within that function alone, and writes a file each time that it returns. Instructions in the kernel do not count.
//!
//! Valgrind knows no AVX-512: a program that asks the processor finds AVX2.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::BenchError;

/// The demangled name of [`counted_run`].
const COUNTED_FUNCTION: &str = "lab::bench::callgrind::counted_run";
/// Runs that were counted. It makes the function unlike every other one, so that the linker does not fold them into one.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// The function within which instructions are counted.
#[inline(never)]
pub(super) fn counted_run(run: &mut dyn FnMut() -> Result<(), BenchError>) -> Result<(), BenchError> {
    RUNS.fetch_add(1, Ordering::Relaxed);
    run()
}

/// One run that was counted, as the counted process prints it: a line each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CountedRun {
    pub(super) operation: String,
    /// How often the run carried it out.
    pub(super) times: u64,
}

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
pub enum CallgrindError {
    /// It is not installed.
    #[error("valgrind does not run, which counts instructions: install the package valgrind ({0})")]
    NoValgrind(std::io::Error),
    /// The process that was to be counted failed.
    #[error("valgrind failed, or what it counted did: {0}")]
    Failed(String),
    /// Its files do not fit the operations.
    #[error(
        "valgrind counted {there} runs of {expected}; this is a defect, or a version of valgrind that works otherwise"
    )]
    OtherRuns {
        /// Files that it wrote.
        there: usize,
        /// Operations that were carried out.
        expected: usize,
    },
}

/// Instructions of one operation; `None` where they cannot be counted.
pub(super) fn count_one(operation: &str) -> Option<f64> {
    count(&[operation.to_owned()]).ok()?.pop().map(|(_, instructions)| instructions)
}

/// Instructions each time that an operation is carried out, in user space, of those named; none named: of all.
pub(super) fn count(operations: &[String]) -> Result<Vec<(String, f64)>, CallgrindError> {
    let folder = Folder::new().map_err(|error| CallgrindError::Failed(error.to_string()))?;
    let file = folder.0.join("count");
    let program = std::env::current_exe().map_err(|error| CallgrindError::Failed(error.to_string()))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(format!("--toggle-collect={COUNTED_FUNCTION}"))
        .arg(format!("--dump-after={COUNTED_FUNCTION}"))
        .arg(program)
        .args(["lab", "bench", "operations", "--counted"])
        .args(operations.iter().flat_map(|name| ["--only", name]))
        .stdin(Stdio::null())
        .output()
        .map_err(CallgrindError::NoValgrind)?;
    if !output.status.success() {
        return Err(CallgrindError::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let runs: Vec<CountedRun> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let totals: Vec<u64> = (1..).map_while(|number| total(&file, number)).collect();
    if totals.len() != runs.len() {
        return Err(CallgrindError::OtherRuns { there: totals.len(), expected: runs.len() });
    }
    let each = |(run, total): (CountedRun, u64)| (run.operation, total as f64 / run.times.max(1) as f64);
    Ok(runs.into_iter().zip(totals).map(each).collect())
}

/// What callgrind counted in the run with this number, from 1 on: it appends the number to the file's name.
fn total(file: &Path, number: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("{}.{number}", file.display())).ok()?;
    totals_line(&text)
}

/// The total in a file of callgrind's: `totals: 1234`.
fn totals_line(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()
}

/// A folder for callgrind's files, which is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("mainstay-operations-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_what_callgrind_writes() {
        let text = "# callgrind format\npart: 3\ndesc: Trigger: --dump-after=x\nevents: Ir\nsummary: 395\n\nfn=(1)\n0 7\ntotals: 395\n";
        assert_eq!(totals_line(text), Some(395));
        assert_eq!(totals_line("events: Ir\n"), None);
    }

    #[test]
    fn the_counted_function_has_the_name_that_callgrind_looks_for() {
        let name = std::any::type_name_of_val(&counted_run);
        assert_eq!(name, COUNTED_FUNCTION);
    }
}
