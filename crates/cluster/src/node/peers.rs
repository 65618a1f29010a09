//! A node's peers: each found by its number in one step, and what is done to all of them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use flow::{Instant, NodeId, WorkerId};
use replication::Resync;
use replication::secure::{Content, Security, UnnamedPeer};

use super::error::{ConfigError, NodeError, ReloadError};
use super::event::{Events, NodeEvent};
use super::outbox::Transmit;
use super::paths::ServiceRoute;
use super::peer::{Peer, encode_heartbeats};
use crate::forwarding::{Forwarder, OutFrame, PathFrameKind, PathFrameTo};
use crate::group::GroupSet;
use crate::pipeline::{Pipeline, ReplicaExpiry};
use crate::role::{Capabilities, Heartbeats, Roles, State};

/// A replica whose own timer runs out while its owner lives is looked at again after this time.
const REPLICA_RECHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Stands in the table of places for a node that is no peer. There are fewer peers than this: [`crate::role::PEERS_MAX`].
const NO_PLACE: u8 = u8::MAX;

/// The peers, in the order in which they were configured.
pub(super) struct Peers {
    list: Vec<Peer>,
    /// The place of each node in the list, by its number.
    places: [u8; 1 << u8::BITS],
    /// Room for a datagram before it is encrypted.
    plain: Vec<u8>,
    /// Nodes that were peers and are none any more: their replicas are claimed, or end, as those of a dead owner. At most one for each
    /// number.
    removed: Vec<Removed>,
}

/// A node that was a peer and is none any more.
struct Removed {
    id: NodeId,
    /// Since when it decides no connections.
    since: Instant,
    /// The marks of its replicas.
    resync: Resync,
}

/// Why a node does not decide its connections any more, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Withdrawal {
    /// It is down, or no peer.
    Lost(Instant),
    /// It is up, and is drained or about to end.
    Drained(Instant),
}

/// Looking a peer up.
impl Peers {
    /// # Panics
    /// With more than [`crate::role::PEERS_MAX`].
    pub(super) fn new(list: Vec<Peer>) -> Self {
        assert!(list.len() <= crate::role::PEERS_MAX);
        let mut peers = Self { list, places: [NO_PLACE; 1 << u8::BITS], plain: Vec::new(), removed: Vec::new() };
        peers.note_places();
        peers
    }

    fn note_places(&mut self) {
        self.places = [NO_PLACE; 1 << u8::BITS];
        for (place, peer) in (0..).zip(&self.list) {
            self.places[usize::from(peer.id.0)] = place;
        }
    }

    /// Removes all peers but those in `stay`. Sessions with those go on.
    pub(super) fn retain(&mut self, now: Instant, stay: &[NodeId]) {
        for peer in self.list.extract_if(.., |peer| !stay.contains(&peer.id)) {
            let since = peer.orphaned_at.unwrap_or(now);
            self.removed.push(Removed { id: peer.id, since, resync: peer.resync });
        }
        self.note_places();
    }

    /// Adds a peer that is not one yet. It counts as away until it is up. A node that had everything that its peers had still has:
    /// a node that was alone has only what it is sent. Of a node that was a peer before, replicas may be left that it does not know
    /// any more: they are those of a node that has restarted.
    pub(super) fn add(&mut self, now: Instant, mut peer: Peer) {
        debug_assert!(self.place(peer.id).is_err() && self.list.len() < crate::role::PEERS_MAX);
        peer.orphaned_at = Some(now);
        if let Some(place) = self.removed.iter().position(|removed| removed.id == peer.id) {
            let removed = self.removed.swap_remove(place);
            (peer.orphaned_at, peer.resync) = (Some(removed.since), removed.resync);
            peer.note_restart();
        }
        peer.has_sent_all |= !self.list.is_empty() && self.have_sent_all();
        self.list.push(peer);
        self.note_places();
    }

    /// Nodes that were peers, and are none any more.
    pub(super) fn removed(&self) -> impl Iterator<Item = NodeId> {
        self.removed.iter().map(|removed| removed.id)
    }

