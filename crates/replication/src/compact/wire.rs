//! What the datagrams look like. All integers are big-endian.
//!
//! ```text
//! 0         1     2         6
//! 0xc1      kind  stream_number   …        0xc: compact; 1: version; kind: bits 4 to 6 are the stream, 0 the node's own filter,
//!                                   1 and more those that it tells on (super::inherited)
//!
//! by the sender of a filter
//!   1 shape     representation u8, flags u8 (1: symbols), 0 u16, secret 16, shape 32 (filters::shape)
//!   2 words     number u32, an update (filters::exchange)
//!   3 changes   number u32, changes in the coding of the shape (replication::symbol)
//!   4 whole     number u32, entries u64
//!   5 probe     next number u32
//!   6 digests   next number u32, entries u64, first section u32, a digest u32 for each section
//! by its receiver
//!   0x81 ack       number behind the highest received u32, held for µs u32, received: 256 bits, the highest number's first
//!   0x82 ask       new stream_number u32, epoch u64; `stream_number` is the one that is not known
//!   0x83 sections  the number of each section that is to be sent again u32
//!   0x84 refuse    epoch u64, words that it would take at most u64
//! ```

use alloc::vec::Vec;

use filters::Shape;
use filters::shape::SHAPE_BYTES;

use super::config::Representation;
use super::error::CompactError;

/// Bytes of the header: magic number and version, kind, stream_number.
pub(super) const HEADER_BYTES: usize = 6;
/// Bytes before the words or changes of a numbered datagram.
pub(super) const NUMBERED_BYTES: usize = HEADER_BYTES + 4;
/// Bytes before the digests of a datagram of them.
pub(super) const DIGESTS_BYTES: usize = NUMBERED_BYTES + 12;
/// Numbers that an acknowledgement covers; at most so many are in flight.
pub(super) const ACK_NUMBERS: u32 = 256;
/// Sections that a datagram compares or asks for at most.
pub(super) const SECTIONS_MAX: usize = 64;

/// High half of the first byte; the low half is the version.
const MAGIC: u8 = 0xc0;
const VERSION: u8 = 1;

const _: () = assert!(DIGESTS_BYTES + SECTIONS_MAX * 4 <= super::config::DATAGRAM_BYTES_MIN);

pub(super) mod kind {
    //! What datagrams are for: by the sender of a filter below 0x80, by its receiver from there on.
    pub(in super::super) const SHAPE: u8 = 1;
    pub(in super::super) const WORDS: u8 = 2;
    pub(in super::super) const CHANGES: u8 = 3;
    pub(in super::super) const WHOLE: u8 = 4;
    pub(in super::super) const PROBE: u8 = 5;
    pub(in super::super) const DIGESTS: u8 = 6;
    /// The bits of the stream's number.
    pub(in super::super) const STREAM: u8 = 0x70;
    pub(in super::super) const BY_RECEIVER: u8 = 0x80;
    pub(in super::super) const ACK: u8 = 0x81;
    pub(in super::super) const ASK: u8 = 0x82;
    pub(in super::super) const SECTIONS: u8 = 0x83;
    pub(in super::super) const REFUSE: u8 = 0x84;
}

/// For which of the two a datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressee {
    /// The [`super::CompactSender`]: a peer's answer to what it received.
    Sender,
    /// The [`super::CompactReceiver`] of the peer that it comes from.
    Receiver,
}

/// Whether a datagram is one of a compact stream, of whatever version.
#[must_use]
pub fn is_compact(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|byte| byte & 0xf0 == MAGIC)
}

/// For which of the two a datagram is, if it is one of a compact stream.
#[must_use]
pub fn addressee(datagram: &[u8]) -> Option<Addressee> {
    let kind = datagram.get(1).filter(|_| is_compact(datagram))?;
    Some(if kind & kind::BY_RECEIVER == 0 { Addressee::Receiver } else { Addressee::Sender })
}

/// How many of a datagram's bytes are content of the filter: what stands behind the headers. 0 for datagrams that only compare
/// the replica with the original or ask for an acknowledgement, for the description of a filter, and for what is not a datagram
/// of a filter's sender.
#[must_use]
pub fn filter_content_bytes(datagram: &[u8]) -> usize {
    match datagram.get(1).filter(|_| is_compact(datagram)).map(|kind| kind & !kind::STREAM) {
        Some(kind::WORDS | kind::CHANGES | kind::WHOLE) => datagram.len().saturating_sub(NUMBERED_BYTES),
        _ => 0,
    }
}

/// Whether a datagram carries entries, or the removal of entries.
#[must_use]
pub fn carries_entries(datagram: &[u8]) -> bool {
    let kind = datagram.get(1).filter(|_| is_compact(datagram)).map(|kind| kind & !kind::STREAM);
    matches!(kind, Some(kind::WORDS | kind::CHANGES))
}

