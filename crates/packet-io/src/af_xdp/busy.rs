//! Waits for resources that a killed process still occupies.

use std::time::Duration;
use std::{io, thread};

use crate::clock;

/// A killed process occupies its queues and programs for some 50 ms; opening is retried for this time.
pub(super) const EBUSY_RETRY: Duration = Duration::from_secs(2);
/// The interval of attempts.
const EBUSY_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Repeats `attempt` while it fails as busy, for at most `limit`.
pub(super) fn retry_while_busy<T>(limit: Duration, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let until = clock::now() + limit;
    loop {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && clock::now() < until => {
                thread::sleep(EBUSY_RETRY_INTERVAL);
            }
            result => return result,
        }
    }
}
