//! Where the comparison of copies meets the session: questions, answers, and word of what changed in the table.

use alloc::vec::Vec;

use flow::Instant;
use flow::random::SplitMix64;

use super::agreement::Word;
use super::sender::COMPARISON_BYTES_MAX;
use super::status::SessionEvent;
use super::{Handle, Holding, Link, Session, Store};
use crate::item::Item;
use crate::message::agreement::{AskView, DigestsView, ListingView};
use crate::message::{ASK, DIGESTS, Header, LISTING};

impl Session {
    /// What lies in a slot changed, where copies of the peer's have a part in it: one was entered, renewed, removed or taken
    /// over, or a connection of this node's became one. To be called before the next datagram is handled or polled.
    /// `holding` says what lies there, given the key of [`Store::item`].
    pub fn note_copy(&mut self, handle: Handle, holding: impl FnOnce(u64) -> Holding) {
        let holding = holding(self.sender.key());
        let before = self.sender.hold(handle, holding);
        let after = if let Holding::Peers(item) = holding { item } else { Item::NONE };
        if before != after {
            self.agreement.changed(before, after);
        }
    }

    /// A connection has ended that is not in this node's table and that the peer has told of: it is told. `attributes` are as
    /// in [`Session::mark_deleted`].
    pub fn tell_end(&mut self, attributes: &[u8]) {
        self.sender.tell_end(attributes, Item::NONE);
    }

    /// Drops what [`Session::poll_untold_end`] would bring next, for those who remember no ends; false when there is none.
    pub fn drop_untold_end(&mut self) -> bool {
        self.sender.pop_untold_end().is_some()
    }

    /// Replaces `out` with the attributes of a connection that has ended and of which the peer may know, but will not be told
    /// as it is away: when it is back, it may tell of it. False, and `out` empty, when there is none.
    pub fn poll_untold_end(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some(attributes) = self.sender.pop_untold_end() else { return false };
        out.extend_from_slice(&attributes);
        true
    }

    /// A slot is about to be forgotten.
    pub(super) fn note_gone(&mut self, handle: Handle) {
        let before = self.sender.changes().held(handle);
        if !before.is_none() {
            self.agreement.changed(before, Item::NONE);
        }
    }

    /// The key of the items, the same on both nodes and another with each pair of sessions.
    pub(super) fn item_key(&self) -> u64 {
        let theirs = self.peer_session.unwrap_or(0);
        let (low, high) = (self.session.min(theirs), self.session.max(theirs));
        SplitMix64::new(u64::from(low) << 32 | u64::from(high)).next()
    }

    pub(super) fn comparison_at(&self) -> Option<Instant> {
        let question = self.agreement.next_question().map(|_| Instant::ZERO);
        question.or_else(|| [self.agreement.poll_timeout(), self.answers.at()].into_iter().flatten().min())
    }

    /// Does what is due of the comparison.
    pub(super) fn compare(&mut self, now: Instant, store: &impl Store) {
        self.agreement.walk(now, self.peer, &mut self.sender, store);
        self.agreement.handle_timeout(now, &self.sender, store);
        if self.agreement.takes_round() {
            self.request_resync();
        }
        self.tell_agreement();
    }

    fn tell_agreement(&mut self) {
        while let Some(word) = self.agreement.poll_word() {
            self.events.push(match word {
                Word::Diverged(connections) => SessionEvent::Diverged { connections },
                Word::Agreed(repaired) => SessionEvent::Agreed { repaired },
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
        while let Some(question) = self.agreement.next_question() {
            if buf.len() + question.length_bytes() > length_max {
                break;
            }
            question.emit(buf);
            self.agreement.asked();
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
                if let Some(told) = DigestsView::parse(body) {
                    let is_exact = self.receiver.is_at(header.first);
                    self.agreement.digests_told(now, &told, is_exact, &self.sender, store);
                }
            }
            LISTING => {
                if let Some(part) = ListingView::parse(body) {
                    self.agreement.listing_told(now, &part);
                }
            }
            ASK => {
                if let Some(ask) = AskView::parse(body) {
                    self.sender.asked(now, self.peer, &ask, &mut self.answers, store);
                }
            }
            _ => {}
        }
        self.tell_agreement();
    }
}
