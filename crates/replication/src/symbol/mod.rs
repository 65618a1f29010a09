//! How changes of a filter's words look in datagrams, the constant parts left out: symbol replacement (MLCBF, section 3.4).
//!
//! Level, bucket and fingerprint of a connection stay what they are while it lives. MLCBF gives them a number, in the order in
//! which both sides see new connections, and sends the number from the second message on. A message that is lost or overtaken
//! makes both count differently, so it wants a stream in order. Here a cell's *place* is the number: the receiver looks up the
//! constant part in its own filter, where the first message put it. The encoder knows what the receiver has in that place (it
//! was acknowledged, and nothing for it is in flight), and leaves out what is the same. So no message depends on another one
//! that may be lost, and neither side keeps a list of numbers.
//!
//! Changes follow one another in rising order of places; each begins with the gap since the last one. Numbers are in LEB128.
//!
//! | coding | for | an entry |
//! |---|---|---|
//! | words | anything | [`filters::exchange`]: gap · 2 + several, words of four bytes |
//! | cells | fingerprints and states | gap · 4 + kind: 0 free; 1 the state, one or two bytes; 2 state and fingerprint, as many bytes as they have |
//! | flips | bits | gap, in bits, to the next bit that is turned over (the seed's difference message, section 2.1.1) |

mod number;

use alloc::vec::Vec;

use filters::shape::Content;
use filters::{Change, ExchangeError, Shape};

use self::number::{read, write};

/// The bit of a cell that is taken (see [`filters::multi_level`]).
const TAKEN: u32 = 1 << 31;

/// What changes look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    /// Whole words.
    Words,
    /// Cells of which the constant parts are left out.
    Cells {
        /// Bits of a fingerprint.
        fingerprint_bits: u8,
        /// Bits of a state.
        content_bits: u8,
    },
    /// Bits that are turned over.
    Flips,
}

impl Coding {
    /// The one that leaves out most of what the receiver of a filter of this shape has already. Bits that change are always
    /// sent as such; the rest as whole words unless `symbols` are wanted.
    #[must_use]
    pub const fn of(shape: Shape, symbols: bool) -> Self {
        match shape {
            Shape::Bloom(_) => Self::Flips,
            Shape::MultiLevel(shape, Content::States) if symbols => {
                Self::Cells { fingerprint_bits: shape.fingerprint_bits, content_bits: shape.content_bits }
            }
            _ => Self::Words,
        }
    }
}

/// Writes changes, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    coding: Coding,
    /// The place behind the last one: a word, or a bit where bits are sent.
    end: u64,
}

impl Encoder {
    /// For an empty message.
    #[must_use]
    pub const fn new(coding: Coding) -> Self {
        Self { coding, end: 0 }
    }

    /// Whether a change may follow: places rise within a message.
    #[must_use]
    pub const fn may_follow(&self, index: u32) -> bool {
        let place = index as u64;
        self.end <= if matches!(self.coding, Coding::Flips) { place * 32 } else { place }
    }

    /// Adds a change of a word that is `known` to be something else at the receiver.
    ///
    /// # Panics
    /// It may not follow ([`Encoder::may_follow`]).
    pub fn append(&mut self, change: Change, known: u32, out: &mut Vec<u8>) {
        assert!(self.may_follow(change.index), "places rise within a message");
        let Change { index, word } = change;
        match self.coding {
            Coding::Words => {
                write(self.gap(index.into()) << 1, out);
                out.extend_from_slice(&word.to_be_bytes());
            }
            Coding::Cells { fingerprint_bits, content_bits } => {
                let gap = self.gap(index.into()) << 2;
                let rest = word & !TAKEN;
                if word == 0 {
                    write(gap, out);
                } else if known & TAKEN != 0 && (known ^ word) << (32 - fingerprint_bits) == 0 {
                    write(gap | 1, out);
                    tail(rest >> fingerprint_bits, content_bits, out);
                } else {
                    write(gap | 2, out);
                    tail(rest, fingerprint_bits + content_bits, out);
                }
            }
            Coding::Flips => {
                let mut bits = known ^ word;
                while bits != 0 {
                    let gap = self.gap(u64::from(index) * 32 + u64::from(bits.trailing_zeros()));
                    write(gap, out);
                    bits &= bits - 1;
                }
            }
        }
    }

