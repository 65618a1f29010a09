//! The connections for a session with conntrackd.
//!
//! Conntrackd has neither owners nor versions. An update of a connection that the peer owns always prevails. One of a
//! connection of this node prevails only where packets do not come here, or where several nodes forward and it has
//! newer state.

use flow::netfilter::{Entry, Expectation, Tuple};
use flow::{Instant, NodeId};
use replication::conntrackd::Table;
use replication::representation::kernel::{EXPECTATIONS_MAX, Origin, Update};
use replication::{ApplyError, Handle, Resync};

use super::config::{Mode, SyncRole};
use super::connections::Connections;
use super::connections::expectation_table::is_same;
use super::connections::updates::is_further;
use super::mirror::{beyond, flag};

/// The connections for the session with one conntrackd.
pub(super) struct ConntrackdStore<'a> {
    pub(super) connections: &'a mut Connections,
    pub(super) resync: &'a mut Resync,
}

impl ConntrackdStore<'_> {
    /// The version that the peer's update would have; `None`: it does not prevail.
    fn version(&self, from: NodeId, entry: &Entry) -> Option<u32> {
        let Some(handle) = self.connections.mirror.find(&entry.original, entry.zone) else { return Some(1) };
        let record = self.connections.mirror.get(handle)?;
        if record.owner() == from {
            return Some(record.version.wrapping_add(1));
        }
        let is_further = is_further(record.protocol(), entry.tcp().map(|info| info.state), record.tcp_state());
        let gets_its_packets = self.connections.role == SyncRole::Primary && !record.is_any(flag::UNSEEN);
        let counts = !gets_its_packets || (self.connections.mode == Mode::MultiPrimary && is_further);
        counts.then(|| beyond(record.version))
    }
}

impl Table for ConntrackdStore<'_> {
    fn connection(&mut self, _now: Instant, handle: Handle) -> Option<Entry> {
        let record = self.connections.mirror.get(handle)?;
        (self.connections.is_own(record) && record.is_any(flag::REPLICATED)).then(|| record.entry())
    }

    fn find(&self, original: &Tuple, zone: u16) -> Option<Handle> {
        let handle = self.connections.mirror.find(original, zone)?;
        self.connections.mirror.get(handle).filter(|record| self.connections.is_own(record)).map(|_| handle)
    }

    fn apply(&mut self, now: Instant, from: NodeId, entry: &Entry) -> Result<(), ApplyError> {
        let Some(version) = self.version(from, entry) else {
            self.connections.counters.updates_stale += 1;
            return Ok(());
        };
        let handle = self.connections.mirror.find(&entry.original, entry.zone);
        let record = handle.and_then(|handle| self.connections.mirror.get(handle));
        // Conntrackd replicates expectations separately.
        let expectations = record.map_or_else(Default::default, |record| record.expectations().to_vec());
        let origin = Origin { version, owner: from, is_unseen: false };
        let update = Update { entry: entry.clone(), origin, expectations };
        let result = self.connections.apply(now, from, self.resync.epoch(), &update);
        result.inspect_err(|_| self.resync.note_refused(now))
    }

    fn remove(&mut self, _now: Instant, from: NodeId, entry: &Entry) -> Result<(), ApplyError> {
        let Some(version) = self.version(from, entry) else {
            self.connections.counters.ends_stale += 1;
            return Ok(());
        };
        let origin = Origin { version, owner: from, is_unseen: false };
        let is_primarys = self.connections.role != SyncRole::Primary;
        self.connections.delete_named(from, &entry.original, entry.zone, origin, is_primarys);
        Ok(())
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        self.connections.next_replicated(from)
    }

    fn expectation(&mut self, _now: Instant, handle: Handle) -> Option<Expectation> {
        self.connections.expecting.get(handle).cloned()
    }

    fn apply_expectation(&mut self, _now: Instant, from: NodeId, expectation: &Expectation) -> Result<(), ApplyError> {
        self.change_expectation(from, expectation, true);
        Ok(())
    }

    fn remove_expectation(&mut self, _now: Instant, from: NodeId, expectation: &Expectation) -> Result<(), ApplyError> {
        self.change_expectation(from, expectation, false);
        Ok(())
    }

    fn next_expectation_for_resync(&self, from: Handle) -> Option<Handle> {
        self.connections.expecting.next(from)
    }
}

impl ConntrackdStore<'_> {
    fn change_expectation(&mut self, from: NodeId, expectation: &Expectation, is_there: bool) {
        let connections = &mut *self.connections;
        let handle = connections.mirror.find(&expectation.master, expectation.zone);
        let record = handle.and_then(|handle| connections.mirror.get_mut(handle));
        let Some((handle, record)) = handle.zip(record).filter(|(_, record)| record.owner() == from) else {
            connections.counters.expectations_left_out += u64::from(is_there);
            return;
        };
        if !connections.takes_expectations {
            return;
        }
        let rare = record.rare_mut();
        let known = rare.expectations.iter().position(|known| is_same(known, expectation));
        match (is_there, known) {
            (true, Some(at)) => rare.expectations[at] = expectation.clone(),
            (true, None) if rare.expectations.len() < EXPECTATIONS_MAX => rare.expectations.push(expectation.clone()),
            (true, None) => connections.counters.expectations_left_out += 1,
            (false, Some(at)) => drop(rare.expectations.remove(at)),
            (false, None) => {}
        }
        record.drop_empty_rare();
        connections.queue(handle, flag::DIRTY);
    }
}
