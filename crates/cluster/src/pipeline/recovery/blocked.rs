//! Segments that were dropped on purpose, so that they pass when they are sent again.

use alloc::collections::{BTreeMap, VecDeque};

/// Connections of which a segment is remembered; the oldest is discarded, and is blocked once more.
const BLOCKED_MAX: usize = 65_536;

/// The first segment of each connection that was dropped.
///
/// MLCBF enters the connection into the filter, and whatever comes next passes. A sender that has a window of segments in
/// flight would prove nothing by the second of them; here a segment passes if it is no further on than the one that was
/// dropped, which only repetition makes it.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    /// Sequence numbers, by hash of the connection's tuple and direction.
    segments: BTreeMap<u64, u32>,
    order: VecDeque<u64>,
}

impl Blocked {
    /// Whether the segment was sent before. If not, it is remembered.
    pub(super) fn is_retransmission(&mut self, name: u64, sequence: u32) -> bool {
        if let Some(first) = self.segments.get(&name) {
            return (sequence.wrapping_sub(*first) as i32) <= 0;
        }
        if self.segments.len() >= BLOCKED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.segments.remove(&oldest);
        }
        self.segments.insert(name, sequence);
        self.order.push_back(name);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retransmitted_segment_passes_and_one_behind_it_does_not() {
        let mut blocked = Blocked::default();
        assert!(!blocked.is_retransmission(1, 1000));
        assert!(!blocked.is_retransmission(1, 2460), "the next of the same window");
        assert!(blocked.is_retransmission(1, 1000));
        assert!(blocked.is_retransmission(1, 500), "what was lost before the take-over comes again as well");
        assert!(!blocked.is_retransmission(2, 1000), "another connection");
        assert!(!blocked.is_retransmission(3, u32::MAX));
        assert!(!blocked.is_retransmission(3, 5), "numbers go round");
    }

    #[test]
    fn when_there_are_too_many_the_oldest_is_blocked_once_more() {
        let mut blocked = Blocked::default();
        (0..=BLOCKED_MAX as u64).for_each(|name| assert!(!blocked.is_retransmission(name, 7)));
        assert_eq!((blocked.segments.len(), blocked.order.len()), (BLOCKED_MAX, BLOCKED_MAX));
        assert!(blocked.is_retransmission(1, 7));
        assert!(!blocked.is_retransmission(0, 7));
    }
}
