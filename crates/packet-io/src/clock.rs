//! The system's clocks.

use flow::Instant;

/// Now, in nanoseconds of `CLOCK_MONOTONIC`: one epoch for all processes of the host, in every namespace but a time
/// namespace.
#[must_use]
pub fn now() -> Instant {
    Instant::from_nanos(read(libc::CLOCK_MONOTONIC))
}

/// Makes the calling thread's timeouts end on time, instead of up to 50 µs later to coalesce them with others
/// (prctl(2), `PR_SET_TIMERSLACK`).
pub fn wait_precisely() {
    // SAFETY: prctl with these arguments takes no pointers. It fails for no number above zero.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// A clock's reading in nanoseconds.
pub(crate) fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the duration of the call. The clocks of the system exist on
    // every Linux; that of a process that has just ended reads 0.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_does_not_go_back() {
        let earlier = super::now();
        let later = super::now();
        assert!(later >= earlier);
        assert!(earlier > flow::Instant::ZERO);
    }
}
