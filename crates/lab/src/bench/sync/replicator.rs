//! What a daemon that replicates a router's connections is to the measurement: `mainstay sync` or conntrackd.
//!
//! ```text
//!   started ──► check_ready ──► (traffic) ──► kill, on the one side ──► take over, begin_as_primary on the other
//! ```

use packet_io::namespace::Namespace;

use crate::bench::BenchError;
use crate::bench::kernel_routers::prepared::Prepared;

/// A daemon in its router's namespace. Dropping it ends it.
pub(super) trait Replicator {
    /// The number of its process.
    fn process(&self) -> u32;

    /// Returns an error with the end of its log if it has ended.
    ///
    /// # Errors
    /// It has.
    fn check_running(&mut self) -> Result<(), BenchError>;

    /// Returns what is missing until it receives from the other and replicates its router's connections to it.
    ///
    /// # Errors
    /// What is missing.
    fn check_ready(&self, node: &Namespace) -> Result<(), String>;

    /// Connections of the other router that this one could go on with.
    ///
    /// # Errors
    /// It does not answer.
    fn known(&self, node: &Namespace) -> Result<u64, BenchError>;

    /// Kills it as a power cut would.
    ///
    /// # Errors
    /// It is gone already.
    fn kill(&mut self) -> Result<(), BenchError>;

    /// Makes ready what the manager calls on the router that is to take over, before the addresses move.
    ///
    /// # Errors
    /// A process cannot be started.
    fn prepare_take_over(&self, node: &Namespace) -> Result<Prepared, BenchError>;

    /// Calls it, and waits until it has ended.
    ///
    /// # Errors
    /// The daemon does not do it.
    fn take_over(&self, prepared: Prepared) -> Result<(), BenchError>;

    /// What the manager calls once the addresses have moved.
    ///
    /// # Errors
    /// The daemon does not do it.
    fn begin_as_primary(&self, node: &Namespace) -> Result<(), BenchError>;
}
