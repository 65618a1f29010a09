//! What became of orders.

use serde::{Deserialize, Serialize};

/// What became of a reload of the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The file is in force.
    pub applied: bool,
    /// It was only to be said what would change.
    pub check_only: bool,
    /// What is otherwise in the file than in force, a phrase each.
    pub changes: Vec<String>,
    /// Changes that need a restart, a phrase each: with any of them nothing is applied.
    pub needs_restart: Vec<String>,
    /// What is wrong with the file, a line each: with any of them nothing is applied.
    pub mistakes: Vec<String>,
    /// What looks doubtful in the file, or has no effect.
    pub warnings: Vec<String>,
    /// Connections are being held against the new rules.
    pub reevaluates: bool,
    /// Fingerprint of the configuration in the file, as far as nodes must agree in it; empty when it cannot be read.
    pub configuration: String,
}

impl ReloadReport {
    /// Nothing stands in the way.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.needs_restart.is_empty() && self.mistakes.is_empty()
    }
}
