//! A peer: the session with it, the channel that it travels in, and what it says that it is.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};
use replication::secure::{Channel, OVERHEAD_BYTES};
use replication::{Link, Session, SessionConfig, SessionEvent};

use super::config::{ConfigError, PeerProfile, SyncConfig, SyncPeerConfig, SyncRole};
use super::connections::{Connections, Touched};
use super::event::SyncEvent;
use super::status::SyncPeerStatus;
use super::store::{NativeStore, holding};
use crate::node::Resync;
use crate::random::SplitMix64;
use crate::role::{Heartbeat, State};

/// A role that was not said again for so many intervals is not known any more.
const HEARTBEATS_MISSED_MAX: u32 = 10;

/// How a peer is spoken with.
#[derive(Debug)]
pub(super) enum PeerSession {
    /// By the native protocol.
    Native(Native),
}

/// A native session.
pub(super) struct Native {
    pub(super) session: Session,
    pub(super) resync: Resync,
}

impl core::fmt::Debug for Native {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Native").field("status", &self.session.status()).field("resync", &self.resync).finish()
    }
}

/// A peer.
pub(super) struct Peer {
    pub(super) id: NodeId,
    pub(super) session: PeerSession,
    pub(super) channel: Option<Channel>,
    pub(super) role: Option<SyncRole>,
    role_said_at: Instant,
    pub(super) is_split: bool,
    heartbeat_at: Instant,
    heartbeat_interval: Duration,
}

impl Peer {
    pub(super) fn new(
        config: &SyncConfig,
        peer: &SyncPeerConfig,
        random: &mut SplitMix64,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        let channel = match &config.security {
            Some(security) => Some(security.channel_with(config.node, peer.id, now)?),
            None => None,
        };
        let session = match &peer.profile {
            PeerProfile::Native(session) => {
                let room_bytes = if channel.is_some() { OVERHEAD_BYTES } else { 0 };
                let datagram_bytes_max = session.datagram_bytes_max.saturating_sub(room_bytes);
                let session = SessionConfig { connections_max: config.connections_max, datagram_bytes_max, ..*session };
                let session = Session::new(session, config.node, peer.id, random.next());
                let session = session.map_err(|error| ConfigError::Session { peer: peer.id, error })?;
                PeerSession::Native(Native { session, resync: Resync::default() })
            }
        };
        Ok(Self {
            id: peer.id,
            session,
            channel,
            role: None,
            role_said_at: now,
            is_split: false,
            heartbeat_at: now,
            heartbeat_interval: config.heartbeat_interval,
        })
    }

    pub(super) fn is_up(&self) -> bool {
        match &self.session {
            PeerSession::Native(native) => native.session.is_open(),
        }
    }

    /// What connections became, carried to the session.
    pub(super) fn carry(&mut self, touched: Touched, connections: &Connections, attributes: &[u8]) {
        let PeerSession::Native(Native { session, .. }) = &mut self.session;
        let id = self.id;
        match touched {
            Touched::Changed(handle) => session.mark_changed(handle),
            Touched::Copied(handle) => session.note_copy(handle, |key| holding(connections, key, id, handle)),
            Touched::Ended { handle, had_another_master: true, .. } => {
                session.mark_deleted_anyway(handle, attributes);
            }
            Touched::Ended { handle, .. } => session.mark_deleted(handle, attributes),
            Touched::Forgotten(handle) => session.forget(handle),
            Touched::Refused { to, .. } if to == id => session.tell_end(attributes),
            Touched::Refused { .. } => {}
        }
    }

    /// A datagram of the native protocol for the peer.
    pub(super) fn poll_session(&mut self, now: Instant, connections: &mut Connections, buffer: &mut Vec<u8>) -> bool {
        let PeerSession::Native(Native { session, resync }) = &mut self.session;
        session.poll_transmit(now, &mut NativeStore { connections, resync }, buffer)
    }

    /// A heartbeat, when it is time.
    pub(super) fn poll_heartbeat(&mut self, now: Instant, node: NodeId, role: SyncRole, buffer: &mut Vec<u8>) -> bool {
        if now < self.heartbeat_at {
            return false;
        }
        self.heartbeat_at = now + self.heartbeat_interval;
        let state = match role {
            SyncRole::Primary => State::Active,
            SyncRole::Backup => State::Standby,
            SyncRole::Fault => State::Left,
        };
        let PeerSession::Native(Native { session, .. }) = &self.session;
        let synchronised = session.status().is_synchronised();
        buffer.clear();
        Heartbeat { node, state, priority: 0, synchronised, term: 0, configuration: None }.encode(buffer);
        true
    }

