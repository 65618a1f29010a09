//! The members of a cluster, as one node knows them.
//!
//! ```text
//!   a record                     of a higher version   of the same version       of a lower version
//!   the known one is recorded    counts                the content decides       is refused, and contends
//!   the known one is absent:
//!     by a list that is complete counts                counts                    counts
//!     forgotten                  counts                counts                    counts
//!     otherwise                  counts                the content decides       is refused, and contends
//! ```
//! A member whose clock was ahead has published a version that later ones do not reach. The record that contends counts when the known record
//! has not come again for [`Limits::forget_after`]. Outside a list, it counts only if the member is not up: it may be an old one that is sent again.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use flow::{Instant, NodeId};

use super::record::{MEMBERS_MAX, Member, MemberState, RecordError, Settings};

/// Limits of a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The number of nodes: members are numbered below it. At most [`MEMBERS_MAX`].
    pub nodes: u8,
    /// How long a member is kept whose record has disappeared and which failure detection reports down.
    pub forget_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { nodes: MEMBERS_MAX as u8, forget_after: Duration::from_secs(600) }
    }
}

/// Why a record was not taken. The list is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The cluster has fewer nodes.
    #[error("node {} is not one of {nodes} nodes, which are numbered from 0: raise node.nodes on all nodes", id.0)]
    Number {
        /// The member's number.
        id: NodeId,
        /// The number of nodes.
        nodes: u8,
    },
    /// A newer record of the member is known.
    #[error(
        "the record of node {}, version {version}, is not newer than version {known}, which is known: was its clock ahead? It counts \
         when the newer one has been gone for membership.forget_after; a version above {known} counts at once", id.0
    )]
    Older {
        /// The member's number.
        id: NodeId,
        /// The version of its record.
        version: u64,
        /// The version that is known.
        known: u64,
    },
    /// Newer settings are known.
    #[error(
        "settings of version {version} are older than version {known}, which is known: write them with a version above {known}, or delete \
         them and write them again"
    )]
    OlderSettings {
        /// Their version.
        version: u64,
        /// The version that is known.
        known: u64,
    },
    /// Other settings of the same version are known.
    #[error(
        "there are two different settings of version {version}: write those that are to count with a higher version"
    )]
    SettingsDiffer {
        /// Their version.
        version: u64,
    },
    /// Another node has this node's number.
    #[error("another node at {address} has this node's number {}: give each node its own node.id", id.0)]
    OwnNumber {
        /// This node's number.
        id: NodeId,
        /// Where the other node is.
        address: core::net::SocketAddr,
    },
    /// The record itself is wrong.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Whether the source still has a member's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It has.
    Recorded,
    /// It had, or never had, since this time: the member is a peer while it is up, and for some time after.
    AbsentSince(Instant),
}

/// Why a member is no peer any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// Its record has the state [`MemberState::Left`].
    Announced,
    /// Its record has disappeared, and failure detection has reported it down for [`Limits::forget_after`].
    Forgotten,
    /// Another member has its address, with a newer record.
    Replaced(NodeId),
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A node is a peer from now on.
    Joined(NodeId),
    /// A node is no peer any more.
    Left(NodeId, Departure),
    /// A peer's addresses are other ones: the session with it begins anew.
    Moved(NodeId),
    /// An operator drains the peer, or drains it no more.
    Drained(NodeId, bool),
    /// The settings are other ones.
    Settings(Settings),
}

#[derive(Clone, Debug)]
struct Entry {
    member: Member,
    presence: Presence,
    /// Since when failure detection reports it down, while its record is absent.
    down_since: Option<Instant>,
    /// It is to be dropped from the list of peers, until a record comes.
    is_forgotten: bool,
    /// A record that is not newer.
    contender: Option<Contender>,
    /// The member as it was when changes were last polled; `None`: it was no peer.
    applied: Option<Member>,
}

/// The members of a cluster, as one node knows them.
#[derive(Clone, Debug)]
pub struct Membership {
    own: NodeId,
    limits: Limits,
    /// By their numbers.
    entries: Vec<Option<Entry>>,
    settings: Settings,
    /// The source has the settings, as far as is known. If not, any others count.
    are_settings_recorded: bool,
    /// Since when the source has older settings.
    older_settings_since: Option<Instant>,
    applied_settings: Settings,
}

/// A record that is refused for now.
#[derive(Clone, Debug)]
struct Contender {
    member: Member,
    /// Since when there is one.
    since: Instant,
    /// The source's complete list has it. If not, it may have come late.
    is_listed: bool,
}

/// Where a record comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A file.
    File,
    /// The source, by itself.
    Single,
    /// The source's complete list.
    List,
}

impl Membership {
    /// A cluster of which `own` knows no member but itself.
    #[must_use]
    pub fn new(own: NodeId, limits: Limits) -> Self {
        let nodes = limits.nodes.min(MEMBERS_MAX as u8);
        let (settings, applied_settings) = (Settings::default(), Settings::default());
        let entries = (0..nodes).map(|_| None).collect();
        let limits = Limits { nodes, ..limits };
        let (are_settings_recorded, older_settings_since) = (false, None);
        Self { own, limits, entries, settings, are_settings_recorded, older_settings_since, applied_settings }
    }

