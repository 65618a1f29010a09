//! A state: two nodes, what is between them, and what may still happen.

use std::collections::BTreeMap;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use flow::Instant;

use super::Exploration;
use crate::message::Header;
use crate::session::Session;
use crate::session::tests::harness::Table;

/// What must hold in every state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Property {
    /// Of a connection, nothing older is applied after something newer.
    NeverBackwards,
    /// No replica goes while its connection lives: a deletion never hits the next connection of its tuple, and no full
    /// synchronisation sweeps what lives.
    LivingCopiesStay,
    /// No replica comes back after its end was applied.
    TheEndedStaysEnded,
    /// A session gives each number once, one after the other, and its oldest unsettled number never falls.
    NumbersAreUsedOnce,
    /// What waits and what is in flight stays within the limits of the configuration.
    WithinBounds,
    /// A node that leaves sends Goodbye and nothing more.
    GoodbyeIsTheLastWord,
    /// No datagram, no time and no order of them makes a session panic.
    NeverPanics,
}

/// How a property's condition is handed to the checker.
type Condition = fn(&Exploration, &State) -> bool;

impl Property {
    /// Each with its name and the condition that holds as long as it was not seen to be broken.
    pub(super) const ALL: [(&'static str, Condition); 7] = [
        ("never backwards", |_, state| state.broken != Some(Self::NeverBackwards)),
        ("living copies stay", |_, state| state.broken != Some(Self::LivingCopiesStay)),
        ("the ended stays ended", |_, state| state.broken != Some(Self::TheEndedStaysEnded)),
        ("numbers are used once", |_, state| state.broken != Some(Self::NumbersAreUsedOnce)),
        ("within bounds", |_, state| state.broken != Some(Self::WithinBounds)),
        ("Goodbye is the last word", |_, state| state.broken != Some(Self::GoodbyeIsTheLastWord)),
        ("never panics", |_, state| state.broken != Some(Self::NeverPanics)),
    ];
}

/// A node, and what the checks remember of it.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) session: Session,
    pub(super) table: Table,
    /// Of each tuple, the youngest incarnation whose replica was removed.
    pub(super) removed: BTreeMap<u32, u32>,
    /// The session that last sent, its next number and its oldest unsettled one.
    pub(super) numbering: Option<(u32, u32, u32)>,
    /// How often the node was started anew; with this its random numbers are given.
    pub(super) starts: u8,
    /// Whether it has said Goodbye.
    pub(super) left: bool,
}

/// A datagram in flight.
#[derive(Clone)]
pub(super) struct Flight {
    pub(super) to: usize,
    pub(super) sent_at: Instant,
    pub(super) bytes: Vec<u8>,
}

impl Flight {
    /// The session that it is of.
    pub(super) fn session(&self) -> u32 {
        let (header, _) = Header::parse(&self.bytes).expect("sessions send datagrams");
        header.session
    }
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) now: Instant,
    pub(super) nodes: [Arc<Node>; 2],
    /// In the order of [`super::normal`]: the oldest first.
    pub(super) wire: Vec<Arc<Flight>>,
    pub(super) changes_left: u8,
    pub(super) faults_left: u8,
    /// Lives of connections begun so far.
    pub(super) lives: u32,
    pub(super) broken: Option<Property>,
    /// Hash of the normal form.
    pub(super) normal: u64,
}

impl State {
    pub(super) fn break_property(&mut self, property: Property) {
        self.broken.get_or_insert(property);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.normal == other.normal
    }
}

impl core::hash::Hash for State {
    fn hash<H: core::hash::Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.normal);
    }
}

impl core::fmt::Debug for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| {
                let status = node.session.status();
                let (sent_all, received_all, in_flight) = (status.sent_all, status.received_all, status.in_flight);
                std::format!("{:?} sent all {sent_all} received all {received_all} in flight {in_flight}", status.link)
            })
            .collect();
        write!(f, "{nodes:?}, {} on the wire, broken: {:?}", self.wire.len(), self.broken)
    }
}
