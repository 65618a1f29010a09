//! How reading the kernel's table stands.

use alloc::collections::BTreeSet;

use flow::Instant;

/// Connections that end during a dump, remembered at most; when there are more, there is another dump.
const ENDED_MAX: usize = 1 << 16;
/// How a dump ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpResult {
    /// All was told.
    Complete,
    /// The table was rebuilt meanwhile: something may have been left out.
    Interrupted,
    /// It could not be read.
    Failed,
}

/// How reading the kernel's table stands.
#[derive(Debug, Default)]
pub(crate) struct DumpState {
    pub(super) is_wanted: bool,
    pub(super) wanted_at: Instant,
    pub(super) failures: u32,
    pub(super) is_running: bool,
    /// Events were lost since it began.
    pub(super) was_overrun: bool,
    pub(super) number: u8,
    /// All that was in the kernel was read at least once.
    pub(crate) is_initialised: bool,
    pub(super) repaired_before: u64,
    /// What ended since the dump began: it may come in the dump all the same, which is read a little behind.
    pub(super) ended: BTreeSet<(u32, u32)>,
}

impl DumpState {
    pub(crate) fn new() -> Self {
        Self { is_wanted: true, number: 1, ..Self::default() }
    }

    /// The mark of what is seen now.
    pub(crate) const fn number(&self) -> u8 {
        self.number
    }

    /// A connection with this name (and this hash) has ended.
    pub(crate) fn note_ended(&mut self, id: u32, hash: u32) {
        if !self.is_running {
            return;
        }
        if self.ended.len() >= ENDED_MAX {
            // One more dump shows what is there.
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
