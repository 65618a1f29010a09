//! Requests to the kernel, its refusals, and their counters.

use alloc::boxed::Box;

use flow::netfilter::{Entry, Expectation, Tuple};

/// Identifies a request until [`crate::SyncNode::handle_requests_done`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestToken {
    pub(crate) batch: u32,
    pub(crate) index: u32,
}

/// A request to the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelAction {
    /// Create the connection.
    Create(Entry),
    /// Set the stated properties of the connection.
    Update(Entry),
    /// End the connection.
    Delete(Entry),
    /// Query the connection: answered by [`crate::SyncNode::handle_kernel_found`].
    Get {
        /// Its original tuple.
        tuple: Tuple,
        /// The zone of this tuple.
        zone: u16,
    },
    /// Expect a connection.
    CreateExpectation(Box<Expectation>),
    /// Delete an expectation.
    DeleteExpectation(Box<Expectation>),
}

/// A request to the kernel. A batch must be executed in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRequest {
    /// Its name.
    pub token: RequestToken,
    /// The request.
    pub action: KernelAction,
}

/// Why the kernel refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KernelRefusal {
    /// A connection with one of the tuples exists.
    #[error("another connection has one of its tuples")]
    Exists,
    /// The connection does not exist.
    #[error("it does not exist")]
    Missing,
    /// The table is full.
    #[error("its table is full: raise net.netfilter.nf_conntrack_max to that of the other nodes")]
    Full,
    /// This kernel does not support the request.
    #[error("it lacks what the connection needs: load the modules (helpers, NAT) that the other nodes have")]
    Unsupported,
    /// This process lacks permission.
    #[error("it does not permit it: run with CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel considers the request invalid.
    #[error("it considers the request invalid: report it, with the versions of both kernels")]
    Invalid,
    /// Another error, by number.
    #[error("error {0}")]
    Other(i32),
}

impl KernelRefusal {
    /// The number of kinds.
    pub const KINDS: usize = 7;
    /// The names of the kinds, as in metrics.
    pub const NAMES: [&'static str; Self::KINDS] =
        ["exists", "missing", "full", "unsupported", "not_permitted", "invalid", "other"];

    /// Its index in [`Self::NAMES`].
    #[must_use]
    pub const fn kind(self) -> usize {
        match self {
            Self::Exists => 0,
            Self::Missing => 1,
            Self::Full => 2,
            Self::Unsupported => 3,
            Self::NotPermitted => 4,
            Self::Invalid => 5,
            Self::Other(_) => 6,
        }
    }
}

/// Counters of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InjectionCounters {
    /// Connections created.
    pub created: u64,
    /// Connections updated.
    pub updated: u64,
    /// Of those, renewals of the timeout alone.
    pub refreshed: u64,
    /// Connections deleted.
    pub deleted: u64,
    /// Connections queried.
    pub asked: u64,
    /// Expectations created or deleted.
    pub expectations: u64,
    /// Unexpected refusals, by kind.
    pub refused: [u64; KernelRefusal::KINDS],
    /// Abandoned deletions.
    pub deletions_given_up: u64,
}
