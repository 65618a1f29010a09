//! What goes between two tunnels: three kinds of UDP datagrams.
//!
//! ```text
//!  0       1       2       3
//! +-------+-------+---------------+
//! |version| kind  |                    every datagram: 10 bytes
//! +-------+-------+
//! | session of the sender, u32    |
//! | session of the receiver, u32  |   0: not known
//! +-------------------------------+
//! kind 1, Data:   number u48, numbers since the oldest that still may come u16, offset of the first record that
//!                 begins in the body u16 (all ones: none), body
//! kind 2, Ack:    next u48, end u48, ranges missing between them: first u48, count u16 each
//! kind 3, Alive:  bytes of the largest datagram received lately u16, 64-byte granules of the cache u32, padding
//! ```
//! Version is 2. All numbers are in network order.

use alloc::vec::Vec;
use core::ops::Range;

use replication::secure::is_channel;

/// The version of these datagrams.
pub const TUNNEL_VERSION: u8 = 2;
/// Bytes that every datagram begins with.
pub const HEADER_BYTES: usize = 10;
/// Bytes before the body of a datagram of kind Data.
pub const DATA_HEADER_BYTES: usize = HEADER_BYTES + 10;
/// Ranges that an acknowledgement lists. What lies behind them is not spoken of yet.
pub const MISSING_RANGES_MAX: usize = 64;

const NUMBER_MAX: u64 = (1 << 48) - 1;
const NO_RECORD: u16 = u16::MAX;

/// Why a datagram is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatagramError {
    /// It ends before it should.
    #[error("the datagram is too short for its kind")]
    Truncated,
    /// A version that is not known.
    #[error("the datagram has version {0}, and only 2 is known: the other site runs another release")]
    Version(u8),
    /// It is sealed, and this end has no key.
    #[error("the datagram is encrypted: the other site has [redundancy.security], and this one does not")]
    Sealed,
    /// It is not sealed by the other end, which it should be.
    #[error("the datagram is not encrypted under a key of this tunnel")]
    NotSealed,
    /// A kind that is not known.
    #[error("the datagram is of kind {0}, which is not known")]
    Kind(u8),
    /// A range or number without sense.
    #[error("the datagram contradicts itself")]
    Contradiction,
}

/// Whose datagram it is, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sessions {
    /// The sender's.
    pub from: u32,
    /// The receiver's, as the sender knows it; 0 if it does not.
    pub to: u32,
}

/// A datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datagram<'a> {
    /// A piece of the stream of records.
    Data {
        /// Its number in the session.
        number: u64,
        /// Nothing before this number will come any more.
        base: u64,
        /// Where in the body the first record begins, if one does.
        first_record: Option<u16>,
        /// The piece.
        body: &'a [u8],
    },
    /// What came.
    Ack {
        /// All before is here, or given up.
        next: u64,
        /// Of what is from here on nothing is said.
        end: u64,
        /// What between the two is not here.
        missing: Vec<Range<u64>>,
    },
    /// A keep-alive.
    Alive {
        /// Bytes of the largest datagram received lately.
        received_bytes: u16,
        /// The size of the sender's caches in granules.
        granules: u32,
    },
}

impl<'a> Datagram<'a> {
    /// Writes it into `out`, in place of what was there.
    pub fn write(&self, sessions: Sessions, out: &mut Vec<u8>) {
        out.clear();
        let kind = match self {
            Self::Data { .. } => 1,
            Self::Ack { .. } => 2,
            Self::Alive { .. } => 3,
        };
        out.extend_from_slice(&[TUNNEL_VERSION, kind]);
        out.extend_from_slice(&sessions.from.to_be_bytes());
        out.extend_from_slice(&sessions.to.to_be_bytes());
        match self {
            Self::Data { number, base, first_record, body } => {
                put_number(out, *number);
                // What is kept is bounded by less, see the sender.
                let since = u16::try_from(number - base).unwrap_or(u16::MAX);
                out.extend_from_slice(&since.to_be_bytes());
                out.extend_from_slice(&first_record.unwrap_or(NO_RECORD).to_be_bytes());
                out.extend_from_slice(body);
            }
            Self::Ack { next, end, missing } => {
                put_number(out, *next);
                put_number(out, *end);
                for range in missing.iter().take(MISSING_RANGES_MAX) {
                    put_number(out, range.start);
                    let count = u16::try_from(range.end - range.start).unwrap_or(u16::MAX);
                    out.extend_from_slice(&count.to_be_bytes());
                }
            }
            Self::Alive { received_bytes, granules } => {
                out.extend_from_slice(&received_bytes.to_be_bytes());
                out.extend_from_slice(&granules.to_be_bytes());
            }
        }
    }

