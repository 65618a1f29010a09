//! What the table's changes make the node tell its peers.

use flow::Instant;
use flow::conntrack::Change;
use flow::table::Slot;
use replication::Handle;
use replication::representation::is_worth_telling;

use super::{Node, peer, sharing};
use crate::pipeline::TableChange;

impl Node {
    /// Marks what the pipeline changed for every peer's session.
    pub(super) fn tell_changes(&mut self, now: Instant) {
        let changes = self.pipeline.take_changes();
        for change in &changes {
            if self.keeps_to_itself(now, change) {
                continue;
            }
            match change {
                TableChange::Began { slot } => self.tell_begun(now, *slot),
                TableChange::Copied { slot } => {
                    self.note_copied_compactly(*slot);
                    self.note_copied(*slot);
                }
                TableChange::TakenOver { slot } => {
                    self.note_copied(*slot);
                    if !self.tell_compactly(now, *slot) {
                        self.tell_taken_over(*slot);
                    }
                }
                TableChange::FunctionsChanged { slot } => {
                    self.note_copied(*slot);
                    if !self.tell_functions_compactly(now, *slot) {
                        peer::sessions(&mut self.peers).for_each(|session| session.mark_changed(Handle(slot.0)));
                    }
                }
                TableChange::Changed { slot, change, previous_state } => {
                    if !self.tell_changed_compactly(now, *slot, *change, *previous_state) {
                        self.tell_changed(*slot, *change, *previous_state);
                    }
                }
                TableChange::Ended { slot, ended } => {
                    if self.tell_left_compactly(*slot, &ended.original) {
                        self.tell_ended(*slot, ended);
                    }
                }
                TableChange::Displaced { slot, original } => {
                    self.tell_left_compactly(*slot, original);
                }
                TableChange::Refused { to, ended } => self.tell_refused(*to, ended),
            }
        }
        self.pipeline.return_changes(changes);
    }

    /// A connection is told for the first time.
    pub(super) fn tell_begun(&mut self, now: Instant, slot: Slot) {
        // The slot may have held a copy of which the sessions still know something.
        peer::sessions(&mut self.peers).for_each(|session| session.forget(Handle(slot.0)));
        if self.tell_compactly(now, slot) {
            return;
        }
        let is_awaited = !self.hold_first_reply.is_zero();
        for session in peer::sessions(&mut self.peers) {
            session.mark_changed(Handle(slot.0));
            if is_awaited {
                session.ask_for_acknowledgement();
            }
        }
    }

    fn tell_changed(&mut self, slot: Slot, change: Change, previous_state: u8) {
        let Some(connection) = self.pipeline.connection(slot) else { return };
        let (protocol, state) = (connection.original.protocol, connection.protocol.state);
        if is_worth_telling(self.selection, protocol, previous_state, state, change)
            || sharing::is_worth_telling(connection, change)
        {
            peer::sessions(&mut self.peers).for_each(|session| session.mark_changed(Handle(slot.0)));
        }
    }
}