    /// Whether, why and since when a node does not decide its connections any more.
    pub(super) fn withdrawal(&self, id: NodeId) -> Option<Withdrawal> {
        if let Some(peer) = self.get(id) {
            let lost = peer.orphaned_at.map(Withdrawal::Lost);
            return lost.or(peer.drained_at.map(Withdrawal::Drained));
        }
        // What is no peer, and never was one since this node began, will not be back with what it had.
        let removed = self.removed.iter().find(|removed| removed.id == id);
        Some(Withdrawal::Lost(removed.map_or(Instant::ZERO, |removed| removed.since)))
    }

    /// Where the peer lies.
    ///
    /// # Errors
    /// There is no such peer.
    pub(super) fn place(&self, id: NodeId) -> Result<usize, NodeError> {
        match self.places[usize::from(id.0)] {
            NO_PLACE => Err(NodeError::UnknownPeer(id)),
            place => Ok(place.into()),
        }
    }

    pub(super) fn get(&self, id: NodeId) -> Option<&Peer> {
        self.list.get(self.place(id).ok()?)
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Peer> {
        let place = self.place(id).ok()?;
        self.list.get_mut(place)
    }

    /// As [`Peers::get_mut`].
    ///
    /// # Errors
    /// There is no such peer.
    pub(super) fn find(&mut self, id: NodeId) -> Result<&mut Peer, NodeError> {
        let place = self.place(id)?;
        Ok(&mut self.list[place])
    }
}

/// Time, and what the peers' detectors and heartbeats show.
impl Peers {
    /// As [`Peer::handle_timeout`].
    pub(super) fn handle_timeout(&mut self, now: Instant, pipeline: &mut Pipeline, claims_all: bool) {
        self.list.iter_mut().for_each(|peer| peer.handle_timeout(now, pipeline, claims_all));
    }

    /// The time since 1970, as the system has it at `now`: peers' certificates are compared with it.
    pub(super) fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        let channels = self.list.iter_mut().filter_map(|peer| peer.channel.as_mut());
        channels.for_each(|channel| channel.set_unix_time(now, unix_time));
    }

    /// As [`Peer::handle_path_event`], for all events. Whether a peer is lost.
    pub(super) fn handle_path_events(&mut self, now: Instant, roles: &mut Roles, events: &mut Events) -> bool {
        let mut is_any_lost = false;
        for peer in &mut self.list {
            while let Some((path, event)) = peer.poll_path_event() {
                is_any_lost |= peer.handle_path_event(now, path, event, roles, events);
            }
        }
        is_any_lost
    }

    /// The roles have read a peer's heartbeats; before that, this node was active for the groups `active_before`.
    pub(super) fn handle_heartbeats(
        &mut self,
        now: Instant,
        active_before: GroupSet,
        roles: &Roles,
        heartbeats: &Heartbeats,
        events: &mut Events,
    ) {
        let Some(peer) = self.get_mut(heartbeats.first.node) else { return };
        let is_up = peer.is_up();
        peer.split.handle_heartbeats(now, is_up, active_before, roles, heartbeats, events);
    }

    /// A heartbeat carries its sender's division of packets. Nodes with another one would look for replicas where there are
    /// none: replication with them is refused until they divide alike. It announces the sender's state service, too.
    pub(super) fn note_capabilities(
        &mut self,
        now: Instant,
        from: NodeId,
        ours: Capabilities,
        theirs: Capabilities,
        events: &mut Events,
    ) {
        let Some(peer) = self.get_mut(from) else { return };
        peer.paths.set_polled(theirs.slow_paths);
        peer.has_state_service = Some(theirs.state_service.is_some() && theirs.state_service == ours.state_service);
        let run_of = |(version, run)| ours.shared_values.is_some_and(|(known, _)| known == version).then_some(run);
        peer.shared_values_run = theirs.shared_values.and_then(run_of);
        let (ours, theirs) = (ours.division, theirs.division);
        let refused = (!ours.goes_with(theirs)).then_some(theirs);
        if peer.refused != refused {
            peer.refused = refused;
            if refused.is_some() {
                let (theirs, ours) = (theirs.workers, ours.workers);
                events.push(now, NodeEvent::WorkersDiffer { peer: from, theirs, ours });
            }
        }
    }

