//! The configuration file: from text ([`raw`]) to what the daemon runs with ([`validated`]).
//!
//! All mistakes of a file are reported at once, each with its place and its remedy. `docs/reference/configuration.md` lists
//! every key.

pub mod backups;
pub mod compact;
pub mod compression;
pub mod diagnostic;
pub mod edge;
pub mod key_file;
pub mod lazy;
pub mod raw;
mod reader;
pub mod reference;
pub mod remote;
pub mod secret_file;
pub mod security;
mod shape;
pub mod sync;
pub mod timeouts;
pub mod validate;
pub mod validated;
pub mod value;

use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

pub use diagnostic::{ConfigError, Diagnostic, FILE_BYTES_MAX, Severity};
pub use validate::CONTROL_SOCKET_DEFAULT;
pub use validated::Config;

use diagnostic::{Diagnostics, Source};

/// A configuration that can be run, and what looks doubtful in it.
#[derive(Debug)]
pub struct Checked {
    /// The configuration.
    pub config: Config,
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

/// The text of a configuration file.
fn read_file(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), bytes_max: FILE_BYTES_MAX });
    }
    Ok(text)
}

/// Checks the text of a configuration; `file` is what messages call it.
///
/// # Errors
/// [`ConfigError::Invalid`].
pub fn parse(file: &str, text: &str) -> Result<Checked, ConfigError> {
    let (config, warnings) = parse_as(file, text, validate::validate)?;
    Ok(Checked { config, warnings })
}

/// Reads the text as one kind of file and checks it; returns warnings, too.
fn parse_as<R: DeserializeOwned, C>(
    file: &str,
    text: &str,
    validate: impl FnOnce(&R, &mut Diagnostics<'_>) -> C,
) -> Result<(C, Vec<Diagnostic>), ConfigError> {
    let mut diagnostics = Diagnostics::new(Source { file, text });
    let config = shape::read(text, &mut diagnostics).map(|shape::Read { raw, is_whole }| {
        let config = validate(&raw, &mut diagnostics);
        if !is_whole {
            // What looks doubtful may do so for want of what is missing.
            diagnostics.forget_warnings();
        }
        config
    });
    match (config, diagnostics.finish()) {
        (Some(config), (warnings, false)) => Ok((config, warnings)),
        (_, (found, _)) => Err(ConfigError::Invalid(found)),
    }
}

#[cfg(test)]
mod tests;
