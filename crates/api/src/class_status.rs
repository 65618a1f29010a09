//! Traffic classes.

use serde::{Deserialize, Serialize};

/// A traffic class.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Name of the class. `unknown` is none of the others, or not known yet.
    pub name: String,
    /// Connections of the class in the table, replicas included.
    pub connections: u64,
    /// Packets of connections of the class, each under the class at that time, since the node started.
    pub packets: u64,
    /// Bytes of these packets, from the IP header on.
    pub bytes: u64,
}