/// Which of its sender's streams a compact datagram is of: 0 is that of the node's own filter, others are those of inherited
/// filters.
#[must_use]
pub fn stream(datagram: &[u8]) -> u8 {
    datagram.get(1).map_or(0, |kind| (kind & kind::STREAM) >> kind::STREAM.trailing_zeros())
}

/// Makes a compact datagram one of this stream, up to [`super::INHERITED_FILTERS_MAX`]. Answers are of the stream that they answer.
pub fn set_stream(datagram: &mut [u8], stream: u8) {
    if let Some(kind) = datagram.get_mut(1) {
        *kind = *kind & !kind::STREAM | stream << kind::STREAM.trailing_zeros() & kind::STREAM;
    }
}

const _: () = assert!(super::INHERITED_FILTERS_MAX <= (kind::STREAM >> kind::STREAM.trailing_zeros()) as usize);

/// Replaces what is in `out` by a header.
pub(super) fn begin(out: &mut Vec<u8>, kind: u8, stream_number: u32) {
    out.clear();
    out.extend_from_slice(&[MAGIC | VERSION, kind]);
    out.extend_from_slice(&stream_number.to_be_bytes());
}

/// A datagram's kind, stream_number, and what follows.
pub(super) fn parse(datagram: &[u8]) -> Result<(u8, u32, Body<'_>), CompactError> {
    if !is_compact(datagram) {
        return Err(CompactError::NotOurs);
    }
    if datagram[0] & 0xf != VERSION {
        return Err(CompactError::Version(datagram[0] & 0xf));
    }
    let mut body = Body(&datagram[1..]);
    let kind = body.take::<1>()?[0] & !kind::STREAM;
    Ok((kind, body.u32()?, body))
}

/// What has not been read yet of a datagram.
#[derive(Clone, Copy)]
pub(super) struct Body<'a>(pub(super) &'a [u8]);

impl Body<'_> {
    pub(super) fn take<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], CompactError> {
        let (bytes, rest) = self.0.split_first_chunk::<LENGTH>().ok_or(CompactError::Malformed("it ends too soon"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, CompactError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, CompactError> {
        self.take().map(u64::from_be_bytes)
    }

    /// The numbers of 32 bits that make up the rest.
    pub(super) fn numbers(self) -> Result<impl ExactSizeIterator<Item = u32>, CompactError> {
        let (numbers, rest) = self.0.as_chunks::<4>();
        if !rest.is_empty() || numbers.len() > SECTIONS_MAX {
            return Err(CompactError::Malformed("not a row of sections"));
        }
        Ok(numbers.iter().map(|bytes| u32::from_be_bytes(*bytes)))
    }
}

/// What a receiver must know to build and use the filter.
#[derive(Clone, Copy)]
pub(super) struct Announcement {
    pub(super) representation: Representation,
    /// Changes are sent by [`crate::symbol`] and not in whole words.
    pub(super) symbols: bool,
    pub(super) secret: [u64; 2],
    pub(super) shape: Shape,
}

impl Announcement {
    /// What identifies this stream among those before it.
    pub(super) fn epoch(&self) -> u64 {
        filters::Secret::new(self.secret).check()
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.representation.number(), u8::from(self.symbols), 0, 0]);
        self.secret.iter().for_each(|half| out.extend_from_slice(&half.to_be_bytes()));
        out.extend_from_slice(&self.shape.encode(self.epoch()));
    }

    pub(super) fn parse(mut body: Body<'_>) -> Result<Self, CompactError> {
        let [representation, symbols, ..] = body.take::<4>()?;
        let secret = [body.u64()?, body.u64()?];
        let shape = body.take::<SHAPE_BYTES>()?;
        let representation =
            Representation::from_number(representation).ok_or(CompactError::Representation(representation))?;
        let check = filters::Secret::new(secret).check();
        let shape = Shape::decode(&shape, check).map_err(|error| CompactError::Exchange(error.into()))?;
        let fits = match representation {
            Representation::FlowDigest => matches!(shape, Shape::Bloom(_)),
            _ => matches!(shape, Shape::MultiLevel(_, filters::shape::Content::States)),
        };
        if !fits || symbols > 1 {
            return Err(CompactError::Malformed("a shape that does not go with the representation"));
        }
        Ok(Self { representation, symbols: symbols == 1, secret, shape })
    }
}

/// Words of a section: as many as make the filter 4096 sections at most.
pub(super) const fn section_words(words: u32) -> u32 {
    let words = words.div_ceil(4096).next_power_of_two();
    if words < 256 { 256 } else { words }
}
