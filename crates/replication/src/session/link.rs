//! Whether the two sessions know each other: an automaton.

/// How a session stands to its peer.
///
/// ```text
///              the peer shows that it knows this session
///            ┌─────────────────────────────────────────────┐
///            │                                             ▼
///   ┌─► Seeking (says Hello)                             Open (tells)
///   │        ▲                                             │
///   │        └─────────────────────────────────────────────┘
///   │          silence · Goodbye · a new session of the peer · out of sync
///   │
///  new           any ── close ──► Closed (says Goodbye once)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The peer is away, or has not shown yet that it knows this session. Hello is said, at growing intervals.
    Seeking,
    /// Both know each other's sessions.
    Open,
    /// The node has left.
    Closed,
}

/// What happens to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// A datagram of the peer's session came that names this session.
    Recognised,
    /// The peer's numbering began anew, so that it has forgotten what it received.
    PeerRenewed,
    /// This session's numbering must begin anew.
    OutOfSync,
    /// Nothing was received for [`super::SessionConfig::peer_timeout`].
    Silence,
    /// The peer said Goodbye.
    Goodbye,
    /// The node leaves.
    Close,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Nothing,
    /// Begin a full synchronisation.
    Synchronise,
    /// Keep nothing for the peer until it is there again.
    Suspend,
}

impl Link {
    /// The table of transitions.
    pub(crate) const fn next(self, input: Input) -> (Self, Action) {
        match (self, input) {
            (Self::Closed, _) => (Self::Closed, Action::Nothing),
            (_, Input::Close) => (Self::Closed, Action::Suspend),
            (Self::Seeking, Input::Recognised) => (Self::Open, Action::Synchronise),
            (Self::Open, Input::Recognised) => (Self::Open, Action::Nothing),
            (Self::Seeking, _) => (Self::Seeking, Action::Nothing),
            (Self::Open, Input::PeerRenewed | Input::OutOfSync | Input::Silence | Input::Goodbye) => {
                (Self::Seeking, Action::Suspend)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition_is_as_drawn() {
        use Action::{Nothing, Suspend, Synchronise};
        use Link::{Closed, Open, Seeking};
        let table = [
            (Input::Recognised, (Open, Synchronise), (Open, Nothing)),
            (Input::PeerRenewed, (Seeking, Nothing), (Seeking, Suspend)),
            (Input::OutOfSync, (Seeking, Nothing), (Seeking, Suspend)),
            (Input::Silence, (Seeking, Nothing), (Seeking, Suspend)),
            (Input::Goodbye, (Seeking, Nothing), (Seeking, Suspend)),
            (Input::Close, (Closed, Suspend), (Closed, Suspend)),
        ];
        for (input, from_seeking, from_open) in table {
            assert_eq!(Seeking.next(input), from_seeking, "{input:?}");
            assert_eq!(Open.next(input), from_open, "{input:?}");
            assert_eq!(Closed.next(input), (Closed, Nothing), "{input:?}");
        }
    }
}
