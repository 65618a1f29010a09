//! Finding which connections of a bucket differ, and having them put right.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use flow::Instant;

use super::{
    AntiEntropy, COMPARE_INTERVAL, ComparisonOutcome, DIVERGENT_MAX, Difference, Divergent, GATHER_STEPS_MAX,
    LISTED_MAX, LISTING_SETTLES, LISTING_TIMEOUT, LISTINGS_MAX, Phase, REPAIR_RETRY_INTERVAL, REPAIRS_MAX, TOUCHED_MAX,
    own,
};
use crate::item::Item;
use crate::message::anti_entropy::{Ask, Listed, ListingView};
use crate::session::sender::Sender;
use crate::session::{Handle, Store};

impl AntiEntropy {
    /// A part of the listing has come. A missing part costs the listing.
    pub(in crate::session) fn handle_listing(&mut self, now: Instant, part: &ListingView<'_>) {
        // Four times what was to be expected: the peer has grown meanwhile, or means no good.
        let has_room = self.listed.len() < 4 * LISTED_MAX as usize;
        if self.phase != Phase::Listing || part.question != self.question || part.part != self.next_part || !has_room {
            return;
        }
        self.next_part = self.next_part.wrapping_add(1);
        let (wanted, buckets) = (self.wanted, self.buckets);
        for listed in part.each().filter(|listed| wanted.contains(listed.item.bucket(buckets))) {
            if listed.is_unsettled {
                self.touch(listed.item);
            }
            self.listed.push(listed);
        }
        self.at = Some(now + LISTING_TIMEOUT);
        if part.is_last {
            self.are_ends_unsettled = part.are_ends_unsettled;
            self.phase = Phase::Gathering(0);
            self.at = Some(now + LISTING_SETTLES);
        }
    }

    pub(super) fn listing_is_late(&mut self, now: Instant) {
        if self.tries < LISTINGS_MAX {
            self.ask_for_listing(now);
        } else {
            self.rest(now + COMPARE_INTERVAL);
        }
    }

    /// Collects some more of the own replicas in the listed buckets; when it has all, compares them with the listing.
    pub(super) fn gather(&mut self, now: Instant, cursor: u32, sender: &Sender, store: &impl Store) {
        let end = sender.changes().items_end();
        let stop = end.min(cursor.saturating_add(GATHER_STEPS_MAX));
        for handle in cursor..stop {
            let item = sender.changes().held(Handle(handle));
            if !item.is_none() && self.wanted.contains(item.bucket(self.buckets)) {
                self.gathered.push(own(handle, item));
            }
        }
        if stop < end {
            self.phase = Phase::Gathering(stop);
            self.at = Some(now);
        } else if self.touched.len() >= TOUCHED_MAX {
            self.rest(now + COMPARE_INTERVAL);
        } else {
            self.hold_against_listing(now, sender, store);
        }
    }

    fn hold_against_listing(&mut self, now: Instant, sender: &Sender, store: &impl Store) {
        let listed = core::mem::take(&mut self.listed);
        let gathered = core::mem::take(&mut self.gathered);
        let mut found = differences(listed, gathered);
        found.retain(|divergent| {
            let is_certain = !self.touched.contains(&divergent.listed.item.name());
            is_certain && (divergent.difference != Difference::Extra || !self.are_ends_unsettled)
        });
        self.wanted.iter().for_each(|bucket| self.differing.remove(bucket));
        self.touched.clear();
        let (wanted, buckets) = (self.wanted, self.buckets);
        let known = core::mem::take(&mut self.divergent);
        let is_of_these = |divergent: &Divergent| wanted.contains(divergent.listed.item.bucket(buckets));
        let names: BTreeSet<u32> = known.iter().map(|known| known.listed.item.name()).collect();
        self.divergent = known.into_iter().filter(|known| !is_of_these(known)).collect();
        found.truncate(DIVERGENT_MAX.saturating_sub(self.divergent.len()));
        let new = found.iter().filter(|divergent| !names.contains(&divergent.listed.item.name())).count() as u32;
        self.is_productive |= !found.is_empty();
        self.divergent.append(&mut found);
        if new > 0 {
            self.status.divergent_found += u64::from(new);
            self.found_at_once += new;
            self.reports.push_back(ComparisonOutcome::Diverged(new));
        }
        self.phase = Phase::Repairing;
        self.tries = 0;
        self.repair(now, sender, store);
    }

