//! What goes wrong with peers: said, but not again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use control::events::without_numbers;
use flow::Instant;

/// The same complaint is logged at most this often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
/// Complaints remembered for that, one for each kind of error: texts that differ only in numbers are the same complaint.
const COMPLAINTS_MAX: usize = 64;
/// The warning of a cluster whose replication link is not encrypted.
pub(crate) const PLAIN_TEXT: &str = "the traffic between the nodes is not encrypted: anyone with access to their link can read it, and can harm \
                                     the cluster (see [replication.security])";

/// A complaint that was logged.
struct Complaint {
    at: Instant,
    /// The like since then, which were not.
    unlogged: u64,
}

/// The complaints of late.
#[derive(Default)]
pub(crate) struct Complaints(BTreeMap<String, Complaint>);

impl Complaints {
    /// How many complaints this one stands for, if it is to be logged; it is remembered then. `None`: one like it was logged of late, or
    /// there are too many.
    pub(crate) fn admit(&mut self, now: Instant, text: &str) -> Option<u64> {
        let topic = without_numbers(text);
        if let Some(known) = self.0.get_mut(&topic) {
            known.unlogged += 1;
            if now.saturating_since(known.at) < COMPLAINT_INTERVAL {
                return None;
            }
            known.at = now;
            return Some(std::mem::take(&mut known.unlogged));
        }
        self.0.retain(|_, known| now.saturating_since(known.at) < COMPLAINT_INTERVAL);
        if self.0.len() >= COMPLAINTS_MAX {
            return None;
        }
        self.0.insert(topic, Complaint { at: now, unlogged: 0 });
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_strangers_are_logged_once_in_the_interval_with_their_number_and_leave_room_for_others() {
        let mut complaints = Complaints::default();
        let stranger =
            |number: u32| format!("datagrams from 10.0.0.7:{number}, which is no peer's address, are ignored");
        let at = |seconds: u64| Instant::from_millis(seconds * 1000);
        assert_eq!(complaints.admit(at(1), &stranger(0)), Some(1));
        assert!((1..=1000).all(|number| complaints.admit(at(2), &stranger(number)).is_none()));
        assert_eq!(complaints.admit(at(2), "from node 1: another key"), Some(1));
        assert_eq!(complaints.admit(at(2), "from node 2: another key"), Some(1));
        assert_eq!(complaints.admit(at(12), &stranger(7)), Some(1001));
    }
}
