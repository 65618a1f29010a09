//! A peer: its session, its channel, and its announced role.

use alloc::vec::Vec;
use core::time::Duration;

use cluster::role::{Heartbeat, State};
use flow::random::SplitMix64;
use flow::{Instant, NodeId};
use replication::conntrackd::{FtfwConfig, FtfwSession};
use replication::secure::{Channel, OVERHEAD_BYTES};
use replication::{Resync, Session, SessionConfig};

use super::config::{ConfigError, PeerProfile, SyncConfig, SyncPeerConfig, SyncRole};
use super::connections::Connections;
use super::connections::expectation_table::EXPECTATIONS_REPLICATED_MAX;
use super::error::SyncError;
use super::session::{ChangeDetails, SyncSession};
use super::status::SyncPeerStatus;

/// The number of missed heartbeats after which a peer's role is unknown.
const HEARTBEATS_MISSED_MAX: u32 = 10;

/// A peer.
pub(super) struct Peer {
    pub(super) id: NodeId,
    session: SyncSession,
    pub(super) channel: Option<Channel>,
    pub(super) role: Option<SyncRole>,
    role_said_at: Instant,
    pub(super) is_split: bool,
    /// Since when both have been primary.
    pub(super) both_primary_since: Option<Instant>,
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
        let id = peer.id;
        let security = config.security.as_ref().filter(|_| matches!(peer.profile, PeerProfile::Native(_)));
        let channel = match security {
            Some(security) => Some(security.channel(config.node, id, now)?),
            None => None,
        };
        let session = match &peer.profile {
            PeerProfile::Native(session) => {
                let room_bytes = if channel.is_some() { OVERHEAD_BYTES } else { 0 };
                let datagram_bytes_max = session.datagram_bytes_max.saturating_sub(room_bytes);
                let session = SessionConfig { connections_max: config.connections_max, datagram_bytes_max, ..*session };
                let session = Session::new(session, config.node, id, random.next());
                let session = session.map_err(|error| ConfigError::Session { peer: id, error })?;
                SyncSession::Native { session, resync: Resync::default() }
            }
            PeerProfile::Conntrackd { config: session, time_of_day_s } => {
                let connections_max = config.connections_max;
                let session = FtfwConfig { connections_max, expectations_max: EXPECTATIONS_REPLICATED_MAX, ..*session };
                let session = FtfwSession::new(session, id, *time_of_day_s);
                let session = session.map_err(|error| ConfigError::Conntrackd { peer: id, error })?;
                SyncSession::Conntrackd { session, resync: Resync::default(), sweep_at: None }
            }
        };
        Ok(Self {
            id,
            session,
            channel,
            role: None,
            role_said_at: now,
            is_split: false,
            both_primary_since: None,
            heartbeat_at: now,
            heartbeat_interval: config.heartbeat_interval,
        })
    }

    pub(super) const fn is_native(&self) -> bool {
        matches!(self.session, SyncSession::Native { .. })
    }

    pub(super) fn is_up(&self) -> bool {
        self.session.is_open()
    }

    /// What connections became, details to the session.
    pub(super) fn distribute(&mut self, details: &ChangeDetails<'_>, connections: &Connections) {
        self.session.distribute(self.id, details, connections);
    }

    /// Handles a datagram of the session.
    pub(super) fn handle_session(
        &mut self,
        now: Instant,
        connections: &mut Connections,
        datagram: &[u8],
    ) -> Result<(), SyncError> {
        self.session.handle_datagram(now, connections, datagram)
    }

    /// Writes a datagram of the session for the peer.
    pub(super) fn poll_session(&mut self, now: Instant, connections: &mut Connections, buffer: &mut Vec<u8>) -> bool {
        self.session.poll_transmit(now, connections, buffer)
    }

    /// Writes a heartbeat, if one is due.
    pub(super) fn poll_heartbeat(&mut self, now: Instant, node: NodeId, role: SyncRole, buffer: &mut Vec<u8>) -> bool {
        let SyncSession::Native { session, .. } = &self.session else { return false };
        if now < self.heartbeat_at {
            return false;
        }
        self.heartbeat_at = now + self.heartbeat_interval;
        let state = match role {
            SyncRole::Primary => State::Active,
            SyncRole::Backup => State::Standby,
            SyncRole::Fault => State::Left,
        };
        let synchronised = session.status().is_synchronised();
        buffer.clear();
        Heartbeat {
            node,
            state,
            priority: 0,
            synchronised,
            term: 0,
            configuration: None,
            unreached: 0,
            passive: false,
        }
        .encode(buffer);
        true
    }

    /// Makes a heartbeat due at once, after a change of role.
    pub(super) const fn send_heartbeat_now(&mut self, now: Instant) {
        self.heartbeat_at = now;
    }

    /// Records the peer's role; returns it if it changed.
    pub(super) fn note_role(&mut self, now: Instant, state: State) -> Option<SyncRole> {
        let role = match state {
            State::TakingOver | State::Active | State::Leaving => SyncRole::Primary,
            State::Init | State::Standby => SyncRole::Backup,
            State::Left => SyncRole::Fault,
        };
        self.role_said_at = now;
        (self.role.replace(role) != Some(role)).then_some(role)
    }

    /// Does the due work; returns whether the peer's role became unknown.
    pub(super) fn handle_timeout(&mut self, now: Instant, connections: &mut Connections) -> bool {
        if let Some(channel) = &mut self.channel {
            channel.handle_timeout(now);
        }
        let is_role_old =
            self.role.is_some() && self.role_said_at + self.heartbeat_interval * HEARTBEATS_MISSED_MAX <= now;
        if is_role_old {
            self.role = None;
            connections.primaries.set(self.id, false);
        }
        self.session.handle_timeout(now, self.id, connections);
        is_role_old
    }

    pub(super) fn poll_timeout(&self, is_initialised: bool) -> Option<Instant> {
        let channel = self.channel.as_ref().and_then(Channel::poll_timeout);
        if !self.can_send() {
            return channel;
        }
        let session = if is_initialised { self.session.poll_timeout() } else { None };
        let heartbeat = self.is_native().then_some(self.heartbeat_at);
        [channel, session, heartbeat].into_iter().flatten().min()
    }

    /// Whether datagrams can be sent: the channel, if there is one, has keys.
    pub(super) fn can_send(&self) -> bool {
        self.channel.as_ref().is_none_or(Channel::is_ready)
    }

    /// Collects the session's events for the log; returns whether the peer became unreachable.
    pub(super) fn collect_events(&mut self, now: Instant, connections: &mut Connections) -> bool {
        self.session.collect_events(now, self.id, connections)
    }

    pub(super) fn status(&self) -> SyncPeerStatus {
        let status = SyncPeerStatus {
            id: self.id,
            role: self.role,
            is_up: self.is_up(),
            last_received_at: None,
            is_complete: false,
            lacks_room: false,
            is_split: self.is_split,
            session: None,
            conntrackd: None,
            channel: self.channel.as_ref().map(Channel::status),
        };
        self.session.fill_status(status)
    }

    pub(super) fn close(&mut self) {
        match &mut self.session {
            SyncSession::Native { session, .. } => session.close(),
            SyncSession::Conntrackd { session, .. } => session.close(),
        }
    }

    pub(super) fn request_resync(&mut self) {
        match &mut self.session {
            SyncSession::Native { session, .. } => session.request_resync(),
            SyncSession::Conntrackd { session, .. } => session.request_resync(),
        }
    }

    pub(super) fn resync(&mut self) {
        match &mut self.session {
            SyncSession::Native { session, .. } => session.resync(),
            SyncSession::Conntrackd { session, .. } => session.resync(),
        }
    }
}
