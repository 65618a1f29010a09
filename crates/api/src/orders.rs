//! The outcome of orders.

use serde::{Deserialize, Serialize};

/// Outcome of a reload of the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReloadReport {
    /// Whether the file is in force now.
    pub applied: bool,
    /// Whether the request only asked what would change.
    pub check_only: bool,
    /// Differences between the file and the configuration in force, a phrase each.
    pub changes: Vec<String>,
    /// Changes that need a restart, a phrase each. With any of them nothing is applied.
    pub needs_restart: Vec<String>,
    /// Mistakes in the file, a line each. With any of them nothing is applied.
    pub mistakes: Vec<String>,
    /// Warnings about the file, a line each.
    pub warnings: Vec<String>,
    /// Whether the re-evaluation of connections under the new rules has begun.
    pub reevaluates: bool,
    /// Fingerprint of the configuration in the file. It is empty when the file cannot be read.
    pub configuration: String,
}

impl ReloadReport {
    /// Whether the file can be applied.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.needs_restart.is_empty() && self.mistakes.is_empty()
    }
}
