//! Messages of anti-entropy, by which two nodes compare replicas. None takes a number: what is lost is asked for again.
//!
//! | type | message | body |
//! |---|---|---|
//! | 0x8002 | Digests | buckets u16, 0 u16, connections sent u32; for each bucket: its number u16, flags u16 (1 unsettled), digest u32 |
//! | 0x8003 | Listing | question u16, part u16, flags u16 (1 last, 2 something unsettled), 0 u16; for each connection: handle u32 (highest bit: unsettled), item u64 |
//! | 0x8004 | Ask | kind u16, then by kind: |
//! | | 1 digests | buckets u16 (0: as many as fit), copies u32, a set of buckets unless all |
//! | | 2 listing | buckets u16, question u16, 0 u16, a set of buckets |
//! | | 3 retransmit | 0 u16; for each connection: handle u32, item u64 |
//! | | 4 still there? | 0 u16; the name of a connection, as in a Delete |
//!
//! A set of buckets is a u64 for each 64 buckets, the lowest bit the first bucket. Handles are the owner's.

use alloc::vec::Vec;

use super::{ASK, DIGESTS, LISTING, begin, finish};
use crate::handle::Handle;
use crate::item::{BUCKETS_MAX, Buckets, Item};

/// In a bucket's flags: messages about its connections are in flight.
const UNSETTLED: u16 = 1;
/// In a listing's flags: this is the last part.
const LAST: u16 = 1;
/// In a listing's flags: deletions in flight concern connections that may be in it, or missing.
const ENDS_UNSETTLED: u16 = 2;

/// Bytes of a bucket in [`DigestsView`].
pub(crate) const BUCKET_BYTES: usize = 8;
/// Bytes of a connection in [`ListingView`] and in an [`AskView::Retransmit`].
pub(crate) const LISTED_BYTES: usize = 12;
/// Bytes of these messages before what repeats, the message's own header included.
pub(crate) const FIXED_BYTES: usize = 12;

const KIND_DIGESTS: u16 = 1;
const KIND_LISTING: u16 = 2;
const KIND_RETRANSMIT: u16 = 3;
const KIND_STILL_THERE: u16 = 4;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put_words(out: &mut Vec<u8>, words: [u16; 2]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

/// A number of buckets that nodes compare in: a power of two.
fn checked_buckets(buckets: u16) -> Option<u16> {
    (buckets.is_power_of_two() && buckets <= BUCKETS_MAX).then_some(buckets)
}

/// A connection that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Listed {
    /// The teller's.
    pub(crate) handle: Handle,
    /// A message about it is in flight. The handle's highest bit on the wire, which no handle has.
    pub(crate) is_unsettled: bool,
    pub(crate) item: Item,
}

const LISTED_UNSETTLED: u32 = 1 << 31;

fn listed(bytes: &[u8]) -> impl Iterator<Item = Listed> + '_ {
    bytes.as_chunks::<LISTED_BYTES>().0.iter().map(|bytes| {
        let word = u32_at(bytes, 0);
        let item = u64::from(u32_at(bytes, 4)) << 32 | u64::from(u32_at(bytes, 8));
        Listed {
            handle: Handle(word & !LISTED_UNSETTLED),
            is_unsettled: word & LISTED_UNSETTLED != 0,
            item: Item::from_u64(item),
        }
    })
}

fn put_listed(out: &mut Vec<u8>, listed: Listed) {
    let unsettled = if listed.is_unsettled { LISTED_UNSETTLED } else { 0 };
    out.extend_from_slice(&(listed.handle.0 | unsettled).to_be_bytes());
    out.extend_from_slice(&listed.item.to_u64().to_be_bytes());
}

/// A bucket as its teller has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket {
    pub(crate) number: u16,
    pub(crate) is_unsettled: bool,
    pub(crate) digest: u32,
}

/// The body of a Digests message, checked, read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DigestsView<'a> {
    pub(crate) buckets: u16,
    pub(crate) connections: u32,
    each: &'a [u8],
}

impl<'a> DigestsView<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let (fixed, each) = body.split_first_chunk::<8>()?;
        let buckets = checked_buckets(u16_at(fixed, 0))?;
        let view = Self { buckets, connections: u32_at(fixed, 4), each };
        let is_sound = each.len().is_multiple_of(BUCKET_BYTES) && view.each().all(|bucket| bucket.number < buckets);
        is_sound.then_some(view)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = Bucket> + 'a {
        self.each.as_chunks::<BUCKET_BYTES>().0.iter().map(|bytes| Bucket {
            number: u16_at(bytes, 0),
            is_unsettled: u16_at(bytes, 2) & UNSETTLED != 0,
            digest: u32_at(bytes, 4),
        })
    }
}

/// Appends a Digests message.
pub(crate) fn emit_digests(out: &mut Vec<u8>, buckets: u16, connections: u32, each: impl Iterator<Item = Bucket>) {
    let at = begin(out, DIGESTS);
    put_words(out, [buckets, 0]);
    out.extend_from_slice(&connections.to_be_bytes());
    for bucket in each {
        put_words(out, [bucket.number, if bucket.is_unsettled { UNSETTLED } else { 0 }]);
        out.extend_from_slice(&bucket.digest.to_be_bytes());
    }
    finish(out, at);
}

