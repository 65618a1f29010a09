//! A handshake that this node began.

use alloc::boxed::Box;
use core::time::Duration;

use flow::Instant;
use snow::HandshakeState;

/// Time until a handshake is tried again; doubles after the quick ones.
pub(super) const RETRY_MIN: Duration = Duration::from_millis(20);
/// Answers to one initiation that are looked into. Each costs a multiplication, and only one can be the peer's.
pub(super) const ANSWERS_TRIED_MAX: u32 = 8;

/// How far a handshake is that this node began.
pub(super) enum Progress {
    /// It has sent the first message of a handshake.
    Initiated {
        /// What this node calls the keys to be.
        index: u32,
        noise: Box<HandshakeState>,
        answers_tried: u32,
    },
    /// It has shown its certificate, under the pending keys of this index.
    Proving { index: u32, shown: u32 },
}

/// A handshake that this node began.
pub(super) struct Attempt {
    pub(super) progress: Progress,
    pub(super) sent_at: Instant,
    pub(super) retry_at: Instant,
    pub(super) interval: Duration,
    /// Handshakes begun in a row.
    pub(super) tries: u32,
}

impl Attempt {
    pub(super) fn prove(&mut self, now: Instant, index: u32) {
        (self.progress, self.interval) = (Progress::Proving { index, shown: 1 }, RETRY_MIN);
        (self.sent_at, self.retry_at) = (now, now + RETRY_MIN);
    }
}
