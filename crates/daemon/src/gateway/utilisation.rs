//! How busy a node's processors are: what lazy insertion decides by (MLCBF, algorithm 2).
//!
//! A node's work is done by its thread, and by the kernel in soft interrupts: it receives the packets, and forwards those of the fast
//! path without the thread. So two loads are measured, and the greater one counts: the share of time in which the thread ran or waited
//! for a processor, and the share in which a processor was busy that serves ports. Which processor serves which port is not asked: one
//! that spends a part of its time on interrupts does.

use std::time::Duration;

use cluster::node::Node;
use flow::Instant;
use packet_io::processors::{ProcessorTimes, processor_times};
use packet_io::usage;

/// A processor that spends this share of its time on interrupts serves ports. Timers and disks take less.
const INTERRUPTS_PER_MILLE_MIN: u16 = 50;

/// Gives the node its load, if anything depends on it.
#[derive(Default)]
pub(super) struct Utilisation {
    before: Option<Reading>,
}

/// The clocks at a moment.
struct Reading {
    at: Instant,
    /// What the thread had wanted of a processor until then.
    wanted: Duration,
    processors: Vec<ProcessorTimes>,
}

impl Utilisation {
    /// Measures when it is time.
    pub(super) fn measure(&mut self, now: Instant, node: &mut Node) {
        let Some(interval) = node.utilisation_interval() else {
            self.before = None;
            return;
        };
        if self.before.as_ref().is_some_and(|before| now < before.at + interval) {
            return;
        }
        // Only now: to ask costs more than all of the above.
        let reading = Reading { at: now, wanted: usage::thread_wanted_time(), processors: processor_times() };
        if let Some(before) = &self.before {
            node.note_utilisation(reading.per_mille_since(before));
        }
        self.before = Some(reading);
    }
}

impl Reading {
    /// The greater of the loads between two readings.
    fn per_mille_since(&self, before: &Self) -> u16 {
        let elapsed = self.at.saturating_since(before.at);
        let of_thread = per_mille(self.wanted.saturating_sub(before.wanted), elapsed);
        let of_processor = |now: &ProcessorTimes| {
            let before = before.processors.iter().find(|before| before.number == now.number)?;
            let interrupts = per_mille(now.interrupts.saturating_sub(before.interrupts), elapsed);
            let busy = elapsed.saturating_sub(now.available.saturating_sub(before.available));
            (interrupts >= INTERRUPTS_PER_MILLE_MIN).then(|| per_mille(busy, elapsed))
        };
        self.processors.iter().filter_map(of_processor).fold(of_thread, u16::max)
    }
}

fn per_mille(part: Duration, elapsed: Duration) -> u16 {
    let per_mille = part.as_nanos() * 1000 / elapsed.as_nanos().max(1);
    u16::try_from(per_mille.min(1000)).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Processors with so many milliseconds available, and in interrupts.
    fn reading(at_ms: u64, wanted_ms: u64, processors: &[(u64, u64)]) -> Reading {
        let times = |(number, (available, interrupts)): (u32, &(u64, u64))| ProcessorTimes {
            number,
            available: ms(*available),
            interrupts: ms(*interrupts),
        };
        let processors = (0..).zip(processors).map(times).collect();
        Reading { at: Instant::from_millis(at_ms), wanted: ms(wanted_ms), processors }
    }

    #[test]
    fn a_share_is_of_the_time_that_has_passed_and_never_more_than_all_of_it() {
        let shares = [(0, 100, 0), (33, 100, 330), (100, 100, 1000), (101, 100, 1000), (1, 0, 1000), (0, 0, 0)];
        for (wanted, elapsed, expected) in shares {
            assert_eq!(per_mille(ms(wanted), ms(elapsed)), expected, "{wanted} of {elapsed} ms");
        }
    }

    #[test]
    fn forwarding_in_the_kernel_counts_while_the_thread_rests() {
        let before = reading(1000, 50, &[(500, 10), (700, 20)]);
        // The thread wants 10 % of a processor; the second one is busy for 85 % of the time with packets.
        let after = reading(2000, 150, &[(1390, 10), (850, 820)]);
        assert_eq!(after.per_mille_since(&before), 850);
    }

    #[test]
    fn a_processor_that_serves_no_port_does_not_count() {
        let before = reading(1000, 50, &[(500, 10), (700, 20)]);
        // Something else keeps the second one busy.
        let after = reading(2000, 250, &[(1390, 10), (700, 50)]);
        assert_eq!(after.per_mille_since(&before), 200);
    }

    #[test]
    fn a_thread_that_waits_counts_where_its_processor_is_not_known() {
        let before = reading(1000, 0, &[]);
        assert_eq!(reading(2000, 950, &[(0, 0)]).per_mille_since(&before), 950);
    }
}
