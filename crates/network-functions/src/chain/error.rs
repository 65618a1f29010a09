//! Errors of building a chain.

use flow::connection::FUNCTION_STATE_BYTES_MAX;

use super::layout::STATE_ALIGN_BYTES_MAX;

/// The maximum number of functions in a chain.
pub const CHAIN_FUNCTIONS_MAX: usize = 16;

/// Why a chain cannot be built: a mistake in the configuration, or in a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChainError {
    /// More than [`CHAIN_FUNCTIONS_MAX`].
    #[error("the chain has {0} functions, {CHAIN_FUNCTIONS_MAX} are allowed: remove some")]
    TooManyFunctions(usize),
    /// The states do not fit the record.
    #[error(
        "the states of the chain up to `{function}` take {end_bytes} bytes of each connection, \
         {FUNCTION_STATE_BYTES_MAX} are there: take a function out or make its state smaller"
    )]
    StatesTooLarge {
        /// The first function that does not fit.
        function: &'static str,
        /// Where its state would end.
        end_bytes: usize,
    },
    /// A function joins a chain with existing connections, which cannot get its initial state.
    #[error(
        "`{0}` cannot join a running chain: its connections lack the function's state, and an empty one is not its default"
    )]
    CannotJoin(&'static str),
    /// A state is aligned more strictly than the record.
    #[error("the state of `{0}` requires an alignment above {STATE_ALIGN_BYTES_MAX} bytes: use smaller fields")]
    StateAlignment(&'static str),
    /// Two functions have the same name, and so would their counters.
    #[error("`{0}` is in the chain twice: remove one")]
    DuplicateName(&'static str),
    /// Two functions encode their states under one attribute, which would be ambiguous.
    #[error(
        "`{first}` and `{second}` both send their state as attribute {attribute}: give one of them a number of its own"
    )]
    DuplicateAttribute {
        /// The function that comes first.
        first: &'static str,
        /// The function that comes later.
        second: &'static str,
        /// Their attribute.
        attribute: u16,
    },
}