    /// Says a heartbeat at once: the role is another.
    pub(super) const fn hasten_heartbeat(&mut self, now: Instant) {
        self.heartbeat_at = now;
    }

    pub(super) fn note_role(&mut self, now: Instant, state: State) -> Option<SyncRole> {
        let role = match state {
            State::TakingOver | State::Active | State::Leaving => SyncRole::Primary,
            State::Init | State::Standby => SyncRole::Backup,
            State::Left => SyncRole::Fault,
        };
        self.role_said_at = now;
        (self.role.replace(role) != Some(role)).then_some(role)
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant, connections: &mut Connections) {
        if let Some(channel) = &mut self.channel {
            channel.handle_timeout(now);
        }
        if self.role.is_some() && self.role_said_at + self.heartbeat_interval * HEARTBEATS_MISSED_MAX <= now {
            self.role = None;
        }
        let id = self.id;
        let PeerSession::Native(Native { session, resync }) = &mut self.session;
        session.handle_timeout(now);
        // Nobody remembers them: what a peer that was away still has goes when it is told everything, or the kernel ends it.
        while session.drop_untold_end() {}
        if resync.step(|round, from, slots| connections.sweep(id, round, from, slots)) {
            session.request_resync();
        }
    }

    pub(super) fn poll_timeout(&self, is_initialised: bool) -> Option<Instant> {
        let channel = self.channel.as_ref().and_then(Channel::poll_timeout);
        if !self.can_be_told() {
            return channel;
        }
        let PeerSession::Native(Native { session, resync }) = &self.session;
        let session = if is_initialised { session.poll_timeout() } else { None };
        let sweep = resync.is_sweeping().then_some(Instant::ZERO);
        [channel, session, sweep, Some(self.heartbeat_at)].into_iter().flatten().min()
    }

    /// Whatever is said to the peer reaches it: the channel, if there is one, has keys.
    pub(super) fn can_be_told(&self) -> bool {
        self.channel.as_ref().is_none_or(Channel::is_ready)
    }

    /// What the session went through, for the log; true if the peer is not heard any more.
    pub(super) fn collect_events(&mut self, now: Instant, connections: &mut Connections) -> bool {
        let id = self.id;
        let mut is_lost = false;
        let PeerSession::Native(Native { session, resync }) = &mut self.session;
        while let Some(event) = session.poll_event() {
            let event = match event {
                SessionEvent::PeerUp => {
                    connections.living.set(id, true);
                    SyncEvent::PeerUp(id)
                }
                SessionEvent::PeerSilent | SessionEvent::PeerLeft => {
                    connections.living.set(id, false);
                    resync.unsettle();
                    is_lost = true;
                    if event == SessionEvent::PeerLeft { SyncEvent::PeerLeft(id) } else { SyncEvent::PeerSilent(id) }
                }
                SessionEvent::PeerRestarted => SyncEvent::PeerRestarted(id),
                SessionEvent::Renumbered => continue,
                SessionEvent::ResyncStarted => SyncEvent::ResyncStarted(id),
                SessionEvent::ResyncCompleted => SyncEvent::ResyncCompleted(id),
                SessionEvent::Synchronised => SyncEvent::Synchronised(id),
                SessionEvent::Diverged { connections } => SyncEvent::ReplicasDiffer { peer: id, connections },
                SessionEvent::Agreed { repaired } => SyncEvent::ReplicasAgree { peer: id, repaired },
            };
            connections.events.push(now, event);
        }
        is_lost
    }

    pub(super) fn status(&self) -> SyncPeerStatus {
        let PeerSession::Native(Native { session, resync }) = &self.session;
        let status = session.status();
        SyncPeerStatus {
            id: self.id,
            role: self.role,
            is_up: status.link == Link::Open,
            last_heard: status.last_heard,
            has_told_all: status.heard && !resync.lacks_room,
            lacks_room: resync.lacks_room,
            is_split: self.is_split,
            session: Some(status),
            channel: self.channel.as_ref().map(Channel::status),
        }
    }

    pub(super) fn close(&mut self) {
        let PeerSession::Native(Native { session, .. }) = &mut self.session;
        session.close();
    }

    pub(super) fn request_resync(&mut self) {
        let PeerSession::Native(Native { session, .. }) = &mut self.session;
        session.request_resync();
    }

    pub(super) fn resync(&mut self) {
        let PeerSession::Native(Native { session, .. }) = &mut self.session;
        session.resync();
    }
}
