//! Event filters that the kernel applies before events use the socket's buffer.
//!
//! A filter lists the events to ignore. It becomes a classic BPF program that the kernel runs on every event's message
//! before it queues it.
//!
//! Events that the program cannot classify pass, as do those excluded only by conditions beyond the program's
//! [`INSTRUCTIONS_MAX`]. A caller that relies on a filter must apply it again.

mod assembler;
mod program;
#[cfg(test)]
mod tests;

use flow::Prefix;
use flow::netfilter::{Entry, TcpState};

use super::{Cause, Event};

pub use assembler::INSTRUCTIONS_MAX;
pub(super) use program::Program;

/// States of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpStates(u16);

impl TcpStates {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        TcpState::ALL.into_iter().collect()
    }

    /// Whether the state is one of them.
    #[must_use]
    pub const fn contains(self, state: TcpState) -> bool {
        self.0 & 1 << state as u8 != 0
    }
}

impl FromIterator<TcpState> for TcpStates {
    fn from_iter<I: IntoIterator<Item = TcpState>>(states: I) -> Self {
        Self(states.into_iter().fold(0, |bits, state| bits | 1 << state as u8))
    }
}

/// Connections to ignore: those that match all conditions set here. With none set, it matches no connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ignore {
    /// An end point lies in one of these networks: the source of the original or of the reply tuple. Addresses of
    /// translation do not count. Empty: no condition.
    pub addresses: Vec<Prefix>,
    /// Of this protocol.
    pub protocol: Option<u8>,
    /// TCP in one of these states. The end of a connection is in no state.
    pub tcp_states: Option<TcpStates>,
    /// The mark has this value in the bits of the mask: value and mask. An event without a mark has mark zero.
    pub mark: Option<(u32, u32)>,
    /// Of this zone.
    pub zone: Option<u16>,
}

impl Ignore {
    /// Whether any condition is set.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        *self != Self::default()
    }
}

/// The events to filter out. By default none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    /// Rules: an event that matches one of them is ignored.
    pub ignore: Vec<Ignore>,
    /// Only events with these TCP states pass; ends always pass. `None`: all.
    pub tcp_states: Option<TcpStates>,
    /// Only connections of these protocols pass. `None`: all.
    pub protocols: Option<Vec<u8>>,
    /// Netlink ports of programs whose requests' events are ignored, including expectations.
    pub programs: Vec<u32>,
}

impl EventFilter {
    /// The number of rules in [`EventFilter::ignore`] that do not fit the kernel's program: their events pass.
    #[must_use]
    pub fn left_out(&self) -> usize {
        Program::new(self, &[]).left_out()
    }

    /// Whether the kernel passes an event, if the whole filter fits the program: the same conditions without BPF.
    #[must_use]
    pub fn passes(&self, cause: Cause, event: &Event) -> bool {
        if matches!(cause, Cause::Program(port) if self.programs.contains(&port)) {
            return false;
        }
        let (entry, state) = match event {
            Event::Began(entry) | Event::Changed(entry) => (entry, entry.tcp().map(|info| info.state)),
            Event::Ended(entry) => (entry, None),
            Event::Expected(_) | Event::ExpectationEnded(_) => return true,
        };
        let protocol = entry.original.protocol;
        if self.protocols.as_ref().is_some_and(|admitted| !admitted.contains(&protocol)) {
            return false;
        }
        if self.tcp_states.zip(state).is_some_and(|(admitted, state)| !admitted.contains(state)) {
            return false;
        }
        !self.ignore.iter().any(|ignore| ignore.applies(entry, state))
    }
}

impl Ignore {
    fn applies(&self, entry: &Entry, state: Option<TcpState>) -> bool {
        let Self { addresses, protocol, tcp_states, mark, zone } = self;
        let ends = [entry.original.source, entry.reply.source];
        self.has_conditions()
            && (addresses.is_empty() || addresses.iter().any(|prefix| ends.iter().any(|end| prefix.contains(*end))))
            && protocol.is_none_or(|protocol| protocol == entry.original.protocol)
            && tcp_states.is_none_or(|states| state.is_some_and(|state| states.contains(state)))
            && mark.is_none_or(|(value, mask)| entry.mark.is_some_and(|mark| mark & mask == value & mask))
            && zone.is_none_or(|zone| zone == entry.zone)
    }
}
