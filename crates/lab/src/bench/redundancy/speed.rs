//! How speeds are measured, and of what.

use std::collections::BTreeMap;
use std::time::Duration;

use packet_io::usage::thread_cpu_time;

use crate::bench::rounds::Rounds;

/// What packets are cut to, and blocks above TCP, in bytes.
pub(super) const BLOCK_BYTES: [usize; 2] = [1460, 16_384];

/// Gigabytes a second, by method and block.
pub(super) type BySubject = BTreeMap<(&'static str, usize), Rounds>;

/// Gigabytes a second.
pub(super) fn speed(bytes: usize, spent: Duration) -> f64 {
    bytes as f64 / spent.as_secs_f64().max(1e-9) / 1e9
}

/// The thread's processor time that `work` takes.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = thread_cpu_time();
    let result = work();
    (result, thread_cpu_time().saturating_sub(began))
}
