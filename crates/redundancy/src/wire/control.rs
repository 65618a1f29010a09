//! Control messages between encoder and decoder. Each is a datagram, or is framed by the transport; it may be lost,
//! duplicated and reordered. The transport must authenticate its sender.
//!
//! | kind | name | from | body |
//! |---|---|---|---|
//! | 1 | Hello | encoder | epoch u32 |
//! | 2 | Challenge | decoder | epoch u32, decoder u32, cookie u32, granules u32: the most that its cache has |
//! | 3 | Open | encoder | epoch, decoder, cookie, granules, parent's epoch u32, next number u64, fork u64 (all ones: no parent) |
//! | 4 | Opened | decoder | epoch, decoder, cookie |
//! | 5 | Held | decoder | epoch, decoder, ranges of numbers that it holds: first u64, count u32 each |
//! | 6 | Missing | decoder | the same, of numbers that it lacks and needs |
//! | 7 | Unknown | decoder | decoder u32, tag u8: a block of an epoch that it does not know came |
//! | 8 | Fill | encoder | epoch u32, first number u64, whole granules |
//! | 9 | Gone | encoder | epoch u32, ranges of numbers that it cannot give any more |
//!
//! On an ordered channel, decoder and cookie of an Open are 0; a repeated Open confirms blocks without numbers. Each
//! message begins with the version, 1, and the kind.

use alloc::vec::Vec;
use core::ops::Range;

use super::take;
use crate::limits::{FILL_GRANULES_MAX, GRANULE_BYTES, RANGES_MAX};

/// The version of these messages.
pub const CONTROL_VERSION: u8 = 1;

/// Why a message cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    /// Its length is wrong.
    #[error("the message has a wrong length for its kind")]
    Length,
    /// The version is unknown.
    #[error("the message has version {0}, and only 1 is supported: the peer is of another release")]
    Version(u8),
    /// An unknown kind, or one of the opposite direction.
    #[error("a message of kind {0} is unexpected here")]
    Kind(u8),
    /// A range is empty or unbounded.
    #[error("the message has an invalid range")]
    Range,
}

/// The fork of a stream that continues another encoder's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The parent's epoch.
    pub epoch: u32,
    /// The first number that no longer belongs to that epoch.
    pub fork: u64,
}

/// Ranges of numbers.
pub type NumberRanges = Vec<Range<u64>>;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // See the table above.
pub enum Control<'a> {
    Hello { epoch: u32 },
    Challenge { epoch: u32, decoder: u32, cookie: u32, granules: u32 },
    Open { epoch: u32, decoder: u32, cookie: u32, granules: u32, next: u64, parent: Option<Parent> },
    Opened { epoch: u32, decoder: u32, cookie: u32 },
    Held { epoch: u32, decoder: u32, ranges: NumberRanges },
    Missing { epoch: u32, decoder: u32, ranges: NumberRanges },
    Unknown { decoder: u32, tag: u8 },
    Fill { epoch: u32, number: u64, bytes: &'a [u8] },
    Gone { epoch: u32, ranges: NumberRanges },
}

const NO_FORK: u64 = u64::MAX;
const RANGE_BYTES: usize = 12;

impl<'a> Control<'a> {
    /// Its kind on the wire.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Challenge { .. } => 2,
            Self::Open { .. } => 3,
            Self::Opened { .. } => 4,
            Self::Held { .. } => 5,
            Self::Missing { .. } => 6,
            Self::Unknown { .. } => 7,
            Self::Fill { .. } => 8,
            Self::Gone { .. } => 9,
        }
    }

    /// Writes the message into `out`, replacing earlier content.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[CONTROL_VERSION, self.kind()]);
        match self {
            Self::Hello { epoch } => put(out, &[*epoch]),
            Self::Challenge { epoch, decoder, cookie, granules } => put(out, &[*epoch, *decoder, *cookie, *granules]),
            Self::Open { epoch, decoder, cookie, granules, next, parent } => {
                let Parent { epoch: parent, fork } = parent.unwrap_or(Parent { epoch: 0, fork: NO_FORK });
                put(out, &[*epoch, *decoder, *cookie, *granules, parent]);
                out.extend_from_slice(&next.to_be_bytes());
                out.extend_from_slice(&fork.to_be_bytes());
            }
            Self::Opened { epoch, decoder, cookie } => put(out, &[*epoch, *decoder, *cookie]),
            Self::Held { epoch, decoder, ranges } | Self::Missing { epoch, decoder, ranges } => {
                put(out, &[*epoch, *decoder]);
                put_ranges(out, ranges);
            }
            Self::Unknown { decoder, tag } => {
                put(out, &[*decoder]);
                out.push(*tag);
            }
            Self::Fill { epoch, number, bytes } => {
                put(out, &[*epoch]);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Gone { epoch, ranges } => {
                put(out, &[*epoch]);
                put_ranges(out, ranges);
            }
        }
    }

    /// Checks and parses a message.
    ///
    /// # Errors
    /// It is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ControlError> {
        let ([version, kind], body) = bytes.split_first_chunk::<2>().ok_or(ControlError::Length)?;
        if *version != CONTROL_VERSION {
            return Err(ControlError::Version(*version));
        }
        let mut body = body;
        let message = parse_body(*kind, &mut body)?;
        if body.is_empty() { Ok(message) } else { Err(ControlError::Length) }
    }
}