    /// Checks and reads one.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &'a [u8]) -> Result<(Sessions, Self), DatagramError> {
        let mut rest = bytes;
        let [version, kind] = take(&mut rest)?;
        if is_channel(bytes) {
            return Err(DatagramError::Sealed);
        }
        if version != TUNNEL_VERSION {
            return Err(DatagramError::Version(version));
        }
        let from = u32::from_be_bytes(take(&mut rest)?);
        let to = u32::from_be_bytes(take(&mut rest)?);
        let datagram = match kind {
            1 => parse_data(rest)?,
            2 => parse_ack(rest)?,
            3 => {
                let received_bytes = u16::from_be_bytes(take(&mut rest)?);
                Self::Alive { received_bytes, granules: u32::from_be_bytes(take(&mut rest)?) }
            }
            other => return Err(DatagramError::Kind(other)),
        };
        Ok((Sessions { from, to }, datagram))
    }
}

fn parse_data(mut rest: &[u8]) -> Result<Datagram<'_>, DatagramError> {
    let number = take_number(&mut rest)?;
    let since = u64::from(u16::from_be_bytes(take(&mut rest)?));
    let first = u16::from_be_bytes(take(&mut rest)?);
    let first_record = (first != NO_RECORD).then_some(first);
    let base = number.checked_sub(since).ok_or(DatagramError::Contradiction)?;
    if first_record.is_some_and(|first| usize::from(first) >= rest.len()) {
        return Err(DatagramError::Contradiction);
    }
    Ok(Datagram::Data { number, base, first_record, body: rest })
}

fn parse_ack(mut rest: &[u8]) -> Result<Datagram<'_>, DatagramError> {
    let (next, end) = (take_number(&mut rest)?, take_number(&mut rest)?);
    let mut missing = Vec::new();
    let mut at = next;
    while !rest.is_empty() && missing.len() < MISSING_RANGES_MAX {
        let start = take_number(&mut rest)?;
        let range = start..start + u64::from(u16::from_be_bytes(take(&mut rest)?));
        if range.start < at || range.end > end || range.is_empty() {
            return Err(DatagramError::Contradiction);
        }
        at = range.end;
        missing.push(range);
    }
    if next > end { Err(DatagramError::Contradiction) } else { Ok(Datagram::Ack { next, end, missing }) }
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&(number & NUMBER_MAX).to_be_bytes()[2..]);
}

fn take_number(rest: &mut &[u8]) -> Result<u64, DatagramError> {
    let [a, b, c, d, e, f] = take(rest)?;
    Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DatagramError> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or(DatagramError::Truncated)?;
    *rest = after;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn datagrams_are_read_as_they_were_written() {
        let sessions = Sessions { from: 7, to: 0xffff_0000 };
        let datagrams = [
            Datagram::Data { number: 1 << 40, base: (1 << 40) - 9, first_record: Some(2), body: b"abcd" },
            Datagram::Data { number: 0, base: 0, first_record: None, body: b"" },
            Datagram::Ack { next: 5, end: 100, missing: vec![5..6, 20..90] },
            Datagram::Alive { received_bytes: 1472, granules: 163_840 },
        ];
        let mut out = Vec::new();
        for datagram in datagrams {
            datagram.write(sessions, &mut out);
            assert_eq!(Datagram::parse(&out), Ok((sessions, datagram)));
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 1..4_u8) {
            let mut bytes = bytes;
            if bytes.len() > 2 {
                bytes[..2].copy_from_slice(&[TUNNEL_VERSION, kind]);
            }
            if let Ok((sessions, datagram @ Datagram::Ack { .. })) = Datagram::parse(&bytes) {
                let mut out = Vec::new();
                datagram.write(sessions, &mut out);
                prop_assert_eq!(Datagram::parse(&out), Ok((sessions, datagram)));
            }
        }
    }
}
