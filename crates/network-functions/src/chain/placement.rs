//! The positions in records of the states of a chain's functions, including those of earlier chains.

use alloc::vec::Vec;
use core::ops::Range;

use flow::connection::FUNCTION_STATE_BYTES_MAX;

use super::erased::ErasedFunction;
use super::error::ChainError;
use super::layout::{Misfit, place};

/// The positions in records of the states of a chain, and of those before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainLayout {
    placed: Vec<Placed>,
    /// Every state at its default.
    defaults: [u8; FUNCTION_STATE_BYTES_MAX],
    /// Whether a chain is running. Functions of the first chain find records initialised by
    /// [`Chain::init`](super::Chain::init); later ones find existing records.
    is_in_use: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Placed {
    name: &'static str,
    attribute: u16,
    state: Range<usize>,
}

impl Default for ChainLayout {
    fn default() -> Self {
        Self { placed: Vec::new(), defaults: [0; FUNCTION_STATE_BYTES_MAX], is_in_use: false }
    }
}

impl ChainLayout {
    /// Every state at its default, to begin and to decode from.
    pub(super) const fn defaults(&self) -> [u8; FUNCTION_STATE_BYTES_MAX] {
        self.defaults
    }

    /// The position of the function's state, assigned if it had none.
    pub(super) fn place(&mut self, function: &dyn ErasedFunction) -> Result<Range<usize>, ChainError> {
        let (name, attribute) = (function.name(), function.attribute());
        let layout = function.layout();
        let known = self.placed.iter().find(|placed| {
            placed.name == name && placed.attribute == attribute && placed.state.len() == layout.size_bytes
        });
        if let Some(known) = known {
            return Ok(known.state.clone());
        }
        let used_bytes = self.placed.iter().map(|placed| placed.state.end).max().unwrap_or(0);
        let state = place(used_bytes, layout).map_err(|misfit| match misfit {
            Misfit::Size { end_bytes } => ChainError::StatesTooLarge { function: name, end_bytes },
            Misfit::Alignment => ChainError::StateAlignment(name),
        })?;
        let default = &mut self.defaults[state.clone()];
        function.write_default(default);
        if self.is_in_use && default.iter().any(|byte| *byte != 0) {
            return Err(ChainError::CannotJoin(name));
        }
        self.placed.push(Placed { name, attribute, state: state.clone() });
        Ok(state)
    }

    /// Where the state with this attribute begins.
    pub(super) fn position(&self, attribute: u16) -> Option<usize> {
        self.placed.iter().rev().find(|placed| placed.attribute == attribute).map(|placed| placed.state.start)
    }

    /// The same for a chain that comes after one with connections.
    pub(super) fn in_use(&self) -> Self {
        Self { is_in_use: true, ..self.clone() }
    }

    /// Whether every state lies where `earlier` has it.
    pub(super) fn continues(&self, earlier: &Self) -> bool {
        earlier.placed.iter().all(|placed| self.placed.contains(placed))
    }
}
