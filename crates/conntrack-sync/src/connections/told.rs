//! What peers say: whose word counts, and what the kernel is then to be told.
//!
//! | known here | the peer's word | then |
//! |---|---|---|
//! | nothing | any | a copy |
//! | nothing, and the peer was started anew while this node held the addresses | of one that it merely found | it is told that it ended |
//! | a copy of the same peer | any | it replaces what the peer said before |
//! | a copy of another | newer | it is the peer's from now on |
//! | this node's own | newer | it is the peer's; if this node has seen more of it, it takes it over again and says so |
//! | this node's own, and packets reach it here | newer, of a peer that has seen no packet | it stays, and says so |
//! | whatever | older | it does not count |

use flow::Instant;
use flow::NodeId;
use flow::netfilter::{Entry, Status, TcpState, Tuple};
use flow::serial::is_before;
use replication::representation::kernel::{Ended, Speaker, Told};
use replication::{ApplyError, Handle};

use super::{Connections, Touched, ends_s};
use crate::config::{Mode, SyncRole};
use crate::event::SyncEvent;
use crate::mirror::{Record, beyond, flag};

impl Connections {
    /// A peer tells of a connection. `round` is the mark of what it tells now.
    pub(crate) fn apply(&mut self, now: Instant, from: NodeId, round: bool, told: &Told) -> Result<(), ApplyError> {
        match self.mirror.find(&told.entry.original, told.entry.zone) {
            None => self.take_new(now, from, round, told),
            Some(handle) => {
                self.weigh(handle, from, round, told);
                Ok(())
            }
        }
    }

    fn take_new(&mut self, now: Instant, from: NodeId, round: bool, told: &Told) -> Result<(), ApplyError> {
        // It was started anew while this node got all packets: what it found in its kernel, and this node does not know, has
        // ended meanwhile.
        if told.speaker.is_unseen && self.restarted.contains(from) {
            let Told { entry, speaker, .. } = told;
            let speaker = Speaker { version: beyond(speaker.version), owner: self.node, is_unseen: false };
            self.counters.words_refused += 1;
            self.names.push_back(Ended { original: entry.original, zone: entry.zone, speaker });
            self.touched.push(Touched::Refused(from));
            return Ok(());
        }
        let floor_s = self.timeout_floor_s;
        let Ok((handle, record)) = self.mirror.insert(&told.entry, from) else {
            self.note_full(now, SyncEvent::ReplicaIncomplete(from));
            return Err(ApplyError::Full);
        };
        record.expires_s = ends_s(now, told.entry.timeout_s.unwrap_or(0).max(floor_s));
        self.counters.copies_taken += 1;
        self.take_word(handle, from, round, told);
        self.queue(handle, flag::DIRTY);
        Ok(())
    }

    fn weigh(&mut self, handle: Handle, from: NodeId, round: bool, told: &Told) {
        let (node, is_primary) = (self.node, self.role == SyncRole::Primary);
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let owner = record.owner();
        if owner != from && !prevails(record, node, is_primary, from, told.speaker) {
            self.counters.words_stale += 1;
            let stays_here = owner == node && !record.is_any(flag::UNSEEN);
            if stays_here && !is_before(told.speaker.version, record.version) {
                // It would go on believing itself the master.
                record.version = beyond(told.speaker.version);
                record.set(flag::TOLD, true);
                self.touched.push(Touched::Changed(handle));
            }
            return;
        }
        // Two nodes that each saw something become masters at once: the word of one must not hide what the other saw. A
        // later connection with the same tuple is further on than by one master, or its master's before.
        let masters_between = (told.speaker.version >> 16).wrapping_sub(record.version >> 16) as u16;
        let is_same = owner == node && !record.is_any(flag::UNSEEN) && masters_between <= 1;
        let sees_more = is_same && saw_more(record, &told.entry);
        let is_otherwise = self.replace(handle, from, round, told, sees_more);
        self.counters.copies_taken += 1;
        // The kernel goes on holding the windows that it has seen against segments. Should they come here again, they are far
        // behind: it must be told to let segments through, even if nothing else has changed.
        let has_windows = owner == node && self.mirror.get(handle).is_some_and(|record| record.tcp_state().is_some());
        if is_otherwise || has_windows {
            self.queue(handle, flag::DIRTY);
        }
        let is_sole_primary = is_primary && self.mode == Mode::PrimaryBackup && !self.primaries.contains(from);
        if sees_more {
            self.counters.merged += 1;
            self.take_over(handle, false);
        } else if owner == node && is_sole_primary {
            // What the former primary saw last, of a connection that this node goes on with.
            self.take_over(handle, true);
        }
    }

    /// The word takes the place of what is known. True if the kernel must be told.
    fn replace(&mut self, handle: Handle, from: NodeId, round: bool, told: &Told, keeps_state: bool) -> bool {
        let Some(record) = self.mirror.get_mut(handle) else { return false };
        let (status, state) = (record.status(), record.tcp_state());
        let was_going = record.is_any(flag::GONE | flag::ENDING);
        let mut is_otherwise = record.set_reply(&told.entry.reply);
        let needs_replacing = is_otherwise;
        if keeps_state {
            let mut entry = told.entry.clone();
            entry.status = entry.status.map(|told| told.union(status));
            if is_further(record.protocol(), state, entry.tcp().map(|info| info.state)) {
                entry.protocol_info = None;
            }
            is_otherwise |= record.merge(&entry);
        } else {
            is_otherwise |= record.merge(&told.entry);
        }
        // What the kernel's connection has seen cannot be taken back: this is another connection with the same tuple.
        let lasting = Status::SEEN_REPLY.union(Status::ASSURED);
        let is_another = status.without(record.status()).intersects(lasting);
        record.set(flag::GONE | flag::ENDING | flag::VERIFY, false);
        if (needs_replacing || is_another) && record.is_any(flag::IN_KERNEL) {
            record.set(flag::REPLACE, true);
        }
        is_otherwise |= record.expectations() != told.expectations.as_slice();
        let is_missing = !record.is_any(flag::IN_KERNEL);
        self.take_word(handle, from, round, told);
        is_otherwise || is_missing || was_going
    }

