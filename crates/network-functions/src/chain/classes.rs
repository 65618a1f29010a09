//! The classes of connections: where the chain has them, and what follows when one changes.

use flow::{Connection, DropReason};

use super::Chain;
use super::erased::Processed;
use crate::class::Class;
use crate::function::{ReevaluationOutcome, Verdict, state_attribute};

impl Chain {
    /// The position of the class's number in [`Connection::functions`], if the chain or one before it has a classifier.
    #[must_use]
    pub fn class_position(&self) -> Option<usize> {
        self.layout.position(state_attribute::CLASSIFIER)
    }

    /// The class of a connection. Without a classifier in the chain it is unknown.
    #[must_use]
    #[inline]
    pub fn class(&self, connection: &Connection) -> Class {
        let Some(index) = self.classifier else { return Class::Unknown };
        let link = &self.links[index];
        Class::from_number(connection.functions[link.state.start])
    }

    /// The class of a connection has changed with a packet: functions that decide by class re-evaluate it.
    #[cold]
    pub(super) fn follow_class(&self, connection: &mut Connection, processed: Processed) -> Processed {
        if !self.decides_by_class {
            return processed;
        }
        let outcome = self.reevaluate_by(connection, |link| link.function.decides_by_class());
        let is_denied = outcome == ReevaluationOutcome::Denied;
        self.set_denied(connection, is_denied);
        let verdict = match processed.verdict {
            Verdict::Forward if is_denied => Verdict::Drop(DropReason::FirewallDenied),
            verdict => verdict,
        };
        Processed { verdict, states_changed: true }
    }

    /// Records with the class whether a function denies the connection.
    pub(super) fn set_denied(&self, connection: &mut Connection, is_denied: bool) {
        if let Some(index) = self.classifier {
            let link = &self.links[index];
            link.function.set_denied(&mut connection.functions[link.state.clone()], is_denied);
        }
    }
}
