//! Files that hold secrets: read only if their owner alone can.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The largest file of a secret; keys and tokens are far shorter.
pub const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;
/// The mode's bits that let others than the owner in.
const OTHERS: u32 = 0o077;

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The operating system would not give the file.
    #[error("cannot read {}: {source}{}", path.display(), remedy(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Others than its owner can read or change it.
    #[error("{0} may be read or changed by others than its owner (mode {mode:03o}): run `chmod 600 {0}`, and change the secret if \
             somebody may have read it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is too large to be what it should be.
    #[error("{} is larger than {SECRET_FILE_BYTES_MAX} bytes: is it the right file?", .0.display())]
    TooLarge(PathBuf),
}

/// What is to be done about a file that cannot be read, where that is known.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; have the user that this runs as own it (chown)",
        _ => "",
    }
}

/// Reads a file whose mode keeps all but its owner out. Its contents are wiped from memory when they are dropped.
///
/// # Errors
/// [`SecretFileError`], whose text is for the operator and holds nothing of the secret.
pub fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretFileError> {
    let unreadable = |source| SecretFileError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    // Of the opened file, not of whatever has the name by now.
    let found = file.metadata().map_err(unreadable)?;
    let mode = found.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(SecretFileError::Open { path: path.to_owned(), mode });
    }
    if found.len() > SECRET_FILE_BYTES_MAX {
        return Err(SecretFileError::TooLarge(path.to_owned()));
    }
    // Room from the start: a vector that grows leaves copies behind.
    let mut contents = Zeroizing::new(Vec::with_capacity(SECRET_FILE_BYTES_MAX as usize));
    file.take(SECRET_FILE_BYTES_MAX).read_to_end(&mut contents).map_err(unreadable)?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_refused_with_what_to_do() {
        let path = std::env::temp_dir().join(format!("mainstay-secret-{}", std::process::id()));
        fs::write(&path, "hush").unwrap();
        for (mode, is_taken) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match read(&path) {
                Ok(contents) => assert!(is_taken && *contents == b"hush"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!is_taken && text.contains("chmod 600") && !text.contains("hush"), "{mode:o}: {text}");
                }
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path), Err(SecretFileError::Unreadable { .. })));
    }

    #[test]
    fn a_file_of_another_user_is_one_to_be_given_away() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = SecretFileError::Unreadable { path: "/etc/mainstay/cluster.key".into(), source: denied };
        assert!(error.to_string().ends_with("have the user that this runs as own it (chown)"), "{error}");
    }
}