/// The body of a Listing, checked, read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListingView<'a> {
    pub(crate) question: u16,
    pub(crate) part: u16,
    pub(crate) is_last: bool,
    pub(crate) are_ends_unsettled: bool,
    each: &'a [u8],
}

impl<'a> ListingView<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let (fixed, each) = body.split_first_chunk::<8>()?;
        let flags = u16_at(fixed, 4);
        each.len().is_multiple_of(LISTED_BYTES).then_some(Self {
            question: u16_at(fixed, 0),
            part: u16_at(fixed, 2),
            is_last: flags & LAST != 0,
            are_ends_unsettled: flags & ENDS_UNSETTLED != 0,
            each,
        })
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = Listed> + 'a {
        listed(self.each)
    }
}

/// A Listing that is being written.
pub(crate) struct ListingWriter {
    at: usize,
}

impl ListingWriter {
    pub(crate) fn begin(out: &mut Vec<u8>, question: u16, part: u16) -> Self {
        let at = begin(out, LISTING);
        put_words(out, [question, part]);
        put_words(out, [0, 0]);
        Self { at }
    }

    pub(crate) fn push(&self, out: &mut Vec<u8>, listed: Listed) {
        put_listed(out, listed);
    }

    pub(crate) fn finish(self, out: &mut Vec<u8>, is_last: bool, are_ends_unsettled: bool) {
        let flags = if is_last { LAST } else { 0 } | if are_ends_unsettled { ENDS_UNSETTLED } else { 0 };
        out[self.at + 8..self.at + 10].copy_from_slice(&flags.to_be_bytes());
        finish(out, self.at);
    }
}

/// The body of an Ask, checked, read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AskView<'a> {
    /// Digests of these of so many buckets; `None`: of all of as many buckets as the teller thinks fit. The asker has so
    /// many replicas.
    Digests { copies: u32, wanted: Option<(u16, Buckets)> },
    /// All connections in these of so many buckets.
    Listing { buckets: u16, question: u16, wanted: Buckets },
    /// Retransmit these.
    Retransmit(RetransmitView<'a>),
    /// Is the connection with this name still there?
    StillThere(&'a [u8]),
}

/// Connections to be retransmitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetransmitView<'a>(&'a [u8]);

impl<'a> RetransmitView<'a> {
    pub(crate) fn each(&self) -> impl Iterator<Item = Listed> + 'a {
        listed(self.0)
    }
}

impl<'a> AskView<'a> {
    /// `None` when it cannot be read, or is of a kind that a later release has.
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = body.split_first_chunk::<4>()?;
        let (kind, word) = (u16_at(fixed, 0), u16_at(fixed, 2));
        match kind {
            KIND_DIGESTS => {
                let (copies, set) = rest.split_first_chunk::<4>()?;
                let wanted = if word == 0 { None } else { Some(read_set(word, set)?) };
                Some(Self::Digests { copies: u32::from_be_bytes(*copies), wanted })
            }
            KIND_LISTING => {
                let (question, set) = rest.split_first_chunk::<4>()?;
                let (buckets, wanted) = read_set(word, set)?;
                Some(Self::Listing { buckets, question: u16_at(question, 0), wanted })
            }
            KIND_RETRANSMIT => {
                rest.len().is_multiple_of(LISTED_BYTES).then_some(Self::Retransmit(RetransmitView(rest)))
            }
            KIND_STILL_THERE => Some(Self::StillThere(rest)),
            _ => None,
        }
    }
}

fn read_set(buckets: u16, bytes: &[u8]) -> Option<(u16, Buckets)> {
    let buckets = checked_buckets(buckets)?;
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() || words.len() != usize::from(buckets).div_ceil(64) {
        return None;
    }
    Some((buckets, Buckets::from_words(words.iter().map(|word| u64::from_be_bytes(*word)))))
}

/// A question for the peer.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Digests { copies: u32, wanted: Option<(u16, Buckets)> },
    Listing { buckets: u16, question: u16, wanted: Buckets },
    Retransmit(Vec<Listed>),
    StillThere(Vec<u8>),
}

impl Ask {
    /// The most connections in one [`Ask::Retransmit`].
    pub(crate) const RETRANSMIT_MAX: usize = 32;

