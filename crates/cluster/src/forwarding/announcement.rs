//! Telling the neighbours that an address is here now: which frame when.

use core::time::Duration;

use flow::Instant;

use crate::group::GroupSet;

/// When announcements go out, counted from the first: at once, and again because they may be lost, or reach a switch
/// that is still busy with the failure.
pub const ANNOUNCEMENT_ROUNDS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Rounds of announcements, each over all items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    /// Whose addresses are announced.
    pub(super) groups: GroupSet,
    began: Instant,
    round: usize,
    item: usize,
}

impl Announcement {
    pub(super) const fn begin(now: Instant, groups: GroupSet) -> Self {
        Self { groups, began: now, round: 0, item: 0 }
    }

    /// When the next item is due. `None`: all is said.
    pub(super) fn due(&self) -> Option<Instant> {
        ANNOUNCEMENT_ROUNDS.get(self.round).map(|after| self.began + *after)
    }

    /// The item of `items` that is due now.
    pub(super) fn next_item(&mut self, now: Instant, items: usize) -> Option<usize> {
        if items == 0 {
            self.round = ANNOUNCEMENT_ROUNDS.len();
        }
        if self.due()? > now {
            return None;
        }
        let item = self.item;
        self.item += 1;
        if self.item == items {
            (self.round, self.item) = (self.round + 1, 0);
        }
        Some(item)
    }
}
