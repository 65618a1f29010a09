//! What operators want done, beside what they want to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::node::Reconfiguration;
use replication::secure::SecurityReconfiguration;
use serde::{Deserialize, Serialize};

use super::inquiry::AskError;
use super::sync::{SyncOrder, SyncReadiness};
use super::types::EventKind;
use crate::config::sync::SyncConfig;

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

/// Something that the data path is to do between two batches.
pub enum Order {
    /// Take another configuration.
    Reload(Box<ReloadOrder>),
    /// Hand the addresses over and take no part any more.
    Drain {
        /// Even if nobody can take them.
        is_forced: bool,
    },
    /// Take part again.
    Undrain,
    /// Change the role, or tell and ask for everything anew.
    Sync(SyncOrder),
    /// Take another configuration of what is replicated.
    SyncReload(Box<SyncReloadOrder>),
    /// Remember that something happened.
    Note(EventKind, String),
}

/// A configuration of `mainstay sync`, checked away from the thread that replicates.
pub struct SyncReloadOrder {
    /// The configuration.
    pub config: SyncConfig,
    /// What secures the channels with peers from now on, if anything does.
    pub security: Option<SecurityReconfiguration>,
    /// What changes, for the event.
    pub summary: String,
}

/// A configuration, built and checked away from the data path.
pub struct ReloadOrder {
    /// For the node.
    pub reconfiguration: Reconfiguration,
    /// How long the node puts connections off.
    pub lazy: Option<replication::lazy::Config>,
    /// What the node tracks, by its lead worker.
    pub tracking: cluster::node::TrackingConfig,
    /// How often the addresses that the node holds are announced again; zero: never.
    pub announce_refresh: Duration,
    /// The node's name for people.
    pub node_name: String,
    /// What changes, for the event.
    pub summary: String,
}

/// What came of an order: whether connections are being held against new rules, or why it was not obeyed.
pub type OrderOutcome = Result<bool, String>;

/// Whether an order is still to be obeyed: its giver takes it back when the data path does not come round to it, and must
/// know whether that was in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing(Arc<AtomicBool>);

impl Standing {
    /// Either side's claim; true for the one that is first.
    pub(super) fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Why an operator's wish was not met.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperationError {
    /// The data path did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It would do harm; a sentence.
    #[error("{0}")]
    Refused(String),
}

/// What operators can have done over the control socket. Called from a client's thread, which waits meanwhile.
pub trait Operations: Send + Sync {
    /// Reads the configuration file again and puts it in force, or only says what would change.
    ///
    /// # Errors
    /// The data path did not answer. A file that cannot be used is no error but a report.
    fn reload(&self, check_only: bool) -> Result<ReloadReport, AskError>;

    /// Takes the node out of service.
    ///
    /// # Errors
    /// Connections would be lost, or the data path did not answer.
    fn drain(&self, is_forced: bool) -> Result<(), OperationError>;

    /// Takes it back into service.
    ///
    /// # Errors
    /// The data path did not answer.
    fn undrain(&self) -> Result<(), OperationError>;

    /// Has a node that replicates the kernel's connections change its role, and says how ready it is.
    ///
    /// # Errors
    /// It is a gateway, or the thread that replicates did not answer.
    fn sync(&self, order: SyncOrder) -> Result<SyncReadiness, OperationError> {
        let name = order.name();
        Err(OperationError::Refused(format!(
            "this is a gateway, which finds out itself whether it is to be active: `mainstay sync {name}` is for mainstay sync"
        )))
    }
}
