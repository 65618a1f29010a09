//! Peers' filters, and the recovery in which connections are looked up in them.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, Tuple};
use replication::compact::{self, Addressee, CompactReceiver, Representation};

use super::Readvertised;
use crate::node::peer::Peer;
use crate::node::replication_set::ReplicationSet;
use crate::node::{NodeError, NodeEvent};
use crate::pipeline::{Pipeline, Recalled};

/// How long a node that has taken over without a filter waits for entries: those of a leaving node may arrive late.
const ENTRIES_AWAITED: Duration = Duration::from_secs(2);

/// Looks up the connection with this original tuple in the peers' filters.
pub(in crate::node) fn recall(peers: &[Peer], original: &Tuple) -> Option<Recalled> {
    peers.iter().find_map(|peer| {
        let own =
            peer.compact.as_ref().and_then(|receiver| Some((receiver.lookup(original)?, receiver.representation())));
        let readvertised = || peer.readvertised.as_ref()?.lookup(original);
        let (known, representation) = own.or_else(readvertised)?;
        let state = known.state.map(|cell| (cell.protocol_state(original.protocol), cell.connection_flags()));
        let is_of_hosts = representation == Some(Representation::HostAggregate);
        Some(Recalled { owner: peer.id, state, is_of_hosts })
    })
}

impl Peer {
    /// Whether the peer's filter is whole, or there is none.
    pub(in crate::node) fn has_told_filter(&self) -> bool {
        self.compact.as_ref().is_none_or(CompactReceiver::is_complete)
    }

    /// Whether the filters that the peer re-advertises are whole. They may be dropped before.
    pub(in crate::node) fn has_readvertised(&self) -> bool {
        self.readvertised.as_ref().is_none_or(Readvertised::is_complete)
    }

    /// All filters of the peer, inherited ones included.
    fn received_filters(&self) -> impl Iterator<Item = &CompactReceiver> {
        self.compact.iter().chain(self.readvertised.iter().flat_map(Readvertised::receivers))
    }
}

impl ReplicationSet {
    /// As [`recall`], whether a recovery is under way or not, if the chain can restore the connection.
    pub(in crate::node) fn recalls(&self, pipeline: &Pipeline, original: &Tuple) -> Option<Recalled> {
        let recalled = recall(&self.peers, original)?;
        recalled.may_stand_for(pipeline.chain(), original, None).then_some(recalled)
    }

    /// A compact datagram from a peer.
    pub(in crate::node) fn handle_compact(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        forwards: bool,
        from: NodeId,
        datagram: &[u8],
    ) -> Result<Option<NodeEvent>, NodeError> {
        let Some(compact_node) = &mut self.compact else { return Err(NodeError::NotCompact(from)) };
        let peer = self.peers.find(from)?;
        let Some(receiver) = &mut peer.compact else { return Ok(None) };
        if peer.refused.is_some() {
            return Ok(None);
        }
        peer.heard_compactly_at = Some(now);
        match compact::addressee(datagram) {
            _ if compact::stream(datagram) > 0 => {
                self.handle_readvertised(now, from, compact::stream(datagram), datagram)?;
                return Ok(None);
            }
            Some(Addressee::Sender) => compact_node.sender.handle_datagram(now, from, datagram)?,
            Some(Addressee::Receiver) | None => {
                receiver.handle_datagram(now, datagram)?;
                if compact::carries_entries(datagram) {
                    compact_node.doubting.note_entries_received(now);
                }
            }
        }
        let awaits_entries = compact_node.awaits_entries_until.is_some();
        let begins = forwards && awaits_entries && self.received_entries(pipeline) > 0;
        Ok(if begins { self.begin_recovery(now, pipeline, true) } else { None })
    }

    /// The next compact datagram for a peer.
    pub(in crate::node) fn poll_compact(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        let compact = self.compact.as_mut()?;
        let told = self.peers.iter_mut().filter(|peer| peer.can_be_told() && peer.refused.is_none());
        for peer in told {
            let Some(receiver) = &mut peer.compact else { continue };
            let mut answers_on = |buffer: &mut Vec<u8>| {
                peer.readvertised.as_mut().is_some_and(|readvertised| readvertised.poll_transmit(now, buffer))
            };
            if receiver.poll_transmit(now, buffer)
                || answers_on(buffer)
                || compact.sender.poll_transmit(now, peer.id, buffer)
            {
                return Some(peer.id);
            }
            if compact.inherited.poll_transmit(now, peer.id, buffer) {
                compact.sender.charge(now, buffer.len());
                return Some(peer.id);
            }
        }
        None
    }

