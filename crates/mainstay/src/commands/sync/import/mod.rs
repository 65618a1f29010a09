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

use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use parse::SyntaxError;
pub use translate::Translation;

use crate::commands::CommandError;
use config::FILE_BYTES_MAX;

/// Why a conntrackd.conf cannot be translated.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The system does not give the file.
    #[error("cannot read {}: {source}: name the file that conntrackd is started with (conntrackd -C)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is larger than any configuration.
    #[error("{} is larger than {FILE_BYTES_MAX} bytes: is it a conntrackd.conf?", .0.display())]
    TooLarge(PathBuf),
    /// The file is not what conntrackd would read.
    #[error("{}:{error}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        error: SyntaxError,
    },
    /// It configures something else.
    #[error("{} has no Sync section: it does not replicate connections, and there is nothing to translate", .0.display())]
    NoSync(PathBuf),
}

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