    /// Notes which peers forward, and which are drained. One whose heartbeats are late does as it did.
    pub(super) fn note_forwarding(&mut self, now: Instant, roles: &Roles) {
        for peer in &mut self.list {
            let heartbeats = || roles.groups().filter_map(|group| roles.peer(now, peer.id, group));
            let (is_up, is_known) = (peer.is_up(), heartbeats().next().is_some());
            if is_known || !is_up {
                let is_forwarding = is_up && heartbeats().any(|heartbeat| heartbeat.state.forwards());
                let is_drained = is_up && heartbeats().all(|heartbeat| heartbeat.state == State::Left);
                peer.is_forwarding = is_forwarding;
                peer.drained_at = is_drained.then(|| peer.drained_at.unwrap_or(now));
            }
        }
    }

    /// Reports peers that are up on service paths alone, and a split brain that is over because this node has yielded.
    /// `has_rate`: updates may go over service paths.
    pub(super) fn report(&mut self, now: Instant, roles: &Roles, has_rate: bool, events: &mut Events) {
        for peer in &mut self.list {
            if peer.paths.becomes_degraded(now) {
                let carries_updates = has_rate && peer.service_route().is_some() && peer.session.is_some();
                events.push(now, NodeEvent::Degraded { peer: peer.id, carries_updates });
            }
        }
        if roles.active().is_empty() {
            self.list.iter_mut().for_each(|peer| peer.split.end(now, peer.id, events));
        }
    }

    /// As [`Peer::report_channel_events`].
    pub(super) fn report_channel_events(&mut self, now: Instant, events: &mut Events) {
        self.list.iter_mut().for_each(|peer| peer.report_channel_events(now, events));
    }

    /// The live owners of connections: see [`Peer::is_live_owner`].
    pub(super) fn live_owners(&self) -> impl Iterator<Item = NodeId> {
        self.list.iter().filter(|peer| peer.is_live_owner()).map(|peer| peer.id)
    }

    /// Notes which peers have been up. A node that had everything that its peers had still has when another one appears.
    pub(super) fn note_arrivals(&mut self) {
        let had_all = self.have_sent_all();
        for peer in self.list.iter_mut().filter(|peer| !peer.has_been_up && peer.is_up()) {
            peer.has_been_up = true;
            peer.has_sent_all |= had_all;
        }
    }

    /// Whether this node has a replica of every connection that it is to back up.
    pub(super) fn have_been_copied(&self) -> bool {
        let may_be_absent = self.may_be_absent();
        self.list.iter().all(|peer| peer.is_synchronised_or_away() || may_be_absent && !peer.has_been_up)
    }

    /// Whether all peers have at some time replicated all their connections.
    pub(super) fn have_sent_all(&self) -> bool {
        let may_be_absent = self.may_be_absent();
        self.list.iter().all(|peer| peer.has_sent_all || may_be_absent && !peer.has_been_up)
    }

    /// Whether a peer that has not been up yet counts as away: another one was reached, and has replicated what it has. A node that
    /// has reached none may itself be what is cut off.
    fn may_be_absent(&self) -> bool {
        self.list.iter().any(|peer| peer.has_been_up && peer.has_sent_all)
    }

    /// The expiry of the owner's replicas whose own timer runs out.
    pub(super) fn copy_expiry(&self, owner: NodeId, roles: &Roles) -> ReplicaExpiry {
        let lost = self.list.iter().filter_map(|peer| Some((peer.id, peer.orphaned_at?)));
        let lost = lost.chain(self.removed.iter().map(|removed| (removed.id, removed.since)));
        copy_expiry(lost, owner, roles.holds_any(), roles.claims_all())
    }
}

