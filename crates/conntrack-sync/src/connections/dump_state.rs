//! The state of reading the kernel's table.

use alloc::collections::BTreeSet;

use flow::Instant;

/// The maximum number of connections recorded as ended during a dump; beyond it, another dump follows.
const ENDED_MAX: usize = 1 << 16;

/// The result of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpResult {
    /// The whole table was read.
    Complete,
    /// The table was resized meanwhile: entries may be missing.
    Interrupted,
    /// It could not be read.
    Failed,
}

/// The state of reading the kernel's table.
#[derive(Debug, Default)]
pub(crate) struct DumpState {
    pub(super) is_wanted: bool,
    pub(super) wanted_at: Instant,
    pub(super) failures: u32,
    pub(super) is_running: bool,
    /// Events were lost since it began.
    pub(super) was_overrun: bool,
    pub(super) number: u8,
    /// Whether the whole table has been read at least once.
    pub(crate) is_initialised: bool,
    pub(super) repaired_before: u64,
    /// Connections that ended since the dump began: the dump lags behind and may still contain them.
    pub(super) ended: BTreeSet<(u32, u32)>,
}

impl DumpState {
    pub(crate) fn new() -> Self {
        Self { is_wanted: true, number: 1, ..Self::default() }
    }

    /// The number of the current dump, which marks the entries seen.
    pub(crate) const fn number(&self) -> u8 {
        self.number
    }

    /// Whether a connection with this name (and this hash) has ended.
    pub(crate) fn note_ended(&mut self, id: u32, hash: u32) {
        if !self.is_running {
            return;
        }
        if self.ended.len() >= ENDED_MAX {
            // Another dump finds the missed changes.
            self.was_overrun = true;
        } else {
            self.ended.insert((hash, id));
        }
    }

    pub(crate) const fn is_due(&self) -> bool {
        self.is_wanted || self.is_running
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (self.is_wanted && !self.is_running).then_some(self.wanted_at)
    }
}
