//! Connections that were expected, and those on whose behalf they were.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flow::connection::flags;
use flow::table::Slot;
use flow::wire::tlv::TlvError;
use flow::{Connection, Instant, Tuple};
use network_functions::expectation::{self, Expectations, Fulfilled};
use replication::representation::precise::{self, Relations};

use super::{Pipeline, record_mut};

/// The master of each connection that was expected, by the connection's original tuple. Every entry belongs to a
/// connection in the table, whose limit is therefore this one's too.
#[derive(Clone, Debug, Default)]
pub(super) struct Related(BTreeMap<TupleBytes, Tuple>);

/// An order for the map, of no meaning.
type TupleBytes = [u8; size_of::<Tuple>()];

fn bytes(tuple: &Tuple) -> TupleBytes {
    zerocopy::transmute!(*tuple)
}

impl Pipeline {
    /// The connections that are expected.
    #[must_use]
    pub const fn expectations(&self) -> &Expectations {
        &self.expectations
    }

    /// The original tuple of the connection on whose behalf this one was expected, if it was.
    #[must_use]
    pub fn related_to(&self, connection: &Connection) -> Option<&Tuple> {
        let is_related = connection.flags & flags::RELATED != 0;
        self.related.0.get(&bytes(&connection.original)).filter(|_| is_related)
    }

    /// A connection has begun in `slot`: if it was expected, it has a master, whose backups learn that it has come.
    pub(super) fn note_if_expected(&mut self, now: Instant, slot: Slot, tuple: &Tuple) {
        let Some(Fulfilled { master, is_used_up }) = self.expectations.fulfil(now, tuple) else { return };
        record_mut(&mut self.table, slot).flags |= flags::RELATED;
        self.related.0.insert(bytes(tuple), master);
        self.counters.related += 1;
        if is_used_up {
            self.note_used_up(&master, tuple);
        }
    }

    /// A connection is no longer in the table: nothing is expected on its behalf any more.
    pub(super) fn forget_relations(&mut self, connection: &Connection) {
        if connection.flags & flags::EXPECTS != 0 && self.expectations.has(&connection.original) {
            self.expectations.forget(&connection.original);
            self.tell_workers_expected(&connection.original);
        }
        if connection.flags & flags::RELATED != 0 {
            self.related.0.remove(&bytes(&connection.original));
        }
    }

    /// Appends what a backup must know of the connection's relations to others.
    pub fn encode_relations(&self, now: Instant, connection: &Connection, out: &mut Vec<u8>) {
        if connection.flags & flags::EXPECTS != 0 {
            precise::encode_expected(out, |out| self.expectations.encode(now, &connection.original, out));
        }
        if let Some(master) = self.related_to(connection) {
            precise::encode_master(master, out);
        }
    }

    /// Enters what a peer says of the relations of a connection whose copy was just taken. It replaces what was known.
    ///
    /// # Errors
    /// The attributes are malformed; nothing is changed then.
    pub fn apply_relations(
        &mut self,
        now: Instant,
        original: &Tuple,
        relations: &Relations<'_>,
    ) -> Result<(), TlvError> {
        let expected = expectation::decode(now, relations.expected)?;
        if !expected.is_empty() || self.expectations.has(original) {
            self.expectations.replace(now, original, &expected);
            self.tell_workers_expected(original);
        }
        match relations.master {
            Some(master) => drop(self.related.0.insert(bytes(original), master)),
            None if self.related.0.is_empty() => {}
            None => drop(self.related.0.remove(&bytes(original))),
        }
        let Some((slot, _)) = self.lookup(original).filter(|_| *relations != Relations::default()) else {
            return Ok(());
        };
        let connection = record_mut(&mut self.table, slot);
        for (flag, is_set) in [(flags::EXPECTS, !expected.is_empty()), (flags::RELATED, relations.master.is_some())] {
            connection.flags = if is_set { connection.flags | flag } else { connection.flags & !flag };
        }
        Ok(())
    }
}