    /// Bytes of the message at most.
    pub(crate) fn length_bytes(&self) -> usize {
        let repeats = match self {
            Self::Digests { .. } | Self::Listing { .. } => usize::from(BUCKETS_MAX) / 8,
            Self::Retransmit(each) => each.len() * LISTED_BYTES,
            Self::StillThere(name) => name.len(),
        };
        FIXED_BYTES + repeats + 4
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let at = begin(out, ASK);
        let put_set = |out: &mut Vec<u8>, buckets, set: &Buckets| {
            set.words(buckets).iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        };
        match self {
            Self::Digests { copies, wanted } => {
                put_words(out, [KIND_DIGESTS, wanted.map_or(0, |(buckets, _)| buckets)]);
                out.extend_from_slice(&copies.to_be_bytes());
                if let Some((buckets, set)) = wanted {
                    put_set(out, *buckets, set);
                }
            }
            Self::Listing { buckets, question, wanted } => {
                put_words(out, [KIND_LISTING, *buckets]);
                put_words(out, [*question, 0]);
                put_set(out, *buckets, wanted);
            }
            Self::Retransmit(each) => {
                put_words(out, [KIND_RETRANSMIT, 0]);
                each.iter().for_each(|listed| put_listed(out, *listed));
            }
            Self::StillThere(name) => {
                put_words(out, [KIND_STILL_THERE, 0]);
                out.extend_from_slice(name);
            }
        }
        finish(out, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::wire::tlv;
    use proptest::prelude::*;
    use std::vec;

    fn body(bytes: &[u8], expected: u16) -> &[u8] {
        let (kind, body) = tlv::read(bytes).next().unwrap().unwrap();
        assert_eq!(kind, expected);
        body
    }

    fn emitted(ask: &Ask) -> Vec<u8> {
        let mut bytes = Vec::new();
        ask.emit(&mut bytes);
        assert!(bytes.len() <= ask.length_bytes());
        bytes
    }

    #[test]
    fn digests_come_back_as_they_were_sent() {
        let buckets = [
            Bucket { number: 3, is_unsettled: true, digest: 0 },
            Bucket { number: 63, is_unsettled: false, digest: 7 },
        ];
        let mut bytes = Vec::new();
        emit_digests(&mut bytes, 64, 12, buckets.into_iter());
        let view = DigestsView::parse(body(&bytes, DIGESTS)).unwrap();
        assert_eq!((view.buckets, view.connections, view.each().collect::<Vec<_>>()), (64, 12, buckets.to_vec()));
    }

    #[test]
    fn a_listing_comes_back_as_it_was_sent() {
        let connections = vec![
            Listed { handle: Handle(7), is_unsettled: false, item: Item::new(1, 2) },
            Listed { handle: Handle((1 << 31) - 1), is_unsettled: true, item: Item::new(u32::MAX, u32::MAX) },
        ];
        let mut bytes = Vec::new();
        let writer = ListingWriter::begin(&mut bytes, 5, 2);
        connections.iter().for_each(|listed| writer.push(&mut bytes, *listed));
        writer.finish(&mut bytes, true, false);
        let view = ListingView::parse(body(&bytes, LISTING)).unwrap();
        assert_eq!((view.question, view.part, view.is_last, view.are_ends_unsettled), (5, 2, true, false));
        assert_eq!(view.each().collect::<Vec<_>>(), connections);
    }

    #[test]
    fn questions_come_back_as_they_were_asked() {
        let mut set = Buckets::EMPTY;
        [0, 65, 1023].into_iter().for_each(|bucket| set.insert(bucket));
        let bytes = emitted(&Ask::Digests { copies: 9, wanted: Some((1024, set)) });
        let Some(AskView::Digests { copies: 9, wanted: Some((1024, read)) }) = AskView::parse(body(&bytes, ASK)) else {
            panic!("a question for digests")
        };
        assert_eq!(read, set);
        let bytes = emitted(&Ask::Digests { copies: 9, wanted: None });
        assert!(matches!(AskView::parse(body(&bytes, ASK)), Some(AskView::Digests { copies: 9, wanted: None })));
        let bytes = emitted(&Ask::Listing { buckets: 64, question: 3, wanted: Buckets::all(64) });
        let Some(AskView::Listing { buckets: 64, question: 3, wanted }) = AskView::parse(body(&bytes, ASK)) else {
            panic!("a question for a listing")
        };
        assert_eq!(wanted.len(), 64);
        let connections = vec![Listed { handle: Handle(1), is_unsettled: false, item: Item::new(2, 3) }];
        let bytes = emitted(&Ask::Retransmit(connections.clone()));
        let Some(AskView::Retransmit(view)) = AskView::parse(body(&bytes, ASK)) else {
            panic!("a request to retransmit")
        };
        assert_eq!(view.each().collect::<Vec<_>>(), connections);
        let bytes = emitted(&Ask::StillThere(b"namename".to_vec()));
        assert!(matches!(AskView::parse(body(&bytes, ASK)), Some(AskView::StillThere(b"namename"))));
    }

    #[test]
    fn numbers_of_buckets_that_nobody_compares_in_are_refused() {
        for buckets in [0_u16, 3, 2048] {
            let mut bytes = buckets.to_be_bytes().to_vec();
            bytes.resize(8, 0);
            assert!(DigestsView::parse(&bytes).is_none(), "{buckets}");
        }
        let outside = [0, 64, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0];
        assert!(DigestsView::parse(&outside).is_none(), "bucket 64 of 64");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = DigestsView::parse(&bytes).map(|view| view.each().count());
            let _ = ListingView::parse(&bytes).map(|view| view.each().count());
            let _ = AskView::parse(&bytes);
        }
    }
}