    /// Enters a member that is known from a file, before its source was reached. It counts as absent from the source.
    ///
    /// # Errors
    /// Why it cannot be a member.
    pub fn restore(&mut self, now: Instant, member: Member) -> Result<(), Refused> {
        self.merge(now, member, Origin::File)
    }

    /// A record of the source.
    ///
    /// # Errors
    /// Why it cannot be a member, or does not count.
    pub fn handle_record(&mut self, now: Instant, member: Member) -> Result<(), Refused> {
        self.merge(now, member, Origin::Single)
    }

    /// The source no longer has a record of the member: its lease has expired, the record was deleted, or gossip found it dead.
    pub fn handle_absence(&mut self, now: Instant, id: NodeId) {
        let entry = self.entries.get_mut(usize::from(id.0)).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|entry| entry.presence == Presence::Recorded) {
            entry.presence = Presence::AbsentSince(now);
            entry.contender = None;
        }
    }

    /// All records that the source has now: members without one are absent.
    pub fn handle_all_records(
        &mut self,
        now: Instant,
        records: impl IntoIterator<Item = Member>,
        mut refuse: impl FnMut(Refused),
    ) {
        let mut is_recorded = [false; MEMBERS_MAX];
        for member in records {
            if let Some(place) = is_recorded.get_mut(usize::from(member.id.0)) {
                *place = true;
            }
            if let Err(refused) = self.merge(now, member, Origin::List) {
                refuse(refused);
            }
        }
        for (id, _) in (0..).zip(is_recorded).filter(|(_, is_recorded)| !is_recorded) {
            self.handle_absence(now, NodeId(id));
        }
    }

    /// Enters settings that are known from a file: any of the source's complete list replace them.
    pub fn restore_settings(&mut self, settings: Settings) {
        self.settings = self.settings.max(settings);
    }

    /// Settings that a member publishes: the newest count.
    ///
    /// # Errors
    /// Why they do not count.
    pub fn handle_settings(&mut self, settings: Settings) -> Result<(), Refused> {
        let (known, version) = (self.settings, settings.version);
        if settings == known || settings == Settings::default() {
            return Ok(());
        }
        match version.cmp(&known.version) {
            Ordering::Greater => self.settings = settings,
            Ordering::Equal => return Err(Refused::SettingsDiffer { version }),
            Ordering::Less => return Err(Refused::OlderSettings { version, known: known.version }),
        }
        Ok(())
    }

    /// The settings that the source has now, by its complete list. Older ones count when the source has had none before, or has had older
    /// ones for [`Limits::forget_after`]: an operator takes settings back.
    ///
    /// # Errors
    /// Why they do not count.
    pub fn handle_listed_settings(&mut self, now: Instant, settings: Option<Settings>) -> Result<(), Refused> {
        let Some(settings) = settings else {
            (self.are_settings_recorded, self.older_settings_since) = (false, None);
            return Ok(());
        };
        if !self.are_settings_recorded {
            (self.settings, self.are_settings_recorded) = (settings, true);
            return Ok(());
        }
        let result = self.handle_settings(settings);
        let is_older = matches!(result, Err(Refused::OlderSettings { .. }));
        let since = is_older.then(|| self.older_settings_since.unwrap_or(now));
        self.older_settings_since = since.filter(|since| *since + self.limits.forget_after > now);
        if since.is_some() && self.older_settings_since.is_none() {
            self.settings = settings;
            return Ok(());
        }
        result
    }

    fn merge(&mut self, now: Instant, member: Member, origin: Origin) -> Result<(), Refused> {
        let id = member.id;
        if id == self.own {
            return Ok(());
        }
        let nodes = self.limits.nodes;
        let place = self.entries.get_mut(usize::from(id.0)).ok_or(Refused::Number { id, nodes })?;
        if let Some(entry) = place {
            return entry.handle_record(now, member, origin);
        }
        let presence = if origin == Origin::File { Presence::AbsentSince(now) } else { Presence::Recorded };
        let (down_since, contender, applied) = (None, None, None);
        *place = Some(Entry { member, presence, down_since, is_forgotten: false, contender, applied });
        Ok(())
    }
}

impl Entry {
    /// A further record of the member, as the table above has it.
    fn handle_record(&mut self, now: Instant, member: Member, origin: Origin) -> Result<(), Refused> {
        let order = member.precedence(&self.member);
        if origin == Origin::File {
            if order == Ordering::Greater {
                self.member = member;
            }
            return Ok(());
        }
        let is_gone = self.is_forgotten || (origin == Origin::List && self.presence != Presence::Recorded);
        if order == Ordering::Less && !is_gone {
            let (id, version, known) = (member.id, member.version, self.member.version);
            let since = self.contender.take().map_or(now, |contender| contender.since);
            self.contender = Some(Contender { member, since, is_listed: origin == Origin::List });
            return Err(Refused::Older { id, version, known });
        }
        self.record(member);
        Ok(())
    }

