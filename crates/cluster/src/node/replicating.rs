//! The node and its [`ReplicationSet`](super::replication_set::ReplicationSet): what operators set and see of it, and when its
//! parts are called.

use core::time::Duration;

use flow::table::Slot;
use flow::{Instant, Tuple};
use replication::lazy::{Config, ConfigError, LazyStatus};

use super::Node;
use super::replication_set::compact::CompactStatus;
use crate::pipeline::Recalled;

impl Node {
    /// From now on connections are deferred as `config` says; `None`: they are all replicated as soon as they begin. Those that
    /// are deferred now are replicated if it differs from what was said before.
    ///
    /// # Errors
    /// It is not sound; nothing has changed.
    pub fn set_lazy(&mut self, now: Instant, config: Option<Config>) -> Result<(), ConfigError> {
        self.replication.set_deferral(now, &self.pipeline, config)
    }

    /// The processor that serves this node was busy for this share of the time since this was said last.
    pub fn note_utilisation(&mut self, per_mille: u16) {
        self.replication.deferral.iter_mut().for_each(|deferral| deferral.insertion.note_utilisation(per_mille));
    }

    /// How often utilisation is to be measured, if anything depends on it.
    #[must_use]
    pub fn utilisation_interval(&self) -> Option<Duration> {
        /// Measurements for each decision.
        const PER_DECISION: u32 = 5;
        match self.replication.deferral.as_ref()?.insertion.config() {
            Config::Dynamic(dynamic) => Some(dynamic.interval / PER_DECISION),
            Config::Fixed(_) => None,
        }
    }

    /// How deferral stands; `None` where all connections are replicated at once.
    #[must_use]
    pub fn lazy_status(&self) -> Option<LazyStatus> {
        self.replication.deferral.as_ref().map(|deferral| deferral.insertion.status())
    }

    /// Whether the connection in the slot is not replicated for now.
    #[must_use]
    pub fn is_put_off(&self, slot: Slot) -> bool {
        self.replication.is_deferred(slot)
    }

    /// How compact replication stands; `None`: there is none.
    #[must_use]
    pub fn compact_status(&self) -> Option<CompactStatus> {
        self.replication.compact.as_ref().map(|compact| compact.status(&self.pipeline))
    }

    /// What peers replicated compactly of the connection that began with this tuple, whether this node asks at present or not.
    #[must_use]
    pub fn recalls(&self, original: &Tuple) -> Option<Recalled> {
        self.replication.recalls(&self.pipeline, original)
    }

    /// Replicates what the pipeline changed.
    pub(super) fn replicate_changes(&mut self, now: Instant) {
        let changes = self.pipeline.take_changes();
        for change in &changes {
            self.replication.on_change(now, &self.pipeline, change);
        }
        self.pipeline.return_changes(changes);
    }

    /// Replicates all connections that are deferred. They are deferred again afterwards, unless the node is leaving.
    pub(super) fn replicate_deferred(&mut self, now: Instant) {
        self.replication.replicate_deferred(now, &self.pipeline);
        if !self.is_leaving() {
            self.replication.defer_again();
        }
    }

    /// This node has taken over, or a peer has died: a recovery begins if this node forwards.
    pub(super) fn begin_recovery(&mut self, now: Instant, has_taken_over: bool) {
        if self.forwards_any() {
            let event = self.replication.begin_recovery(now, &mut self.pipeline, has_taken_over);
            self.events.extend(now, event);
        }
    }

    /// Does what is due of what is deferred and of what is replicated compactly.
    pub(super) fn handle_replication_timeout(&mut self, now: Instant) {
        self.replication.handle_deferral_timeout(now, &self.pipeline);
        let forwards = self.forwards_any();
        let event = self.replication.handle_compact_timeout(now, &mut self.pipeline, forwards);
        self.events.extend(now, event);
    }
}
