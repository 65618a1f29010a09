//! What all parts are measured with.

use crate::args::BenchSyncArgs;
use crate::args::sync_bench::Subject;
use crate::testbed::watch::Watch;
use console::Progress;

/// What all parts are measured with.
pub(super) struct Setting<'a> {
    pub(super) watch: &'a Watch,
    pub(super) progress: Progress,
    pub(super) args: &'a BenchSyncArgs,
    pub(super) subjects: Vec<Subject>,
    pub(super) kernel: String,
}

impl Setting<'_> {
    /// Those of what is compared that have daemons, and are not but other settings of the same.
    pub(super) fn principals(&self) -> impl Iterator<Item = Subject> {
        self.subjects.iter().copied().filter(|subject| subject.is_principal())
    }
}
