//! Connections that are told only once they have lived for a while: see [`replication::lazy`].
//!
//! | a put-off connection | |
//! |---|---|
//! | ends, or both sides have said farewell | no peer hears of it |
//! | grows older than the threshold | it is told as it is then |
//! | is needed by others: a connection is expected on its behalf, another node gets packets of it, a first reply waits for it | it is told at once |
//! | is one of a node that is about to leave, or gives its addresses up | it is told before the addresses move |
//! | is there when a peer comes and is told everything | it is left out, and told when it is old enough like all others |
//!
//! Digests of agreement are over what was told, so that nodes agree without it.

use core::time::Duration;

use alloc::boxed::Box;

use flow::conntrack::TcpState;
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, Instant};
use replication::Handle;
use replication::lazy::{Config, ConfigError, LazyInsertion, LazyStatus};
use replication::representation::precise;

use super::{Node, peer};
use crate::pipeline::{Lazily, TableChange};

/// Connections looked at in one call of [`Node::handle_timeout`]: a packet waits no longer than that for its turn.
const LOOKS_PER_TIMEOUT_MAX: usize = 1024;
impl Node {
    /// From now on connections are put off as `config` says; `None`: they are all told as soon as they begin. Those that are
    /// put off now are told if it differs from what was said before.
    ///
    /// # Errors
    /// It is not sound; nothing has changed.
    pub fn set_lazy(&mut self, now: Instant, config: Option<Config>) -> Result<(), ConfigError> {
        config.iter().try_for_each(Config::check)?;
        let known = self.pipeline.lazily.as_ref().map(|lazily| lazily.insertion.config());
        if known == config {
            return Ok(());
        }
        self.tell_put_off(now);
        let connections_max = self.pipeline.table().capacity();
        self.pipeline.lazily = config.map(|config| {
            let insertion = LazyInsertion::new(config, connections_max, now);
            Box::new(Lazily { insertion, ended: None })
        });
        Ok(())
    }

    /// The processor that serves this node was busy for this share of the time since this was said last.
    pub fn note_utilisation(&mut self, per_mille: u16) {
        self.pipeline.lazily.iter_mut().for_each(|lazily| lazily.insertion.note_utilisation(per_mille));
    }

    /// How often utilisation is to be measured, if anything depends on it.
    #[must_use]
    pub fn utilisation_interval(&self) -> Option<Duration> {
        /// Measurements for each decision.
        const PER_DECISION: u32 = 5;
        match self.pipeline.lazily.as_ref()?.insertion.config() {
            Config::Dynamic(dynamic) => Some(dynamic.interval / PER_DECISION),
            Config::Fixed(_) => None,
        }
    }

    /// How lazy insertion stands; `None` where all connections are told at once.
    #[must_use]
    pub fn lazy_status(&self) -> Option<LazyStatus> {
        self.pipeline.lazily.as_ref().map(|lazily| lazily.insertion.status())
    }

    /// Whether peers are not told of the connection in the slot for now.
    #[must_use]
    pub fn is_put_off(&self, slot: Slot) -> bool {
        self.pipeline.is_put_off(slot)
    }

    /// Whether no peer is to hear of the change.
    pub(super) fn keeps_to_itself(&mut self, now: Instant, change: &TableChange) -> bool {
        if self.pipeline.lazily.is_none() {
            return false;
        }
        let ended = self.lazily(|lazily| lazily.ended.take()).flatten();
        match change {
            TableChange::Began { slot } => {
                let is_put_off = self.puts_off(now, *slot);
                let original = self.pipeline.connection(*slot).map(|connection| connection.original);
                if is_put_off && ended.is_some() && original == ended {
                    self.lazily(|lazily| lazily.insertion.note_unheard_of(Handle(slot.0)));
                }
                is_put_off
            }
            TableChange::Changed { slot, .. } => self.stays_put_off(now, *slot),
            TableChange::FunctionsChanged { slot } => {
                if self.pipeline.is_needed_by_others(*slot) {
                    self.tell_early(now, *slot);
                }
                self.is_put_off(*slot)
            }
            TableChange::TakenOver { slot } => {
                self.tell_early(now, *slot);
                false
            }
            TableChange::Copied { slot } => {
                if self.pipeline.connection(*slot).is_none_or(|connection| connection.owner != self.id) {
                    self.lazily(|lazily| lazily.insertion.forget(Handle(slot.0)));
                }
                false
            }
            TableChange::Ended { slot, ended } => self.ends_unheard_of(now, *slot, ended),
            TableChange::Displaced { slot, .. } => {
                self.lazily(|lazily| lazily.insertion.forget(Handle(slot.0)));
                false
            }
            TableChange::Refused { .. } => false,
        }
    }

