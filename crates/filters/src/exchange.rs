//! Replication of a filter to another node: all words, or the changed words, and comparison by digests.
//!
//! The sender transmits its [`Shape`], sets a [mark](Memory::mark) for each receiver, and transmits all words in parts
//! that fit its datagrams ([`Update::encode_words`]). Afterwards it transmits changed words only
//! ([`Memory::take_changes`], [`Update::encode`]).
//!
//! Words of a lost datagram are [given back](Memory::give_back) and retransmitted with their current values. A receiver
//! may apply updates in any order that keeps the updates of each word in order. Both ends compare
//! [digests](Memory::digest) of sections.
//!
//! An update is a sequence of runs, each of consecutive words:
//!
//! ```text
//! gap · 2 + (0: one word, 1: several)   [number of words]   words, four bytes each, network order
//! ```
//!
//! Gaps and numbers are in LEB128: seven bits a byte, the lowest first. The gap counts from the end of the last run,
//! the first from zero. A changed cell of a filter of a million takes six bytes when 2000 change at a time.

use alloc::vec::Vec;

use crate::memory::{Change, Memory};
use crate::shape::{Shape, ShapeError};

/// The largest number of words in one update; more words take several updates.
pub const UPDATE_WORDS_MAX: usize = 1 << 20;

/// Why an update from a peer was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The bytes are no update.
    #[error("these bytes are no update of a filter: {0}")]
    Malformed(&'static str),
    /// The update names a word beyond the end of this filter.
    #[error("the update names word {index} of a filter of {words} words: the peer's filter is larger")]
    Beyond {
        /// The index of the word.
        index: u64,
        /// The number of words of the filter.
        words: usize,
    },
    /// The value cannot occur in this structure.
    #[error("word {index} of the update is invalid in this filter: the peer misbehaves")]
    InvalidWord {
        /// The index of the word.
        index: u32,
    },
    /// The shape is invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// A structure that can be replicated to another node.
pub trait Exchange: Sized {
    /// An empty structure of this shape.
    ///
    /// # Errors
    /// The shape is invalid, or of another kind than this type.
    fn empty(shape: Shape) -> Result<Self, ShapeError>;

    /// Its shape.
    fn shape(&self) -> Shape;

    /// Its words.
    fn memory(&self) -> &Memory;

    /// Its words, to set marks and take changes.
    fn memory_mut(&mut self) -> &mut Memory;

    /// Whether a structure of this shape can hold this word at this index.
    fn admits(&self, index: usize, word: u32) -> bool;

    /// Stores a word at its index and updates the item count.
    ///
    /// # Panics
    /// The index is beyond the end.
    fn put(&mut self, index: usize, word: u32);

    /// A structure of this shape with these words.
    ///
    /// # Errors
    /// The shape is invalid, or the words do not match it.
    fn from_words(shape: Shape, words: &[u32]) -> Result<Self, ExchangeError> {
        let mut made = Self::empty(shape)?;
        if words.len() != made.memory().words().len() {
            return Err(ExchangeError::Malformed("not as many words as its shape has"));
        }
        for (index, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
            if !made.admits(index, *word) {
                return Err(ExchangeError::InvalidWord { index: index as u32 });
            }
            made.put(index, *word);
        }
        Ok(made)
    }

    /// Applies an update: all of it or, if any word is invalid, nothing. Returns the number of words.
    ///
    /// # Errors
    /// The update contains words that are invalid in this structure.
    fn apply(&mut self, update: &Update<'_>) -> Result<usize, ExchangeError> {
        let words = self.memory().words().len();
        for change in update.changes() {
            let index = change.index as usize;
            if index >= words {
                return Err(ExchangeError::Beyond { index: change.index.into(), words });
            }
            if !self.admits(index, change.word) {
                return Err(ExchangeError::InvalidWord { index: change.index });
            }
        }
        update.changes().for_each(|change| self.put(change.index as usize, change.word));
        Ok(update.words)
    }
}

/// A validated update: its runs are complete, and all its words are within the filter.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    bytes: &'a [u8],
    words: usize,
}

