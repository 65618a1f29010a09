//! Peers' filters, and the recovery in which connections are looked up in them.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, Tuple};
use network_functions::class::Class;
use replication::Session;
use replication::compact::{self, Addressee, CellState, Representation};

use super::{Compact, Readvertised};
use crate::node::error::NodeError;
use crate::node::event::NodeEvent;
use crate::node::peer::Peer;
use crate::node::peers::Peers;
use crate::pipeline::{FilterMatch, Pipeline};

/// How long a node that has taken over without a filter waits for entries: those of a leaving node may arrive late.
const ENTRIES_AWAITED: Duration = Duration::from_secs(2);

/// Looks up the connection with this original tuple in the peers' filters.
pub(in crate::node) fn recovery_lookup(peers: &[Peer], original: &Tuple) -> Option<FilterMatch> {
    peers.iter().find_map(|peer| {
        let own =
            peer.compact.as_ref().and_then(|receiver| Some((receiver.lookup(original)?, receiver.representation())));
        let readvertised = || peer.readvertised.as_ref()?.lookup(original);
        let (known, representation) = own.or_else(readvertised)?;
        let state = known.state.map(|cell| (cell.protocol_state(original.protocol), cell.connection_flags()));
        let is_of_hosts = representation == Some(Representation::HostAggregate);
        let class = known.state.and_then(CellState::class).map(Class::from_number);
        Some(FilterMatch { owner: peer.id, state, class, is_of_hosts })
    })
}

impl Compact {
    /// A compact datagram from a peer. `forwards`: this node forwards packets of some group.
    pub(in crate::node) fn handle_datagram(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        peers: &mut Peers,
        forwards: bool,
        from: NodeId,
        datagram: &[u8],
    ) -> Result<Option<NodeEvent>, NodeError> {
        let peer = peers.find(from)?;
        let Peer { compact: Some(receiver), refused: None, .. } = peer else { return Ok(None) };
        peer.compact_received_at = Some(now);
        let (stream, addressee) = (compact::stream(datagram), compact::addressee(datagram));
        match (stream, addressee) {
            (0, Some(Addressee::Sender)) => self.sender.handle_datagram(now, from, datagram)?,
            (0, Some(Addressee::Receiver) | None) => {
                receiver.handle_datagram(now, datagram)?;
                // Where nodes forward side by side, connections change their owner with a group only: see [`Compact::give_away`].
                if compact::carries_entries(datagram) && !pipeline.is_sharing() {
                    self.claimed.note_entries_received(now);
                }
            }
            (_, Some(Addressee::Sender)) => {
                self.inherited.handle_datagram(now, from, stream, datagram)?;
                return Ok(None);
            }
            (_, Some(Addressee::Receiver) | None) => {
                let readvertised = peer.readvertised.as_mut();
                readvertised.map_or(Ok(()), |filters| filters.handle_datagram(now, stream, datagram))?;
                return Ok(None);
            }
        }
        let begins = forwards && self.awaits_entries_until.is_some() && received_entries(pipeline, peers) > 0;
        Ok(if begins { self.begin_recovery(now, pipeline, peers, true) } else { None })
    }

