//! Replacing a chain while connections continue.
//!
//! Replacing the chain does not touch records: a million of them would take longer than the peers' failure detection
//! permits. Instead the new chain keeps the offset of every state, also of removed functions, which find their states
//! if they are added again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use flow::Connection;
use flow::connection::FUNCTION_STATE_BYTES_MAX;

use super::erased::ErasedFunction;
use super::layout::{Misfit, place};
use super::{Chain, ChainCounters, ChainError};
use crate::function::ReevaluationOutcome;

/// The positions in records of the states of a chain, and of those before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainLayout {
    placed: Vec<Placed>,
    /// Every state at its default.
    defaults: [u8; FUNCTION_STATE_BYTES_MAX],
    /// Whether a chain is running. Functions of the first chain find records initialised by [`Chain::init`]; later ones
    /// find existing records.
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
}

impl Chain {
    /// The layout for building a chain that replaces this one ([`super::ChainBuilder::build_within`]).
    #[must_use]
    pub fn layout(&self) -> ChainLayout {
        ChainLayout { is_in_use: true, ..self.layout.clone() }
    }

    /// Whether this chain has the states of `earlier` at the same positions.
    #[must_use]
    pub fn continues(&self, earlier: &Self) -> bool {
        earlier.layout.placed.iter().all(|placed| self.layout.placed.contains(placed))
    }

    /// Counters for this chain that continue those of `earlier` with the same names.
    #[must_use]
    pub fn continue_counters(&self, earlier: &Self, counters: &ChainCounters) -> ChainCounters {
        let before: BTreeMap<&str, u64> =
            earlier.counter_names.iter().map(String::as_str).zip(counters.values.iter().copied()).collect();
        let values = self.counter_names.iter().map(|name| before.get(name.as_str()).copied().unwrap_or(0));
        let of_function = |name: &str| {
            let place = earlier.names().position(|known| known == name)?;
            counters.functions.get(place).copied()
        };
        let functions = self.names().map(|name| of_function(name).unwrap_or_default());
        ChainCounters { values: values.collect(), functions: functions.collect() }
    }

    /// Re-evaluates a connection that began under an earlier configuration: calls every function's `reevaluate` in
    /// chain order, until one denies it.
    pub fn reevaluate(&self, connection: &mut Connection) -> ReevaluationOutcome {
        let mut outgoing = connection.original;
        for link in &self.links {
            let state = &mut connection.functions[link.state.clone()];
            if link.function.reevaluate(state, &outgoing) == ReevaluationOutcome::Denied {
                return ReevaluationOutcome::Denied;
            }
            if link.function.translates() {
                outgoing = connection.reply.inverse();
            }
        }
        ReevaluationOutcome::Allowed
    }
}
