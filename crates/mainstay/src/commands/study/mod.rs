//! `mainstay study`: what captures show.

pub mod redundancy;
pub mod replication;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use analysis::replication_study::ConfigError;
use analysis::report::{Dataset, ParquetError, Report, date};
use analysis::trace::{Progress as Reading, TraceError};

use crate::output::scaled;

/// Why a study has no result.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The captures cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no such study.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The study of redundancy came to no end.
    #[error(transparent)]
    Redundancy(#[from] analysis::redundancy_study::StudyError),
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A table cannot be written.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

/// Writes `name.html`, `name.json` and a Parquet file for each table into a folder, which is made if it is not there.
///
/// # Errors
/// One of them cannot be written.
pub(crate) fn write_out(
    folder: &Path,
    name: &str,
    report: &Report,
    json: &impl serde::Serialize,
    tables: &[Dataset],
) -> Result<(), StudyError> {
    let write =
        |path: PathBuf, text: String| std::fs::write(&path, text).map_err(|error| StudyError::File { path, error });
    std::fs::create_dir_all(folder).map_err(|error| StudyError::File { path: folder.to_owned(), error })?;
    write(folder.join(format!("{name}.html")), report.html())?;
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(json);
    let text = text.map_err(|error| StudyError::File { path: path.clone(), error: error.into() })?;
    write(path, text + "\n")?;
    for table in tables {
        table.write_parquet(&folder.join(format!("{}.parquet", table.name)))?;
    }
    Ok(())
}

/// How far the reading is, for people.
pub(crate) fn how_far(reading: Reading, packets: u64) -> String {
    let read = scaled(reading.read_bytes as f64, "B");
    let packets = crate::output::count(packets);
    match reading.total_bytes {
        Some(total) if total > 0 => {
            let percent = reading.read_bytes as f64 / total as f64 * 100.0;
            format!("{percent:.0} % of {} read, {packets} packets", scaled(total as f64, "B"))
        }
        _ => format!("{read} read, {packets} packets"),
    }
}

/// The last line of a page: who made it, and when.
pub(crate) fn footer() -> String {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("Mainstay {}, {}", env!("CARGO_PKG_VERSION"), date(unix_s))
}
