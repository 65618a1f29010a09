//! The session's automaton (RFC 5880 sections 6.2 and 6.8.6).
//!
//! ```text
//!                  Init received
//!      ┌───────────────────────────────────────────┐
//!      │                                           ▼
//!   ┌──┴───┐ Down received ┌──────┐ Init, Up    ┌──────┐
//!   │ Down ├──────────────►│ Init ├────────────►│  Up  │
//!   └▲──▲─▲┘               └─┬────┘ received    └─┬────┘
//!    │  │ └─────────────────┘                    │
//!    │  │  AdminDown received, expired            │
//!    │  └─────────────────────────────────────────┘
//!    │      AdminDown, Down received, expired
//!    │ enable        ┌───────────┐
//!    └───────────────┤ AdminDown │◄── disable, from every other state
//!                    └───────────┘
//! ```
//! What is not drawn leaves the state as it is.

use super::diagnostic::Diagnostic;

/// A session's state (RFC 5880 section 4.1, field Sta).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// An operator holds the session down.
    AdminDown,
    /// The path is down, or the session has just begun.
    #[default]
    Down,
    /// Packets of the other side arrive; it is not yet known whether this side's arrive there.
    Init,
    /// Both sides receive each other's packets.
    Up,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::AdminDown, Self::Down, Self::Init, Self::Up];

    /// The state with this number; only the low two bits count.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        Self::ALL[(number & 3) as usize]
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// What moves the automaton.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// A packet whose sender is in this state.
    Received(State),
    /// No packet within the detection time.
    DetectionTimeExpired,
    /// An operator takes the session down.
    Disable,
    /// An operator lets it come up again.
    Enable,
}

/// Where `input` leads from `state`, and the diagnostic to show from then on. `None`: the state stays.
pub(super) const fn transition(state: State, input: Input) -> Option<(State, Diagnostic)> {
    use Input::{Disable, Enable, Received};
    use State::{AdminDown, Down, Init, Up};
    match (state, input) {
        (Down, Received(Down)) => Some((Init, Diagnostic::None)),
        (Down, Received(Init)) | (Init, Received(Init | Up)) => Some((Up, Diagnostic::None)),
        (Init, Received(AdminDown)) | (Up, Received(AdminDown | Down)) => {
            Some((Down, Diagnostic::NeighbourSignalledDown))
        }
        (Init | Up, Input::DetectionTimeExpired) => Some((Down, Diagnostic::DetectionTimeExpired)),
        (Down | Init | Up, Disable) => Some((AdminDown, Diagnostic::AdministrativelyDown)),
        (AdminDown, Enable) => Some((Down, Diagnostic::None)),
        (AdminDown, Received(_) | Input::DetectionTimeExpired | Disable)
        | (Down, Received(AdminDown | Up) | Input::DetectionTimeExpired | Enable)
        | (Init, Received(Down) | Enable)
        | (Up, Received(Init | Up) | Enable) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    /// Every state with every input. `-` is "stays"; the number is the diagnostic.
    const GOLDEN: &str = "\
        state     rx-AdminDown rx-Down rx-Init rx-Up expired disable enable\n\
        AdminDown - - - - - - Down/0\n\
        Down - Init/0 Up/0 - - AdminDown/7 -\n\
        Init Down/3 - Up/0 Up/0 Down/1 AdminDown/7 -\n\
        Up Down/3 Down/3 - - Down/1 AdminDown/7 -\n";

    #[test]
    fn every_state_with_every_input() {
        let mut table = String::from("state     rx-AdminDown rx-Down rx-Init rx-Up expired disable enable\n");
        for state in State::ALL {
            table += &format!("{state:?}");
            let received = State::ALL.map(Input::Received);
            for input in received.into_iter().chain([Input::DetectionTimeExpired, Input::Disable, Input::Enable]) {
                table += &transition(state, input)
                    .map_or_else(|| String::from(" -"), |(next, why)| format!(" {next:?}/{}", why.number()));
            }
            table += "\n";
        }
        assert_eq!(table, GOLDEN);
    }

    #[test]
    fn numbers_are_those_of_the_rfc() {
        assert_eq!(State::ALL.map(State::number), [0, 1, 2, 3]);
        for state in State::ALL {
            assert_eq!(State::from_number(state.number()), state);
        }
        for number in 0..32 {
            assert_eq!(Diagnostic::from_number(number).number(), number);
        }
    }
}
