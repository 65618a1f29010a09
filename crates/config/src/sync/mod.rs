//! The configuration of `mainstay sync`: a file of its own, of which `[node]`, `[replication]` and `[control]` are written as
//! a gateway's. `docs/reference/sync-configuration.md` lists every key.

#[cfg(test)]
mod tests;

pub use super::raw::sync as raw;
pub use super::validate::sync::CONTROL_SOCKET_DEFAULT;
pub use super::validated::sync as validated;
pub use validated::SyncConfig;

use std::path::Path;

use super::diagnostic::Diagnostic;
use super::{ConfigError, parse_as, read_file, validate};

/// A configuration that can be run, and what looks doubtful in it.
#[derive(Debug)]
pub struct Checked {
    /// The configuration.
    pub config: SyncConfig,
    /// Warnings, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks a file.
///
/// # Errors
/// [`ConfigError`], whose text is meant for the operator.
pub fn load(path: &Path) -> Result<Checked, ConfigError> {
    parse(&path.display().to_string(), &read_file(path)?)
}

/// Checks the text of a configuration; `file` is what messages call it.
///
/// # Errors
/// [`ConfigError::Invalid`].
pub fn parse(file: &str, text: &str) -> Result<Checked, ConfigError> {
    let (config, warnings) = parse_as(file, text, validate::sync::validate)?;
    Ok(Checked { config, warnings })
}
