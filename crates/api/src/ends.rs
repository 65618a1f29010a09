//! The addresses and ports of one direction.

use serde::{Deserialize, Serialize};

/// Source and destination of one direction: `address:port`, or the address alone for protocols without ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ends {
    /// Source address and port.
    pub source: String,
    /// Destination address and port.
    pub destination: String,
}