    /// The record counts from now on.
    fn record(&mut self, member: Member) {
        self.member = member;
        (self.presence, self.is_forgotten, self.contender) = (Presence::Recorded, false, None);
    }

    /// Time has passed, at whose end failure detection reports the member up or down.
    fn handle_timeout(&mut self, now: Instant, forget_after: Duration, is_up: bool) {
        // Failure detection does not follow a member that has left.
        let is_up = is_up && self.member.state != MemberState::Left;
        let is_lost = self.presence != Presence::Recorded && !is_up;
        self.down_since = is_lost.then(|| self.down_since.unwrap_or(now));
        self.is_forgotten |= self.down_since.is_some_and(|since| since + forget_after <= now);
        // A member that is up has the record that is known: an older one came late, unless the list has it.
        match self.contender.take().filter(|contender| contender.is_listed || !is_up) {
            Some(Contender { member, since, .. }) if self.is_forgotten || since + forget_after <= now => {
                self.record(member);
            }
            contender => self.contender = contender,
        }
    }
}

/// What follows for the list of peers.
impl Membership {
    /// The next change since changes were last polled. `is_up`: failure detection reports the peer up.
    pub fn poll_change(&mut self, now: Instant, is_up: impl Fn(NodeId) -> bool) -> Option<Change> {
        self.forget(now, is_up);
        for index in 0..self.entries.len() {
            let id = NodeId(u8::try_from(index).unwrap_or(u8::MAX));
            let departure = self.departure(id);
            let Some(entry) = &mut self.entries[index] else { continue };
            let wanted = departure.is_none().then(|| entry.member.clone());
            if entry.applied == wanted {
                continue;
            }
            let change = match (entry.applied.take(), &wanted, departure) {
                (None, Some(_), _) => Some(Change::Joined(id)),
                (Some(_), None, Some(departure)) => Some(Change::Left(id, departure)),
                (Some(before), Some(after), _) => changed(&before, after),
                _ => None,
            };
            entry.applied = wanted;
            if change.is_some() {
                return change;
            }
        }
        if self.applied_settings != self.settings {
            self.applied_settings = self.settings;
            return Some(Change::Settings(self.settings));
        }
        None
    }

    /// When [`Membership::poll_change`] may have something to do without a record, at the earliest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let forget_after = self.limits.forget_after;
        let waiting = self.entries.iter().flatten().filter_map(|entry| {
            let down_since = entry.down_since.filter(|_| !entry.is_forgotten);
            let contends_since = entry.contender.as_ref().map(|contender| contender.since);
            Some(down_since.into_iter().chain(contends_since).min()? + forget_after)
        });
        waiting.min()
    }

    /// Forgets members that are absent from the source, and have been down for long enough.
    fn forget(&mut self, now: Instant, is_up: impl Fn(NodeId) -> bool) {
        for entry in self.entries.iter_mut().flatten() {
            entry.handle_timeout(now, self.limits.forget_after, is_up(entry.member.id));
        }
    }

    /// Why the member is no peer; `None`: it is one.
    fn departure(&self, id: NodeId) -> Option<Departure> {
        let entry = self.entries.get(usize::from(id.0))?.as_ref()?;
        if entry.member.state == MemberState::Left {
            return Some(Departure::Announced);
        }
        if entry.is_forgotten {
            return Some(Departure::Forgotten);
        }
        let mut others = self.entries.iter().flatten().filter(|other| {
            let (member, is_other) = (&other.member, other.member.id != id && !other.is_forgotten);
            is_other && member.replication == entry.member.replication && member.state != MemberState::Left
        });
        // A member that the source has counts before one that it had, whose clock may have been ahead.
        let key = |entry: &Entry| (entry.presence == Presence::Recorded, entry.member.version, entry.member.id.0);
        let newer = others.find(|other| key(other) > key(entry));
        newer.map(|newer| Departure::Replaced(newer.member.id))
    }
}

/// What operators and the state file see.
impl Membership {
    /// The members that may be peers, by their numbers, and whether the source has their records.
    pub fn peers(&self) -> impl Iterator<Item = (&Member, Presence)> {
        let members = self.entries.iter().flatten();
        let peers = members.filter(|entry| self.departure(entry.member.id).is_none());
        peers.map(|entry| (&entry.member, entry.presence))
    }

    /// The settings that count.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        self.settings
    }
}

fn changed(before: &Member, after: &Member) -> Option<Change> {
    let id = after.id;
    if (before.replication, before.detection) != (after.replication, after.detection) {
        return Some(Change::Moved(id));
    }
    let is_draining = |member: &Member| member.state == MemberState::Draining;
    (is_draining(before) != is_draining(after)).then(|| Change::Drained(id, is_draining(after)))
}

#[cfg(test)]
mod tests;
