//! Tracks the seen parts of a packet.

use arrayvec::ArrayVec;

/// The maximum number of disjoint parts recorded for a packet. A packet of 64 KiB in Ethernet-sized fragments has 45
/// fragments, which form at most 23 such parts.
pub const PARTS_MAX: usize = 32;

/// The conflict of a new part with earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Misfit {
    /// All of it was seen before.
    Duplicate,
    /// Some of it was seen before, or it contradicts where the packet ends.
    Overlap,
    /// There would be more than [`PARTS_MAX`] parts with gaps between them.
    TooScattered,
}

/// The parts seen, in bytes from the start of the fragmented payload, in order; adjacent parts are merged.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    seen: ArrayVec<(u16, u16), PARTS_MAX>,
    /// The packet's end, once the last fragment has arrived.
    end: Option<u16>,
}

impl Parts {
    /// Checks whether a part may be added.
    pub(super) fn check(&self, start: u16, end: u16, more: bool) -> Result<(), Misfit> {
        let is_known = self.seen.iter().any(|(from, to)| *from <= start && end <= *to);
        let ends_alike = match self.end {
            Some(known) => {
                if more {
                    end <= known
                } else {
                    end == known
                }
            }
            None => more || self.seen.last().is_none_or(|(_, to)| *to <= end),
        };
        if !ends_alike {
            return Err(Misfit::Overlap);
        }
        if is_known {
            return Err(Misfit::Duplicate);
        }
        if self.seen.iter().any(|(from, to)| start < *to && *from < end) {
            return Err(Misfit::Overlap);
        }
        let touches = self.seen.iter().any(|(from, to)| *to == start || end == *from);
        if self.seen.is_full() && !touches { Err(Misfit::TooScattered) } else { Ok(()) }
    }

    /// Adds a part that [`Parts::check`] accepted.
    pub(super) fn add(&mut self, start: u16, end: u16, more: bool) {
        if !more {
            self.end = Some(end);
        }
        let at = self.seen.partition_point(|(from, _)| *from < start);
        let joins_next = self.seen.get(at).is_some_and(|(from, _)| *from == end);
        let joins_previous = at > 0 && self.seen[at - 1].1 == start;
        match (joins_previous, joins_next) {
            (true, true) => self.seen[at - 1].1 = self.seen.remove(at).1,
            (true, false) => self.seen[at - 1].1 = end,
            (false, true) => self.seen[at].0 = start,
            (false, false) => self.seen.insert(at, (start, end)),
        }
    }

    /// The whole packet has been seen.
    pub(super) fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.seen.as_slice() == [(0, end)])
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn put(parts: &mut Parts, start: u16, end: u16, more: bool) -> Result<(), Misfit> {
        parts.check(start, end, more)?;
        parts.add(start, end, more);
        Ok(())
    }

    #[test]
    fn a_seen_part_is_a_duplicate_and_a_partly_seen_one_an_overlap() {
        let mut parts = Parts::default();
        assert_eq!(put(&mut parts, 0, 16, true), Ok(()));
        assert_eq!(put(&mut parts, 16, 32, true), Ok(()));
        assert_eq!(put(&mut parts, 0, 16, true), Err(Misfit::Duplicate));
        assert_eq!(put(&mut parts, 8, 24, true), Err(Misfit::Duplicate), "as in Linux, by the union of the parts");
        assert_eq!(put(&mut parts, 24, 40, true), Err(Misfit::Overlap));
        assert_eq!(put(&mut parts, 48, 50, false), Ok(()));
        assert_eq!(put(&mut parts, 48, 56, true), Err(Misfit::Overlap), "behind the end");
        assert_eq!(put(&mut parts, 32, 40, false), Err(Misfit::Overlap), "a second end");
        assert!(!parts.is_whole());
        assert_eq!(put(&mut parts, 32, 48, true), Ok(()));
        assert!(parts.is_whole());
    }

    #[test]
    fn a_last_fragment_before_a_seen_part_is_a_contradiction() {
        let mut parts = Parts::default();
        assert_eq!(put(&mut parts, 64, 72, true), Ok(()));
        assert_eq!(put(&mut parts, 0, 8, false), Err(Misfit::Overlap));
    }

    #[test]
    fn too_many_gaps_are_refused_until_some_close() {
        let mut parts = Parts::default();
        for part in 0..PARTS_MAX as u16 {
            assert_eq!(put(&mut parts, part * 16, part * 16 + 8, true), Ok(()));
        }
        assert_eq!(put(&mut parts, 5000, 5008, true), Err(Misfit::TooScattered));
        assert_eq!(put(&mut parts, 8, 16, true), Ok(()));
        assert_eq!(put(&mut parts, 5000, 5008, true), Ok(()));
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_whole_exactly_with_the_last_of_them(
            order in Just((0u16..23).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut parts = Parts::default();
            for (nth, part) in order.iter().enumerate() {
                prop_assert!(!parts.is_whole());
                prop_assert_eq!(put(&mut parts, part * 24, part * 24 + 24, *part != 22), Ok(()), "{}", nth);
            }
            prop_assert!(parts.is_whole());
        }
    }
}