fn parse_body<'a>(kind: u8, body: &mut &'a [u8]) -> Result<Control<'a>, ControlError> {
    Ok(match kind {
        1 => Control::Hello { epoch: number(body)? },
        2 => {
            let [epoch, decoder, cookie, granules] = numbers(body)?;
            Control::Challenge { epoch, decoder, cookie, granules }
        }
        3 => {
            let [epoch, decoder, cookie, granules, parent] = numbers(body)?;
            let [next, fork] = [long(body)?, long(body)?];
            let parent = (fork != NO_FORK).then_some(Parent { epoch: parent, fork });
            if next > NUMBER_MAX || parent.is_some_and(|parent| parent.fork > next) {
                return Err(ControlError::Range);
            }
            Control::Open { epoch, decoder, cookie, granules, next, parent }
        }
        4 => {
            let [epoch, decoder, cookie] = numbers(body)?;
            Control::Opened { epoch, decoder, cookie }
        }
        5 => {
            let [epoch, decoder] = numbers(body)?;
            Control::Held { epoch, decoder, ranges: ranges(body)? }
        }
        6 => {
            let [epoch, decoder] = numbers(body)?;
            Control::Missing { epoch, decoder, ranges: ranges(body)? }
        }
        7 => Control::Unknown { decoder: number(body)?, tag: take::<1>(body).ok_or(ControlError::Length)?[0] },
        8 => {
            let [epoch, number] = [u64::from(number(body)?), long(body)?];
            let bytes = core::mem::take(body);
            if bytes.is_empty() || !bytes.len().is_multiple_of(GRANULE_BYTES) || bytes.len() > FILL_BYTES_MAX {
                return Err(ControlError::Length);
            }
            if number > NUMBER_MAX {
                return Err(ControlError::Range);
            }
            Control::Fill { epoch: epoch as u32, number, bytes }
        }
        9 => Control::Gone { epoch: number(body)?, ranges: ranges(body)? },
        other => return Err(ControlError::Kind(other)),
    })
}

const FILL_BYTES_MAX: usize = FILL_GRANULES_MAX * GRANULE_BYTES;
/// No stream reaches it; sums of a few numbers, also in bytes, stay within 64 bits.
pub(crate) const NUMBER_MAX: u64 = 1 << 56;

fn put(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[Range<u64>]) {
    for range in ranges.iter().take(RANGES_MAX) {
        out.extend_from_slice(&range.start.to_be_bytes());
        let count = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_be_bytes());
    }
}

fn number(body: &mut &[u8]) -> Result<u32, ControlError> {
    take(body).map(u32::from_be_bytes).ok_or(ControlError::Length)
}

fn numbers<const N: usize>(body: &mut &[u8]) -> Result<[u32; N], ControlError> {
    let mut read = [0; N];
    for slot in &mut read {
        *slot = number(body)?;
    }
    Ok(read)
}

fn long(body: &mut &[u8]) -> Result<u64, ControlError> {
    take(body).map(u64::from_be_bytes).ok_or(ControlError::Length)
}

fn ranges(body: &mut &[u8]) -> Result<NumberRanges, ControlError> {
    let bytes = core::mem::take(body);
    let (ranges, rest) = bytes.as_chunks::<RANGE_BYTES>();
    if !rest.is_empty() || ranges.len() > RANGES_MAX {
        return Err(ControlError::Length);
    }
    let read = |mut range: &[u8]| -> Result<Range<u64>, ControlError> {
        let [start, count] = [long(&mut range)?, u64::from(number(&mut range)?)];
        if start > NUMBER_MAX || count == 0 { Err(ControlError::Range) } else { Ok(start..start + count) }
    };
    ranges.iter().map(|range| read(range)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_message_is_read_as_it_was_written_and_not_when_truncated() {
        let ranges = || vec![3..7, (1 << 40)..(1 << 40) + 9];
        let parent = Some(Parent { epoch: 4, fork: 8 });
        let messages = [
            Control::Hello { epoch: 9 },
            Control::Challenge { epoch: 9, decoder: 8, cookie: 7, granules: 6 },
            Control::Open { epoch: 9, decoder: 8, cookie: 7, granules: 6, next: 1 << 33, parent },
            Control::Open { epoch: 9, decoder: 8, cookie: 7, granules: 6, next: 0, parent: None },
            Control::Opened { epoch: 9, decoder: 8, cookie: 7 },
            Control::Held { epoch: 9, decoder: 8, ranges: ranges() },
            Control::Missing { epoch: 9, decoder: 8, ranges: ranges() },
            Control::Unknown { decoder: 8, tag: 31 },
            Control::Fill { epoch: 9, number: 5, bytes: &[7; 128] },
            Control::Gone { epoch: 9, ranges: ranges() },
        ];
        let mut out = Vec::new();
        for message in messages {
            message.write(&mut out);
            assert_eq!(Control::parse(&out), Ok(message));
            assert!(Control::parse(&out[..out.len() - 1]).is_err());
            assert!(out.len() <= 1200, "it fits a packet");
        }
    }
}
