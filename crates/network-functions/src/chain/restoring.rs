//! Restores connections from their tuples; see [`crate::restoration`].

use alloc::vec::Vec;

use flow::{Connection, PortId, Tuple};

use super::{Chain, ChainEntry};
use crate::class::Class;
use crate::restoration::{CANDIDATES_MAX, ChainUnrestorable, ORIGINALS_MAX, Restored, Restoring};

impl Chain {
    /// Whether a function may change the tuples of connections.
    #[must_use]
    pub fn translates(&self) -> bool {
        self.links.iter().any(|link| link.function.translates())
    }

    /// Whether every function's state follows from a connection's tuple, except for connections that
    /// [`Chain::is_restorable`] rejects.
    ///
    /// # Errors
    /// The first function whose state does not follow, with the reason and the remedy.
    pub fn restorable(&self) -> Result<(), ChainUnrestorable> {
        let refusals = self.links.iter().filter_map(|link| {
            let cause = link.function.restorable().err()?;
            Some(ChainUnrestorable { function: link.function.name(), cause })
        });
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    /// Computes the state of a connection as if it began with `original` now. `None` when a function would deny it, so
    /// that a filter's false positive does not bypass the rules, or when a state does not follow from the tuple.
    ///
    /// `ingress` is the port of a packet in the original direction; `None` when only a reply has arrived, and then
    /// the connection may have begun at any port.
    ///
    /// Nothing is counted or logged; the caller checks whether the reply tuple is in use.
    #[must_use]
    pub fn restore(&self, original: &Tuple, ingress: Option<PortId>) -> Option<Restored> {
        self.restore_as(original, ingress, None)
    }

    /// As [`Chain::restore`], of a connection with this class, if it is known.
    #[must_use]
    pub fn restore_as(&self, original: &Tuple, ingress: Option<PortId>, class: Option<Class>) -> Option<Restored> {
        let mut restoring = Restoring { known_class: class, ..Restoring::new(*original, ingress) };
        let mut functions = self.default_states;
        for link in &self.links {
            link.function.restore(&mut functions[link.state.clone()], &mut restoring)?;
        }
        Some(Restored { reply: restoring.reply, functions })
    }

    /// Whether [`Chain::restore`] reproduces `connection`, as far as its packets show. Other connections must be
    /// replicated precisely to survive.
    #[must_use]
    pub fn is_restorable(&self, connection: &Connection) -> bool {
        let stays =
            self.links.iter().all(|link| link.function.is_restorable(&connection.functions[link.state.clone()]));
        stays && self.restore(&connection.original, None).is_some_and(|restored| restored.reply == connection.reply)
    }

    /// The class of a connection that [`Chain::restore_as`] reproduces with it, while [`Chain::restore`] does not: it is not that of the port. `None` for all
    /// other connections.
    #[must_use]
    pub fn class_to_restore(&self, connection: &Connection) -> Option<Class> {
        self.classifier?;
        let state = |link: &ChainEntry| &connection.functions[link.state.clone()];
        let needs_class = self.links.iter().any(|link| !link.function.is_restorable(state(link)));
        let class = self.class(connection);
        let is_enough = needs_class && self.links.iter().all(|link| link.function.is_restorable_by_class(state(link)));
        let restored = || self.restore_as(&connection.original, None, Some(class));
        (is_enough && restored().is_some_and(|restored| restored.reply == connection.reply)).then_some(class)
    }

    /// Appends to `originals` the distinct original tuples for which [`Chain::restore`] yields the reply tuple `reply`.
    /// Without translation that is one, the inverse. Appends nothing when there are more than [`ORIGINALS_MAX`], or
    /// more than [`CANDIDATES_MAX`] candidates. Returns the number of tuples tried, which is the cost of the call.
    pub fn originals_of(&self, reply: &Tuple, originals: &mut Vec<Tuple>) -> usize {
        let first = originals.len();
        originals.push(reply.inverse());
        let (mut next, mut is_distinct) = (Vec::new(), true);
        for link in self.links.iter().rev().filter(|link| link.function.translates()) {
            // Each function returns a tuple once for each input tuple.
            is_distinct &= originals.len() - first == 1;
            for outgoing in originals.drain(first..) {
                if next.len() <= CANDIDATES_MAX {
                    link.function.incoming_of(&outgoing, &mut next);
                }
            }
            originals.append(&mut next);
        }
        let mut candidates = originals.split_off(first);
        if !is_distinct {
            candidates.sort_unstable();
            candidates.dedup();
        }
        let made = candidates.len();
        if made > CANDIDATES_MAX {
            return made;
        }
        candidates.retain(|original| self.restore(original, None).is_some_and(|made| made.reply == *reply));
        if candidates.len() <= ORIGINALS_MAX {
            originals.append(&mut candidates);
        }
        made
    }
}

#[cfg(test)]
mod tests;