    fn take_word(&mut self, handle: Handle, from: NodeId, round: bool, told: &Told) {
        let takes_expectations = self.takes_expectations;
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let before = record.owner();
        if before == self.node {
            self.tell_expectations_of(handle, false);
        }
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.set_owner(from);
        record.version = told.speaker.version;
        record.set(flag::UNSEEN, told.speaker.is_unseen);
        record.set(flag::TOLD, false);
        record.set(flag::ROUND, round);
        if takes_expectations && record.expectations() != told.expectations.as_slice() {
            record.rare_mut().expectations.clone_from(&told.expectations);
            record.drop_empty_rare();
        }
        if before != from {
            self.count_owner(before, from);
        }
        self.touched.push(Touched::Copied(handle));
    }

    /// A peer tells that a connection has ended.
    pub(crate) fn delete(&mut self, from: NodeId, ended: &Ended) {
        let is_primarys = self.primaries.contains(from);
        self.delete_named(from, &ended.original, ended.zone, ended.speaker, is_primarys);
    }

    /// As [`Connections::delete`]; with `is_primarys`, the peer gets the packets.
    pub(crate) fn delete_named(
        &mut self,
        from: NodeId,
        original: &Tuple,
        zone: u16,
        speaker: Speaker,
        is_primarys: bool,
    ) {
        let Some(handle) = self.mirror.find(original, zone) else { return };
        let (node, is_primary) = (self.node, self.role == SyncRole::Primary);
        let Some(record) = self.mirror.get(handle) else { return };
        let owner = record.owner();
        // The peer may have become master and seen the end before it said either.
        let counts = owner == from || prevails(record, node, is_primary, from, speaker);
        // A connection that this node merely found in its kernel, and of which a node that gets the packets says that it ended.
        let is_disowned = owner == node && record.is_any(flag::UNSEEN) && !is_primary && !speaker.is_unseen;
        if !counts && !is_disowned {
            self.counters.ends_stale += 1;
            return;
        }
        self.counters.ends_taken += 1;
        let may_live_here =
            record.is_any(flag::IN_KERNEL) && (is_primary || (record.is_any(flag::FOUND) && !is_primarys));
        if !record.is_any(flag::IN_KERNEL) && owner != node {
            return self.drop_copy(handle);
        }
        if owner != from {
            if owner == node {
                self.tell_expectations_of(handle, false);
            }
            self.count_owner(owner, from);
            if let Some(record) = self.mirror.get_mut(handle) {
                record.set_owner(from);
                record.set(flag::TOLD, false);
            }
            self.touched.push(Touched::Copied(handle));
        }
        if may_live_here {
            if let Some(record) = self.mirror.get_mut(handle) {
                record.set(flag::ENDING, true);
            }
            self.queue(handle, flag::VERIFY);
        } else {
            self.queue(handle, flag::GONE);
        }
        // As the peer sees it, it is gone from here.
        self.touched.push(Touched::Copied(handle));
    }
}

/// Whether the word of `from` takes the place of another node's.
fn prevails(record: &Record, node: NodeId, is_primary: bool, from: NodeId, speaker: Speaker) -> bool {
    let owner = record.owner();
    if owner == node && record.is_any(flag::UNSEEN) != speaker.is_unseen && (is_primary || record.is_any(flag::UNSEEN))
    {
        return record.is_any(flag::UNSEEN);
    }
    if owner == node && is_primary && speaker.is_unseen {
        return false;
    }
    is_before(record.version, speaker.version) || (record.version == speaker.version && from < owner)
}

/// Whether this node has seen something of its connection that the word does not know.
fn saw_more(record: &Record, told: &Entry) -> bool {
    let lasting = Status::SEEN_REPLY.union(Status::ASSURED);
    let status = told.status.unwrap_or(record.status());
    record.status().without(status).intersects(lasting)
        || is_further(record.protocol(), record.tcp_state(), told.tcp().map(|info| info.state))
}

/// Whether one state of TCP's automaton is after the other in the life of the same connection.
pub(crate) fn is_further(protocol: u8, one: Option<TcpState>, other: Option<TcpState>) -> bool {
    let rank = |state: TcpState| match state {
        TcpState::None => 0,
        TcpState::SynSent => 1,
        TcpState::SynSent2 => 2,
        TcpState::SynRecv => 3,
        TcpState::Established => 4,
        TcpState::FinWait => 5,
        TcpState::CloseWait => 6,
        TcpState::LastAck => 7,
        TcpState::TimeWait => 8,
        TcpState::Close => 9,
    };
    match (protocol, one, other) {
        (6, Some(one), Some(other)) => rank(one) > rank(other),
        _ => false,
    }
}
