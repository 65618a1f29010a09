//! Answers to a peer that compares its replicas with what was sent to it.
//!
//! Digests cover what was sent to the peer, message by message. They are exact at their place in the stream of messages, but
//! for buckets with messages in flight, which are marked. A listing is gathered by a scan over all handles, a part at a time.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};

use super::{Changes, Item, Sender, Stage};
use crate::item::{Buckets, buckets_for};
use crate::message::anti_entropy::{
    AskView, BUCKET_BYTES, Bucket, FIXED_BYTES, LISTED_BYTES, Listed, ListingWriter, emit_digests,
};
use crate::session::store::Holding;
use crate::session::{Handle, Store};

/// Handles that are looked at for one part of a listing.
const LISTING_STEPS_MAX: u32 = 8192;
/// Time between two parts of a listing, so that they leave room for changes.
const LISTING_PACE: Duration = Duration::from_millis(1);
/// While changes wait, a datagram gives this many bytes at most to answers and questions.
pub(in crate::session) const COMPARISON_BYTES_MAX: usize = 512;

/// What the peer asked for and has not got yet. Of either kind, a new question takes the place of the former.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(in crate::session) struct Answers {
    digests: Option<Digests>,
    listing: Option<Listing>,
}

#[cfg_attr(test, derive(Clone))]
struct Digests {
    buckets: u16,
    wanted: Buckets,
}

#[cfg_attr(test, derive(Clone))]
struct Listing {
    buckets: u16,
    question: u16,
    wanted: Buckets,
    part: u16,
    cursor: u32,
    at: Instant,
}

impl Answers {
    /// When there is something to answer next.
    pub(in crate::session) fn at(&self) -> Option<Instant> {
        let digests = self.digests.as_ref().map(|_| Instant::ZERO);
        digests.or_else(|| self.listing.as_ref().map(|listing| listing.at))
    }

    pub(in crate::session) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Sender {
    /// The key of this session's items.
    pub(in crate::session) const fn key(&self) -> u64 {
        self.key
    }

    pub(in crate::session) const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// As [`Changes::hold`].
    pub(in crate::session) fn hold(&mut self, handle: Handle, holding: Holding) -> Item {
        self.changes.hold(handle, holding)
    }

    /// Whether messages in flight concern the bucket.
    pub(in crate::session) fn is_unsettled(&self, bucket: u16, buckets: u16) -> bool {
        self.changes.unsettled.is_any(bucket, buckets) || self.deletions.unsettled.is_any(bucket, buckets)
    }

    /// Takes a question. During a full synchronisation it is not answered: it will come again.
    pub(in crate::session) fn asked(
        &mut self,
        now: Instant,
        peer: NodeId,
        ask: &AskView<'_>,
        answers: &mut Answers,
        store: &mut impl Store,
    ) {
        if self.full_sync.stage != Stage::Done {
            return;
        }
        match ask {
            AskView::Digests { copies, wanted } => {
                let (buckets, wanted) = wanted.unwrap_or_else(|| {
                    let buckets = buckets_for(self.changes.sent_items.count().max(*copies));
                    (buckets, Buckets::all(buckets))
                });
                answers.digests = Some(Digests { buckets, wanted });
            }
            AskView::Listing { buckets, question, wanted } => {
                let (buckets, question, wanted) = (*buckets, *question, *wanted);
                answers.listing = Some(Listing { buckets, question, wanted, part: 0, cursor: 0, at: now });
            }
            AskView::Retransmit(listed) => {
                for Listed { handle, item, .. } in listed.each() {
                    if !item.is_none() && self.changes.last_sent(handle).0 == item {
                        self.mark_changed(handle);
                    }
                }
            }
            AskView::StillThere(name) => match store.answer_for(now, peer, name) {
                Some(handle) => self.mark_changed(handle),
                None => self.replicate_end(name, Item::NONE),
            },
        }
    }

    /// Appends a part of what was asked for, up to `length_max` bytes of the datagram. True if there was something.
    pub(in crate::session) fn fill_answers(
        &mut self,
        now: Instant,
        answers: &mut Answers,
        length_max: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.full_sync.stage != Stage::Done {
            answers.clear();
            return false;
        }
        let room = length_max.saturating_sub(out.len() + FIXED_BYTES);
        if room < BUCKET_BYTES.max(LISTED_BYTES) {
            return false;
        }
        if let Some(digests) = &mut answers.digests {
            self.fill_digests(digests, room / BUCKET_BYTES, out);
            if digests.wanted.is_empty() {
                answers.digests = None;
            }
            return true;
        }
        let Some(listing) = answers.listing.as_mut().filter(|listing| listing.at <= now) else { return false };
        if self.fill_listing(now, listing, room / LISTED_BYTES, out) {
            answers.listing = None;
        }
        true
    }

    fn fill_digests(&self, digests: &mut Digests, count_max: usize, out: &mut Vec<u8>) {
        let buckets = digests.buckets;
        let part: Vec<u16> = digests.wanted.iter().take(count_max).collect();
        part.iter().for_each(|number| digests.wanted.remove(*number));
        let each = part.iter().map(|number| Bucket {
            number: *number,
            is_unsettled: self.is_unsettled(*number, buckets),
            digest: self.changes.sent_items.digest(*number, buckets),
        });
        emit_digests(out, buckets, self.changes.sent_items.count(), each);
    }

    /// True when the listing is complete.
    fn fill_listing(&self, now: Instant, listing: &mut Listing, count_max: usize, out: &mut Vec<u8>) -> bool {
        let writer = ListingWriter::begin(out, listing.question, listing.part);
        let end = self.changes.items_end();
        let stop = end.min(listing.cursor.saturating_add(LISTING_STEPS_MAX));
        let mut count = 0;
        while listing.cursor < stop && count < count_max {
            let (item, is_unsettled) = self.changes.last_sent(Handle(listing.cursor));
            if !item.is_none() && listing.wanted.contains(item.bucket(listing.buckets)) {
                writer.push(out, Listed { handle: Handle(listing.cursor), is_unsettled, item });
                count += 1;
            }
            listing.cursor += 1;
        }
        let is_last = listing.cursor >= end;
        let are_ends_unsettled = is_last && self.are_ends_unsettled(listing);
        writer.finish(out, is_last, are_ends_unsettled);
        listing.part = listing.part.wrapping_add(1);
        listing.at = now + LISTING_PACE;
        is_last
    }

    fn are_ends_unsettled(&self, listing: &Listing) -> bool {
        listing.wanted.iter().any(|bucket| self.deletions.unsettled.is_any(bucket, listing.buckets))
    }
}
