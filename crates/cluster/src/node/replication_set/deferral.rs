//! Connections that are replicated only once they have lived for a while: see [`replication::lazy`].
//!
//! | a deferred connection | |
//! |---|---|
//! | ends, or both sides have finished | it is never replicated |
//! | grows older than the threshold | it is replicated as it is then |
//! | is needed by others: a connection is expected on its behalf, another node gets packets of it, a first reply waits for it | it is replicated at once |
//! | is one of a node that is about to leave, or gives its addresses up | it is replicated before the addresses move |
//! | is there when a peer comes and receives everything | it is left out, and replicated when it is old enough |
//!
//! Digests of agreement are over what was replicated, so that nodes agree without it.

use alloc::boxed::Box;

use flow::conntrack::TcpState;
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, Instant, Tuple};
use replication::Handle;
use replication::lazy::{Config, ConfigError, LazyInsertion};
use replication::representation::precise;

use super::super::peer;
use super::ReplicationSet;
use crate::pipeline::{Pipeline, TableChange};

/// Connections looked at in one call of [`Node::handle_timeout`](crate::node::Node::handle_timeout): a packet waits no longer than
/// that for its turn.
const LOOKS_PER_TIMEOUT_MAX: usize = 1024;

/// What a node that defers connections keeps of them.
#[derive(Debug)]
pub(in crate::node) struct Deferral {
    pub(in crate::node) insertion: LazyInsertion,
    /// The connection of this node's that ended last, until another change comes: whether the next took its place.
    ended: Option<Tuple>,
}

impl Deferral {
    /// Whether the connection in the slot is not replicated for now: it is too young, or was over before it was not.
    pub(in crate::node) fn is_deferred(&self, slot: Slot) -> bool {
        self.insertion.is_put_off(Handle(slot.0))
    }

    /// Connections that are deferred now.
    pub(in crate::node) fn deferred(&self) -> u32 {
        self.insertion.put_off()
    }
}

impl ReplicationSet {
    /// From now on connections are deferred as `config` says; `None`: they are all replicated as soon as they begin. Those that
    /// are deferred now are replicated if it differs from what was said before. `goes_on`: the node is not about to leave.
    pub(in crate::node) fn set_deferral(
        &mut self,
        now: Instant,
        pipeline: &Pipeline,
        config: Option<Config>,
    ) -> Result<(), ConfigError> {
        config.iter().try_for_each(Config::check)?;
        let known = self.deferral.as_ref().map(|deferral| deferral.insertion.config());
        if known == config {
            return Ok(());
        }
        self.replicate_deferred(now, pipeline);
        let connections_max = pipeline.table().capacity();
        self.deferral = config.map(|config| {
            let insertion = LazyInsertion::new(config, connections_max, now);
            Box::new(Deferral { insertion, ended: None })
        });
        Ok(())
    }

    /// Connections that are deferred now.
    pub(in crate::node) fn deferred(&self) -> u32 {
        self.deferral.as_ref().map_or(0, |deferral| deferral.deferred())
    }

    /// Whether the connection in the slot is not replicated for now.
    pub(in crate::node) fn is_deferred(&self, slot: Slot) -> bool {
        self.deferral.as_ref().is_some_and(|deferral| deferral.is_deferred(slot))
    }

    /// Does what is due by `now`.
    pub(in crate::node) fn handle_deferral_timeout(&mut self, now: Instant, pipeline: &Pipeline) {
        if let Some(deferral) = &mut self.deferral {
            deferral.insertion.handle_timeout(now);
            self.look_at_deferred(now, pipeline, LOOKS_PER_TIMEOUT_MAX);
        }
    }

    /// Replicates all connections that are deferred, at once, and defers none from now on.
    pub(in crate::node) fn replicate_deferred(&mut self, now: Instant, pipeline: &Pipeline) {
        if let Some(deferral) = &mut self.deferral {
            deferral.insertion.suspend();
            self.look_at_deferred(now, pipeline, usize::MAX);
        }
    }

    /// Connections are deferred again, as configured.
    pub(in crate::node) fn defer_again(&mut self) {
        self.deferral.iter_mut().for_each(|deferral| deferral.insertion.resume());
    }

