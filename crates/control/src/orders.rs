//! What operators want done, beside what they want to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::failure_detector;
use cluster::forwarding::PathId;
use cluster::node::Reconfiguration;
use flow::{NodeId, PortId};
use replication::secure::SecurityReconfiguration;

use api::{EventKind, ReloadReport, SyncOrder, SyncReadiness};
use config::sync::SyncConfig;
use config::validated::Peer;

/// Inquiries that wait for the data path. Further ones are answered that the data path is busy.
pub const INQUIRIES_WAITING_MAX: usize = 64;
/// How long an asker waits.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the data path did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AskError {
    /// Too many are asking already.
    #[error("{INQUIRIES_WAITING_MAX} requests wait for the data path already: try again")]
    Busy,
    /// It did not come round to it in time.
    #[error("the data path did not answer within {} s: is the node overloaded?", ANSWER_TIMEOUT.as_secs())]
    TimedOut,
    /// It has ended.
    #[error("the gateway is stopping")]
    Stopping,
}

/// Something that the data path is to do between two batches.
pub enum Order {
    /// Take another configuration.
    Reload(Box<ReloadOrder>),
    /// Hand the addresses over and take no part any more.
    Drain {
        /// Even if no peer can take them.
        is_forced: bool,
    },
    /// Take part again.
    Undrain,
    /// Send a node no new connections, or send them again.
    DrainNode {
        /// The node.
        node: NodeId,
        /// It gets none.
        is_drained: bool,
    },
    /// End the connections that may not continue, because a function's input has changed: their backend has failed.
    EndFailed,
    /// An answer has come that functions wait for: handle the packets that wait for it.
    HandleAnswer,
    /// Change the role, or request a full synchronisation in both directions.
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
    pub lazy: Option<replication::deferral::Config>,
    /// From which packet on connections are replicated.
    pub start: replication::representation::Start,
    /// What the node tracks, by its lead worker.
    pub tracking: cluster::node::TrackingConfig,
    /// How often the addresses that the node holds are announced again; zero: never.
    pub announce_refresh: Duration,
    /// Over which links failures are detected as well, by the lead worker: new peers have these paths, too.
    pub service_paths: Option<ServicePaths>,
    /// The peers' numbers and addresses.
    pub peers: Vec<Peer>,
    /// The node's name for people.
    pub node_name: String,
    /// What changes, for the event.
    pub summary: String,
}

/// Links over which failures are detected.
pub struct ServicePaths {
    /// The ports, and the names of their links.
    pub ports: Vec<(PortId, PathId)>,
    /// How peers are watched there.
    pub detector: failure_detector::Config,
    /// Numbers of the sessions come from it.
    pub seed: u64,
    /// A worker's share of the bytes per second of updates there.
    pub bytes_per_s_max: u32,
}

/// What came of an order: whether connections are being held against new rules, or why it was not obeyed.
pub type OrderOutcome = Result<bool, String>;

/// Whether an order is still to be obeyed: its giver takes it back when the data path does not come round to it, and must
/// know whether that was in time.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderClaim(Arc<AtomicBool>);

impl OrderClaim {
    /// Takes the order for one side; true for the side that is first.
    pub(super) fn take(&self) -> bool {
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
    /// Reads the configuration file again and puts it in force, or only reports what would change.
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

    /// Has an edge send a node no new connections, or send them again.
    ///
    /// # Errors
    /// This is no edge, or the edge cannot.
    fn drain_node(&self, node: NodeId, is_drained: bool) -> Result<(), OperationError> {
        let command = if is_drained { "drain" } else { "undrain" };
        let _ = node;
        Err(OperationError::Refused(format!("this is no edge: `mainstay {command}` without `edge` is for gateways")))
    }

    /// Has a node that replicates the kernel's connections change its role, and returns how ready it is.
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
