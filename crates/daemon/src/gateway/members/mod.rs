//! The members of the cluster, where their list comes from elsewhere than the configuration file.
//!
//! ```text
//!   etcd ────► thread "etcd" ────┐                      thread "members"
//!   gossip ──► thread "gossip" ──┴─► records ─► Members ─► changes ─► the list of peers is applied as by a reload
//! ```
//! Nothing here is on the data path. What the source does, or that it is unreachable, delays no packet: the last known list stays in force.

mod etcd;
mod follower;
mod gossip;
mod source;
mod state_file;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow::{Instant, NodeId};
use membership::{
    Change, Departure, Limits, MEMBERS_MAX, Member, MemberState, Membership, OwnRecord, Presence, RecordError, Refused,
    Settings,
};
use packet_io::clock;

use crate::credentials;
use crate::describe;
use api::{EventKind, MemberStatus, MembershipStatus};
use config::validated::{Config, MembershipSource, Peer};

pub(super) use follower::Follower;
pub(super) use source::Source;

/// All that the settings may ask for can be had.
const _: () = assert!(membership::record::BACKUPS_MAX as usize <= cluster::node::BACKUPS_MAX);

/// Events that wait to be noted; further ones are dropped.
const EVENTS_WAITING_MAX: usize = 64;

/// The members of the cluster, and how their source is.
pub(super) struct Members {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// A bit for each peer that failure detection reports up.
    up: AtomicU64,
    state_file: Option<PathBuf>,
    /// Keys of gossip that a reload has read, until the gossiper takes them.
    gossip_keys: Mutex<Option<GossipKeys>>,
}

/// The keys that gossip is authenticated by.
pub(super) type GossipKeys = Vec<[u8; 16]>;

struct Inner {
    membership: Membership,
    own: OwnRecord,
    source: &'static str,
    reachable: bool,
    since: Instant,
    error: Option<String>,
    refused: Option<String>,
    /// The source has given a list since the start.
    has_list: bool,
    changes: u64,
    is_stopping: bool,
    /// Something has happened that the follower has not seen.
    is_news: bool,
    events: VecDeque<(EventKind, String)>,
}

/// A list of records as a source has it.
pub(super) struct List {
    /// The members' records, as far as they can be read.
    pub(super) members: Vec<(NodeId, Result<Member, RecordError>)>,
    /// The settings, if there are any.
    pub(super) settings: Option<Result<Settings, RecordError>>,
}

