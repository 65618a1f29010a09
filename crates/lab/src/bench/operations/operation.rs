//! What is measured: an operation with its inputs.

use crate::bench::BenchError;

/// An operation that is carried out many times at once.
pub(super) trait Operation {
    /// How often a run carries it out.
    fn times(&self) -> u64;

    /// Makes the inputs of the next run, which is not measured.
    fn prepare(&mut self) -> Result<(), BenchError>;

    /// Carries it out.
    fn run(&mut self) -> Result<(), BenchError>;
}

/// An operation with its inputs; `None` where this processor lacks the instructions.
pub(super) type Made = Result<Option<Box<dyn Operation>>, BenchError>;
