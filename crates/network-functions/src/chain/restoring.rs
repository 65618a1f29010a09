//! Connections made again from their tuples; see [`crate::restoration`].

use alloc::vec::Vec;

use flow::{Connection, PortId, Tuple};

use super::Chain;
use crate::restoration::{CANDIDATES_MAX, ChainUnrestorable, ORIGINALS_MAX, Restored, Restoring};

impl Chain {
    /// Whether every function's state follows from a connection's tuple, but for connections of which
    /// [`Chain::is_restorable`] says otherwise.
    ///
    /// # Errors
    /// The first function whose state does not, why not, and what to do.
    pub fn restorable(&self) -> Result<(), ChainUnrestorable> {
        let refusals = self.links.iter().filter_map(|link| {
            let why = link.function.restorable().err()?;
            Some(ChainUnrestorable { function: link.function.name(), why })
        });
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    /// A connection as it would be had it begun with `original` now; `None` when a function would not let it begin (the
    /// rules deny it, so that nothing that they deny passes by a filter's false hit) or its state is more than the tuple
    /// says. `ingress` is where a packet of the original direction came in; `None` when only a reply has come, and then
    /// nobody asks where the connection came in.
    ///
    /// Nothing is counted or logged, and whether the reply tuple is taken is for the caller to look up.
    #[must_use]
    pub fn restore(&self, original: &Tuple, ingress: Option<PortId>) -> Option<Restored> {
        let mut restoring = Restoring::new(*original, ingress);
        let mut functions = self.default_states;
        for link in &self.links {
            link.function.restore(&mut functions[link.state.clone()], &mut restoring)?;
        }
        Some(Restored { reply: restoring.reply, functions })
    }

    /// Whether [`Chain::restore`] makes `connection` again as it is, as far as its packets can tell. One for which it does
    /// not must be told precisely to survive.
    #[must_use]
    pub fn is_restorable(&self, connection: &Connection) -> bool {
        let stays =
            self.links.iter().all(|link| link.function.is_restorable(&connection.functions[link.state.clone()]));
        stays && self.restore(&connection.original, None).is_some_and(|restored| restored.reply == connection.reply)
    }

    /// Adds to `originals` the tuples that a connection to which a packet with `reply` is an answer may have begun with, each
    /// once: for each, [`Chain::restore`] gives this reply tuple. Without translation that is one, the inverse. Nothing is
    /// added when there are more than [`ORIGINALS_MAX`], or more than [`CANDIDATES_MAX`] would have to be tried. Returns how many
    /// tuples were made for that, which is what the call cost.
    pub fn originals_of(&self, reply: &Tuple, originals: &mut Vec<Tuple>) -> usize {
        let first = originals.len();
        originals.push(reply.inverse());
        let (mut next, mut is_distinct) = (Vec::new(), true);
        for link in self.links.iter().rev().filter(|link| link.function.translates()) {
            // Each function names a tuple once for each that it is asked about.
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
