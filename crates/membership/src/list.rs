//! The members of a cluster, as one node knows them.

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
    /// It is to be dropped from the list of peers, until a newer record comes.
    is_forgotten: bool,
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
    applied_settings: Settings,
}

impl Membership {
    /// A cluster of which `own` knows no member but itself.
    #[must_use]
    pub fn new(own: NodeId, limits: Limits) -> Self {
        let nodes = limits.nodes.min(MEMBERS_MAX as u8);
        let (settings, applied_settings) = (Settings::default(), Settings::default());
        let entries = (0..nodes).map(|_| None).collect();
        Self { own, limits: Limits { nodes, ..limits }, entries, settings, applied_settings }
    }

    /// Enters a member that is known from a file, before its source was reached. It counts as absent from the source.
    ///
    /// # Errors
    /// Why it cannot be a member.
    pub fn restore(&mut self, now: Instant, member: Member) -> Result<(), Refused> {
        self.merge(member, Presence::AbsentSince(now))
    }

    /// A record of the source.
    ///
    /// # Errors
    /// Why it cannot be a member.
    pub fn handle_record(&mut self, _now: Instant, member: Member) -> Result<(), Refused> {
        self.merge(member, Presence::Recorded)
    }

    /// The source no longer has a record of the member: its lease has expired, the record was deleted, or gossip found it dead.
    pub fn handle_absence(&mut self, now: Instant, id: NodeId) {
        let entry = self.entries.get_mut(usize::from(id.0)).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|entry| entry.presence == Presence::Recorded) {
            entry.presence = Presence::AbsentSince(now);
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
            if let Err(refused) = self.handle_record(now, member) {
                refuse(refused);
            }
        }
        for (id, _) in (0..).zip(is_recorded).filter(|(_, is_recorded)| !is_recorded) {
            self.handle_absence(now, NodeId(id));
        }
    }

    /// Settings of the source: the newest count.
    pub fn handle_settings(&mut self, settings: Settings) {
        self.settings = self.settings.max(settings);
    }

    fn merge(&mut self, member: Member, presence: Presence) -> Result<(), Refused> {
        let id = member.id;
        if id == self.own {
            return Ok(());
        }
        let nodes = self.limits.nodes;
        let place = self.entries.get_mut(usize::from(id.0)).ok_or(Refused::Number { id, nodes })?;
        match place {
            Some(entry) => {
                match member.precedence(&entry.member) {
                    // What an earlier record is present for is not known any more.
                    Ordering::Less => return Ok(()),
                    Ordering::Equal if presence != Presence::Recorded => return Ok(()),
                    Ordering::Equal => {}
                    Ordering::Greater => entry.member = member,
                }
                (entry.presence, entry.is_forgotten) = (presence, false);
            }
            None => {
                let applied = None;
                *place = Some(Entry { member, presence, down_since: None, is_forgotten: false, applied });
            }
        }
        Ok(())
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
        let waiting = self.entries.iter().flatten().filter(|entry| !entry.is_forgotten);
        waiting.filter_map(|entry| Some(entry.down_since? + self.limits.forget_after)).min()
    }

    /// Forgets members that are absent from the source, and have been down for long enough.
    fn forget(&mut self, now: Instant, is_up: impl Fn(NodeId) -> bool) {
        for entry in self.entries.iter_mut().flatten() {
            let is_lost = entry.presence != Presence::Recorded && !is_up(entry.member.id);
            entry.down_since = is_lost.then(|| entry.down_since.unwrap_or(now));
            entry.is_forgotten |= entry.down_since.is_some_and(|since| since + self.limits.forget_after <= now);
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
            let (member, is_other) = (&other.member, other.member.id != id);
            is_other && member.replication == entry.member.replication && member.state != MemberState::Left
        });
        let key = |member: &Member| (member.version, member.id.0);
        let newer = others.find(|other| key(&other.member) > key(&entry.member));
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
