//! The positions of the functions' states in a connection's record.

use core::mem::{align_of, offset_of};
use core::ops::Range;

use flow::Connection;
use flow::connection::FUNCTION_STATE_BYTES_MAX;

use crate::function::FlowState;

/// The strictest permitted alignment of a function's state.
pub const STATE_ALIGN_BYTES_MAX: usize = 16;

const _: () = assert!(
    align_of::<Connection>().is_multiple_of(STATE_ALIGN_BYTES_MAX)
        && offset_of!(Connection, functions).is_multiple_of(STATE_ALIGN_BYTES_MAX),
    "an offset that is aligned within `functions` is aligned in memory"
);

/// Size and alignment of a function's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StateLayout {
    pub(super) size_bytes: usize,
    /// A power of two.
    pub(super) align_bytes: usize,
}

/// Size and alignment of a function's state, in bytes: states lie one behind the other in the chain's order, each aligned.
#[must_use]
pub const fn state_bytes<S: FlowState>() -> (usize, usize) {
    (size_of::<S>(), align_of::<S>())
}

/// Why a state does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Misfit {
    /// It would end here, behind [`FUNCTION_STATE_BYTES_MAX`].
    Size { end_bytes: usize },
    /// Its alignment exceeds [`STATE_ALIGN_BYTES_MAX`].
    Alignment,
}

/// Places a state behind the states that end at `used_bytes`.
pub(super) fn place(used_bytes: usize, layout: StateLayout) -> Result<Range<usize>, Misfit> {
    if layout.align_bytes > STATE_ALIGN_BYTES_MAX {
        return Err(Misfit::Alignment);
    }
    let start = used_bytes.next_multiple_of(layout.align_bytes);
    let end_bytes = start.saturating_add(layout.size_bytes);
    if end_bytes > FUNCTION_STATE_BYTES_MAX {
        return Err(Misfit::Size { end_bytes });
    }
    Ok(start..end_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_never_overlap_and_are_aligned(states in prop::collection::vec((0usize..=24, 0u32..=4), 0..12)) {
            let mut placed: Vec<Range<usize>> = Vec::new();
            for (size_bytes, align_log2) in states {
                let layout = StateLayout { size_bytes, align_bytes: 1 << align_log2 };
                let used_bytes = placed.last().map_or(0, |last| last.end);
                match place(used_bytes, layout) {
                    Ok(range) => {
                        prop_assert_eq!(range.len(), size_bytes);
                        prop_assert_eq!(range.start % layout.align_bytes, 0);
                        prop_assert!(range.start >= used_bytes && range.end <= FUNCTION_STATE_BYTES_MAX);
                        placed.push(range);
                    }
                    Err(Misfit::Size { end_bytes }) => {
                        prop_assert!(end_bytes > FUNCTION_STATE_BYTES_MAX);
                        break;
                    }
                    Err(Misfit::Alignment) => prop_assert!(false, "alignments up to 16 are allowed"),
                }
            }
        }
    }

    #[test]
    fn an_alignment_that_the_record_cannot_keep_is_refused() {
        assert_eq!(place(0, StateLayout { size_bytes: 32, align_bytes: 32 }), Err(Misfit::Alignment));
    }
}