    /// Asks for what has not come yet; when there is nothing left to ask for, goes on to the next buckets.
    pub(super) fn repair(&mut self, now: Instant, sender: &Sender, store: &impl Store) {
        if self.divergent.is_empty() || self.tries >= REPAIRS_MAX || self.waits_for_room(store) {
            return self.repairs_done(now, store);
        }
        self.tries += 1;
        self.at = Some(now + REPAIR_RETRY_INTERVAL);
        let mut room = store.room();
        let mut retransmit = Vec::new();
        for divergent in &self.divergent {
            match divergent.difference {
                Difference::Missing if room == 0 => {}
                Difference::Missing => {
                    room -= 1;
                    retransmit.push(divergent.listed);
                }
                Difference::Wrong => retransmit.push(divergent.listed),
                Difference::Extra => {
                    let mut name = Vec::new();
                    let is_there = sender.changes().held(divergent.listed.handle) == divergent.listed.item;
                    if is_there && store.name_copy(divergent.listed.handle, &mut name) {
                        self.questions.push_back(Ask::StillThere(name));
                    }
                }
            }
        }
        self.questions.extend(retransmit.chunks(Ask::RETRANSMIT_MAX).map(|part| Ask::Retransmit(part.to_vec())));
    }

    fn repairs_done(&mut self, now: Instant, store: &impl Store) {
        if !self.differing.is_empty() && !self.waits_for_room(store) {
            self.list_next(now);
        } else if self.divergent.is_empty() && self.is_productive {
            // To know soon whether the two agree.
            self.rest(now);
        } else {
            self.rest(now + COMPARE_INTERVAL);
        }
    }

    /// All that is known to differ is missing, and there is no room for it.
    pub(super) fn waits_for_room(&self, store: &impl Store) -> bool {
        let is_missing = |divergent: &Divergent| divergent.difference == Difference::Missing;
        !self.divergent.is_empty() && store.room() == 0 && self.divergent.iter().all(is_missing)
    }

    /// A replica is another than it was: perhaps one that was asked for.
    pub(super) fn note_repaired(&mut self, before: Item, after: Item) {
        if let Some(at) = self.position(after) {
            self.divergent.swap_remove(at);
            self.status.repaired += 1;
            self.repaired_at_once += 1;
        }
        // In the slot of one that was removed there may be another already.
        if after.name() != before.name()
            && let Some(at) = self.position(before)
        {
            let removed = self.divergent.swap_remove(at);
            if removed.difference == Difference::Extra {
                self.status.extra_removed += 1;
                self.repaired_at_once += 1;
            }
        }
    }

    fn position(&self, item: Item) -> Option<usize> {
        let is_it = |known: &Divergent| known.listed.item.name() == item.name();
        if item.is_none() { None } else { self.divergent.iter().position(is_it) }
    }
}

/// What differs between two lists.
fn differences(mut listed: Vec<Listed>, mut gathered: Vec<Listed>) -> Vec<Divergent> {
    for list in [&mut listed, &mut gathered] {
        list.sort_unstable_by_key(|listed| (listed.item.name(), listed.item));
    }
    let (mut theirs, mut ours) = (listed.iter().peekable(), gathered.iter().peekable());
    let mut found = Vec::new();
    loop {
        let order = match (theirs.peek(), ours.peek()) {
            (None, None) => return found,
            (Some(_), None) => core::cmp::Ordering::Less,
            (None, Some(_)) => core::cmp::Ordering::Greater,
            (Some(their), Some(our)) => their.item.name().cmp(&our.item.name()),
        };
        let (their, our) = (theirs.next_if(|_| order.is_le()), ours.next_if(|_| order.is_ge()));
        let difference = match (their, our) {
            (Some(their), Some(our)) if their.item == our.item => continue,
            (Some(their), Some(_)) => Divergent { difference: Difference::Wrong, listed: *their },
            (Some(their), None) => Divergent { difference: Difference::Missing, listed: *their },
            (None, Some(our)) => Divergent { difference: Difference::Extra, listed: *our },
            (None, None) => return found,
        };
        found.push(difference);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(handle: u32, name: u32, check: u32) -> Listed {
        own(handle, Item::new(name, check))
    }

    #[test]
    fn missing_wrong_and_superfluous_replicas_are_distinguished() {
        let theirs = [listed(5, 1, 1), listed(4, 2, 2), listed(3, 3, 3)];
        let ours = [listed(9, 1, 1), listed(8, 2, 7), listed(7, 4, 4)];
        let found = differences(theirs.to_vec(), ours.to_vec());
        let expected = [
            Divergent { difference: Difference::Wrong, listed: theirs[1] },
            Divergent { difference: Difference::Missing, listed: theirs[2] },
            Divergent { difference: Difference::Extra, listed: ours[2] },
        ];
        assert_eq!(found, expected);
        assert_eq!(differences(ours.to_vec(), ours.to_vec()), []);
    }
}
