//! What peers tell compactly, and the recovery in which it is asked for.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, Tuple};
use replication::compact::{self, Addressee, CompactReceiver, Representation};

use super::ToldOn;
use crate::node::peer::Peer;
use crate::node::replication_set::ReplicationSet;
use crate::node::{NodeError, NodeEvent};
use crate::pipeline::{Pipeline, Recalled};

/// A node that takes over from one that told it nothing waits so long for word of connections: who leaves in good order may be late.
const ENTRIES_AWAITED: Duration = Duration::from_secs(2);

/// What a peer told of the connection that began with this tuple.
pub(in crate::node) fn recall(peers: &[Peer], original: &Tuple) -> Option<Recalled> {
    peers.iter().find_map(|peer| {
        let own =
            peer.compact.as_ref().and_then(|receiver| Some((receiver.lookup(original)?, receiver.representation())));
        let told_on = || peer.told_on.as_ref()?.lookup(original);
        let (known, representation) = own.or_else(told_on)?;
        let state = known.state.map(|cell| (cell.protocol_state(original.protocol), cell.connection_flags()));
        let is_of_hosts = representation == Some(Representation::HostAggregate);
        Some(Recalled { owner: peer.id, state, is_of_hosts })
    })
}

impl Peer {
    /// The peer's filter is here whole, or there is none.
    pub(in crate::node) fn has_told_filter(&self) -> bool {
        self.compact.as_ref().is_none_or(CompactReceiver::is_complete)
    }

    /// So is what it tells on. Nothing waits for that: it may be given up before it is whole.
    pub(in crate::node) fn has_told_on(&self) -> bool {
        self.told_on.as_ref().is_none_or(ToldOn::is_complete)
    }

    /// All the filters that it has told.
    fn told_filters(&self) -> impl Iterator<Item = &CompactReceiver> {
        self.compact.iter().chain(self.told_on.iter().flat_map(ToldOn::receivers))
    }
}

