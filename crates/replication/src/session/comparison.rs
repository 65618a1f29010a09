//! Where the comparison of replicas meets the session: questions, answers, and notes of what changed in the table.

use alloc::vec::Vec;

use flow::Instant;
use flow::random::SplitMix64;

use super::anti_entropy::ComparisonOutcome;
use super::sender::COMPARISON_BYTES_MAX;
use super::status::SessionEvent;
use super::{Handle, Holding, Link, Session, Store};
use crate::item::Item;
use crate::message::anti_entropy::{AskView, DigestsView, ListingView};
use crate::message::{ASK, DIGESTS, Header, LISTING};

impl Session {
    /// What lies in a slot changed, where replicas of the peer's have a part in it: one was entered, renewed, removed or taken
    /// over, or a connection of this node's became one. To be called before the next datagram is handled or polled.
    /// `holding` returns the holding, given the key of [`Store::item`].
    pub fn note_copy(&mut self, handle: Handle, holding: impl FnOnce(u64) -> Holding) {
        let holding = holding(self.sender.key());
        let before = self.sender.hold(handle, holding);
        let after = if let Holding::Peers(item) = holding { item } else { Item::NONE };
        if before != after {
            self.anti_entropy.changed(before, after);
        }
    }

    /// Whether a slot holds a replica of the peer's, as far as [`Session::note_copy`] was called.
    #[must_use]
    pub fn holds_copy(&self, handle: Handle) -> bool {
        !self.sender.changes().held(handle).is_none()
    }

    /// Replicates the end of a connection that is not in this node's table and that the peer has sent. `attributes` are as in
    /// [`Session::mark_deleted`].
    pub fn replicate_end(&mut self, attributes: &[u8]) {
        self.sender.replicate_end(attributes, Item::NONE);
    }

    /// Drops what [`Session::poll_unsent_end`] would bring next, for nodes without tombstones; false when there is none.
    pub fn drop_unsent_end(&mut self) -> bool {
        self.sender.pop_unsent_end().is_some()
    }

    /// Replaces `out` with the attributes of an ended connection that the peer may know. Its end is not sent, as the peer is
    /// away: when it is back, it may send the connection. False, and `out` empty, when there is none.
    pub fn poll_unsent_end(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some(attributes) = self.sender.pop_unsent_end() else { return false };
        out.extend_from_slice(&attributes);
        true
    }

    /// A slot is about to be forgotten.
    pub(super) fn note_gone(&mut self, handle: Handle) {
        let before = self.sender.changes().held(handle);
        if !before.is_none() {
            self.anti_entropy.changed(before, Item::NONE);
        }
    }

    /// The key of the items, the same on both nodes and another with each pair of sessions.
    pub(super) fn item_key(&self) -> u64 {
        let theirs = self.peer_session.unwrap_or(0);
        let (low, high) = (self.session.min(theirs), self.session.max(theirs));
        SplitMix64::new(u64::from(low) << 32 | u64::from(high)).next()
    }

    pub(super) fn comparison_at(&self) -> Option<Instant> {
        let question = self.anti_entropy.next_question().map(|_| Instant::ZERO);
        question.or_else(|| [self.anti_entropy.poll_timeout(), self.answers.at()].into_iter().flatten().min())
    }

    /// Does what is due of the comparison.
    pub(super) fn compare(&mut self, now: Instant, store: &impl Store) {
        self.anti_entropy.scan(now, self.peer, &mut self.sender, store);
        self.anti_entropy.handle_timeout(now, &self.sender, store);
        if self.anti_entropy.takes_round() {
            self.request_resync();
        }
        self.push_comparison_events();
    }

    fn push_comparison_events(&mut self) {
        while let Some(report) = self.anti_entropy.poll_report() {
            self.events.push(match report {
                ComparisonOutcome::Diverged(connections) => SessionEvent::Diverged { connections },
                ComparisonOutcome::Agreed(repaired) => SessionEvent::Agreed { repaired },
            });
        }
    }

    /// Appends questions and answers. True if there were any.
    pub(super) fn fill_comparison(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        debug_assert!(self.link == Link::Open, "nobody else would answer");
        let datagram_max = self.config.datagram_bytes_max;
        let length_max =
            if self.sender.queued() == 0 { datagram_max } else { datagram_max.min(buf.len() + COMPARISON_BYTES_MAX) };
        let before = buf.len();
        while let Some(question) = self.anti_entropy.next_question() {
            if buf.len() + question.length_bytes() > length_max {
                break;
            }
            question.emit(buf);
            self.anti_entropy.asked();
        }
        self.sender.fill_answers(now, &mut self.answers, length_max, buf);
        buf.len() > before
    }

    /// A message of the comparison. One that cannot be read is of a later release, or will come again.
    pub(super) fn handle_comparison(
        &mut self,
        now: Instant,
        header: &Header,
        message_type: u16,
        body: &[u8],
        store: &mut impl Store,
    ) {
        match message_type {
            DIGESTS => {
                if let Some(digests) = DigestsView::parse(body) {
                    let is_exact = self.receiver.is_at(header.first);
                    self.anti_entropy.handle_digests(now, &digests, is_exact, &self.sender, store);
                }
            }
            LISTING => {
                if let Some(part) = ListingView::parse(body) {
                    self.anti_entropy.handle_listing(now, &part);
                }
            }
            ASK => {
                if let Some(ask) = AskView::parse(body) {
                    self.sender.asked(now, self.peer, &ask, &mut self.answers, store);
                }
            }
            _ => {}
        }
        self.push_comparison_events();
    }
}
