//! Roles and states, with the words that the API has for them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Defines an enumeration whose variants have a word each. The words of later releases are read as the default.
macro_rules! states {
    ($(#[$docs:meta])* $name:ident { $($(#[$variant_docs:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_docs])* #[serde(rename = $word)] $variant,)*
            /// Not known, or a word of a later release.
            #[default]
            #[serde(rename = "unknown", other)]
            Unknown,
        }

        impl $name {
            /// Its word.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Unknown => "unknown",
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

states! {
    /// Role of a node.
    NodeRole {
        /// It has just started.
        Init "init",
        /// It could take over.
        Standby "standby",
        /// It takes the shared addresses over.
        TakingOver "taking_over",
        /// It holds the shared addresses.
        Active "active",
        /// It hands the shared addresses over.
        Leaving "leaving",
        /// It is out of service.
        Drained "drained",
        /// It is an edge.
        Edge "edge",
        /// Of `mainstay sync`: it carries connections.
        Primary "primary",
        /// Of `mainstay sync`: it stands by.
        Backup "backup",
        /// Of `mainstay sync`: it is not to be chosen.
        Fault "fault",
    }
}

states! {
    /// State of failure detection.
    DetectorState {
        /// The peer is received.
        Up "up",
        /// The peer is received, and does not receive this node yet.
        Init "init",
        /// The peer is not received.
        Down "down",
        /// Detection is switched off.
        AdminDown "admin_down",
    }
}

states! {
    /// State of a replication session.
    SessionState {
        /// There is none.
        Off "off",
        /// The peer has not answered.
        Seeking "seeking",
        /// It is open.
        Open "open",
        /// It is closed.
        Closed "closed",
        /// The peer is a conntrackd that answers.
        Conntrackd "conntrackd",
    }
}

states! {
    /// State of a path to a peer.
    PathState {
        /// The peer is received over it.
        Up "up",
        /// The peer is no longer received over it.
        Down "down",
        /// The peer has not been received over it.
        Never "never",
    }
}

states! {
    /// Split brain with a peer.
    SplitBrain {
        /// There is none.
        None "none",
        /// This node is active, and the peer is silent on all paths without a hand-over.
        Suspected "suspected",
        /// The peer reports that it is active, too.
        Confirmed "confirmed",
    }
}

states! {
    /// State of a tracked next hop: `Unknown` while its port is down or too few probes were sent.
    NextHopState {
        /// It answers.
        Reached "reached",
        /// It does not answer.
        Lost "lost",
    }
}

states! {
    /// State of a backend.
    BackendState {
        /// It gets connections.
        Up "up",
        /// It gets a part of its connections, in a slow start.
        Starting "starting",
        /// Its checks failed.
        Down "down",
        /// Its weight is 0.
        Drained "drained",
    }
}

states! {
    /// State of a member, as it publishes it.
    MemberState {
        /// It takes part.
        Active "active",
        /// It leaves.
        Draining "draining",
        /// It has left.
        Left "left",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_is_written_and_words_of_later_releases_are_unknown() {
        let json = serde_json::to_string(&NodeRole::TakingOver).expect("it is plain data");
        assert_eq!((json.as_str(), NodeRole::TakingOver.to_string().as_str()), ("\"taking_over\"", "taking_over"));
        assert_eq!(serde_json::from_str::<NodeRole>(&json).expect("it was written so"), NodeRole::TakingOver);
        assert_eq!(serde_json::from_str::<NodeRole>("\"observing\"").expect("a word"), NodeRole::Unknown);
        assert_eq!(serde_json::from_str::<NextHopState>("\"unknown\"").expect("a word"), NextHopState::Unknown);
    }
}