impl ReplicationSet {
    /// What peers told compactly of the connection that began with this tuple, whether this node asks at present or not.
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
                self.handle_told_on(now, from, compact::stream(datagram), datagram)?;
                return Ok(None);
            }
            Some(Addressee::Sender) => compact_node.sender.handle_datagram(now, from, datagram)?,
            Some(Addressee::Receiver) | None => {
                receiver.handle_datagram(now, datagram)?;
                if compact::tells_entries(datagram) {
                    compact_node.doubting.note_told(now);
                }
            }
        }
        let awaits_entries = compact_node.awaits_entries_until.is_some();
        let begins = forwards && awaits_entries && self.told_entries(pipeline) > 0;
        Ok(if begins { self.begin_recovery(now, pipeline, true) } else { None })
    }

    /// The next compact datagram for a peer.
    pub(in crate::node) fn poll_compact(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        let compact = self.compact.as_mut()?;
        let told = self.peers.iter_mut().filter(|peer| peer.can_be_told() && peer.refused.is_none());
        for peer in told {
            let Some(receiver) = &mut peer.compact else { continue };
            let mut answers_on =
                |buffer: &mut Vec<u8>| peer.told_on.as_mut().is_some_and(|told_on| told_on.poll_transmit(now, buffer));
            if receiver.poll_transmit(now, buffer)
                || answers_on(buffer)
                || compact.sender.poll_transmit(now, peer.id, buffer)
            {
                return Some(peer.id);
            }
            if compact.heirlooms.poll_transmit(now, peer.id, buffer) {
                compact.sender.charge(now, buffer.len());
                return Some(peer.id);
            }
        }
        None
    }

    /// This node has taken over, or one whose connections it may need has died: from now on packets of no connection are looked
    /// for in what peers told.
    ///
    /// A peer that dies while this node serves took nothing with it but what it had not handed over.
    pub(in crate::node) fn begin_recovery(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        has_taken_over: bool,
    ) -> Option<NodeEvent> {
        let told = self.told_entries(pipeline);
        let compact = self.compact.as_mut()?;
        let makes_good = compact.recovery.blocks || !compact.recovery.cold_start.is_empty();
        if told == 0 && !(makes_good && has_taken_over) {
            // Whoever left may be about to tell.
            compact.awaits_entries_until = has_taken_over.then_some(now + ENTRIES_AWAITED);
            return None;
        }
        compact.awaits_entries_until = None;
        let is_new = pipeline.recovery.begin(now, &compact.recovery, told);
        // The peer may come back with nothing before all its connections have sent something.
        let receivers = self.peers.iter_mut().filter_map(|peer| peer.compact.as_mut());
        receivers.for_each(|receiver| receiver.set_retaining(true));
        self.adopt_heirlooms(now, None);
        is_new.then_some(NodeEvent::RecoveryBegan { entries: told })
    }

    /// Connections that can come back from what peers told, at most.
    fn told_entries(&self, pipeline: &Pipeline) -> u64 {
        let receivers = self.peers.iter().flat_map(Peer::told_filters);
        receivers.map(|receiver| connections_of(pipeline, receiver.representation(), receiver.occupied())).sum()
    }

    /// As [`ReplicationSet::told_entries`], as the peers last said it themselves.
    fn said_entries(&self, pipeline: &Pipeline) -> u64 {
        let receivers = self.peers.iter().flat_map(Peer::told_filters);
        receivers.map(|receiver| connections_of(pipeline, receiver.representation(), receiver.entries())).sum()
    }

    /// This node forwards nothing any more and asks for nothing. What it tells on it goes on telling: the node that forwards from
    /// now on may have started with nothing.
    pub(in crate::node) fn leave_recovery_to_others(&mut self, now: Instant, pipeline: &mut Pipeline) {
        self.ask_no_more(pipeline);
        if let Some(compact) = &mut self.compact {
            compact.heirlooms.keep_until(now + compact.recovery.lasts);
        }
    }

    /// Nothing is asked, and nothing is told on, any more.
    fn end_recovery(&mut self, pipeline: &mut Pipeline) {
        self.ask_no_more(pipeline);
        self.compact.iter_mut().for_each(|compact| compact.heirlooms.clear());
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
            let told = self.said_entries(pipeline);
            pipeline.recovery.note_entries(told);
            pipeline.recovery.end_if_over(now);
            if !pipeline.recovery.is_active() {
                self.end_recovery(pipeline);
                let restored = pipeline.recovery.counters().restored;
                return Some(NodeEvent::RecoveryEnded { restored });
            }
            return None;
        }
        self.forget_silent_heirlooms(now);
        if self.compact.as_ref().is_some_and(|compact| compact.heirlooms.are_over(now)) {
            self.end_recovery(pipeline);
        }
        let until = self.compact.as_ref().and_then(|compact| compact.awaits_entries_until)?;
        if self.said_entries(pipeline) > 0 {
            return if forwards { self.begin_recovery(now, pipeline, true) } else { None };
        }
        if until <= now {
            // A peer that has advertised nothing since this node started may be standing still, and have the connections.
            let is_informed = self.peers.iter().all(|peer| peer.has_told_all);
            let until = (!is_informed).then_some(now + ENTRIES_AWAITED);
            self.compact.iter_mut().for_each(|compact| compact.awaits_entries_until = until);
        }
        None
    }

    /// A peer that listens has not been told yet all that there is to tell compactly.
    pub(in crate::node) fn has_compact_words(&self) -> bool {
        let listens = |peer: &&Peer| peer.session.as_ref().is_some_and(replication::Session::is_open);
        let Some(compact) = &self.compact else { return false };
        self.peers.iter().filter(listens).any(|peer| {
            let is_settled = compact.sender.is_settled(peer.id) && compact.heirlooms.is_settled(peer.id);
            !is_settled || compact.mixture.has_urgent()
        })
    }
}

/// Of pairs of hosts nobody knows how many connections they have.
fn connections_of(pipeline: &Pipeline, representation: Option<Representation>, entries: u64) -> u64 {
    match representation {
        Some(Representation::HostAggregate) if entries > 0 => pipeline.table().capacity().into(),
        _ => entries,
    }
}
