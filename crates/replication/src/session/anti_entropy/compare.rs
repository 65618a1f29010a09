//! Comparing digests, bucket by bucket.

use flow::Instant;

use super::{
    ASK_RETRY_INTERVAL, ASKS_MAX, AntiEntropy, COMPARE_INTERVAL, ComparisonOutcome, DIVERGENT_MAX, LISTED_MAX,
    LISTING_TIMEOUT, LISTINGS_BEFORE_ROUND, Phase, ROUND_INTERVAL,
};
use crate::item::Buckets;
use crate::message::anti_entropy::{Ask, DigestsView};
use crate::session::Store;
use crate::session::sender::Sender;

impl AntiEntropy {
    /// Does what is due.
    pub(in crate::session) fn handle_timeout(&mut self, now: Instant, sender: &Sender, store: &impl Store) {
        if self.at.is_none_or(|at| now < at) {
            return;
        }
        match self.phase {
            Phase::Resting => {
                self.phase = Phase::Comparing;
                self.tries = 0;
                self.buckets = 0;
                self.is_productive = false;
                (self.pending, self.differing) = (Buckets::EMPTY, Buckets::EMPTY);
                self.ask_for_digests(now, sender);
            }
            Phase::Comparing if self.tries < ASKS_MAX => self.ask_for_digests(now, sender),
            Phase::Comparing => self.conclude(now, sender, store),
            Phase::Listing => self.listing_is_late(now),
            Phase::Gathering(cursor) => self.gather(now, cursor, sender, store),
            Phase::Repairing => self.repair(now, sender, store),
        }
    }

    fn ask_for_digests(&mut self, now: Instant, sender: &Sender) {
        self.tries += 1;
        self.at = Some(now + ASK_RETRY_INTERVAL);
        let wanted = (self.buckets != 0).then_some((self.buckets, self.pending));
        self.questions.push_back(Ask::Digests { copies: sender.changes().copied.count(), wanted });
    }

    /// Digests have come. They are exact if nothing was received that the peer sent after them.
    pub(in crate::session) fn handle_digests(
        &mut self,
        now: Instant,
        digests: &DigestsView<'_>,
        is_exact: bool,
        sender: &Sender,
        store: &impl Store,
    ) {
        if self.phase != Phase::Comparing || !is_exact {
            return;
        }
        if self.buckets == 0 {
            self.buckets = digests.buckets;
            self.pending = Buckets::all(digests.buckets);
        }
        if digests.buckets != self.buckets {
            return;
        }
        self.peer_connections = digests.connections;
        for bucket in digests.each() {
            let is_settled = !bucket.is_unsettled && !sender.is_unsettled(bucket.number, self.buckets);
            if !is_settled || !self.pending.contains(bucket.number) {
                continue;
            }
            self.pending.remove(bucket.number);
            if sender.changes().copied.digest(bucket.number, self.buckets) != bucket.digest {
                self.differing.insert(bucket.number);
            }
        }
        if self.pending.is_empty() {
            self.conclude(now, sender, store);
        }
    }

    /// All buckets were compared, or as many as would let themselves be.
    fn conclude(&mut self, now: Instant, sender: &Sender, store: &impl Store) {
        let next = now + COMPARE_INTERVAL;
        if self.buckets == 0 {
            return self.rest(next);
        }
        self.status.rounds_compared += 1;
        let (differing, pending, buckets) = (self.differing, self.pending, self.buckets);
        let may_differ = |bucket| differing.contains(bucket) || pending.contains(bucket);
        self.divergent.retain(|known| may_differ(known.listed.item.bucket(buckets)));
        self.missing_min = 0;
        if differing.is_empty() {
            if pending.is_empty() {
                self.agreed(now);
            }
            return self.rest(next);
        }
        self.missing_min = self.peer_connections.saturating_sub(sender.changes().copied.count());
        if self.waits_for_room(store) && self.explains_all() {
            return self.rest(next);
        }
        let listings = self.differing.len() / self.buckets_at_once();
        if listings > LISTINGS_BEFORE_ROUND && self.asks_for_round(now, sender, store) {
            return self.rest(next);
        }
        self.list_next(now);
    }

    /// What is known to differ is why the buckets differ, or there is no room to know of more.
    fn explains_all(&self) -> bool {
        let mut explained = Buckets::EMPTY;
        self.divergent.iter().for_each(|known| explained.insert(known.listed.item.bucket(self.buckets)));
        self.divergent.len() >= DIVERGENT_MAX || self.differing.iter().all(|bucket| explained.contains(bucket))
    }

    fn agreed(&mut self, now: Instant) {
        self.status.agreed_at = Some(now);
        if self.found_at_once > 0 {
            self.reports.push_back(ComparisonOutcome::Agreed(self.repaired_at_once));
        }
        (self.found_at_once, self.repaired_at_once) = (0, 0);
    }

    /// Too much differs to be listed. A round makes it good, if there is room.
    fn asks_for_round(&mut self, now: Instant, sender: &Sender, store: &impl Store) -> bool {
        let missing = self.peer_connections.saturating_sub(sender.changes().copied.count());
        let is_too_soon = self.round_asked_at.is_some_and(|at| now < at + ROUND_INTERVAL);
        if is_too_soon || store.room() < missing {
            return false;
        }
        self.round_asked_at = Some(now);
        self.status.rounds_asked += 1;
        self.wants_round = true;
        true
    }

    /// How many buckets are listed together.
    fn buckets_at_once(&self) -> usize {
        let each = self.peer_connections / u32::from(self.buckets) + 1;
        (LISTED_MAX / each).max(1) as usize
    }

    /// Asks for the listing of the first buckets that differ; rests when there is none left.
    pub(super) fn list_next(&mut self, now: Instant) {
        let count_max = self.buckets_at_once();
        self.wanted = Buckets::EMPTY;
        self.differing.iter().take(count_max).for_each(|bucket| self.wanted.insert(bucket));
        self.tries = 0;
        self.ask_for_listing(now);
    }

    pub(super) fn ask_for_listing(&mut self, now: Instant) {
        self.phase = Phase::Listing;
        self.tries += 1;
        self.at = Some(now + LISTING_TIMEOUT);
        self.question = self.question.wrapping_add(1);
        self.next_part = 0;
        self.forget_listing();
        self.touched.clear();
        let (buckets, question, wanted) = (self.buckets, self.question, self.wanted);
        self.questions.push_back(Ask::Listing { buckets, question, wanted });
    }
}
