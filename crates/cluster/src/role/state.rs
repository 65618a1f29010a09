//! The role's automaton.
//!
//! ```text
//!            startup hold over,        no peer holds the
//!   ┌──────┐ or a peer holds ┌─────────┐ addresses, chosen ┌────────────┐ state usable ┌────────┐
//!   │ Init ├────────────────►│ Standby ├──────────────────►│ TakingOver ├─────────────►│ Active │
//!   └──┬───┘                 └┬──▲──▲──┘                   └─┬─────┬────┘              └─┬───┬──┘
//!      │ leave          leave │  │  │    a peer holds        │     │ leave               │   │ leave
//!      │                      │  │  └────────────────────────┴─────│─────────────────────┘   │
//!      │                      │  │ rejoin                          │                         ▼
//!      │                      ▼  │                                 │  handed over, or  ┌─────────┐
//!      │                    ┌────┴─┐◄──────────────────────────────┘  too long         │ Leaving │
//!      └───────────────────►│ Left │◄──────────────────────────────────────────────────┤         │
//!                           └──────┘                                rejoin: to Active  └─────────┘
//! ```
//! What is not drawn leaves the state as it is.

/// A node's state in the choice of who holds the shared addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Just started: listening whether a node holds the addresses.
    Init,
    /// Ready to take over.
    Standby,
    /// Chosen; the state that the addresses need is being made usable.
    TakingOver,
    /// Holds the addresses.
    Active,
    /// Holds the addresses until a peer has taken them, and then leaves.
    Leaving,
    /// Has left: takes no part until ordered to rejoin.
    Left,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Init, Self::Standby, Self::TakingOver, Self::Active, Self::Leaving, Self::Left];

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The state with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether a node in this state holds the shared addresses.
    #[must_use]
    pub const fn holds_addresses(self) -> bool {
        matches!(self, Self::Active | Self::Leaving)
    }

    /// Whether a node in this state forwards packets of the group, even if it has not announced the addresses yet.
    #[must_use]
    pub const fn forwards(self) -> bool {
        self.holds_addresses() || matches!(self, Self::TakingOver)
    }
}

/// What moves the automaton.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// The time to listen after the start is over, or there is nothing left to listen for: all peers were received, with all
    /// their connections.
    StartupHoldOver,
    /// A peer holds the addresses (or is about to) and this node yields to it.
    PeerHolds,
    /// No reachable node holds the addresses, and this node is the one to take them.
    Chosen,
    /// The node's state is ready for packets.
    StateUsable,
    /// An operator wants the node to leave.
    Leave,
    /// No node took the addresses for too long after an operator wanted the node to leave.
    HandoverLimitReached,
    /// An operator wants it back.
    Rejoin,
}

/// What the owner of the automaton must do on a transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Duty {
    Nothing,
    MakeStateUsable,
    Announce,
    StandBy,
}

/// Where `input` leads from `state`, and what is to be done. `None`: the state stays.
pub(super) const fn transition(state: State, input: Input) -> Option<(State, Duty)> {
    use Input::{Chosen, HandoverLimitReached, Leave, PeerHolds, Rejoin, StartupHoldOver, StateUsable};
    use State::{Active, Init, Leaving, Left, Standby, TakingOver};
    match (state, input) {
        (Init, StartupHoldOver | PeerHolds) | (Left, Rejoin) => Some((Standby, Duty::Nothing)),
        (Standby, Chosen) => Some((TakingOver, Duty::MakeStateUsable)),
        (TakingOver, StateUsable) => Some((Active, Duty::Announce)),
        (TakingOver | Active, PeerHolds) => Some((Standby, Duty::StandBy)),
        (Active, Leave) => Some((Leaving, Duty::Nothing)),
        (Leaving, Rejoin) => Some((Active, Duty::Nothing)),
        (Init | Standby, Leave) => Some((Left, Duty::Nothing)),
        (TakingOver, Leave) | (Leaving, PeerHolds | HandoverLimitReached) => Some((Left, Duty::StandBy)),
        (Init, Chosen | StateUsable | HandoverLimitReached | Rejoin)
        | (Standby, StartupHoldOver | PeerHolds | StateUsable | HandoverLimitReached | Rejoin)
        | (TakingOver, StartupHoldOver | Chosen | HandoverLimitReached | Rejoin)
        | (Active, StartupHoldOver | Chosen | StateUsable | HandoverLimitReached | Rejoin)
        | (Leaving, StartupHoldOver | Chosen | StateUsable | Leave)
        | (Left, StartupHoldOver | PeerHolds | Chosen | StateUsable | Leave | HandoverLimitReached) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    const INPUTS: [Input; 7] = [
        Input::StartupHoldOver,
        Input::PeerHolds,
        Input::Chosen,
        Input::StateUsable,
        Input::Leave,
        Input::HandoverLimitReached,
        Input::Rejoin,
    ];

    /// Every state with every input, in the order of `INPUTS`. `-` is "stays".
    const GOLDEN: &str = "\
        Init Standby/Nothing Standby/Nothing - - Left/Nothing - -\n\
        Standby - - TakingOver/MakeStateUsable - Left/Nothing - -\n\
        TakingOver - Standby/StandBy - Active/Announce Left/StandBy - -\n\
        Active - Standby/StandBy - - Leaving/Nothing - -\n\
        Leaving - Left/StandBy - - - Left/StandBy Active/Nothing\n\
        Left - - - - - - Standby/Nothing\n";

    #[test]
    fn every_state_with_every_input() {
        let mut table = String::new();
        for state in State::ALL {
            table += &format!("{state:?}");
            for input in INPUTS {
                table += &transition(state, input)
                    .map_or_else(|| String::from(" -"), |(next, duty)| format!(" {next:?}/{duty:?}"));
            }
            table += "\n";
        }
        assert_eq!(table, GOLDEN);
    }

    #[test]
    fn a_node_that_stops_holding_the_addresses_becomes_standby() {
        for state in State::ALL {
            for input in INPUTS {
                let Some((next, duty)) = transition(state, input) else { continue };
                let gives_up = state.holds_addresses() && !next.holds_addresses();
                let takes = !state.holds_addresses() && next.holds_addresses();
                assert!(!gives_up || duty == Duty::StandBy, "{state:?} {input:?}");
                assert_eq!(takes, duty == Duty::Announce, "{state:?} {input:?}");
            }
        }
    }
}
