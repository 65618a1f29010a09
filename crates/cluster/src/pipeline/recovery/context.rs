//! What a recovery works on while it looks for the connection of a packet.

use flow::connection::flags;
use flow::{Connection, DropReason, Instant, PortId, Tuple};

use super::super::connections::Connections;
use super::super::edge::{Edge, FilterMatch};
use super::super::shard::WorkerSet;
use super::counters::RecoveryCounters;
use super::keep_alive::assumed_state;
use super::outcome::RecoveryOutcome;

/// See the [module](self).
pub(super) struct Context<'a> {
    pub(super) connections: &'a mut Connections,
    pub(super) counters: &'a mut RecoveryCounters,
    pub(super) now: Instant,
    /// Packets may be handed to other workers.
    pub(super) is_steering: bool,
}

impl Context<'_> {
    /// What filters of other nodes name as the connection that began with `original`, and came in by `ingress`.
    pub(super) fn recovery_lookup<E: Edge>(
        &self,
        edge: &E,
        original: &Tuple,
        ingress: Option<PortId>,
    ) -> Option<FilterMatch> {
        let filter_match = self.lies_here(original).then(|| edge.recovery_lookup(original)).flatten()?;
        filter_match.may_stand_for(&self.connections.functions.chain, original, ingress).then_some(filter_match)
    }

    /// The connection is this worker's share.
    pub(super) fn lies_here(&self, original: &Tuple) -> bool {
        let place = self.connections.shard.place();
        place.is_alone() || place.steering.worker_of_tuple(original) == place.worker
    }

    /// The other workers that connections with these original tuples lie with.
    pub(super) fn workers_of(&self, originals: &[Tuple]) -> WorkerSet {
        let (place, mut workers) = (self.connections.shard.place(), WorkerSet::default());
        if !place.is_alone() {
            let all = originals.iter().map(|original| place.steering.worker_of_tuple(original));
            all.filter(|worker| *worker != place.worker).for_each(|worker| workers.insert(worker));
        }
        workers
    }

    /// Enters a connection as a replica of `filter_match.owner`'s, to be taken over by the packet that is looked up as `wanted`.
    /// `None`: the rules would not let it begin, or its translation is another's.
    pub(super) fn restore(
        &mut self,
        (original, ingress, filter_match): (Tuple, Option<PortId>, FilterMatch),
        wanted: &Tuple,
    ) -> Option<RecoveryOutcome> {
        let Self { connections, counters, now, .. } = self;
        let Some(restored) = connections.functions.chain.restore_as(&original, ingress, filter_match.class) else {
            counters.denied += 1;
            return None;
        };
        let (protocol, known) = filter_match.state.unwrap_or_else(|| assumed_state(original.protocol));
        let known = known & (flags::REPLIED | flags::ASSURED);
        let timeout = connections.tracker.timeout(original.protocol, &protocol, known);
        let mut copy = Connection::new(original, filter_match.owner, protocol, *now + timeout);
        copy.version = connections.first_version(&original);
        copy.flags = known | flags::REPLICA;
        (copy.reply, copy.functions) = (restored.reply, restored.functions);
        match connections.enter(*now, copy, connections.table.hash(&original)) {
            Ok(_) => {
                let found = connections.lookup(wanted);
                Some(found.map_or(RecoveryOutcome::Unknown, |(slot, way)| RecoveryOutcome::Known(slot, way)))
            }
            Err(DropReason::TupleInUse) => {
                counters.conflicts += 1;
                None
            }
            Err(reason) => Some(RecoveryOutcome::Dropped(reason)),
        }
    }
}
