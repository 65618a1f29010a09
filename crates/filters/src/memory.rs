//! Words of 32 bits in whole cache lines, and which of them changed since a mark.
//!
//! Every structure of this crate lies in such a memory. What changed is known by the word: a cell of the structures with
//! fingerprints, eight counters of a counting Bloom filter. A mark costs a bit a word, and what is taken from it is bounded
//! by whoever takes it; words that changed again before they were taken are taken once, as they are then.

use alloc::vec;
use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hash::mix;
use crate::prefetch::prefetch;

/// Words in a cache line.
pub const WORDS_PER_LINE: usize = 16;
/// Marks that a memory has at once: a peer has one each. More are refused.
pub const MARKS_MAX: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub(crate) struct Line([u32; WORDS_PER_LINE]);

/// A mark, by which it is known what changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkId(u8);

/// A word that changed, as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Its place.
    pub index: u32,
    /// The word.
    pub word: u32,
}

/// Why there is no further mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a filter has at most {MARKS_MAX} marks: give back those of peers that are gone")]
pub struct TooManyMarks;

/// The words of a structure.
#[derive(Clone)]
pub struct Memory {
    lines: Vec<Line>,
    words: usize,
    /// Whether there is any mark: asked at each change.
    is_marked: bool,
    marks: Vec<Option<Mark>>,
}

impl Memory {
    /// So many words, all zero.
    #[must_use]
    pub fn new(words: usize) -> Self {
        let lines = vec![Line([0; WORDS_PER_LINE]); words.div_ceil(WORDS_PER_LINE)];
        Self { lines, words, is_marked: false, marks: Vec::new() }
    }

    /// All words.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        let words = <[u32]>::ref_from_bytes(self.lines.as_bytes()).expect("lines are whole words");
        &words[..self.words]
    }

    /// What it takes, in bytes, without marks.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// All cache lines.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The word with number `index`.
    ///
    /// # Panics
    /// There is no such word.
    #[must_use]
    #[inline(always)]
    pub fn word(&self, index: usize) -> u32 {
        self.lines[index / WORDS_PER_LINE].0[index % WORDS_PER_LINE]
    }

    /// The group with number `index` of `WORDS` words, a divisor of those in a line.
    ///
    /// # Panics
    /// There is no such group.
    #[must_use]
    #[inline(always)]
    pub fn group<const WORDS: usize>(&self, index: usize) -> &[u32; WORDS] {
        const { assert!(WORDS_PER_LINE.is_multiple_of(WORDS)) }
        // In one row, so that finding a group takes one multiplication by a constant.
        let groups = <[[u32; WORDS]]>::ref_from_bytes(self.lines.as_bytes()).expect("lines are whole groups");
        &groups[index]
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        prefetch(&self.lines, index / WORDS_PER_LINE, 0);
    }

    /// Puts a word into its place.
    ///
    /// # Panics
    /// There is no such place.
    #[inline(always)]
    pub fn set(&mut self, index: usize, word: u32) {
        self.lines[index / WORDS_PER_LINE].0[index % WORDS_PER_LINE] = word;
        if self.is_marked {
            self.note(index);
        }
    }

    #[inline(never)]
    fn note(&mut self, index: usize) {
        self.marks.iter_mut().flatten().for_each(|mark| mark.note(index));
    }

    /// Marks this moment.
    ///
    /// # Errors
    /// There are [`MARKS_MAX`] marks already.
    pub fn mark(&mut self) -> Result<MarkId, TooManyMarks> {
        let place = match self.marks.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.marks.len() < MARKS_MAX => {
                self.marks.push(None);
                self.marks.len() - 1
            }
            None => return Err(TooManyMarks),
        };
        self.marks[place] = Some(Mark::new(self.words));
        self.is_marked = true;
        Ok(MarkId(place as u8))
    }

    /// Gives a mark back.
    pub fn unmark(&mut self, mark: MarkId) {
        if let Some(place) = self.marks.get_mut(usize::from(mark.0)) {
            *place = None;
        }
        self.is_marked = self.marks.iter().any(Option::is_some);
    }

    fn marked(&mut self, mark: MarkId) -> Option<&mut Mark> {
        self.marks.get_mut(usize::from(mark.0))?.as_mut()
    }

    /// How many words changed since the mark and were not taken yet. None of a mark that was given back.
    #[must_use]
    pub fn changed(&self, mark: MarkId) -> usize {
        self.marks.get(usize::from(mark.0)).and_then(Option::as_ref).map_or(0, |mark| mark.changed)
    }

    /// Takes at most `limit` of the words that changed since the mark, in rising order from where the last call left off, and
    /// adds them to `changes`. Returns how many are left.
    pub fn take_changes(&mut self, mark: MarkId, limit: usize, changes: &mut Vec<Change>) -> usize {
        let Self { lines, marks, .. } = self;
        let Some(mark) = marks.get_mut(usize::from(mark.0)).and_then(Option::as_mut) else { return 0 };
        for _ in 0..limit {
            let Some(index) = mark.take() else { break };
            let word = lines[index / WORDS_PER_LINE].0[index % WORDS_PER_LINE];
            changes.push(Change { index: index as u32, word });
        }
        mark.changed
    }

    /// What was taken did not arrive: these words count as changed again.
    pub fn give_back(&mut self, mark: MarkId, indices: impl IntoIterator<Item = u32>) {
        let words = self.words;
        let Some(mark) = self.marked(mark) else { return };
        indices.into_iter().filter(|index| (*index as usize) < words).for_each(|index| mark.note(index as usize));
    }

    /// All words count as changed: the receiver has nothing.
    pub fn change_all(&mut self, mark: MarkId) {
        let words = self.words;
        let Some(mark) = self.marked(mark) else { return };
        (0..words).for_each(|index| mark.note(index));
    }

    /// A sum over `words`, by which two memories are compared: the same for the same words, whatever their way there.
    /// Sections of a memory are compared on their own, and the sums of sections add up (wrapping) to the whole's.
    ///
    /// Not a secret's work: it finds what was lost, not what was forged.
    #[must_use]
    pub fn digest(&self, words: core::ops::Range<usize>) -> u64 {
        let words = words.start.min(self.words)..words.end.min(self.words);
        let first = words.start;
        let section = self.words().get(words).unwrap_or_default();
        let is_set =
            |(index, word): (usize, &u32)| (*word != 0).then(|| mix(((first + index) as u64) << 32 | u64::from(*word)));
        section.iter().enumerate().filter_map(is_set).fold(0, u64::wrapping_add)
    }
}

