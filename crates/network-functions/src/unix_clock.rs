//! The time since 1970, which nodes have in common, on the node's own clock.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use flow::Instant;

/// The time since 1970 at [`Instant::ZERO`], in milliseconds; workers share it.
#[derive(Debug, Default)]
pub(crate) struct UnixClock {
    unix_ms_at_zero: AtomicU64,
    /// When it was set last, in milliseconds since 1970.
    set_at_unix_ms: AtomicU64,
}

impl UnixClock {
    /// A clock that shows what another one does.
    pub(crate) fn continued(previous: Option<&Self>) -> Self {
        let read = |field: fn(&Self) -> &AtomicU64| {
            AtomicU64::new(previous.map_or(0, |previous| field(previous).load(Ordering::Relaxed)))
        };
        Self {
            unix_ms_at_zero: read(|clock| &clock.unix_ms_at_zero),
            set_at_unix_ms: read(|clock| &clock.set_at_unix_ms),
        }
    }

    /// The time since 1970 at `now`. To be repeated from time to time, as the system's clock may be set.
    pub(crate) fn set(&self, now: Instant, unix_time: Duration) {
        let unix_ms = unix_time.as_millis() as u64;
        self.unix_ms_at_zero.store(unix_ms.wrapping_sub(now.as_nanos() / 1_000_000), Ordering::Relaxed);
        self.set_at_unix_ms.store(unix_ms, Ordering::Relaxed);
    }

    /// Milliseconds since 1970 at `now`.
    pub(crate) fn unix_ms(&self, now: Instant) -> u64 {
        self.unix_ms_at_zero.load(Ordering::Relaxed).wrapping_add(now.as_nanos() / 1_000_000)
    }

    /// Milliseconds since 1970 when it was set last.
    pub(crate) fn last_unix_ms(&self) -> u64 {
        self.set_at_unix_ms.load(Ordering::Relaxed)
    }
}
