//! The system's limits on the process.

use std::io;

use crate::IoError;
use crate::system::{check, zeroed};

/// Raises the limit of open descriptors to at least `wanted` if permitted: up to the hard limit, or beyond it with
/// privilege. Returns the resulting limit.
///
/// # Errors
/// The limit can neither be read nor raised far enough: the error states the shortfall and the remedy.
pub fn raise_open_files(wanted: u64) -> Result<u64, IoError> {
    // SAFETY: all-zero bytes are a valid rlimit.
    let mut limit: libc::rlimit = unsafe { zeroed() };
    // SAFETY: `limit` is writable for the duration of the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })
        .map_err(|error| IoError::from_io(error, "reading the limit of open files"))?;
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    let allowed = limit.rlim_max;
    limit.rlim_cur = wanted;
    limit.rlim_max = allowed.max(wanted);
    // SAFETY: `limit` is readable for the duration of the call.
    match check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }) {
        Ok(_) => Ok(wanted),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(IoError::Misuse(format!(
            "{wanted} open files are needed and {allowed} are allowed: raise the limit (ulimit -Hn {wanted}) or ask for \
             less"
        ))),
        Err(error) => Err(IoError::from_io(error, "raising the limit of open files")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sufficient_limit_is_unchanged() {
        let now = raise_open_files(0).unwrap();
        assert_eq!(raise_open_files(now).unwrap(), now);
    }

    #[test]
    fn more_than_the_system_can_hold_is_refused() {
        assert!(raise_open_files(u64::MAX - 1).is_err());
    }
}
