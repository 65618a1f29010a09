//! How busy the thread is that serves a node: what lazy insertion decides by.

use std::time::Duration;

use cluster::node::Node;
use flow::Instant;
use packet_io::usage;

/// Gives the node the load of its thread, if anything depends on it.
#[derive(Default)]
pub(super) struct Utilisation {
    /// When it was measured last, and what the thread had wanted of a processor until then.
    before: Option<(Instant, Duration)>,
}

impl Utilisation {
    /// Measures when it is time.
    pub(super) fn measure(&mut self, now: Instant, node: &mut Node) {
        let Some(interval) = node.utilisation_interval() else {
            self.before = None;
            return;
        };
        if self.before.is_some_and(|(at, _)| now < at + interval) {
            return;
        }
        // Only now: to ask costs more than all of the above.
        let wanted = usage::thread_wanted_time();
        if let Some((at, before)) = self.before.replace((now, wanted)) {
            node.note_utilisation(per_mille(wanted.saturating_sub(before), now.saturating_since(at)));
        }
    }
}

fn per_mille(wanted: Duration, elapsed: Duration) -> u16 {
    let per_mille = wanted.as_nanos() * 1000 / elapsed.as_nanos().max(1);
    u16::try_from(per_mille.min(1000)).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_that_has_passed_and_never_more_than_all_of_it() {
        let ms = Duration::from_millis;
        let shares = [(0, 100, 0), (33, 100, 330), (100, 100, 1000), (101, 100, 1000), (1, 0, 1000), (0, 0, 0)];
        for (wanted, elapsed, expected) in shares {
            assert_eq!(per_mille(ms(wanted), ms(elapsed)), expected, "{wanted} of {elapsed} ms");
        }
    }
}