/// Which words changed: a bit each.
#[derive(Clone)]
struct Mark {
    bits: Vec<u64>,
    changed: usize,
    /// Where to look next, in words of `bits`.
    next: usize,
}

impl Mark {
    fn new(words: usize) -> Self {
        Self { bits: vec![0; words.div_ceil(64)], changed: 0, next: 0 }
    }

    fn note(&mut self, index: usize) {
        let (word, bit) = (&mut self.bits[index / 64], 1 << (index % 64));
        self.changed += usize::from(*word & bit == 0);
        *word |= bit;
    }

    fn take(&mut self) -> Option<usize> {
        if self.changed == 0 {
            return None;
        }
        while self.bits[self.next] == 0 {
            self.next = (self.next + 1) % self.bits.len();
        }
        let word = &mut self.bits[self.next];
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        self.changed -= 1;
        Some(self.next * 64 + bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn taken(memory: &mut Memory, mark: MarkId, limit: usize) -> Vec<u32> {
        let mut changes = Vec::new();
        memory.take_changes(mark, limit, &mut changes);
        changes.iter().map(|change| change.index).collect()
    }

    #[test]
    fn what_changed_since_a_mark_is_taken_once_and_as_it_is_then() {
        let mut memory = Memory::new(1000);
        memory.set(3, 1);
        let mark = memory.mark().expect("the first");
        assert_eq!(memory.changed(mark), 0, "what was before the mark");
        for (index, word) in [(999, 5), (70, 6), (70, 7)] {
            memory.set(index, word);
        }
        let mut changes = Vec::new();
        assert_eq!(memory.take_changes(mark, 10, &mut changes), 0);
        assert_eq!(changes, [Change { index: 70, word: 7 }, Change { index: 999, word: 5 }]);
        assert!(taken(&mut memory, mark, 10).is_empty());
    }

    #[test]
    fn a_bounded_taker_gets_round_to_everything() {
        let mut memory = Memory::new(300);
        let mark = memory.mark().expect("the first");
        memory.change_all(mark);
        let mut all = Vec::new();
        while memory.changed(mark) > 0 {
            // The first words change all the time, and must not keep the last ones from being told.
            memory.set(0, all.len() as u32);
            all.extend(taken(&mut memory, mark, 7));
            assert!(all.len() < 400, "a turn takes more than it brings");
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_lost_is_told_again_to_whom_it_was_lost() {
        let mut memory = Memory::new(64);
        let [one, other] = [memory.mark().expect("the first"), memory.mark().expect("the second")];
        memory.set(5, 1);
        assert_eq!((taken(&mut memory, one, 9), taken(&mut memory, other, 9)), (std::vec![5], std::vec![5]));
        memory.give_back(one, [5, 64_000]);
        assert_eq!((taken(&mut memory, one, 9), taken(&mut memory, other, 9)), (std::vec![5], std::vec![]));
    }

    #[test]
    fn marks_are_bounded_and_given_back() {
        let mut memory = Memory::new(16);
        let marks: Vec<_> = (0..MARKS_MAX).map(|_| memory.mark().expect("within the limit")).collect();
        assert_eq!(memory.mark(), Err(TooManyMarks));
        memory.unmark(marks[3]);
        assert_eq!(memory.mark(), Ok(marks[3]));
        marks.iter().for_each(|mark| memory.unmark(*mark));
        memory.set(0, 1);
        assert_eq!(memory.changed(marks[0]), 0);
    }

    #[test]
    fn digests_depend_on_words_and_places_and_not_on_the_way_there() {
        let memory = |words: &[(usize, u32)]| {
            let mut memory = Memory::new(100);
            words.iter().for_each(|(index, word)| memory.set(*index, *word));
            memory
        };
        let one = memory(&[(1, 7), (2, 8), (99, 9)]);
        let other = memory(&[(99, 9), (2, 1), (2, 8), (50, 3), (1, 7), (50, 0)]);
        assert_eq!(one.digest(0..100), other.digest(0..100));
        assert_eq!(one.digest(0..50).wrapping_add(one.digest(50..usize::MAX)), one.digest(0..100));
        let different = [&[(1, 8), (2, 7), (99, 9)][..], &[(1, 7), (2, 8)], &[(1, 7), (3, 8), (99, 9)]];
        for words in different {
            assert_ne!(memory(words).digest(0..100), one.digest(0..100), "{words:?}");
        }
    }

    #[test]
    fn groups_are_parts_of_lines() {
        let mut memory = Memory::new(40);
        (0..40).for_each(|index| memory.set(index, index as u32));
        assert_eq!(memory.group::<8>(3), &[24, 25, 26, 27, 28, 29, 30, 31]);
        assert_eq!(memory.group::<1>(17), &[17]);
        assert_eq!(memory.words().len(), 40);
        assert_eq!(memory.words().as_ptr().align_offset(64), 0);
        assert_eq!(memory.bytes(), 192);
    }

    proptest::proptest! {
        #[test]
        fn a_receiver_that_takes_all_changes_has_the_same_words(
            sets in proptest::collection::vec((0_usize..200, 0_u32..4), 0..200), limit in 1_usize..50,
        ) {
            let mut sender = Memory::new(200);
            let mark = sender.mark().expect("the first");
            let mut receiver = BTreeMap::new();
            let mut changes = Vec::new();
            for (index, word) in sets {
                sender.set(index, word);
                sender.take_changes(mark, limit, &mut changes);
                changes.drain(..).for_each(|change| { receiver.insert(change.index as usize, change.word); });
            }
            while sender.take_changes(mark, limit, &mut changes) > 0 {}
            changes.drain(..).for_each(|change| { receiver.insert(change.index as usize, change.word); });
            for (index, word) in sender.words().iter().enumerate() {
                proptest::prop_assert_eq!(receiver.get(&index).copied().unwrap_or_default(), *word);
            }
        }
    }
}
