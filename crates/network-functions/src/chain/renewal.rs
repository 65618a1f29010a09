//! A chain in place of another, whose connections go on.
//!
//! Records are not touched when the chain changes: a million of them would take longer than peers wait for a sign of
//! life. Instead the new chain keeps every state where the old one had it, also the states of functions that are gone,
//! which find it again if they come back.

use alloc::collections::BTreeMap;
use alloc::string::String;

use flow::Connection;

use super::placement::ChainLayout;
use super::{Chain, ChainCounters};
use crate::function::Judgement;

impl Chain {
    /// The layout within which a chain is to be built that takes this one's place ([`super::ChainBuilder::build_within`]).
    #[must_use]
    pub fn layout(&self) -> ChainLayout {
        self.layout.in_use()
    }

    /// Whether this chain finds the states of `earlier` where that one left them.
    #[must_use]
    pub fn continues(&self, earlier: &Self) -> bool {
        self.layout.continues(&earlier.layout)
    }

    /// Counters for this chain that go on from those of `earlier`, where both count under the same name.
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

    /// Whether a connection that began under an earlier configuration may go on under this one: every function's
    /// `reevaluate` in chain order, until one says no.
    pub fn reevaluate(&self, connection: &mut Connection) -> Judgement {
        let mut outgoing = connection.original;
        for link in &self.links {
            let state = &mut connection.functions[link.state.clone()];
            if link.function.reevaluate(state, &outgoing) == Judgement::Ends {
                return Judgement::Ends;
            }
            if link.function.translates() {
                outgoing = connection.reply.inverse();
            }
        }
        Judgement::Stays
    }
}