impl<'a> Update<'a> {
    /// Appends an update with these changes to `bytes`, sorted by index; only the last change of a word is sent. An
    /// update holds at most [`UPDATE_WORDS_MAX`] changes.
    pub fn encode(changes: &mut Vec<Change>, bytes: &mut Vec<u8>) {
        changes.sort_by_key(|change| change.index);
        // The later of two replaces the earlier.
        changes.dedup_by(|later, earlier| {
            let is_same = later.index == earlier.index;
            if is_same {
                earlier.word = later.word;
            }
            is_same
        });
        let mut end = 0;
        for run in changes.chunk_by(|one, next| one.index + 1 == next.index) {
            encode_run(u64::from(run[0].index - end), run.iter().map(|change| change.word), bytes);
            end = run[0].index + run.len() as u32;
        }
    }

    /// Appends an update with these words, the first of which has index `first`, to `bytes`.
    pub fn encode_words(first: u32, words: &[u32], bytes: &mut Vec<u8>) {
        if !words.is_empty() {
            encode_run(first.into(), words.iter().copied(), bytes);
        }
    }

    /// Parses an update of a filter of `filter_words` words.
    ///
    /// # Errors
    /// The bytes are no update, or name words beyond the filter's end.
    pub fn parse(bytes: &'a [u8], filter_words: usize) -> Result<Self, ExchangeError> {
        let (mut rest, mut end, mut words) = (bytes, 0_u64, 0);
        while !rest.is_empty() {
            let (run, behind) = Run::read(rest)?;
            let number = run.words.len() / 4;
            // Both are less than 2^63, as is their sum with any number of words that fits memory.
            end = end.checked_add(run.gap).ok_or(ExchangeError::Malformed("a gap without end"))?;
            if end.saturating_add(number as u64) > filter_words as u64 {
                return Err(ExchangeError::Beyond {
                    index: end.saturating_add(number as u64 - 1),
                    words: filter_words,
                });
            }
            end += number as u64;
            words += number;
            rest = behind;
        }
        if words > UPDATE_WORDS_MAX {
            return Err(ExchangeError::Malformed("more words than an update may hold"));
        }
        Ok(Self { bytes, words })
    }

    /// The number of words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.words
    }

    /// Whether it holds no words.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Its changes, in rising order of index.
    pub fn changes(&self) -> impl Iterator<Item = Change> + use<'a> {
        let (mut rest, mut end) = (self.bytes, 0_u64);
        let runs = core::iter::from_fn(move || {
            let (run, behind) = Run::read(rest).ok()?;
            let first = end + run.gap;
            end = first + (run.words.len() / 4) as u64;
            rest = behind;
            Some((first, run.words.as_chunks::<4>().0))
        });
        runs.flat_map(|(first, words)| {
            // The indices were validated.
            (first as u32..).zip(words).map(|(index, word)| Change { index, word: u32::from_be_bytes(*word) })
        })
    }
}

/// One run of an update: never empty.
struct Run<'a> {
    gap: u64,
    words: &'a [u8],
}

impl<'a> Run<'a> {
    fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ExchangeError> {
        let (head, mut rest) = read_number(bytes)?;
        let mut number = 1;
        if head & 1 == 1 {
            (number, rest) = read_number(rest)?;
        }
        if number == 0 {
            return Err(ExchangeError::Malformed("a run of no words"));
        }
        let length = usize::try_from(number).ok().and_then(|number| number.checked_mul(4));
        let split = length.and_then(|length| rest.split_at_checked(length));
        let (words, behind) = split.ok_or(ExchangeError::Malformed("it ends within a run"))?;
        Ok((Self { gap: head >> 1, words }, behind))
    }
}

fn encode_run(gap: u64, words: impl ExactSizeIterator<Item = u32>, bytes: &mut Vec<u8>) {
    if words.len() == 1 {
        write_number(gap << 1, bytes);
    } else {
        write_number(gap << 1 | 1, bytes);
        write_number(words.len() as u64, bytes);
    }
    words.for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
}

fn write_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &[u8]) -> Result<(u64, &[u8]), ExchangeError> {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().take(9) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((number, &bytes[place + 1..]));
        }
    }
    // No index needs more than nine times seven bits.
    Err(ExchangeError::Malformed("a number without end"))
}

#[cfg(test)]
mod tests;