    fn lazily<T>(&mut self, act: impl FnOnce(&mut Lazily) -> T) -> Option<T> {
        self.pipeline.lazily.as_deref_mut().map(act)
    }

    /// A connection has begun: whether it is put off.
    fn puts_off(&mut self, now: Instant, slot: Slot) -> bool {
        let must_be_told = !self.hold_first_reply.is_zero() || self.pipeline.is_needed_by_others(slot);
        let is_put_off = self.lazily(|lazily| lazily.insertion.begin(now, Handle(slot.0), must_be_told));
        let is_put_off = is_put_off.unwrap_or_default();
        if is_put_off {
            // The slot may have held a copy of which the sessions still know something.
            peer::sessions(&mut self.peers).for_each(|session| session.forget(Handle(slot.0)));
        }
        is_put_off
    }

    /// A connection has changed: whether nobody is to hear of it still.
    fn stays_put_off(&mut self, now: Instant, slot: Slot) -> bool {
        let handle = Handle(slot.0);
        if self.pipeline.connection(slot).is_some_and(is_over) {
            self.lazily(|lazily| lazily.insertion.complete(now, handle));
        } else if self.is_put_off(slot) && self.pipeline.is_needed_by_others(slot) {
            self.tell_early(now, slot);
            // It is told as it is, whether this change alone is worth it or not.
            return true;
        }
        self.is_put_off(slot)
    }

    /// A connection has ended. True if no peer has anything of it, nor of one before with its tuple, so that there is
    /// nothing to tell.
    fn ends_unheard_of(&mut self, now: Instant, slot: Slot, ended: &precise::Ended) -> bool {
        let (handle, node) = (Handle(slot.0), self.id);
        let is_unheard_of = self.lazily(|lazily| {
            let is_unheard_of = lazily.insertion.is_unheard_of(handle);
            lazily.insertion.end(now, handle);
            lazily.ended = (ended.owner == node).then_some(ended.original);
            is_unheard_of
        });
        if is_unheard_of != Some(true) {
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

    /// The connection is told now, if it was put off.
    fn tell_early(&mut self, now: Instant, slot: Slot) {
        if self.lazily(|lazily| lazily.insertion.tell(now, Handle(slot.0))) == Some(true) {
            self.tell_begun(now, slot);
        }
    }

    /// Tells the connections that are old enough by `now`, `looks_max` at most.
    fn look_at_put_off(&mut self, now: Instant, looks_max: usize) {
        for _ in 0..looks_max {
            let Some(lazily) = &mut self.pipeline.lazily else { return };
            let Some(due) = lazily.insertion.poll_due(now) else { return };
            let age = self.pipeline.age(Slot(due.handle.0), due.began);
            if self.lazily(|lazily| lazily.insertion.judge(now, due.handle, age)) == Some(true) {
                self.tell_begun(now, Slot(due.handle.0));
            }
        }
    }

    /// Does what is due by `now`.
    pub(super) fn look_after_put_off(&mut self, now: Instant) {
        if self.pipeline.lazily.is_none() {
            return;
        }
        self.lazily(|lazily| lazily.insertion.handle_timeout(now));
        self.look_at_put_off(now, LOOKS_PER_TIMEOUT_MAX);
    }

    /// When [`Node::look_after_put_off`] has something to do.
    pub(super) fn poll_put_off(&self) -> Option<Instant> {
        self.pipeline.lazily.as_ref()?.insertion.poll_timeout()
    }

    /// Tells all connections that are put off, at once: from now on peers may need them.
    pub(super) fn tell_put_off(&mut self, now: Instant) {
        self.replicate_deferred(now);
        if !self.is_leaving() {
            self.defer_again();
        }
    }

    /// As [`Node::tell_put_off`], and nothing is deferred from now on.
    pub(super) fn replicate_deferred(&mut self, now: Instant) {
        self.lazily(|lazily| lazily.insertion.suspend());
        self.look_at_put_off(now, usize::MAX);
    }

    /// Connections are deferred again, as configured.
    pub(super) fn defer_again(&mut self) {
        self.lazily(|lazily| lazily.insertion.resume());
    }

    /// Connections that are deferred now.
    pub(super) fn deferred(&self) -> u32 {
        self.pipeline.lazily.as_ref().map_or(0, |lazily| lazily.insertion.put_off())
    }
}

/// Both sides have said that they have no more to say, or one has broken off.
fn is_over(connection: &Connection) -> bool {
    let state = connection.protocol.state;
    connection.original.protocol == ip_protocol::TCP
        && (state == TcpState::TimeWait as u8 || state == TcpState::Close as u8)
}
