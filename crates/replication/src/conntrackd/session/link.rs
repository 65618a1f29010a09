//! How a session stands to its peer: an automaton.

/// How a session stands to its peer.
///
/// ```text
///                          HELLO_BACK
///            ┌─────────────────────────────────────┐
///            │                                     ▼
///   ┌─► Seeking (says HELLO)                     Open (tells)
///   │        ▲                                     │      │ ▲
///   │        └─────────────── silence ─────────────┘      └─┘ HELLO: the peer was restarted
///   │
///  new       any ── close ──► Closed
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Link {
    /// The peer is away, or has not answered yet. HELLO is said, at growing intervals.
    #[default]
    Seeking,
    /// The peer has answered, and a full synchronisation is sent.
    Open,
    /// The node has left.
    Closed,
}

/// What happens to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::conntrackd) enum Input {
    /// The peer answers this node's HELLO.
    HelloBack,
    /// The peer sends HELLO for the first time since it was started.
    Restarted,
    /// Nothing was received for [`crate::conntrackd::FtfwConfig::peer_timeout`].
    Silence,
    /// The node leaves.
    Close,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::conntrackd) enum Action {
    Nothing,
    /// Ask the peer for a full synchronisation, and send one.
    Exchange,
    /// Keep nothing for the peer until it is there again.
    Suspend,
}

impl Link {
    /// The table of transitions.
    pub(in crate::conntrackd) const fn next(self, input: Input) -> (Self, Action) {
        match (self, input) {
            (Self::Closed, _) => (Self::Closed, Action::Nothing),
            (_, Input::Close) => (Self::Closed, Action::Suspend),
            (Self::Seeking, Input::HelloBack) | (Self::Open, Input::Restarted) => (Self::Open, Action::Exchange),
            (Self::Open, Input::HelloBack) => (Self::Open, Action::Nothing),
            (Self::Seeking, Input::Restarted | Input::Silence) => (Self::Seeking, Action::Nothing),
            (Self::Open, Input::Silence) => (Self::Seeking, Action::Suspend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition_is_as_drawn() {
        use Action::{Exchange, Nothing, Suspend};
        use Link::{Closed, Open, Seeking};
        let table = [
            (Input::HelloBack, (Open, Exchange), (Open, Nothing)),
            (Input::Restarted, (Seeking, Nothing), (Open, Exchange)),
            (Input::Silence, (Seeking, Nothing), (Seeking, Suspend)),
            (Input::Close, (Closed, Suspend), (Closed, Suspend)),
        ];
        for (input, from_seeking, from_open) in table {
            assert_eq!(Seeking.next(input), from_seeking, "{input:?}");
            assert_eq!(Open.next(input), from_open, "{input:?}");
            assert_eq!(Closed.next(input), (Closed, Nothing), "{input:?}");
        }
    }
}
