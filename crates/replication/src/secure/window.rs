//! Which of the peer's datagrams came before.

/// How far a datagram may come behind the newest one. At a million datagrams a second this is two milliseconds of
/// reordering.
pub const REPLAY_WINDOW_DATAGRAMS: u64 = 2048;

const WORDS: usize = REPLAY_WINDOW_DATAGRAMS as usize / 64 + 1;

/// The counters that were seen, as far back as [`REPLAY_WINDOW_DATAGRAMS`] (RFC 6479: a ring of words, of which whole words are
/// cleared as the newest counter goes on).
#[derive(Clone, Debug)]
pub(super) struct ReplayWindow {
    /// The greatest counter seen, plus one.
    next: u64,
    seen: [u64; WORDS],
}

impl ReplayWindow {
    pub(super) const fn new() -> Self {
        Self { next: 0, seen: [0; WORDS] }
    }

    /// The counter was not seen, as far as the window reaches.
    pub(super) const fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        self.next - counter <= REPLAY_WINDOW_DATAGRAMS && self.seen[word(counter)] & bit(counter) == 0
    }

    /// The counter has been seen; to be called once the datagram is known to be genuine.
    pub(super) fn note(&mut self, counter: u64) {
        if counter >= self.next {
            let (newest, first_fresh) = (counter / 64, self.next.div_ceil(64));
            let fresh = (newest + 1).saturating_sub(first_fresh).min(WORDS as u64);
            for index in 0..fresh {
                self.seen[word((newest - index) * 64)] = 0;
            }
            self.next = counter + 1;
        }
        self.seen[word(counter)] |= bit(counter);
    }
}

const fn word(counter: u64) -> usize {
    (counter / 64 % WORDS as u64) as usize
}

const fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a set that remembers everything.
        #[test]
        fn a_counter_is_taken_once_and_only_within_the_window(
            steps in prop::collection::vec((0_u64..6000, any::<bool>()), 1..400)
        ) {
            let (mut window, mut seen, mut base) = (ReplayWindow::new(), BTreeSet::new(), 0_u64);
            for (step, moves_on) in steps {
                if moves_on {
                    base += step;
                }
                let counter = (base + 3000).saturating_sub(step);
                let next = seen.last().map_or(0, |greatest| greatest + 1);
                let expected = counter >= next || next - counter <= REPLAY_WINDOW_DATAGRAMS && !seen.contains(&counter);
                prop_assert_eq!(window.is_new(counter), expected, "{} after {}", counter, next);
                if expected {
                    window.note(counter);
                    seen.insert(counter);
                }
            }
        }
    }

    #[test]
    fn the_last_counters_do_not_overflow() {
        let mut window = ReplayWindow::new();
        for counter in [u64::MAX - 1, u64::MAX - 2, u64::MAX - 1 - REPLAY_WINDOW_DATAGRAMS] {
            let is_within = u64::MAX - counter <= REPLAY_WINDOW_DATAGRAMS;
            assert_eq!(window.is_new(counter), is_within);
            if is_within {
                window.note(counter);
                assert!(!window.is_new(counter));
            }
        }
    }
}