/// What is sent to the peers, beside replication.
impl Peers {
    /// The next datagram of a channel's handshake. While the replication path is down, it goes over a service path as well.
    pub(super) fn poll_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<NodeId> {
        for peer in &mut self.list {
            if peer.channel.as_mut().is_some_and(|channel| channel.poll_transmit(buffer)) {
                peer.paths.keep_handshake(buffer);
                return Some(peer.id);
            }
        }
        None
    }

    /// The next packet of failure detection on the replication path.
    pub(super) fn poll_detection(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        let mut watched = self.list.iter_mut().filter(|peer| peer.is_watched && peer.is_reachable());
        watched.find_map(|peer| peer.detector.poll_transmit(now, buffer).then_some(peer.id))
    }

    /// The next heartbeats that are due to a peer. `ours`: how this node divides its packets.
    pub(super) fn poll_heartbeats(
        &mut self,
        now: Instant,
        roles: &mut Roles,
        ours: Capabilities,
        buffer: &mut Vec<u8>,
    ) -> Option<NodeId> {
        if let Some(heartbeats) = roles.poll_heartbeats(now) {
            for peer in &mut self.list {
                let heartbeats = Heartbeats { answers: roles.latest_of(peer.id), ..heartbeats.clone() };
                peer.paths.set_heartbeats(now, &heartbeats);
                peer.heartbeats = Some(heartbeats);
            }
        }
        let mut reachable = self.list.iter_mut().filter(|peer| peer.is_reachable());
        let (id, heartbeats) = reachable.find_map(|peer| Some((peer.id, peer.heartbeats.take()?)))?;
        encode_heartbeats(&heartbeats, ours, buffer);
        Some(id)
    }

    /// The next frame for a peer over a service path.
    pub(super) fn poll_path_frame(
        &mut self,
        now: Instant,
        (ours, worker): (Capabilities, WorkerId),
        forwarder: &mut Forwarder,
        buffer: &mut Vec<u8>,
    ) -> Option<OutFrame> {
        for peer in &mut self.list {
            while let Some((route, kind, mut datagram)) = peer.poll_path_datagram(now, ours) {
                let frame = PathFrameTo { node: peer.id, kind, link_address: route.link_address };
                let frame = of_worker(frame, worker, &mut datagram);
                if forwarder.write_path_frame(route.port, frame, &datagram, buffer).is_some() {
                    return Some(OutFrame::of_own(route.port));
                }
            }
        }
        None
    }

    /// Encrypts a datagram of replication, and writes the frame that carries it over the service path over `buffer`. `None`: the channel has
    /// no keys, or the frame has no room.
    pub(super) fn seal_into_frame(
        &mut self,
        now: Instant,
        (id, route): (NodeId, ServiceRoute),
        datagram: &mut Vec<u8>,
        worker: WorkerId,
        forwarder: &mut Forwarder,
        buffer: &mut Vec<u8>,
    ) -> Option<OutFrame> {
        let Self { list, plain, places, .. } = self;
        let peer = list.get_mut(usize::from(places[usize::from(id.0)]))?;
        plain.clear();
        if !peer.channel.as_mut()?.seal(now, Content::Replication, datagram, plain) {
            return None;
        }
        let frame = PathFrameTo { node: id, kind: PathFrameKind::Replication, link_address: route.link_address };
        let frame = of_worker(frame, worker, plain);
        forwarder.write_path_frame(route.port, frame, plain, buffer)?;
        Some(OutFrame::of_own(route.port))
    }

