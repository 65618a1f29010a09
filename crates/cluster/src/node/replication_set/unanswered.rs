//! Connections that are not replicated because nobody has answered them: see [`Start`].
//!
//! | a withheld connection | |
//! |---|---|
//! | is answered, or goes on otherwise than by its initiator's first packet | it is replicated as it is then, unless it is deferred |
//! | is needed by others, or its client is established: the SYN proxy has answered in place of the server | it is never withheld |
//! | is refused by a RST, or ends | it is never replicated |
//! | is taken over, or pulled by a peer | it is replicated |
//! | is one of a node that is about to leave, or gives its addresses up | it is replicated before the addresses move |
//! | is there when a peer comes and receives everything | it is left out |

use alloc::vec;
use alloc::vec::Vec;

use flow::table::Slot;
use flow::{Connection, NodeId};
use network_functions::syn_proxy::{Phase, SynProxyState};
use replication::representation::Start;

use super::deferral::{Verdict, is_over};
use crate::pipeline::{Pipeline, TableChange};

/// The slots whose connections are not replicated yet.
#[derive(Debug)]
pub(in crate::node) struct Unanswered {
    start: Start,
    /// A bit for each slot.
    withheld: Vec<u64>,
    count: u32,
    /// None is withheld for the time being: the node is about to leave.
    is_suspended: bool,
}

impl Unanswered {
    /// None is withheld yet, in a table of so many slots.
    pub(in crate::node) fn new(connections_max: u32) -> Self {
        let words = connections_max.div_ceil(u64::BITS) as usize;
        Self { start: Start::default(), withheld: vec![0; words], count: 0, is_suspended: false }
    }

    /// From which packet on connections are replicated.
    pub(super) const fn start(&self) -> Start {
        self.start
    }

    pub(super) const fn set_start(&mut self, start: Start) {
        self.start = start;
    }

    /// Whether the connection in the slot is withheld.
    pub(in crate::node) fn is_withheld(&self, slot: Slot) -> bool {
        let word = self.withheld.get(slot.0 as usize / 64);
        word.is_some_and(|word| word >> (slot.0 % 64) & 1 != 0)
    }

    /// Connections that are withheld.
    pub(super) const fn len(&self) -> u32 {
        self.count
    }

    /// Takes all slots out whose connections are withheld.
    pub(super) fn take_all(&mut self) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (index, word) in self.withheld.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let bits = core::mem::take(word);
            let first = index as u32 * u64::BITS;
            slots.extend((0..u64::BITS).filter(|bit| bits >> bit & 1 != 0).map(|bit| Slot(first + bit)));
        }
        self.count = 0;
        slots
    }

    /// None is withheld from now on, until [`Unanswered::resume`].
    pub(super) const fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// Connections are withheld again.
    pub(super) const fn resume(&mut self) {
        self.is_suspended = false;
    }

    /// What is replicated of a change, of which deferral made `verdict`. `is_awaited`: first replies wait for the acknowledgement of their
    /// connection.
    pub(super) fn on_change(
        &mut self,
        pipeline: &Pipeline,
        change: &TableChange,
        node: NodeId,
        is_awaited: bool,
        verdict: Verdict,
    ) -> Verdict {
        match change {
            TableChange::Began { slot } => {
                self.clear(*slot);
                if is_awaited || self.is_suspended || self.is_due(pipeline, *slot) {
                    return verdict;
                }
                self.withhold(*slot);
                Verdict::Defer
            }
            TableChange::Changed { slot, .. } | TableChange::FunctionsChanged { slot } if self.is_withheld(*slot) => {
                if !self.is_due(pipeline, *slot) {
                    return Verdict::Defer;
                }
                self.clear(*slot);
                let is_change = matches!(change, TableChange::Changed { .. });
                match verdict {
                    Verdict::Replicate if is_change => Verdict::Begin,
                    Verdict::Replicate => Verdict::BeginAndReplicate,
                    verdict => verdict,
                }
            }
            TableChange::TakenOver { slot } | TableChange::Pulled { slot, .. } if self.is_withheld(*slot) => {
                self.clear(*slot);
                Verdict::BeginAndReplicate
            }
            TableChange::Copied { slot } => {
                if pipeline.connection(*slot).is_none_or(|connection| connection.owner != node) {
                    self.clear(*slot);
                }
                verdict
            }
            TableChange::Ended { slot, .. } | TableChange::Displaced { slot, .. } => {
                self.clear(*slot);
                verdict
            }
            _ => verdict,
        }
    }

    /// Whether the connection in the slot is to be replicated by now.
    fn is_due(&self, pipeline: &Pipeline, slot: Slot) -> bool {
        let is_reached =
            |connection: &Connection| self.start.is_reached(connection) || is_known_to_client(pipeline, connection);
        pipeline.is_needed_by_others(slot)
            || pipeline.connection(slot).is_none_or(|connection| is_reached(connection) && !is_over(connection))
    }

    fn withhold(&mut self, slot: Slot) {
        if let Some(word) = self.withheld.get_mut(slot.0 as usize / 64) {
            *word |= 1 << (slot.0 % 64);
            self.count += 1;
        }
    }

    fn clear(&mut self, slot: Slot) {
        if self.is_withheld(slot) {
            self.withheld[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
            self.count -= 1;
        }
    }
}

/// The SYN proxy has answered the client, which does not repeat its SYN therefore.
fn is_known_to_client(pipeline: &Pipeline, connection: &Connection) -> bool {
    let state = pipeline.chain().state_of::<SynProxyState>(connection);
    state.is_some_and(|state| !matches!(state.phase(), Phase::None | Phase::Watched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withheld_slots_are_counted_and_taken_once() {
        let mut unanswered = Unanswered::new(130);
        let slots = [0, 63, 64, 129].map(Slot);
        slots.iter().for_each(|slot| unanswered.withhold(*slot));
        assert_eq!(unanswered.len(), 4);
        unanswered.clear(Slot(63));
        unanswered.clear(Slot(63));
        assert_eq!((unanswered.len(), unanswered.is_withheld(Slot(63))), (3, false));
        assert!(!unanswered.is_withheld(Slot(1000)), "there is no such slot");
        assert_eq!(unanswered.take_all(), [0, 64, 129].map(Slot));
        assert_eq!((unanswered.len(), unanswered.take_all().len()), (0, 0));
    }
}
