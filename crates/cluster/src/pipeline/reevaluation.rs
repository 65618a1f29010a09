//! Re-evaluation: after a reload, connections are checked against the new rules; after a function's input has changed (a backend
//! has failed), against that alone.
//!
//! The reload itself touches no record: the pause is the same whether there are ten connections or ten million. Where
//! re-evaluation is wanted, it goes through the table in bounded steps. A connection whose packet comes first is re-evaluated
//! then: a connection that is not allowed any more passes no packet.

use flow::table::Slot;
use flow::{DropReason, Instant};
use network_functions::function::{CloseReason, ReevaluationOutcome};

use super::connections::Connections;

/// A re-evaluation, if one is running.
#[derive(Default)]
pub(super) struct Reevaluation {
    /// Connections from this slot on are still to be re-evaluated.
    next: Option<Slot>,
    /// By the rules, too, not only by the functions' inputs.
    by_rules: bool,
}

impl Reevaluation {
    /// Begins with the first connection. One by the rules that is running goes on as such.
    pub(super) const fn begin(&mut self, by_rules: bool) {
        self.by_rules = by_rules || (self.is_active() && self.by_rules);
        self.next = Some(Slot(0));
    }

    /// Stops, whatever is left.
    pub(super) const fn stop(&mut self) {
        self.next = None;
    }

    pub(super) const fn is_active(&self) -> bool {
        self.next.is_some()
    }

    /// Re-evaluates a connection whose packet has come, if that is still to be done. If it has ended, the reason for its packets.
    #[inline]
    pub(super) fn ends(&self, connections: &mut Connections, now: Instant, slot: Slot) -> Option<DropReason> {
        let is_due = self.next.is_some_and(|next| next <= slot);
        if is_due { reevaluate(connections, now, slot, self.by_rules) } else { None }
    }

    /// Re-evaluates up to `connections_max` more connections, those of other owners only if `is_of_all`.
    pub(super) fn step(
        &mut self,
        connections: &mut Connections,
        now: Instant,
        connections_max: usize,
        is_of_all: bool,
    ) {
        for _ in 0..connections_max {
            let Some(next) = self.next else { return };
            let Some(slot) = connections.table.next_occupied(next) else {
                self.next = None;
                return;
            };
            let is_own = |connections: &Connections| {
                connections.table.get(slot).is_some_and(|connection| connection.owner == connections.node)
            };
            if is_of_all || is_own(connections) {
                reevaluate(connections, now, slot, self.by_rules);
            }
            self.next = slot.0.checked_add(1).map(Slot);
        }
    }
}

/// Re-evaluates a connection by the chain, and ends it if it is not allowed any more; the reason if so.
fn reevaluate(connections: &mut Connections, now: Instant, slot: Slot, by_rules: bool) -> Option<DropReason> {
    let connection = connections.table.get_mut(slot)?;
    let chain = &connections.functions.chain;
    let is_denied = by_rules && chain.reevaluate(connection) == ReevaluationOutcome::Denied;
    let reason = if is_denied { DropReason::FirewallDenied } else { chain.may_continue(connection).err()? };
    if reason == DropReason::BackendFailed {
        connections.end_failed(now, slot);
    } else {
        // Peers accept the end of a connection only from its owner.
        connections.claim(now, slot);
        connections.end(slot, CloseReason::Terminated);
    }
    connections.counters.disallowed += 1;
    Some(reason)
}
