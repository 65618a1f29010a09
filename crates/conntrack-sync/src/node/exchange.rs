//! Exchanges datagrams with peers, and handles timeouts.

use alloc::vec::Vec;
use core::time::Duration;

use cluster::role::{Heartbeat, is_heartbeat};
use flow::{Instant, NodeId};
use replication::representation::kernel;
use replication::secure::{Channel, ChannelEvent, Content, is_channel};

use super::SyncNode;
use crate::config::{Mode, SyncRole};
use crate::connections::{ConnectionChange, Deferral};
use crate::error::SyncError;
use crate::event::SyncEvent;
use crate::session::ChangeDetails;

/// Two nodes may both be primary for this time while the addresses move.
const SPLIT_AFTER: Duration = Duration::from_secs(1);
/// The capacity for changes that is kept; a role change that affects all connections needs more temporarily.
const CHANGES_KEPT_MAX: usize = 8192;

impl SyncNode {
    /// Handles a datagram of a peer.
    ///
    /// # Errors
    /// Why it was rejected; the node continues.
    pub fn handle_datagram(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SyncError> {
        let result = self.handle_outer(now, from, datagram);
        self.connections.counters.bad_datagrams += u64::from(result.is_err());
        self.distribute();
        self.collect_events(now);
        result
    }

    fn handle_outer(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SyncError> {
        let peer = self.peers.iter_mut().find(|peer| peer.id == from).ok_or(SyncError::UnknownPeer(from))?;
        let Some(channel) = peer.channel.as_mut() else {
            if is_channel(datagram) {
                return Err(SyncError::NotSecured);
            }
            return self.handle_inner(now, from, datagram);
        };
        let mut content = core::mem::take(&mut self.buffers.incoming);
        let result = match channel.handle_datagram(now, datagram, &mut content) {
            Ok(Some(Content::Replication)) => self.handle_inner(now, from, &content),
            Ok(Some(Content::Detection | Content::Nothing) | None) => Ok(()),
            // Counted.
            Err(error) if error.is_routine() => Ok(()),
            Err(error) => Err(error.into()),
        };
        self.buffers.incoming = content;
        self.note_channel_events(now);
        result
    }

    fn handle_inner(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SyncError> {
        let peer = self.peers.iter_mut().find(|peer| peer.id == from).ok_or(SyncError::UnknownPeer(from))?;
        if peer.is_native() && is_heartbeat(datagram) {
            return self.handle_heartbeat(now, from, datagram);
        }
        // Peers' updates are processed once the kernel's table was read.
        if !self.connections.dump.is_initialised {
            return Ok(());
        }
        peer.handle_session(now, &mut self.connections, datagram)
    }

    fn handle_heartbeat(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SyncError> {
        let heartbeat = Heartbeat::decode(datagram)?;
        if heartbeat.node != from {
            return Err(SyncError::NotItsOwn { peer: from, named: heartbeat.node });
        }
        let peer = self.peers.iter_mut().find(|peer| peer.id == from).ok_or(SyncError::UnknownPeer(from))?;
        if let Some(role) = peer.note_role(now, heartbeat.state) {
            self.connections.primaries.set(from, role == SyncRole::Primary);
            self.connections.events.push(now, SyncEvent::PeerRole { peer: from, role });
            self.note_split_brain(now);
            self.claim_from_peers(now);
        }
        Ok(())
    }

    /// Writes a datagram for a peer to `buffer`, and returns the peer; `None` if there is none now.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        for peer in &mut self.peers {
            if peer.channel.as_mut().is_some_and(|channel| channel.poll_transmit(buffer)) {
                return Some(peer.id);
            }
            loop {
                let is_initialised = self.connections.dump.is_initialised;
                let (node, role) = (self.connections.node, self.connections.role);
                let has_one = peer.can_send()
                    && (peer.poll_heartbeat(now, node, role, buffer)
                        || (is_initialised && peer.poll_session(now, &mut self.connections, buffer)));
                if !has_one {
                    break;
                }
                let Some(channel) = &mut peer.channel else { return Some(peer.id) };
                core::mem::swap(buffer, &mut self.buffers.outgoing);
                // Exhausted keys drop the datagram, like a loss in the network.
                if channel.seal(now, Content::Replication, &mut self.buffers.outgoing, buffer) {
                    return Some(peer.id);
                }
            }
        }
        self.distribute();
        None
    }

    /// Does the work due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut is_role_old = false;
        for peer in &mut self.peers {
            is_role_old |= peer.handle_timeout(now, &mut self.connections);
        }
        self.refresh_scan.step(now, &mut self.connections);
        self.connections.replicate_due(now);
        self.connections.note_recovered(now);
        self.distribute();
        self.collect_events(now);
        // A primary with a silent session counted as forwarding until its role expired.
        if is_role_old {
            self.claim_from_peers(now);
        }
        self.note_split_brain(now);
        self.note_channel_events(now);
    }

    /// The latest time for the next call of [`SyncNode::handle_timeout`], followed by polling.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_initialised = self.connections.dump.is_initialised;
        let peers = self.peers.iter().filter_map(|peer| peer.poll_timeout(is_initialised));
        let kernel = self.connections.next_request_at();
        let refresh_scan = Some(self.refresh_scan.poll_timeout());
        let deferral = self.connections.deferral.as_ref().and_then(Deferral::poll_timeout);
        peers.chain([kernel, refresh_scan, deferral, self.connections.dump.poll_timeout()].into_iter().flatten()).min()
    }

