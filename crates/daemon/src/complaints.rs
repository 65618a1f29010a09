//! What goes wrong with peers: said, but not again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::Instant;
use packet_io::clock;

/// The same complaint is logged at most this often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
/// Complaints remembered for that, one for each stranger and kind of error.
const COMPLAINTS_MAX: usize = 64;
/// The warning of a cluster whose replication link is not encrypted.
pub(crate) const PLAIN_TEXT: &str = "the traffic between the nodes is not encrypted: anyone with access to their link can read it, and can harm \
                                     the cluster (see [replication.security])";

/// The complaints of late, and when they were last logged.
#[derive(Default)]
pub(crate) struct Complaints(BTreeMap<String, Instant>);

impl Complaints {
    /// Now, if a complaint is to be logged; it is remembered then. `None`: it was of late, or there are too many.
    pub(crate) fn admit(&mut self, text: &str) -> Option<Instant> {
        let now = clock::now();
        self.0.retain(|_, at| now.saturating_since(*at) < COMPLAINT_INTERVAL);
        if self.0.len() >= COMPLAINTS_MAX || self.0.contains_key(text) {
            return None;
        }
        self.0.insert(text.to_owned(), now);
        Some(now)
    }
}