impl Members {
    /// The members that are known before the source is reached: those of the state file and of the configuration file. `None`: the
    /// configuration file is the source.
    pub(super) fn load(config: &Config) -> Option<Arc<Self>> {
        let (source, cluster) = (&config.membership.source, config.cluster.as_ref()?);
        if *source == MembershipSource::Static {
            return None;
        }
        let now = clock::now();
        let limits = Limits { nodes: config.node.nodes, forget_after: config.membership.forget_after };
        let mut membership = Membership::new(config.node.id, limits);
        for peer in &cluster.replication.peers {
            let (replication, detection) = (peer.address, peer.failure_detection_address);
            let (name, state) = (String::new(), MemberState::Active);
            let member = Member { id: peer.id, name, replication, detection, state, version: 0 };
            if let Err(refused) = membership.restore(now, member) {
                tracing::warn!("{refused}");
            }
        }
        if let Some(path) = &config.membership.state_file {
            restore(&mut membership, path, now);
        }
        let own = Member {
            id: config.node.id,
            name: Member::clean_name(&config.node.name),
            replication: cluster.replication.local,
            detection: cluster.failure_detection.local,
            state: MemberState::Active,
            version: 0,
        };
        let own = OwnRecord::new(own, credentials::unix_time(), config.membership.forget_after);
        let inner = Inner {
            membership,
            own,
            source: source.name(),
            reachable: false,
            since: now,
            error: None,
            refused: None,
            has_list: false,
            changes: 0,
            is_stopping: false,
            is_news: true,
            events: VecDeque::new(),
        };
        let state_file = config.membership.state_file.clone();
        Some(Arc::new(Self {
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            up: AtomicU64::new(0),
            state_file,
            gossip_keys: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.is_news = true;
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits until the source has given its first list, but not longer than `limit`. Whether it has.
    pub(super) fn wait_for_list(&self, limit: Duration) -> bool {
        let waits = |inner: &mut Inner| !inner.has_list;
        let waited = self.changed.wait_timeout_while(self.lock(), limit, waits);
        waited.is_ok_and(|(inner, _)| inner.has_list)
    }
}

/// What a source reports.
impl Members {
    /// All records that the source has now: it is reachable.
    pub(super) fn handle_list(&self, list: List) {
        let now = clock::now();
        let mut inner = self.lock();
        let own = inner.own.member().id;
        let mut refused = None;
        let mut records = Vec::new();
        for (id, record) in list.members {
            match record {
                Ok(member) if id == own => {
                    refused = inner.own.handle_record(now, &member).err().map(|it| it.to_string()).or(refused)
                }
                Ok(member) => records.push(member),
                Err(error) => refused = Some(format!("the record of node {}: {error}", id.0)),
            }
        }
        inner.membership.handle_all_records(now, records, |error| refused = Some(error.to_string()));
        let settings = list.settings.transpose().map_err(|error| format!("the settings: {error}"));
        let taken = settings.and_then(|settings| {
            inner.membership.handle_listed_settings(now, settings).map_err(|error| error.to_string())
        });
        inner.note_refused(taken.err().or(refused));
        inner.note_reachable(now);
        inner.has_list = true;
        self.notify(inner);
    }

    /// A record of one member.
    fn handle_member(&self, member: Member) {
        let (mut inner, now) = (self.lock(), clock::now());
        let taken = if member.id == inner.own.member().id {
            inner.own.handle_record(now, &member)
        } else {
            inner.membership.handle_record(now, member)
        };
        if let Err(refused) = taken {
            inner.note_refused(Some(refused.to_string()));
        }
        self.notify(inner);
    }

    /// The source no longer has a live record of the member.
    fn handle_absence(&self, id: NodeId) {
        let mut inner = self.lock();
        inner.membership.handle_absence(clock::now(), id);
        self.notify(inner);
    }

    /// Settings that a member publishes.
    fn handle_settings(&self, settings: Settings) {
        let mut inner = self.lock();
        match inner.membership.handle_settings(settings) {
            // The newer ones have not reached that member yet.
            Ok(()) | Err(Refused::OlderSettings { .. }) => {}
            Err(refused) => inner.note_refused(Some(refused.to_string())),
        }
        self.notify(inner);
    }

    /// The records of the source are known, as far as it has them.
    fn note_list(&self) {
        let mut inner = self.lock();
        if !inner.reachable || !inner.has_list {
            inner.has_list = true;
            inner.note_reachable(clock::now());
            self.notify(inner);
        }
    }

    /// A datagram was refused. Strangers can send such ones: it is no event.
    fn note_refused_datagram(&self, refused: String) {
        let mut inner = self.lock();
        if inner.refused.as_ref() != Some(&refused) {
            tracing::warn!("{refused}");
        }
        inner.refused = Some(refused);
    }

    /// This node's record has this version.
    fn adopt_version(&self, version: u64) {
        self.lock().own.raise_version(version);
    }

    /// The source is not reachable. What is known stays in force.
    pub(super) fn note_unreachable(&self, error: &str) {
        let mut inner = self.lock();
        if inner.reachable || inner.error.is_none() {
            (inner.reachable, inner.since) = (false, clock::now());
            let text = format!("{}: {error}; the last known members stay peers", inner.source);
            inner.push_event(EventKind::MembershipLost, text);
        }
        inner.error = Some(error.to_owned());
        self.notify(inner);
    }

    /// This node's own record.
    pub(super) fn own(&self) -> Member {
        self.lock().own.member().clone()
    }

    /// The node is to be something else to the others.
    pub(super) fn set_own_state(&self, state: MemberState) {
        let mut inner = self.lock();
        if inner.own.set_state(credentials::unix_time(), state) {
            self.notify(inner);
        }
    }

    /// Another node has this node's number, and its record counts.
    fn has_twin(&self) -> bool {
        self.lock().own.has_twin()
    }

    /// Gossip is authenticated by these keys from now on.
    pub(super) fn renew_gossip_keys(&self, keys: GossipKeys) {
        *self.gossip_keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
    }

    /// Keys that have not been taken yet.
    fn take_gossip_keys(&self) -> Option<GossipKeys> {
        self.gossip_keys.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The process is about to end.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.is_stopping = true;
        self.notify(inner);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Waits until something has happened, for at most `limit`.
    fn wait(&self, limit: Duration) {
        let waits = |inner: &mut Inner| !inner.is_news && !inner.is_stopping;
        if let Ok((mut inner, _)) = self.changed.wait_timeout_while(self.lock(), limit, waits) {
            inner.is_news = false;
        }
    }
}

/// What follows for the node.
impl Members {
    /// The configuration with the members as peers, and with the cluster's settings.
    pub(super) fn applied_to(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if let Some(cluster) = &mut config.cluster {
            let local = cluster.replication.local;
            let inner = self.lock();
            let members = inner.membership.peers().map(|(member, _)| member);
            // The socket is of one family.
            let reachable = members.filter(|member| member.replication.is_ipv4() == local.is_ipv4());
            let peer = |member: &Member| Peer {
                id: member.id,
                address: member.replication,
                failure_detection_address: member.detection,
            };
            cluster.replication.peers = reachable.filter(|member| member.replication != local).map(peer).collect();
            if let Some(backups) = &mut cluster.replication.backups {
                let settings = inner.membership.settings();
                backups.count = settings.backups.unwrap_or(backups.count);
                backups.edge_nodes = settings.edge_nodes.unwrap_or(backups.edge_nodes);
            }
        }
        config
    }

    /// The node starts with the members that are known now: what has changed before is no change.
    pub(super) fn note_start(&self) {
        let known = self.poll_changes();
        tracing::debug!(changes = known.len(), "the members are known");
        let mut inner = self.lock();
        inner.changes = 0;
        inner.events.retain(|(kind, _)| *kind == EventKind::MembershipLost);
        drop(inner);
        self.save();
    }

    /// What has changed since changes were last polled.
    fn poll_changes(&self) -> Vec<Change> {
        let now = clock::now();
        let up = self.up.load(Ordering::Relaxed);
        let is_up = |id: NodeId| (up >> (usize::from(id.0) % MEMBERS_MAX)) & 1 == 1;
        let mut inner = self.lock();
        let mut changes = Vec::new();
        while let Some(change) = inner.membership.poll_change(now, is_up) {
            inner.changes += 1;
            if let Some((kind, text)) = described(change, &inner.membership) {
                inner.push_event(kind, text);
            }
            changes.push(change);
        }
        changes
    }

    /// Failure detection reports the peer up or down.
    pub(super) fn note_peer(&self, id: NodeId, is_up: bool) {
        let bit = 1 << (usize::from(id.0) % MEMBERS_MAX);
        if is_up {
            self.up.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.up.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The settings that count.
    fn settings(&self) -> Settings {
        self.lock().membership.settings()
    }

    fn take_events(&self) -> VecDeque<(EventKind, String)> {
        std::mem::take(&mut self.lock().events)
    }

    /// Keeps the list for the next start.
    fn save(&self) {
        let Some(path) = &self.state_file else { return };
        let text = state_file::written(&self.lock().membership);
        if let Err(error) = state_file::replace(path, &text) {
            tracing::warn!("cannot keep the members in {}: {error}", path.display());
        }
    }

    /// For operators.
    pub(super) fn status(&self) -> MembershipStatus {
        let inner = self.lock();
        let Inner { membership, own, source, reachable, since, error, refused, changes, .. } = &*inner;
        let settings = membership.settings();
        let member = |(member, presence): (&Member, Presence)| MemberStatus {
            id: member.id.0,
            name: member.name.clone(),
            address: member.replication.to_string(),
            state: describe::member_state(member.state),
            version: member.version,
            recorded: presence == Presence::Recorded,
        };
        MembershipStatus {
            source: (*source).to_owned(),
            reachable: *reachable,
            since_ns: since.as_nanos(),
            error: error.clone(),
            refused: refused.clone(),
            own_state: describe::member_state(own.member().state),
            own_version: own.member().version,
            settings_version: settings.version,
            backups: settings.backups,
            configuration_version: settings.configuration,
            changes: *changes,
            members: membership.peers().map(member).collect(),
        }
    }
}

impl Inner {
    fn note_reachable(&mut self, now: Instant) {
        if !self.reachable {
            (self.reachable, self.since) = (true, now);
            // The first list is no restoration.
            if self.error.take().is_some() {
                self.push_event(EventKind::MembershipRestored, self.source.to_owned());
            }
        }
    }

    fn push_event(&mut self, kind: EventKind, text: String) {
        if self.events.len() < EVENTS_WAITING_MAX {
            self.events.push_back((kind, text));
        }
    }

    /// Notes what was refused last; it is an event when it is something else than before.
    fn note_refused(&mut self, refused: Option<String>) {
        if let Some(text) = refused.as_ref().filter(|text| self.refused.as_ref() != Some(text)) {
            self.push_event(EventKind::Warning, format!("{}: {text}", self.source));
        }
        self.refused = refused;
    }
}

fn described(change: Change, membership: &Membership) -> Option<(EventKind, String)> {
    let address = |id: NodeId| {
        let found = membership.peers().find(|(member, _)| member.id == id);
        found.map_or_else(String::new, |(member, _)| format!(" at {}", member.replication))
    };
    match change {
        Change::Joined(id) => Some((EventKind::MemberJoined, format!("node {}{}", id.0, address(id)))),
        Change::Moved(id) => Some((EventKind::MemberJoined, format!("node {}, now{}", id.0, address(id)))),
        Change::Left(id, departure) => {
            let reason = match departure {
                Departure::Announced => "it has left".to_owned(),
                Departure::Forgotten => "it is down, and its record has disappeared".to_owned(),
                Departure::Replaced(other) => format!("node {} has its address", other.0),
            };
            Some((EventKind::MemberLeft, format!("node {}: {reason}", id.0)))
        }
        Change::Drained(id, true) => Some((EventKind::SettingsChanged, format!("node {} is being drained", id.0))),
        Change::Drained(id, false) => Some((EventKind::SettingsChanged, format!("node {} is in service again", id.0))),
        Change::Settings(settings) => Some((EventKind::SettingsChanged, settings.to_string())),
    }
}

fn restore(membership: &mut Membership, path: &Path, now: Instant) {
    match state_file::read(path) {
        Ok(Some(state)) => {
            for member in state.members {
                if let Err(refused) = membership.restore(now, member) {
                    tracing::warn!("{}: {refused}", path.display());
                }
            }
            membership.restore_settings(state.settings);
        }
        Ok(None) => {}
        Err(error) => tracing::warn!("the members in {} cannot be used: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests;
