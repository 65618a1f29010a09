//! A node that is about to leave tells first what its filter has become.

use core::time::Duration;

use flow::Instant;

use crate::node::{DRAIN_HANDOVER_MAX, Node};

/// How long a node that is about to leave waits until its filter is told. Shorter than it waits for others to take its addresses.
const FILTER_TOLD_WITHIN: Duration = Duration::from_secs(1);

const _: () = assert!(FILTER_TOLD_WITHIN.as_millis() < DRAIN_HANDOVER_MAX.as_millis());

impl Node {
    /// This node is about to leave. True if it must tell first what changed of its filter, and leaves by itself once it has.
    pub(in crate::node) fn tells_filter_before_leaving(&mut self, now: Instant) -> bool {
        if !self.holds_addresses() {
            return false;
        }
        if let Some(compact) = &mut self.compact {
            compact.sender.flush(now);
        }
        let has_words = self.has_compact_words();
        if let Some(compact) = &mut self.compact {
            compact.leaves_by = has_words.then_some(now + FILTER_TOLD_WITHIN);
        }
        has_words
    }

    /// This node is about to leave, and tells its filter first.
    pub(in crate::node) fn is_telling_filter_before_leaving(&self) -> bool {
        self.compact.as_ref().is_some_and(|compact| compact.leaves_by.is_some())
    }

    /// This node stays.
    pub(in crate::node) fn stay_compactly(&mut self) {
        self.compact.iter_mut().for_each(|compact| compact.leaves_by = None);
    }

    /// Leaves once everything is told, or it took too long.
    pub(super) fn leave_when_told(&mut self, now: Instant) {
        let Some(by) = self.compact.as_ref().and_then(|compact| compact.leaves_by) else { return };
        if by <= now || !self.has_compact_words() {
            self.stay_compactly();
            self.roles.leave(now);
            self.handle_role_events(now);
        }
    }
}
