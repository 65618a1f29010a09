//! Another chain and tracker for a pipeline that has connections.
//!
//! The exchange touches no record: the pause is the same whether there are ten connections or ten million. Holding the
//! connections against the new rules, where that is wanted, is a walk over the table in bounded steps; a connection whose
//! packet comes before the walk is judged then, so that none that is not allowed passes a packet.

use flow::Instant;
use flow::conntrack::Tracker;
use flow::table::Slot;
use network_functions::chain::Chain;
use network_functions::function::{CloseReason, Judgement};

use super::Pipeline;
use super::sharing::Rehearsal;

impl Pipeline {
    /// Takes a chain that [continues](Chain::continues) its own, and a tracker. Counters go on under their names;
    /// timeouts count from a connection's next packet.
    pub fn renew(&mut self, tracker: Tracker, chain: Chain) {
        debug_assert!(chain.continues(&self.chain), "the records are laid out for the chain that was");
        self.chain_counters = chain.continue_counters(&self.chain, &self.chain_counters);
        self.packets_use_states = chain.packets_use_states();
        if let Some(sharing) = &mut self.sharing {
            sharing.rehearsal = Rehearsal::new(&chain);
        }
        self.chain = chain;
        self.tracker = tracker;
    }

    /// From now on connections are held against the chain as it is now: see [`Pipeline::judge_some`].
    pub const fn begin_judging(&mut self) {
        self.unjudged_from = Some(Slot(0));
    }

    /// Leaves off, whatever is left.
    pub const fn stop_judging(&mut self) {
        self.unjudged_from = None;
    }

    /// Whether connections are being held against the chain.
    #[must_use]
    pub const fn is_judging(&self) -> bool {
        self.unjudged_from.is_some()
    }

    /// Looks at up to `connections_max` more connections, those of other masters only if `is_of_all`, holds them against the
    /// chain and ends those that it does not allow any more.
    pub fn judge_some(&mut self, now: Instant, connections_max: usize, is_of_all: bool) {
        for _ in 0..connections_max {
            let Some(from) = self.unjudged_from else { return };
            let Some(slot) = self.table.next_occupied(from) else {
                self.unjudged_from = None;
                return;
            };
            if is_of_all || self.connection(slot).is_some_and(|connection| connection.owner == self.node) {
                self.judge(now, slot);
            }
            self.unjudged_from = slot.0.checked_add(1).map(Slot);
        }
    }

    /// Holds a connection against the chain; what it does not allow is ended, and word of it left.
    pub(super) fn judge(&mut self, now: Instant, slot: Slot) -> Judgement {
        let Some(connection) = self.table.get_mut(slot) else { return Judgement::Stays };
        let judgement = self.chain.reevaluate(connection);
        if judgement == Judgement::Ends {
            // Word that a connection has ended counts only from its master.
            self.claim(now, slot);
            self.end(slot, CloseReason::Terminated);
            self.counters.disallowed += 1;
        }
        judgement
    }
}