    /// Encrypts what was polled, where the peer has a channel. `None` when its keys have been used too often: then it is lost
    /// as the network may lose it.
    pub(super) fn seal(&mut self, now: Instant, transmit: Transmit, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (id, kind) = match transmit {
            Transmit::Replication(id) => (id, Content::Replication),
            Transmit::Detection(id) => (id, Content::Detection),
            Transmit::Port { .. } => return Some(transmit),
        };
        let Ok(place) = self.place(id) else { return Some(transmit) };
        let Self { list, plain, .. } = self;
        let Some(channel) = &mut list[place].channel else { return Some(transmit) };
        core::mem::swap(buffer, plain);
        channel.seal(now, kind, plain, buffer).then_some(Transmit::Replication(id))
    }
}

/// Reconfiguration.
impl Peers {
    /// Whether the channels can take another configuration, for these peers.
    pub(super) fn check_security(&self, new: Option<&Security>, ids: &[NodeId]) -> Result<(), ReloadError> {
        if self.list.iter().any(|peer| peer.channel.is_some() != new.is_some()) {
            return Err(ReloadError::SecurityDiffers);
        }
        let credentials = new.map(|new| &new.credentials);
        let unnamed = ids.iter().find(|id| credentials.is_some_and(|known| !known.knows(**id)));
        unnamed.map_or(Ok(()), |id| Err(ConfigError::from(UnnamedPeer(*id)).into()))
    }

    pub(super) fn renew_security(&mut self, now: Instant, new: &Security) {
        for channel in self.list.iter_mut().filter_map(|peer| peer.channel.as_mut()) {
            channel.set_rotation(new.rotation);
            channel.set_credentials(now, Arc::clone(&new.credentials));
        }
    }
}

/// The frame, as another worker than the lead sends it: the lead's counterpart hands it to the worker of equal number.
fn of_worker(frame: PathFrameTo, worker: WorkerId, datagram: &mut Vec<u8>) -> PathFrameTo {
    if worker == WorkerId::LEAD || frame.kind != PathFrameKind::Replication {
        return frame;
    }
    datagram.insert(0, worker.0);
    PathFrameTo { kind: PathFrameKind::OfWorker, ..frame }
}

impl Deref for Peers {
    type Target = [Peer];

    fn deref(&self) -> &[Peer] {
        &self.list
    }
}

impl DerefMut for Peers {
    fn deref_mut(&mut self) -> &mut [Peer] {
        &mut self.list
    }
}

impl<'a> IntoIterator for &'a Peers {
    type Item = &'a Peer;
    type IntoIter = core::slice::Iter<'a, Peer>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a mut Peers {
    type Item = &'a mut Peer;
    type IntoIter = core::slice::IterMut<'a, Peer>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter_mut()
    }
}

/// As [`Peers::copy_expiry`], with the peers that are lost. Replicas end with this node if it holds addresses and their owner is
/// dead; if it holds all addresses, no other node can own any connection, whichever peer died.
fn copy_expiry(
    lost: impl Iterator<Item = (NodeId, Instant)>,
    owner: NodeId,
    holds: bool,
    claims_all: bool,
) -> ReplicaExpiry {
    let concerned = lost.filter(|(peer, _)| claims_all || *peer == owner);
    match concerned.map(|(_, at)| at).max() {
        Some(at) if holds => ReplicaExpiry::Since(at),
        _ => ReplicaExpiry::Recheck(REPLICA_RECHECK_INTERVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_of_a_dead_owner_expire_at_an_active_node_and_those_of_a_live_owner_do_not() {
        let (alive, dead, died_at) = (NodeId(1), NodeId(2), Instant::from_millis(7));
        let expiry = |owner, holds, claims_all| copy_expiry([(dead, died_at)].into_iter(), owner, holds, claims_all);
        let recheck = ReplicaExpiry::Recheck(REPLICA_RECHECK_INTERVAL);
        assert_eq!(expiry(dead, true, false), ReplicaExpiry::Since(died_at));
        assert_eq!(expiry(alive, true, false), recheck, "it holds a group as well, and owns them still");
        assert_eq!(expiry(alive, true, true), ReplicaExpiry::Since(died_at), "it holds nothing any more");
        assert_eq!((expiry(dead, false, false), expiry(alive, false, false)), (recheck, recheck));
    }
}
