//! Connections that are replicated only once they have lived for a while: see [`replication::deferral`].
//!
//! | a deferred connection | |
//! |---|---|
//! | ends, or both sides have finished | it is never replicated |
//! | grows older than the threshold | it is replicated as it is then |
//! | is needed by others: a connection is expected on its behalf, another node gets packets of it, a first reply waits for it | it is replicated at once |
//! | is one of a node that is about to leave, or gives its addresses up | it is replicated before the addresses move |
//! | is there when a peer comes and receives everything | it is left out, and replicated when it is old enough |
//!
//! Digests of anti-entropy cover what was replicated, so that nodes agree although connections are deferred.

use core::time::Duration;

use flow::conntrack::TcpState;
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, NodeId, Tuple};
use replication::Handle;
use replication::deferral::{Config, DeferralQueue, DeferralStatus};

use crate::pipeline::{Pipeline, TableChange};

/// Deferred connections looked at in one call of [`Node::handle_timeout`](crate::node::Node::handle_timeout): a packet waits no
/// longer than that for its turn.
pub(super) const LOOKS_PER_TIMEOUT_MAX: usize = 1024;

/// What a node that defers connections keeps of them.
#[derive(Debug)]
pub(in crate::node) struct Deferral {
    pub(super) insertion: DeferralQueue,
    /// The connection of this node's that ended last, until another change comes: whether the next took its place.
    ended: Option<Tuple>,
}

/// What deferral makes of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The change is replicated as usual.
    Replicate,
    /// The connection is deferred no more: it is replicated as one that began, and then the change as usual.
    BeginAndReplicate,
    /// The connection is deferred no more: it is replicated as one that began, with this change.
    Begin,
    /// Nothing is replicated.
    Defer,
    /// A connection ended that no peer received. A peer that asked for it may know it all the same.
    EndUnreplicated,
}

impl Deferral {
    /// Nothing is deferred yet.
    pub(super) fn new(config: Config, connections_max: u32, now: Instant) -> Self {
        Self { insertion: DeferralQueue::new(config, connections_max, now), ended: None }
    }

    /// Whether the connection in the slot is not replicated for now: it is too young, or was over before it was not.
    pub(in crate::node) fn is_deferred(&self, slot: Slot) -> bool {
        self.insertion.is_deferred(Handle(slot.0))
    }

    /// Connections that are deferred now.
    pub(super) fn deferred(&self) -> u32 {
        self.insertion.deferred()
    }

    pub(in crate::node) fn note_utilisation(&mut self, per_mille: u16) {
        self.insertion.note_utilisation(per_mille);
    }

    /// How often utilisation is to be measured, if the threshold depends on it.
    pub(in crate::node) fn utilisation_interval(&self) -> Option<Duration> {
        /// Measurements for each decision.
        const PER_DECISION: u32 = 5;
        match self.insertion.config() {
            Config::Dynamic(dynamic) => Some(dynamic.interval / PER_DECISION),
            Config::Fixed(_) => None,
        }
    }

    pub(in crate::node) fn status(&self) -> DeferralStatus {
        self.insertion.status()
    }

    /// What is replicated of a change. `is_awaited`: first replies wait for the acknowledgement of their connection.
    pub(super) fn on_change(
        &mut self,
        now: Instant,
        pipeline: &Pipeline,
        change: &TableChange,
        node: NodeId,
        is_awaited: bool,
    ) -> Verdict {
        let ended = self.ended.take();
        match change {
            TableChange::Began { slot } => self.on_began(now, pipeline, *slot, ended, is_awaited),
            TableChange::Changed { slot, .. } => self.on_changed(now, pipeline, *slot),
            TableChange::FunctionsChanged { slot } => {
                if pipeline.is_needed_by_others(*slot) && self.begins_early(now, *slot) {
                    return Verdict::BeginAndReplicate;
                }
                if self.is_deferred(*slot) { Verdict::Defer } else { Verdict::Replicate }
            }
            TableChange::TakenOver { slot } | TableChange::Claimed { slot, .. } | TableChange::Pulled { slot, .. } => {
                if self.begins_early(now, *slot) {
                    Verdict::BeginAndReplicate
                } else {
                    Verdict::Replicate
                }
            }
            TableChange::Copied { slot } => {
                if pipeline.connection(*slot).is_none_or(|connection| connection.owner != node) {
                    self.insertion.forget(Handle(slot.0));
                }
                Verdict::Replicate
            }
            TableChange::Ended { slot, ended } => {
                let handle = Handle(slot.0);
                let is_unknown = self.insertion.is_unknown_to_peers(handle);
                self.insertion.end(now, handle);
                self.ended = (ended.owner == node).then_some(ended.original);
                if is_unknown { Verdict::EndUnreplicated } else { Verdict::Replicate }
            }
            TableChange::Displaced { slot, .. } => {
                self.insertion.forget(Handle(slot.0));
                Verdict::Replicate
            }
            TableChange::Refused { .. } => Verdict::Replicate,
        }
    }

    /// A connection has begun, after `ended` has ended.
    fn on_began(
        &mut self,
        now: Instant,
        pipeline: &Pipeline,
        slot: Slot,
        ended: Option<Tuple>,
        is_awaited: bool,
    ) -> Verdict {
        let is_needed = is_awaited || pipeline.is_needed_by_others(slot);
        if !self.insertion.begin(now, Handle(slot.0), is_needed) {
            return Verdict::Replicate;
        }
        let original = pipeline.connection(slot).map(|connection| connection.original);
        if ended.is_some() && original == ended {
            self.insertion.note_unknown_to_peers(Handle(slot.0));
        }
        Verdict::Defer
    }

    fn on_changed(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> Verdict {
        if pipeline.connection(slot).is_some_and(is_over) {
            self.insertion.complete(now, Handle(slot.0));
        } else if self.is_deferred(slot) && pipeline.is_needed_by_others(slot) {
            // It is replicated as it is, whether this change alone is worth it or not.
            return if self.begins_early(now, slot) { Verdict::Begin } else { Verdict::Defer };
        }
        if self.is_deferred(slot) { Verdict::Defer } else { Verdict::Replicate }
    }

    /// The connection is replicated now: true if it was deferred.
    fn begins_early(&mut self, now: Instant, slot: Slot) -> bool {
        self.insertion.replicate(now, Handle(slot.0))
    }

    /// The next connection that is old enough by `now`, of `looks_left` that are looked at.
    pub(super) fn poll_due(&mut self, now: Instant, pipeline: &Pipeline, looks_left: &mut usize) -> Option<Slot> {
        while *looks_left > 0 {
            *looks_left -= 1;
            let due = self.insertion.poll_due(now)?;
            let slot = Slot(due.handle.0);
            if self.insertion.decide(now, due.handle, pipeline.age(slot, due.began)) {
                return Some(slot);
            }
        }
        None
    }
}

/// Both sides have closed the connection, or one has broken off.
pub(super) fn is_over(connection: &Connection) -> bool {
    let state = connection.protocol.state;
    connection.original.protocol == ip_protocol::TCP
        && (state == TcpState::TimeWait as u8 || state == TcpState::Close as u8)
}
