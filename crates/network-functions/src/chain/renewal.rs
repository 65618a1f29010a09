//! Replacing a chain while connections continue.
//!
//! Replacing the chain does not touch records: a million of them would take longer than the peers' failure detection
//! permits. Instead the new chain keeps the offset of every state, also of removed functions, which find their states
//! if they are added again.

use alloc::collections::BTreeMap;
use alloc::string::String;

use flow::{Connection, Direction, DropReason};

use super::placement::ChainLayout;
use super::{Chain, ChainCounters, ChainEntry};
use crate::function::{ReevaluationOutcome, TranslatedTuples};

impl Chain {
    /// The layout for building a chain that replaces this one ([`super::ChainBuilder::build_within`]).
    #[must_use]
    pub fn layout(&self) -> ChainLayout {
        self.layout.in_use()
    }

    /// Whether this chain has the states of `earlier` at the same positions.
    #[must_use]
    pub fn continues(&self, earlier: &Self) -> bool {
        self.layout.continues(&earlier.layout)
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
        let outcome = self.reevaluate_by(connection, |_| true);
        self.set_denied(connection, outcome == ReevaluationOutcome::Denied);
        outcome
    }

    /// The same, by those functions only.
    pub(super) fn reevaluate_by(
        &self,
        connection: &mut Connection,
        is_asked: impl Fn(&ChainEntry) -> bool,
    ) -> ReevaluationOutcome {
        let class = self.class(connection);
        let mut outgoing = connection.original;
        for link in &self.links {
            let state = &mut connection.functions[link.state.clone()];
            if is_asked(link) && link.function.reevaluate(state, &outgoing, class) == ReevaluationOutcome::Denied {
                return ReevaluationOutcome::Denied;
            }
            if link.function.translates() {
                outgoing = connection.reply.inverse();
            }
        }
        ReevaluationOutcome::Allowed
    }

    /// Whether a connection may continue after an input of a function has changed, for example a backend's health, or what it
    /// translates to.
    ///
    /// # Errors
    /// It must end; the reason is that of its further packets.
    pub fn may_continue(&self, connection: &Connection) -> Result<(), DropReason> {
        let outgoing = connection.translated(Direction::Original);
        let mut tuples = TranslatedTuples { original: connection.original, outgoing, is_untouched: true };
        for link in &self.links {
            link.function.may_continue(&connection.functions[link.state.clone()], &tuples)?;
            tuples.is_untouched &= !link.function.translates();
        }
        Ok(())
    }
}
