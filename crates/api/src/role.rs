//! What clients may do.

use serde::{Deserialize, Serialize};

use crate::{Query, SyncOrder};

/// What a client may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See how the gateway is, and its connections.
    Read,
    /// Besides, capture frames, with what is in them, and give orders.
    Operate,
}

impl Role {
    /// All roles, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("read", Self::Read), ("operate", Self::Operate)];

    /// The least role that a query needs.
    #[must_use]
    pub const fn needed_for(query: &Query) -> Self {
        match query {
            Query::Status
            | Query::Flows { .. }
            | Query::Counters
            | Query::Events
            | Query::Url { .. }
            | Query::Trace { .. }
            | Query::Follow { .. } => Self::Read,
            Query::Sync { order: SyncOrder::Nothing } => Self::Read,
            Query::Capture { .. }
            | Query::Reload { .. }
            | Query::Drain { .. }
            | Query::Undrain
            | Query::DrainNode { .. }
            | Query::Sync { .. } => Self::Operate,
        }
    }
}
