//! conntrackd, as its documentation recommends.

use packet_io::namespace::Namespace;

use super::replicator::Replicator;
use super::routers::Tuning;
use crate::args::sync_bench::Subject;
use crate::bench::BenchError;
use crate::bench::kernel_routers::conntrackd::{BEGIN_AS_PRIMARY, COMMIT, Daemon, DaemonPlan, EventBuffer, Mode};
use crate::bench::kernel_routers::prepared::Prepared;

/// How it is run.
pub(super) fn plan(subject: Subject, tuning: Tuning) -> DaemonPlan {
    let event_buffer = tuning.event_buffer_bytes.map(|bytes| EventBuffer { bytes, bytes_max: bytes });
    DaemonPlan {
        filters_states: subject == Subject::ConntrackdFiltered,
        event_buffer: event_buffer.unwrap_or_default(),
        ..DaemonPlan::default()
    }
}

impl Replicator for Daemon {
    fn process(&self) -> u32 {
        self.process()
    }

    fn check_running(&mut self) -> Result<(), BenchError> {
        Ok(self.check_running()?)
    }

    fn check_ready(&self, node: &Namespace) -> Result<(), String> {
        self.check_receives_from_peer(node, Mode::Ftfw)
    }

    fn known(&self, node: &Namespace) -> Result<u64, BenchError> {
        Ok(self.external_cache_entries(node)?)
    }

    fn kill(&mut self) -> Result<(), BenchError> {
        Ok(self.kill()?)
    }

    fn prepare_take_over(&self, node: &Namespace) -> Result<Prepared, BenchError> {
        Ok(self.prepare(node, COMMIT)?)
    }

    fn take_over(&self, prepared: Prepared) -> Result<(), BenchError> {
        Ok(self.ask_prepared(prepared, COMMIT)?)
    }

    fn begin_as_primary(&self, node: &Namespace) -> Result<(), BenchError> {
        Ok(BEGIN_AS_PRIMARY.into_iter().try_for_each(|request| self.ask(node, request).map(drop))?)
    }
}
