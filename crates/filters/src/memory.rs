//! Words of 32 bits in whole cache lines, with change tracking since a mark.
//!
//! Every structure of this crate stores its words in such a memory, which tracks changes by word: a cell of a filter
//! with fingerprints, or eight counters of a counting Bloom filter. A mark costs a bit a word. The caller bounds how
//! many changes it takes; a word that changed repeatedly is taken once, with its current value.

use alloc::vec;
use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hash::mix;
use crate::prefetch::prefetch;

/// Words in a cache line.
pub const WORDS_PER_LINE: usize = 16;
/// The maximum number of marks: one for each peer. More are refused.
pub const MARKS_MAX: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub(crate) struct Line([u32; WORDS_PER_LINE]);

/// A mark, which tracks the words that changed after it was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkId(u8);

/// A changed word with its current value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The word's index.
    pub index: u32,
    /// The word's value.
    pub word: u32,
}

/// Why no further mark can be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a filter has at most {MARKS_MAX} marks: give back those of peers that are gone")]
pub struct TooManyMarks;

/// The words of a structure.
#[derive(Clone)]
pub struct Memory {
    lines: Vec<Line>,
    words: usize,
    /// Whether any mark is set: tested at each change.
    is_marked: bool,
    marks: Vec<Option<Mark>>,
}

impl Memory {
    /// A memory of this many words, all zero.
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

    /// Its size in bytes, without marks.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// All cache lines.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The word at `index`.
    ///
    /// # Panics
    /// The index is beyond the end.
    #[must_use]
    #[inline(always)]
    pub fn word(&self, index: usize) -> u32 {
        self.lines[index / WORDS_PER_LINE].0[index % WORDS_PER_LINE]
    }

    /// The group at `index` of `WORDS` words, a divisor of those in a line.
    ///
    /// # Panics
    /// The index is beyond the end.
    #[must_use]
    #[inline(always)]
    pub fn group<const WORDS: usize>(&self, index: usize) -> &[u32; WORDS] {
        const { assert!(WORDS_PER_LINE.is_multiple_of(WORDS)) }
        // One contiguous slice, so that a group's address takes one multiplication by a constant.
        let groups = <[[u32; WORDS]]>::ref_from_bytes(self.lines.as_bytes()).expect("lines are whole groups");
        &groups[index]
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        prefetch(&self.lines, index / WORDS_PER_LINE, 0);
    }

    /// Stores a word at its index.
    ///
    /// # Panics
    /// The index is beyond the end.
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
    /// [`MARKS_MAX`] marks are set.
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

    /// The number of words that changed since the mark and were not taken. Zero for a mark that was given back.
    #[must_use]
    pub fn changed(&self, mark: MarkId) -> usize {
        self.marks.get(usize::from(mark.0)).and_then(Option::as_ref).map_or(0, |mark| mark.changed)
    }

    /// Appends at most `limit` words that changed since the mark to `changes`, in rising order from the end of the last
    /// call. Returns how many are left.
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

    /// Marks words as changed once more because the datagram that carried them was lost.
    pub fn give_back(&mut self, mark: MarkId, indices: impl IntoIterator<Item = u32>) {
        let words = self.words;
        let Some(mark) = self.marked(mark) else { return };
        indices.into_iter().filter(|index| (*index as usize) < words).for_each(|index| mark.note(index as usize));
    }

    /// Puts back the end of what [`Memory::take_changes`] has just given, which found no room: the next call goes on with it.
    pub fn put_back(&mut self, mark: MarkId, rest: &[Change]) {
        self.give_back(mark, rest.iter().map(|change| change.index));
        if let (Some(mark), Some(first)) = (self.marked(mark), rest.first()) {
            mark.next = first.index as usize / 64;
        }
    }

    /// Marks all words as changed: the receiver has none.
    pub fn change_all(&mut self, mark: MarkId) {
        let words = self.words;
        let Some(mark) = self.marked(mark) else { return };
        (0..words).for_each(|index| mark.note(index));
    }

    /// A sum over `words` that is equal for equal words, regardless of their history. The sums of adjacent sections add
    /// up (wrapping) to the sum of the whole.
    ///
    /// It detects losses, not forgery: it is no cryptographic hash.
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

/// The changed words, a bit for each.
#[derive(Clone)]
struct Mark {
    bits: Vec<u64>,
    changed: usize,
    /// Where the search continues, as an index into `bits`.
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
    fn changed_words_are_taken_once_with_their_current_value() {
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
    fn bounded_takes_eventually_return_every_change() {
        let mut memory = Memory::new(300);
        let mark = memory.mark().expect("the first");
        memory.change_all(mark);
        let mut all = Vec::new();
        while memory.changed(mark) > 0 {
            // The first words change all the time, and must not starve the last ones.
            memory.set(0, all.len() as u32);
            all.extend(taken(&mut memory, mark, 7));
            assert!(all.len() < 400, "a turn takes more than it brings");
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_put_back_comes_next_and_in_order() {
        let mut memory = Memory::new(1000);
        let mark = memory.mark().expect("the first");
        let changed = [10, 100, 300, 500, 700, 900];
        changed.iter().for_each(|index| memory.set(*index as usize, 1));
        let mut changes = Vec::new();
        memory.take_changes(mark, 5, &mut changes);
        memory.put_back(mark, &changes[1..]);
        assert_eq!(taken(&mut memory, mark, 10), changed[1..]);
        // The same where the search begins anew in between.
        changed.iter().for_each(|index| memory.set(*index as usize, 2));
        changes.clear();
        memory.take_changes(mark, 6, &mut changes);
        assert_eq!(changes.iter().map(|change| change.index).collect::<Vec<_>>(), [900, 10, 100, 300, 500, 700]);
        memory.put_back(mark, &changes[1..]);
        assert_eq!(taken(&mut memory, mark, 10), changed[..5]);
    }

    #[test]
    fn lost_words_are_retransmitted_to_the_receiver_that_lost_them() {
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
    fn digests_depend_on_words_and_indices_but_not_on_history() {
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
