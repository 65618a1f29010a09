//! Where a packet comes from and where it goes.

use serde::{Deserialize, Serialize};

/// Source and destination, `address:port`, or the address alone for protocols without ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ends {
    /// Who sends.
    pub source: String,
    /// Who receives.
    pub destination: String,
}