    const fn gap(&mut self, place: u64) -> u64 {
        let gap = place - self.end;
        self.end = place + 1;
        gap
    }
}

/// The low bits of a number, in as few bytes as hold them, in network order.
fn tail(number: u32, bits: u8, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    out.extend_from_slice(&bytes[bytes.len() - usize::from(bits.div_ceil(8)).min(4)..]);
}

fn read_tail(bits: u8, bytes: &[u8]) -> Result<(u32, &[u8]), ExchangeError> {
    let length = usize::from(bits.div_ceil(8)).min(4);
    let (tail, rest) = bytes.split_at_checked(length).ok_or(ExchangeError::Malformed("it ends within a change"))?;
    Ok((tail.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)), rest))
}

/// Reads a message of changes to a filter of so many words, of which `word` returns the current ones, and adds the new ones to
/// `changes`. Whether a filter can have such words is for the reader to find out: where it has not what the sender took for
/// known, it may not.
///
/// # Errors
/// The message is none, or has words beyond the filter's; `changes` then has some that are not to be used.
pub fn decode(
    coding: Coding,
    message: &[u8],
    words: usize,
    word: impl Fn(u32) -> u32,
    changes: &mut Vec<Change>,
) -> Result<(), ExchangeError> {
    let scale = if coding == Coding::Flips { 32 } else { 1 };
    let (mut rest, mut end) = (message, 0_u64);
    while !rest.is_empty() {
        let (head, behind) = read(rest)?;
        let (gap, kind) = match coding {
            Coding::Words => (head >> 1, head & 1),
            Coding::Cells { .. } => (head >> 2, head & 3),
            Coding::Flips => (head, 0),
        };
        // Both are less than 2^63.
        let place = end + gap;
        if place >= words as u64 * scale {
            return Err(ExchangeError::Beyond { index: place / scale, words });
        }
        end = place + 1;
        let index = (place / scale) as u32;
        let known = match changes.last() {
            Some(last) if last.index == index => last.word,
            _ => word(index),
        };
        let (word, behind) = entry(coding, kind, place, known, behind)?;
        rest = behind;
        match changes.last_mut() {
            Some(last) if last.index == index => last.word = word,
            _ => changes.push(Change { index, word }),
        }
    }
    Ok(())
}

/// The new value of one word.
fn entry(coding: Coding, kind: u64, place: u64, known: u32, rest: &[u8]) -> Result<(u32, &[u8]), ExchangeError> {
    let unknown = ExchangeError::Malformed("a change of a kind that is not known");
    match (coding, kind) {
        (Coding::Words, 0) => read_tail(32, rest),
        (Coding::Cells { .. }, 0) => Ok((0, rest)),
        (Coding::Cells { fingerprint_bits, content_bits }, 1) => {
            let (state, rest) = read_tail(content_bits, rest)?;
            // Where there is no fingerprint, this makes a word that no filter takes.
            let constant = known & (TAKEN | ((1 << fingerprint_bits) - 1));
            Ok((constant | (state << fingerprint_bits & !TAKEN), rest))
        }
        (Coding::Cells { fingerprint_bits, content_bits }, 2) => {
            let (both, rest) = read_tail(fingerprint_bits + content_bits, rest)?;
            Ok((TAKEN | both, rest))
        }
        (Coding::Flips, _) => Ok((known ^ 1 << (place % 32), rest)),
        _ => Err(unknown),
    }
}

#[cfg(test)]
mod tests;