    /// The time since 1970, as the system has it at `now`: it validates peers' certificates.
    pub fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        for channel in self.peers.iter_mut().filter_map(|peer| peer.channel.as_mut()) {
            channel.set_unix_time(now, unix_time);
        }
    }

    /// Passes changes of connections to all sessions.
    pub(super) fn distribute(&mut self) {
        while !self.connections.changes.is_empty() {
            core::mem::swap(&mut self.connections.changes, &mut self.buffers.changes);
            for changes in self.buffers.changes.drain(..) {
                let mut details = ChangeDetails { changes, attributes: &[], entry: None, expectation: None };
                match changes {
                    ConnectionChange::Ended { .. } | ConnectionChange::Refused(_) => {
                        self.buffers.attributes.clear();
                        let name = self.connections.names.pop_front();
                        name.iter().for_each(|name| kernel::encode_ended(name, &mut self.buffers.attributes));
                        details.attributes = &self.buffers.attributes;
                        if matches!(changes, ConnectionChange::Ended { .. }) {
                            details.entry = self.connections.ended_entries.pop_front();
                        }
                    }
                    ConnectionChange::ExpectationEnded(_) => {
                        details.expectation = self.connections.ended_expectations.pop_front();
                    }
                    _ => {}
                }
                self.peers.iter_mut().for_each(|peer| peer.distribute(&details, &self.connections));
            }
        }
        if self.buffers.changes.capacity() > CHANGES_KEPT_MAX {
            (self.buffers.changes, self.connections.changes) = (Vec::new(), Vec::new());
        }
    }

    fn collect_events(&mut self, now: Instant) {
        let mut is_lost = false;
        for peer in &mut self.peers {
            is_lost |= peer.collect_events(now, &mut self.connections);
        }
        if is_lost {
            self.claim_from_peers(now);
        }
    }

    /// A peer no longer forwards: the primary takes over its connections.
    fn claim_from_peers(&mut self, now: Instant) {
        if self.connections.role != SyncRole::Primary {
            return;
        }
        let claimable = self.claimable();
        for at in 0..self.peers.len() {
            let peer = self.peers[at].id;
            if claimable.contains(peer) {
                let claimed = self.connections.claim(|owner| owner == peer);
                self.connections.counters.claimed += u64::from(claimed);
                if claimed > 0 {
                    self.connections.events.push(now, SyncEvent::Claimed { peer, connections: claimed });
                }
            }
        }
        self.distribute();
    }

    pub(super) fn note_split_brain(&mut self, now: Instant) {
        let is_primary = self.connections.role == SyncRole::Primary;
        let may_be_split = is_primary && self.connections.mode == Mode::PrimaryBackup;
        for peer in &mut self.peers {
            let are_both = may_be_split && peer.role == Some(SyncRole::Primary);
            let since = are_both.then(|| peer.both_primary_since.unwrap_or(now));
            peer.both_primary_since = since;
            let is_split = since.is_some_and(|since| since + SPLIT_AFTER <= now);
            if is_split != peer.is_split {
                peer.is_split = is_split;
                self.split_brains += u64::from(is_split);
                let event = if is_split { SyncEvent::SplitBrain(peer.id) } else { SyncEvent::SplitBrainOver(peer.id) };
                self.connections.events.push(now, event);
            }
        }
    }

    fn note_channel_events(&mut self, now: Instant) {
        for peer in &mut self.peers {
            while let Some(event) = peer.channel.as_mut().and_then(Channel::poll_event) {
                let event = match event {
                    ChannelEvent::Established => SyncEvent::ChannelSecured(peer.id),
                    ChannelEvent::KeysExchanged => SyncEvent::SessionKeysExchanged(peer.id),
                };
                self.connections.events.push(now, event);
            }
        }
    }
}