    /// The next compact datagram for a peer that is meant.
    pub(in crate::node) fn poll_transmit(
        &mut self,
        now: Instant,
        peers: &mut Peers,
        is_meant: impl Fn(&Peer) -> bool,
        buffer: &mut Vec<u8>,
    ) -> Option<NodeId> {
        for peer in peers.iter_mut().filter(|peer| peer.takes_updates() && is_meant(peer)) {
            let Some(receiver) = &mut peer.compact else { continue };
            let mut answers_on = |buffer: &mut Vec<u8>| {
                peer.readvertised.as_mut().is_some_and(|readvertised| readvertised.poll_transmit(now, buffer))
            };
            if receiver.poll_transmit(now, buffer)
                || answers_on(buffer)
                || self.sender.poll_transmit(now, peer.id, buffer)
            {
                return Some(peer.id);
            }
            if self.inherited.poll_transmit(now, peer.id, buffer) {
                self.sender.charge(now, buffer.len());
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
        peers: &mut Peers,
        has_taken_over: bool,
    ) -> Option<NodeEvent> {
        let entries = received_entries(pipeline, peers);
        let makes_good = self.recovery.blocks || !self.recovery.cold_start.is_empty();
        // A worker hands replies to those that have entries: see [`crate::pipeline::Recovery`].
        let serves_others = !pipeline.place().is_alone() && pipeline.chain().translates();
        if entries == 0 && has_taken_over && serves_others && peers.iter().any(|peer| peer.has_been_up) {
            let _ = pipeline.recovery.begin(now, &self.recovery, 0);
            self.awaits_entries_until = Some(now + ENTRIES_AWAITED);
            return None;
        }
        if entries == 0 && !(makes_good && has_taken_over) {
            // Entries of a node that has left may still arrive.
            self.awaits_entries_until = has_taken_over.then_some(now + ENTRIES_AWAITED);
            return None;
        }
        self.awaits_entries_until = None;
        let is_new = pipeline.recovery.begin(now, &self.recovery, entries);
        // The peer may restart before all its connections have sent a packet.
        retain_filters(peers, true);
        self.take_inherited_filters(now, peers, None);
        is_new.then_some(NodeEvent::RecoveryBegan { entries })
    }

    /// This node no longer forwards. Its recovery ends, but it goes on re-advertising: the active node may have restarted.
    pub(in crate::node) fn stand_by(&mut self, now: Instant, pipeline: &mut Pipeline, peers: &mut Peers) {
        self.end_lookups(pipeline, peers);
        self.inherited.keep_until(now + self.recovery.lasts);
        self.begin_standby(now);
        self.sender.flush(now);
    }

    /// Ends the recovery and the re-advertising.
    fn end_recovery(&mut self, pipeline: &mut Pipeline, peers: &mut Peers) {
        self.end_lookups(pipeline, peers);
        self.inherited.clear();
    }

    fn end_lookups(&mut self, pipeline: &mut Pipeline, peers: &mut Peers) {
        pipeline.recovery.end();
        retain_filters(peers, false);
        self.awaits_entries_until = None;
    }

    /// Begins or ends a recovery when its time has come.
    pub(super) fn advance_recovery(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        peers: &mut Peers,
        forwards: bool,
    ) -> Option<NodeEvent> {
        if pipeline.recovery.is_active() {
            pipeline.recovery.note_entries(reported_entries(pipeline, peers));
            pipeline.recovery.end_if_over(now);
            if !pipeline.recovery.is_active() {
                self.end_recovery(pipeline, peers);
                return Some(NodeEvent::RecoveryEnded { restored: pipeline.recovery.counters().restored });
            }
            return None;
        }
        drop_silent_filters(now, peers);
        if self.inherited.are_over(now) {
            self.end_recovery(pipeline, peers);
        }
        let until = self.awaits_entries_until?;
        if reported_entries(pipeline, peers) > 0 {
            return if forwards { self.begin_recovery(now, pipeline, peers, true) } else { None };
        }
        if until <= now {
            // A peer that has sent nothing since this node started may be paused, and have the connections.
            let is_informed = peers.iter().all(|peer| peer.has_sent_all);
            self.awaits_entries_until = (!is_informed).then_some(now + ENTRIES_AWAITED);
        }
        None
    }

    /// A peer has restarted while this node is standby, or forwards beside it: no node has taken its connections over. Its former filter is retained and
    /// re-advertised to it.
    pub(in crate::node) fn keep_filter_of_restarted(&mut self, now: Instant, peers: &mut Peers, restarted: NodeId) {
        let receiver = peers.get_mut(restarted).and_then(|peer| peer.compact.as_mut());
        receiver.into_iter().for_each(|receiver| receiver.set_retaining(true));
        self.take_inherited_filters(now, peers, Some(restarted));
        self.inherited.keep_until(now + self.recovery.lasts);
    }

    /// Re-advertises the filters of dead peers, the former filter of a `restarted` one, and the filters that any peer re-advertises.
    fn take_inherited_filters(&mut self, now: Instant, peers: &Peers, restarted: Option<NodeId>) {
        self.inherited.keep_while_recovering();
        let listens = |peer: &Peer| peer.session.as_ref().is_some_and(Session::is_open);
        let receivers: Vec<_> = peers.iter().map(|peer| (peer.id, listens(peer))).collect();
        for peer in peers {
            let own = peer.compact.as_ref().filter(|_| !peer.is_up() || restarted == Some(peer.id));
            let readvertised = peer.readvertised.iter().flat_map(Readvertised::receivers);
            for receiver in readvertised.chain(own) {
                let Some(epoch) = receiver.inherited_epoch() else { continue };
                if epoch == self.sender.epoch() || self.inherited.has(epoch) {
                    continue;
                }
                if let Some(inherited) = receiver.inherited() {
                    self.inherited.insert(now, inherited, self.sender.config(), &receivers);
                }
            }
        }
    }

    /// Whether a reachable peer has not acknowledged all of the filters yet.
    pub(in crate::node) fn has_unacknowledged(&self, peers: &[Peer]) -> bool {
        let listens = |peer: &&Peer| peer.session.as_ref().is_some_and(Session::is_open);
        peers.iter().filter(listens).any(|peer| {
            let is_settled = self.sender.is_settled(peer.id) && self.inherited.is_settled(peer.id);
            !is_settled || self.mixture.has_urgent() || self.leaving.is_looking()
        })
    }
}

/// The peers' filters keep the entries of a peer that restarts, or drop them.
fn retain_filters(peers: &mut Peers, retains: bool) {
    let receivers = peers.iter_mut().filter_map(|peer| peer.compact.as_mut());
    receivers.for_each(|receiver| receiver.set_retaining(retains));
}

/// Drops filters that peers no longer re-advertise.
fn drop_silent_filters(now: Instant, peers: &mut Peers) {
    for peer in peers {
        let age = peer.compact.as_ref().and_then(|receiver| receiver.age(now));
        if let (Some(readvertised), Some(age)) = (&mut peer.readvertised, age) {
            readvertised.forget_silent(Instant::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64)));
        }
    }
}

/// Upper bound of the connections that the peers' filters can restore.
fn received_entries(pipeline: &Pipeline, peers: &[Peer]) -> u64 {
    let receivers = peers.iter().flat_map(Peer::received_filters);
    receivers.map(|receiver| connections_of(pipeline, receiver.representation(), receiver.occupied())).sum()
}

/// As [`received_entries`], by the peers' own last reports.
fn reported_entries(pipeline: &Pipeline, peers: &[Peer]) -> u64 {
    let receivers = peers.iter().flat_map(Peer::received_filters);
    receivers.map(|receiver| connections_of(pipeline, receiver.representation(), receiver.entries())).sum()
}

/// How many connections the entries represent, at most: of pairs of hosts, as many as the table holds.
fn connections_of(pipeline: &Pipeline, representation: Option<Representation>, entries: u64) -> u64 {
    match representation {
        Some(Representation::HostAggregate) if entries > 0 => pipeline.table().capacity().into(),
        _ => entries,
    }
}
