//! What the kernel is asked to do, what it may answer, and what is counted of that.

use alloc::boxed::Box;

use flow::netfilter::{Entry, Expectation, Tuple};

/// Names a request until [`crate::SyncNode::handle_requests_done`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestToken {
    pub(crate) batch: u32,
    pub(crate) index: u32,
}

/// Something that is asked of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelAction {
    /// Create the connection.
    Create(Entry),
    /// Set what is said of the connection.
    Update(Entry),
    /// End the connection.
    Delete(Entry),
    /// Say what is known of the connection: by [`crate::SyncNode::handle_kernel_found`].
    Get {
        /// Its original tuple.
        tuple: Tuple,
        /// The zone that this tuple is of.
        zone: u16,
    },
    /// Expect a connection.
    CreateExpectation(Box<Expectation>),
    /// Expect it no more.
    DeleteExpectation(Box<Expectation>),
}

/// A request to the kernel. Those of a batch are to be executed in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRequest {
    /// Its name.
    pub token: RequestToken,
    /// What is asked.
    pub action: KernelAction,
}

/// Why the kernel does not do what it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KernelRefusal {
    /// There is one with one of the tuples.
    #[error("another connection has one of its tuples")]
    Exists,
    /// There is none.
    #[error("it is not there")]
    Missing,
    /// There is no room.
    #[error("its table is full: raise net.netfilter.nf_conntrack_max to that of the other nodes")]
    Full,
    /// This kernel does not know what is asked for.
    #[error("it lacks what the connection needs: load the modules (helpers, NAT) that the other nodes have")]
    Unsupported,
    /// This process may not.
    #[error("it does not allow it: run with CAP_NET_ADMIN")]
    NotPermitted,
    /// It finds the request unsound.
    #[error("it finds the request unsound: report it, with the versions of both kernels")]
    Invalid,
    /// Something else, by its number.
    #[error("error {0}")]
    Other(i32),
}

impl KernelRefusal {
    /// How many kinds there are.
    pub const KINDS: usize = 7;
    /// The names of the kinds, as in metrics.
    pub const NAMES: [&'static str; Self::KINDS] =
        ["exists", "missing", "full", "unsupported", "not_permitted", "invalid", "other"];

    /// Its place in [`Self::NAMES`].
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

/// What is counted of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InjectionCounters {
    /// Connections created.
    pub created: u64,
    /// Connections updated.
    pub updated: u64,
    /// Of those, the ones whose time alone was renewed.
    pub refreshed: u64,
    /// Connections deleted.
    pub deleted: u64,
    /// Connections asked after.
    pub asked: u64,
    /// Expectations created or deleted.
    pub expectations: u64,
    /// Refusals that were not to be expected, by kind.
    pub refused: [u64; KernelRefusal::KINDS],
    /// Deletions given up.
    pub deletions_given_up: u64,
}
