//! Pre-shared keys for the channel between nodes, in files of their own.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use packet_io::random;
use replication::secure::{PRE_SHARED_KEY_BYTES, PreSharedKey};
use zeroize::Zeroizing;

/// Why no key was made.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}: choose a file that is not there yet, in a folder that you may write to", path.display())]
pub struct KeyNotWritten {
    path: PathBuf,
    source: io::Error,
}

/// A key from the system's generator.
#[must_use]
pub fn draw() -> PreSharedKey {
    let mut bytes = Zeroizing::new([0; PRE_SHARED_KEY_BYTES]);
    random::fill(&mut *bytes);
    PreSharedKey::new(*bytes)
}

/// Writes a key to a file of its own that only its owner may read.
///
/// # Errors
/// The file is there already, or cannot be written.
pub fn write(path: &Path, key: &PreSharedKey) -> Result<(), KeyNotWritten> {
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
