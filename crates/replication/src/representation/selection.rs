//! Which changes of a connection are worth a message.

use flow::conntrack::Change;
use flow::wire::ip_protocol;

/// A set of states of the TCP automaton, by their numbers (those of Linux's connection tracking).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpStates(u16);

impl TcpStates {
    /// SYN_SENT, ESTABLISHED, FIN_WAIT, TIME_WAIT and CLOSE: with these a replica can go on from whatever state the
    /// connection has really reached, and one that is closing does not outlive its end for long.
    pub const THAT_MATTER: Self = Self::of(&[1, 3, 4, 7, 8]);

    /// The states with these numbers, each below 16.
    ///
    /// # Panics
    /// A number is 16 or more.
    #[must_use]
    pub const fn of(numbers: &[u8]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < numbers.len() {
            assert!(numbers[index] < 16, "the automaton has no such state");
            bits |= 1 << numbers[index];
            index += 1;
        }
        Self(bits)
    }

    /// Whether the state is in the set.
    #[must_use]
    pub const fn contains(self, state: u8) -> bool {
        state < 16 && self.0 & 1 << state != 0
    }
}

/// Which changes of a connection are sent to its backups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// *Precise-eager*: every change that another node could need, windows included.
    Eager,
    /// *Precise-selective*: the changes of state alone, and for TCP only those to one of these states.
    Selective(TcpStates),
}

impl Default for Selection {
    fn default() -> Self {
        Self::Selective(TcpStates::THAT_MATTER)
    }
}

/// Whether a change of a connection is to be sent. `previous_state` and `new_state` are numbers of the automaton of the IP
/// protocol `protocol`; `change` is the tracker's result.
///
/// A change within one state (the connection became assured, for example) counts as one to that state.
#[must_use]
pub fn is_worth_replicating(
    selection: Selection,
    protocol: u8,
    previous_state: u8,
    new_state: u8,
    change: Change,
) -> bool {
    match selection {
        Selection::Eager => change != Change::None,
        Selection::Selective(_) if change != Change::State && previous_state == new_state => false,
        Selection::Selective(states) => protocol != ip_protocol::TCP || states.contains(new_state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::wire::ip_protocol::{TCP, UDP};

    #[test]
    fn eager_replicates_whatever_another_node_could_need() {
        for protocol in [TCP, UDP] {
            for state in 0..10 {
                assert!(is_worth_replicating(Selection::Eager, protocol, state, state, Change::Detail));
                assert!(is_worth_replicating(Selection::Eager, protocol, 0, state, Change::State));
                assert!(!is_worth_replicating(Selection::Eager, protocol, state, state, Change::None));
            }
        }
    }

    #[test]
    fn selective_replicates_of_tcp_only_the_states_that_matter() {
        let is_replicated =
            |previous, new, change| is_worth_replicating(Selection::default(), TCP, previous, new, change);
        for previous in 0..10 {
            for new in 0..10 {
                assert_eq!(
                    is_replicated(previous, new, Change::State),
                    [1, 3, 4, 7, 8].contains(&new),
                    "{previous} to {new}"
                );
            }
            assert!(!is_replicated(previous, previous, Change::Detail));
            assert!(!is_replicated(previous, previous, Change::None));
        }
    }

    #[test]
    fn selective_replicates_every_change_of_state_of_other_protocols() {
        let is_replicated =
            |previous, new, change| is_worth_replicating(Selection::default(), UDP, previous, new, change);
        assert!(
            is_replicated(0, 1, Change::State)
                && is_replicated(1, 1, Change::State)
                && is_replicated(0, 0, Change::State)
        );
        assert!(!is_replicated(1, 1, Change::Detail));
    }

    #[test]
    fn an_operators_choice_of_states_is_kept() {
        let selection = Selection::Selective(TcpStates::of(&[2]));
        assert!(is_worth_replicating(selection, TCP, 1, 2, Change::State));
        assert!(!is_worth_replicating(selection, TCP, 2, 3, Change::State));
        assert!(!TcpStates::of(&[15]).contains(200));
    }
}