    /// Begins a recovery: from now on packets without a connection are looked up in the peers' filters. This node has taken over, or a
    /// peer has died whose connections it may need.
    pub(in crate::node) fn begin_recovery(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        has_taken_over: bool,
    ) -> Option<NodeEvent> {
        let told = self.received_entries(pipeline);
        let compact = self.compact.as_mut()?;
        let makes_good = compact.recovery.blocks || !compact.recovery.cold_start.is_empty();
        if told == 0 && !(makes_good && has_taken_over) {
            // Entries of a node that has left may still arrive.
            compact.awaits_entries_until = has_taken_over.then_some(now + ENTRIES_AWAITED);
            return None;
        }
        compact.awaits_entries_until = None;
        let is_new = pipeline.recovery.begin(now, &compact.recovery, told);
        // The peer may restart before all its connections have sent a packet.
        let receivers = self.peers.iter_mut().filter_map(|peer| peer.compact.as_mut());
        receivers.for_each(|receiver| receiver.set_retaining(true));
        self.take_inherited_filters(now, None);
        is_new.then_some(NodeEvent::RecoveryBegan { entries: told })
    }

    /// Upper bound of the connections that the peers' filters can restore.
    fn received_entries(&self, pipeline: &Pipeline) -> u64 {
        let receivers = self.peers.iter().flat_map(Peer::received_filters);
        receivers.map(|receiver| connections_of(pipeline, receiver.representation(), receiver.occupied())).sum()
    }

    /// As [`ReplicationSet::received_entries`], by the peers' own last reports.
    fn reported_entries(&self, pipeline: &Pipeline) -> u64 {
        let receivers = self.peers.iter().flat_map(Peer::received_filters);
        receivers.map(|receiver| connections_of(pipeline, receiver.representation(), receiver.entries())).sum()
    }

    /// Ends the recovery of a node that no longer forwards. It goes on re-advertising: the active node may have restarted.
    pub(in crate::node) fn leave_recovery_to_others(&mut self, now: Instant, pipeline: &mut Pipeline) {
        self.ask_no_more(pipeline);
        if let Some(compact) = &mut self.compact {
            compact.inherited.keep_until(now + compact.recovery.lasts);
        }
    }

    /// Ends the recovery and the re-advertising.
    fn end_recovery(&mut self, pipeline: &mut Pipeline) {
        self.ask_no_more(pipeline);
        self.compact.iter_mut().for_each(|compact| compact.inherited.clear());
    }

    fn ask_no_more(&mut self, pipeline: &mut Pipeline) {
        pipeline.recovery.end();
        let receivers = self.peers.iter_mut().filter_map(|peer| peer.compact.as_mut());
        receivers.for_each(|receiver| receiver.set_retaining(false));
        self.compact.iter_mut().for_each(|compact| compact.awaits_entries_until = None);
    }

    pub(in crate::node) fn look_after_recovery(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        forwards: bool,
    ) -> Option<NodeEvent> {
        if pipeline.recovery.is_active() {
            let told = self.reported_entries(pipeline);
            pipeline.recovery.note_entries(told);
            pipeline.recovery.end_if_over(now);
            if !pipeline.recovery.is_active() {
                self.end_recovery(pipeline);
                let restored = pipeline.recovery.counters().restored;
                return Some(NodeEvent::RecoveryEnded { restored });
            }
            return None;
        }
        self.drop_silent_inherited_filters(now);
        if self.compact.as_ref().is_some_and(|compact| compact.inherited.are_over(now)) {
            self.end_recovery(pipeline);
        }
        let until = self.compact.as_ref().and_then(|compact| compact.awaits_entries_until)?;
        if self.reported_entries(pipeline) > 0 {
            return if forwards { self.begin_recovery(now, pipeline, true) } else { None };
        }
        if until <= now {
            // A peer that has sent nothing since this node started may be paused, and have the connections.
            let is_informed = self.peers.iter().all(|peer| peer.has_told_all);
            let until = (!is_informed).then_some(now + ENTRIES_AWAITED);
            self.compact.iter_mut().for_each(|compact| compact.awaits_entries_until = until);
        }
        None
    }

    /// Whether a reachable peer has not acknowledged all of the filters yet.
    pub(in crate::node) fn has_compact_words(&self) -> bool {
        let listens = |peer: &&Peer| peer.session.as_ref().is_some_and(replication::Session::is_open);
        let Some(compact) = &self.compact else { return false };
        self.peers.iter().filter(listens).any(|peer| {
            let is_settled = compact.sender.is_settled(peer.id) && compact.inherited.is_settled(peer.id);
            !is_settled || compact.mixture.has_urgent()
        })
    }
}

/// How many connections the entries represent, at most: of pairs of hosts, as many as the table holds.
fn connections_of(pipeline: &Pipeline, representation: Option<Representation>, entries: u64) -> u64 {
    match representation {
        Some(Representation::HostAggregate) if entries > 0 => pipeline.table().capacity().into(),
        _ => entries,
    }
}
