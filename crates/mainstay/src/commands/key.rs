//! `mainstay key`: makes a pre-shared key for the channel between nodes.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use packet_io::random;
use replication::secure::{PRE_SHARED_KEY_BYTES, PreSharedKey};
use zeroize::Zeroizing;

use super::CommandError;
use crate::cli::KeyArgs;
use crate::output;

/// Why no key was made.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}: choose a file that is not there yet, in a folder that you may write to", path.display())]
pub struct KeyNotWritten {
    path: PathBuf,
    source: io::Error,
}

/// Writes a key drawn from the system's generator to a file that nobody else may read, and says what it is called.
///
/// # Errors
/// The file is there already, or cannot be written.
pub fn run(args: &KeyArgs) -> Result<(), CommandError> {
    let key = draw();
    let text = key.to_text();
    if args.output.as_os_str() == "-" {
        return Ok(output::print(&text)?);
    }
    write(&args.output, &key)?;
    Ok(output::print(&format!("{}: pre-shared key {}\n", args.output.display(), key.id()))?)
}

/// A key from the system's generator.
pub(crate) fn draw() -> PreSharedKey {
    let mut bytes = Zeroizing::new([0; PRE_SHARED_KEY_BYTES]);
    random::fill(&mut *bytes);
    PreSharedKey::new(*bytes)
}

/// Writes a key to a file of its own that nobody else may read.
pub(crate) fn write(path: &Path, key: &PreSharedKey) -> Result<(), KeyNotWritten> {
    let written = || {
        // Never over another key, which a running node may have.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(key.to_text().as_bytes())?;
        file.sync_all()
    };
    written().map_err(|source| KeyNotWritten { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_key_is_written_for_its_owner_alone_and_never_over_another() {
        let path = std::env::temp_dir().join(format!("mainstay-key-{:016x}", random::number()));
        let key = draw();
        write(&path, &key).expect("the file can be written");
        let (mode, text) = (fs::metadata(&path).unwrap().mode(), fs::read_to_string(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(PreSharedKey::from_text(&text).unwrap().id(), key.id());
        assert_ne!(draw().id(), key.id());
        let refused = write(&path, &draw()).unwrap_err().to_string();
        assert!(refused.contains("not there yet"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::remove_file(&path).unwrap();
    }
}
