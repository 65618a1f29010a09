//! The position of each flow: a block that begins before it may be a retransmission.

use alloc::boxed::Box;
use alloc::vec;

/// The position of a block in its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowPosition {
    /// A hash of the flow's tuple and direction; all bits must be uniform.
    pub flow: u64,
    /// The sequence number of the block's first byte (TCP's).
    pub sequence: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Further bits of the flow's hash. Zero marks an empty slot.
    tag: u32,
    /// The sequence number after the last byte seen.
    next: u32,
}

/// A bounded memory: a flow evicts the one in its slot.
#[derive(Clone, Debug)]
pub(super) struct FlowMemory(Box<[Entry]>);

impl FlowMemory {
    pub(super) fn new(flows_max: usize) -> Self {
        Self(vec![Entry::default(); flows_max].into_boxed_slice())
    }

    /// Records a block. Returns whether it is certainly new: its flow is known and the block begins behind all data
    /// seen. Blocks of evicted flows are not certain.
    pub(super) fn is_new(&mut self, at: FlowPosition, length_bytes: usize) -> bool {
        let slot = (((at.flow >> 32) * self.0.len() as u64) >> 32) as usize;
        let Some(entry) = self.0.get_mut(slot) else { return false };
        let tag = at.flow as u32 | 1;
        let end = at.sequence.wrapping_add(length_bytes as u32);
        if entry.tag != tag {
            *entry = Entry { tag, next: end };
            return false;
        }
        let is_new = at.sequence.wrapping_sub(entry.next) as i32 >= 0;
        if end.wrapping_sub(entry.next) as i32 > 0 {
            entry.next = end;
        }
        is_new
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.0.len() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_begins_before_seen_data_ends_is_not_new() {
        let mut memory = FlowMemory::new(16);
        let mut is_new = |sequence: u32, length| memory.is_new(FlowPosition { flow: 7 << 40 | 5, sequence }, length);
        let first = u32::MAX - 2000;
        assert!(!is_new(first, 1460), "the flow is unknown");
        assert!(is_new(first + 1460, 1460), "and so on, across the wrap of the numbers");
        assert!(!is_new(first, 1460), "a retransmission");
        assert!(!is_new(first + 700, 1460), "cut otherwise");
        assert!(!is_new(first.wrapping_add(2919), 10), "one byte of it");
        assert!(is_new(first.wrapping_add(5000), 10), "after a gap");
    }

    #[test]
    fn blocks_of_evicted_flows_are_not_certain() {
        let mut memory = FlowMemory::new(1);
        let at = |flow, sequence| FlowPosition { flow, sequence };
        memory.is_new(at(1, 0), 10);
        assert!(memory.is_new(at(1, 10), 10));
        assert!(!memory.is_new(at(3, 10), 10));
        assert!(!memory.is_new(at(1, 20), 10));
    }
}
