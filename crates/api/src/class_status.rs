//! Traffic classes.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// A traffic class.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(class = self.name))]
pub struct ClassStatus {
    /// Name of the class. `unknown` is none of the others, or not known yet.
    pub name: String,
    /// Connections of the class in the table, replicas included.
    #[report(sum, gauge("class_connections"))]
    pub connections: u64,
    /// Packets of connections of the class, each under the class at that time, since the node started.
    #[report(sum, counter("class_packets_total"))]
    pub packets: u64,
    /// Bytes of these packets, from the IP header on.
    #[report(sum, counter("class_bytes_total"))]
    pub bytes: u64,
}
