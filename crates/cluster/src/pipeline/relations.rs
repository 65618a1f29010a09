//! Connections that were expected, and those on whose behalf they were.
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
//!    │ no longer expects it; updates its backup
//!    │── Expects [] ──────────────────────────────────────►│ nor do the others
//! ```
//!
//! The worker that a connection lies with follows from its tuple. When an announcement is lost, the announced connection does
//! not pass, or its expectation expires.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use flow::connection::flags;
use flow::wire::tlv::TlvError;
use flow::{Connection, Instant, Tuple, WorkerId};
use network_functions::expectation::{self, Expectation, Expectations, PortShare};
use replication::representation::precise;

use super::shard::Place;

/// Announcements that wait to be polled; when there are more, the newest is dropped and counted.
pub const ANNOUNCEMENTS_WAITING_MAX: usize = 8192;

/// A message about expected connections from one worker to another.
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

/// An order for the map, of no meaning.
type TupleBytes = [u8; size_of::<Tuple>()];

fn bytes(tuple: &Tuple) -> TupleBytes {
    zerocopy::transmute!(*tuple)
}

/// What is expected on behalf of the node's connections, and what has come of it.
pub(super) struct Relations {
    pub(super) expectations: Expectations,
    /// The master of each connection that was expected, by the connection's original tuple. Every entry belongs to a
    /// connection in the table, whose limit is therefore this one's too.
    masters: BTreeMap<TupleBytes, Tuple>,
    place: Place,
    pub(super) announcements: VecDeque<(WorkerId, Announcement)>,
    pub(super) announcements_lost: u64,
}

impl Default for Relations {
    fn default() -> Self {
        Self {
            expectations: Expectations::default(),
            masters: BTreeMap::new(),
            place: Place::ALONE,
            announcements: VecDeque::new(),
            announcements_lost: 0,
        }
    }
}

impl Relations {
    pub(super) fn set_place(&mut self, place: Place) {
        self.place = place;
        self.expectations.set_port_share(PortShare::of(place.worker, place.steering.workers()));
    }

    /// The original tuple of the connection on whose behalf this one was expected, if it was.
    pub(super) fn master_of(&self, connection: &Connection) -> Option<&Tuple> {
        let is_related = connection.flags & flags::RELATED != 0;
        self.masters.get(&bytes(&connection.original)).filter(|_| is_related)
    }

    /// The connection `original` was expected on behalf of `master`, or of none.
    pub(super) fn set_master(&mut self, original: &Tuple, master: Option<Tuple>) {
        match master {
            Some(master) => drop(self.masters.insert(bytes(original), master)),
            None if self.masters.is_empty() => {}
            None => drop(self.masters.remove(&bytes(original))),
        }
    }

    /// All that is expected on behalf of `master`, which is this worker's: the other workers are informed.
    pub(super) fn replace(&mut self, now: Instant, master: &Tuple, expected: &[Expectation]) {
        if !expected.is_empty() || self.expectations.has(master) {
            self.expectations.replace(now, master, expected);
            self.announce(master);
        }
    }

    /// A connection is no longer in the table: nothing is expected on its behalf any more.
    pub(super) fn forget(&mut self, connection: &Connection) {
        if connection.flags & flags::EXPECTS != 0 && self.expectations.has(&connection.original) {
            self.expectations.forget(&connection.original);
            self.announce(&connection.original);
        }
        if connection.flags & flags::RELATED != 0 {
            self.masters.remove(&bytes(&connection.original));
        }
    }

    /// Announces to the other workers what is expected on behalf of a connection of this one.
    pub(super) fn announce(&mut self, master: &Tuple) {
        if self.place.is_alone() {
            return;
        }
        let expected: Vec<Expectation> = self.expectations.of(master).copied().collect();
        for to in self.place.others() {
            self.push(to, Announcement::Expects { master: *master, expected: expected.clone() });
        }
    }

    /// The connection `tuple`, which was expected on behalf of another worker's `master`, has begun here.
    pub(super) fn announce_begun(&mut self, master: &Tuple, tuple: &Tuple) {
        let to = self.place.steering.worker_of_tuple(master);
        if !self.place.is_alone() && to != self.place.worker {
            self.push(to, Announcement::HasCome { master: *master, tuple: *tuple });
        }
    }

    fn push(&mut self, to: WorkerId, announcement: Announcement) {
        if self.announcements.len() < ANNOUNCEMENTS_WAITING_MAX {
            self.announcements.push_back((to, announcement));
        } else {
            self.announcements_lost += 1;
        }
    }

    /// Another worker has announced that the connection `tuple`, expected on behalf of `master`, has begun. True: no further
    /// one is expected in its place.
    pub(super) fn is_used_up_by(&mut self, now: Instant, master: &Tuple, tuple: &Tuple) -> bool {
        // It may have been expected anew, or not at all, by now.
        self.expectations.master_of(now, tuple) == Some(master)
            && self.expectations.fulfil(now, tuple).is_some_and(|fulfilled| fulfilled.is_used_up)
    }

    /// Appends what a backup must know of the connection's relations to others.
    pub(super) fn encode(&self, now: Instant, connection: &Connection, out: &mut Vec<u8>) {
        if connection.flags & flags::EXPECTS != 0 {
            precise::encode_expected(out, |out| self.expectations.encode(now, &connection.original, out));
        }
        if let Some(master) = self.master_of(connection) {
            precise::encode_master(master, out);
        }
    }

    /// Enters the relations of a replica. They replace what was known. Returns the record's flags that they set.
    ///
    /// # Errors
    /// The attributes are malformed; nothing is changed then.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        original: &Tuple,
        relations: &precise::Relations<'_>,
    ) -> Result<u8, TlvError> {
        let expected = expectation::decode(now, relations.expected)?;
        self.replace(now, original, &expected);
        self.set_master(original, relations.master);
        let expects = if expected.is_empty() { 0 } else { flags::EXPECTS };
        let related = if relations.master.is_some() { flags::RELATED } else { 0 };
        Ok(expects | related)
    }
}
