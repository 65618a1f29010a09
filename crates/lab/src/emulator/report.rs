//! A link's report of itself, one line of JSON each time.

use serde::{Deserialize, Serialize};

use super::channel::Counters;

/// Lateness that a measurement bears: if more than one packet in a hundred was later, its figures are of the machine's
/// business and not of the link, and it is to be made again.
pub const LATENESS_P99_US_MAX: u64 = 2000;

/// A bucket of the histogram, in nanoseconds.
const BUCKET_NS: u64 = 10_000;
/// Buckets; behind them is one for all that was later than 100 ms.
const BUCKETS: usize = 10_000;

/// How a link has been since it began, or was reset.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// For how long.
    pub seconds: f64,
    /// What its chances are drawn from.
    pub seed: u64,
    /// The system lets the link run before ordinary processes.
    pub is_preferred: bool,
    /// How late packets were delivered.
    pub lateness: Lateness,
    /// From the first namespace to the second.
    pub forward: DirectionReport,
    /// From the second to the first.
    pub backward: DirectionReport,
}

impl LinkReport {
    /// Whether the link was as late as makes a measurement worthless ([`LATENESS_P99_US_MAX`]).
    #[must_use]
    pub const fn is_too_late(&self) -> bool {
        self.lateness.p99_us > LATENESS_P99_US_MAX
    }
}

/// How much later than due packets were given to the kernel, in microseconds: the time that the link's process, when it
/// could have read the packet, waited for a processor or was busy with others, and the time from when the packet was due
/// until it was delivered. An upper bound, to 10 µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// Packets delivered.
    pub packets: u64,
    /// Half of them were no later.
    pub p50_us: u64,
    /// All but one in a hundred.
    pub p99_us: u64,
    /// The latest.
    pub max_us: u64,
}

/// What became of a direction's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DirectionReport {
    /// What the link made of them.
    #[serde(flatten)]
    pub counters: Counters,
    /// Packets that are underway.
    pub underway: u64,
    /// Packets in the queue.
    pub queue_packets: u64,
    /// The queue's length, in packets, that one arriving packet in a hundred found exceeded.
    pub queue_p99_packets: u64,
    /// Packets that the kernel would not take at the other end: the device was switched off, or the packet made no sense.
    pub refused: u64,
}

/// A link's answers, a line each.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It carries packets.
    Ready,
    /// It carried out the command.
    Done,
    /// It did not, and why.
    Refused(String),
    /// What it was asked for.
    Report(Box<LinkReport>),
}

/// How often packets were how late.
#[derive(Clone, Debug)]
pub(super) struct LatenessHistogram {
    counts: Vec<u64>,
    packets: u64,
    max_ns: u64,
}

impl Default for LatenessHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS + 1], packets: 0, max_ns: 0 }
    }
}

impl LatenessHistogram {
    /// A packet was so late.
    pub(super) fn note(&mut self, late_ns: u64) {
        let bucket = usize::try_from(late_ns / BUCKET_NS).unwrap_or(BUCKETS).min(BUCKETS);
        self.counts[bucket] += 1;
        self.packets += 1;
        self.max_ns = self.max_ns.max(late_ns);
    }

    pub(super) fn summary(&self) -> Lateness {
        Lateness {
            packets: self.packets,
            p50_us: self.quantile_us(50),
            p99_us: self.quantile_us(99),
            max_us: self.max_ns.div_ceil(1000),
        }
    }

    /// So many in a hundred were no later.
    fn quantile_us(&self, per_cent: u64) -> u64 {
        let wanted = (self.packets * per_cent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in self.counts[..BUCKETS].iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return ((bucket as u64 + 1) * BUCKET_NS).min(self.max_ns).div_ceil(1000);
            }
        }
        self.max_ns.div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds() {
        let mut histogram = LatenessHistogram::default();
        assert_eq!(histogram.summary(), Lateness::default());
        for late_us in 1..=1000 {
            histogram.note(late_us * 1000);
        }
        let Lateness { packets, p50_us, p99_us, max_us } = histogram.summary();
        assert_eq!((packets, max_us), (1000, 1000));
        assert!((500..=510).contains(&p50_us) && (990..=1000).contains(&p99_us), "{p50_us} {p99_us}");
        histogram.note(5_000_000_000);
        assert_eq!(histogram.summary().max_us, 5_000_000);
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = LinkReport {
            seconds: 1.5,
            seed: 7,
            is_preferred: true,
            lateness: Lateness { packets: 10, p50_us: 20, p99_us: 2001, max_us: 3000 },
            forward: DirectionReport { refused: 3, ..DirectionReport::default() },
            backward: DirectionReport::default(),
        };
        assert!(report.is_too_late());
        let text = serde_json::to_string(&Answer::Report(Box::new(report.clone()))).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Answer>(&text).expect("it was written so"), Answer::Report(Box::new(report)));
    }
}
