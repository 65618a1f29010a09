//! `mainstay sync import`: a conntrackd.conf, as a configuration of `mainstay sync`.
//!
//! The result goes to standard output. What could not be translated, and what is done in another way here, stands in it as
//! comments and is said on standard error, too, each with what to do about it.

mod filter;
mod parse;
mod translate;
mod write;

#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

pub use parse::SyntaxError;
pub use translate::Translation;

use crate::commands::error::{CommandError, ImportError};
use config::FILE_BYTES_MAX;

/// Translates the text of a conntrackd.conf; `None`: it has no `Sync` section.
///
/// # Errors
/// The text is not one.
pub fn translate(text: &str) -> Result<Option<Translation>, SyntaxError> {
    Ok(translate::translate(&parse::parse(text)?))
}

/// Translates a file, to standard output; what the operator has to know goes to standard error.
///
/// # Errors
/// [`ImportError`], or the result cannot be printed.
pub fn run(path: &Path) -> Result<(), CommandError> {
    let text = read(path)?;
    let translated = translate(&text).map_err(|error| ImportError::Syntax { path: path.to_owned(), error })?;
    let translation = translated.ok_or_else(|| ImportError::NoSync(path.to_owned()))?;
    for remark in &translation.remarks {
        eprintln!("{}:{}: {}: {}", path.display(), remark.line, remark.subject, remark.text);
    }
    Ok(console::print(&write::toml(&translation, &path.display().to_string()))?)
}

fn read(path: &Path) -> Result<String, ImportError> {
    let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ImportError::TooLarge(path.to_owned()));
    }
    // Comments may be in any encoding, and nothing else is beyond ASCII.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