    /// Whether nothing of the change is replicated.
    pub(super) fn defers(&mut self, now: Instant, pipeline: &Pipeline, change: &TableChange) -> bool {
        let Some(deferral) = &mut self.deferral else { return false };
        let ended = deferral.ended.take();
        match change {
            TableChange::Began { slot } => {
                let is_deferred = self.begins_deferred(now, pipeline, *slot);
                let original = pipeline.connection(*slot).map(|connection| connection.original);
                if is_deferred && ended.is_some() && original == ended {
                    self.insertion(|insertion| insertion.note_unheard_of(Handle(slot.0)));
                }
                is_deferred
            }
            TableChange::Changed { slot, .. } => self.stays_deferred(now, pipeline, *slot),
            TableChange::FunctionsChanged { slot } => {
                if pipeline.is_needed_by_others(*slot) {
                    self.replicate_early(now, pipeline, *slot);
                }
                self.is_deferred(*slot)
            }
            TableChange::TakenOver { slot } => {
                self.replicate_early(now, pipeline, *slot);
                false
            }
            TableChange::Copied { slot } => {
                if pipeline.connection(*slot).is_none_or(|connection| connection.owner != self.id) {
                    self.insertion(|insertion| insertion.forget(Handle(slot.0)));
                }
                false
            }
            TableChange::Ended { slot, ended } => self.ends_unreplicated(now, *slot, ended),
            TableChange::Displaced { slot, .. } => {
                self.insertion(|insertion| insertion.forget(Handle(slot.0)));
                false
            }
            TableChange::Refused { .. } => false,
        }
    }

    fn insertion<T>(&mut self, act: impl FnOnce(&mut LazyInsertion) -> T) -> Option<T> {
        self.deferral.as_deref_mut().map(|deferral| act(&mut deferral.insertion))
    }

    /// A connection has begun: whether it is deferred.
    fn begins_deferred(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> bool {
        let is_needed = !self.hold_first_reply.is_zero() || pipeline.is_needed_by_others(slot);
        let is_deferred =
            self.insertion(|insertion| insertion.begin(now, Handle(slot.0), is_needed)).unwrap_or_default();
        if is_deferred {
            // The slot may have held a copy of which the sessions still know something.
            peer::sessions(&mut self.peers).for_each(|session| session.forget(Handle(slot.0)));
        }
        is_deferred
    }

    /// A connection has changed: whether it is still deferred.
    fn stays_deferred(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) -> bool {
        let handle = Handle(slot.0);
        if pipeline.connection(slot).is_some_and(is_over) {
            self.insertion(|insertion| insertion.complete(now, handle));
        } else if self.is_deferred(slot) && pipeline.is_needed_by_others(slot) {
            self.replicate_early(now, pipeline, slot);
            // It is replicated as it is, whether this change alone is worth it or not.
            return true;
        }
        self.is_deferred(slot)
    }

    /// A connection has ended. True if no peer has anything of it, nor of one before with its tuple, so that there is
    /// nothing to send.
    fn ends_unreplicated(&mut self, now: Instant, slot: Slot, ended: &precise::Ended) -> bool {
        let (handle, node) = (Handle(slot.0), self.id);
        let Some(deferral) = &mut self.deferral else { return false };
        let is_unknown = deferral.insertion.is_unheard_of(handle);
        deferral.insertion.end(now, handle);
        deferral.ended = (ended.owner == node).then_some(ended.original);
        if !is_unknown {
            return false;
        }
        // A peer that asked for it may know it all the same.
        self.attributes.clear();
        precise::encode_ended(ended, &mut self.attributes);
        for session in peer::sessions(&mut self.peers) {
            session.mark_deleted(handle, &self.attributes);
        }
        true
    }

    /// The connection is replicated now, if it was deferred.
    fn replicate_early(&mut self, now: Instant, pipeline: &Pipeline, slot: Slot) {
        if self.insertion(|insertion| insertion.tell(now, Handle(slot.0))) == Some(true) {
            self.on_begun(now, pipeline, slot);
        }
    }

    /// Replicates the connections that are old enough by `now`, `looks_max` at most.
    fn look_at_deferred(&mut self, now: Instant, pipeline: &Pipeline, looks_max: usize) {
        for _ in 0..looks_max {
            let Some(due) = self.insertion(|insertion| insertion.poll_due(now)).flatten() else { return };
            let age = pipeline.age(Slot(due.handle.0), due.began);
            if self.insertion(|insertion| insertion.judge(now, due.handle, age)) == Some(true) {
                self.on_begun(now, pipeline, Slot(due.handle.0));
            }
        }
    }
}

/// Both sides have said that they have no more to say, or one has broken off.
fn is_over(connection: &Connection) -> bool {
    let state = connection.protocol.state;
    connection.original.protocol == ip_protocol::TCP
        && (state == TcpState::TimeWait as u8 || state == TcpState::Close as u8)
}
