//! `mainstay study`: what captures show.

pub mod redundancy;
pub mod replication;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use analysis::replication_study::ConfigError;
use analysis::report::{Dataset, ParquetError, Report, date};
use analysis::trace::{Skip, TraceError};

use console::count;

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
    /// There was nothing to study.
    #[error("{0}")]
    AllSkipped(String),
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

/// Fails where frames were skipped and none was studied, with the options that would take some in.
///
/// # Errors
/// [`StudyError::AllSkipped`].
pub(crate) fn refuse_nothing<R: Borrow<str> + Ord + Display>(
    packets: u64,
    skipped: &BTreeMap<R, u64>,
) -> Result<(), StudyError> {
    let all: u64 = skipped.values().sum();
    if packets > 0 || all == 0 {
        return Ok(());
    }
    let has = |skips: &[Skip]| skips.iter().any(|skip| skipped.get(skip.label()).is_some_and(|frames| *frames > 0));
    let reasons = skipped.iter().filter(|(_, frames)| **frames > 0);
    let reasons: Vec<_> = reasons.map(|(reason, frames)| format!("{} {reason}", count(*frames))).collect();
    let mut remedies = Vec::new();
    if has(&[Skip::IpChecksum, Skip::TransportChecksum]) {
        remedies.push("those with wrong checksums are studied with --checksums believe");
    }
    if has(&[Skip::Address]) {
        remedies.push("those between loopback addresses with --loopback");
    }
    if remedies.is_empty() {
        remedies.push("capture on a link that carries IP in Ethernet");
    }
    let sentence = format!("all {} frames were skipped ({}): {}", count(all), reasons.join(", "), remedies.join(", "));
    Err(StudyError::AllSkipped(sentence))
}

/// The last line of a page: who made it, and when.
pub(crate) fn footer() -> String {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("Mainstay {}, {}", env!("CARGO_PKG_VERSION"), date(unix_s))
}
