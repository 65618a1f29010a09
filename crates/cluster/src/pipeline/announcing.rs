//! What the workers of a node tell each other of connections that are expected.
//!
//! An announced connection is steered by its own ends, which may lead it to another worker than the one that it was announced
//! to. So every worker knows what any of them expects:
//!
//! ```text
//!   control connection, worker 0                          data connection, worker 1
//!    │ "PORT …"
//!    │── Expects [the data connection] ───────────────────►│ also expects it
//!    │                                                     │ its first packet: related, begins here
//!    │◄──────────────────────────────────────── HasCome ───│
//!    │ no longer expects it; its backup is told
//!    │── Expects [] ──────────────────────────────────────►│ nor do the others
//! ```
//!
//! The worker that a connection lies with follows from its tuple. When a word is lost, the announced connection does not
//! pass, or what is expected is given up when its time is over.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::table::Slot;
use flow::{Direction, Instant, Tuple, WorkerId};
use network_functions::expectation::Expectation;

use super::{Pipeline, TableChange, record_mut};

/// Words that wait to be polled; when there are more, the newest is dropped and counted.
pub const ANNOUNCEMENTS_WAITING_MAX: usize = 8192;

/// Word from one worker to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Announcement {
    /// All that is expected on behalf of a connection of the sender's, of this original tuple.
    Expects {
        /// The connection that announced it.
        master: Tuple,
        /// At most [`EXPECTATIONS_PER_MASTER_MAX`](network_functions::expectation::EXPECTATIONS_PER_MASTER_MAX); none when
        /// nothing is expected any more.
        expected: Vec<Expectation>,
    },
    /// A connection that was expected on behalf of one of the receiver's has begun at the sender.
    HasCome {
        /// The connection that announced it.
        master: Tuple,
        /// The original tuple of the one that has begun.
        tuple: Tuple,
    },
}

/// Words for other workers.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    waiting: VecDeque<(WorkerId, Announcement)>,
    lost: u64,
}

impl Announcements {
    fn push(&mut self, to: WorkerId, announcement: Announcement) {
        if self.waiting.len() < ANNOUNCEMENTS_WAITING_MAX {
            self.waiting.push_back((to, announcement));
        } else {
            self.lost += 1;
        }
    }
}

impl Pipeline {
    /// The next word for another worker.
    pub fn poll_announcement(&mut self) -> Option<(WorkerId, Announcement)> {
        self.announcements.waiting.pop_front()
    }

    /// Words that found no room.
    #[must_use]
    pub const fn announcements_lost(&self) -> u64 {
        self.announcements.lost
    }

    /// Word from another worker.
    pub fn handle_announcement(&mut self, now: Instant, announcement: &Announcement) {
        match announcement {
            Announcement::Expects { master, expected } => self.expectations.replace(now, master, expected),
            Announcement::HasCome { master, tuple } => {
                // It may have been expected anew, or not at all, by now.
                if self.expectations.master_of(now, tuple) == Some(master)
                    && self.expectations.fulfil(now, tuple).is_some_and(|fulfilled| fulfilled.is_used_up)
                {
                    self.note_used_up(master, tuple);
                }
            }
        }
    }

    /// Tells the other workers what is expected on behalf of a connection of this one.
    pub(super) fn tell_workers_expected(&mut self, master: &Tuple) {
        let place = self.shard.place();
        if place.is_alone() {
            return;
        }
        let expected: Vec<Expectation> = self.expectations.of(master).copied().collect();
        for to in place.others() {
            self.announcements.push(to, Announcement::Expects { master: *master, expected: expected.clone() });
        }
    }

    /// What was expected as `tuple` has come: the backups of the connection that announced it must learn so. That one may be
    /// another worker's.
    pub(super) fn note_used_up(&mut self, master: &Tuple, tuple: &Tuple) {
        if let Some((slot, Direction::Original)) = self.lookup(master) {
            self.note_relations_changed(slot);
            self.tell_workers_expected(master);
            return;
        }
        let place = self.shard.place();
        let to = place.steering.worker_of_tuple(master);
        if !place.is_alone() && to != place.worker {
            self.announcements.push(to, Announcement::HasCome { master: *master, tuple: *tuple });
        }
    }

    fn note_relations_changed(&mut self, slot: Slot) {
        record_mut(&mut self.table, slot).bump_version();
        self.changes.push(TableChange::FunctionsChanged { slot });
    }
}
