//! What the connections of a trace are like, in a few numbers: bounded, whatever the trace.

use std::time::Duration;

use flow::wire::ip_protocol;

use super::{End, Event, EventKind};

/// Bins of a [`Lifetimes`]: eight an octave, from a microsecond to two weeks.
const BINS: usize = 8 * 41;
const BINS_PER_OCTAVE: f64 = 8.0;
const SHORTEST_S: f64 = 1e-6;

/// How long connections lasted, as a cumulative distribution of logarithmic bins, each 9 % wide.
#[derive(Clone, Debug)]
pub struct Lifetimes {
    counts: Vec<u64>,
    total: u64,
    sum_s: f64,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { counts: vec![0; BINS], total: 0, sum_s: 0.0 }
    }
}

impl Lifetimes {
    /// Counts a lifetime.
    pub fn add(&mut self, lifetime: Duration) {
        let seconds = lifetime.as_secs_f64();
        self.counts[Self::bin(seconds)] += 1;
        self.total += 1;
        self.sum_s += seconds;
    }

    fn bin(seconds: f64) -> usize {
        if seconds <= SHORTEST_S {
            return 0;
        }
        (((seconds / SHORTEST_S).log2() * BINS_PER_OCTAVE).ceil() as usize).min(BINS - 1)
    }

    /// Lifetimes counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// Their mean, in seconds.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum_s / self.total as f64 }
    }

    /// The share that lasted at most so long, 0 to 1.
    #[must_use]
    pub fn share_up_to(&self, limit: Duration) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        let seconds = limit.as_secs_f64();
        let bin = Self::bin(seconds);
        // Of the bin that the limit is in, as much as lies below the limit.
        let into = ((seconds.max(SHORTEST_S) / SHORTEST_S).log2() * BINS_PER_OCTAVE - bin as f64 + 1.0).clamp(0.0, 1.0);
        let below = self.counts[..bin].iter().sum::<u64>() as f64 + self.counts[bin] as f64 * into;
        below / self.total as f64
    }

    /// The lifetime that a share of them (0 to 1) does not exceed, in seconds.
    #[must_use]
    pub fn quantile_s(&self, share: f64) -> f64 {
        let wanted = (share * self.total as f64).ceil() as u64;
        let mut seen = 0;
        let bin = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        bin.map_or(0.0, |bin| SHORTEST_S * (bin as f64 / BINS_PER_OCTAVE).exp2())
    }
}

/// What connections are like that were begun in a trace.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Connections begun.
    pub begun: u64,
    /// Connections ended, for whatever reason.
    pub ended: u64,
    /// Of these, by [`End`].
    pub ends: [u64; End::ALL.len()],
    /// Of these, packets were seen in one direction only.
    pub one_way: u64,
    /// Of these, TCP.
    pub tcp: u64,
    /// Of these, UDP.
    pub udp: u64,
    /// The most that were open at a time.
    pub open_max: u64,
    /// Packets of those that ended.
    pub packets: u64,
    /// Bytes that their transports carried.
    pub payload_bytes: u64,
    /// How long those that ended lasted, from the first packet to the last.
    pub lifetimes: Lifetimes,
    /// The same of those that were answered.
    pub answered_lifetimes: Lifetimes,
}

impl Statistics {
    /// Counts what became of a connection.
    pub fn handle_event(&mut self, event: &Event<'_>) {
        match event.kind {
            EventKind::Began => {
                self.begun += 1;
                self.open_max = self.open_max.max(self.begun - self.ended);
            }
            EventKind::Changed { .. } => {}
            EventKind::Ended(end) => self.note_end(event, end),
        }
    }

    fn note_end(&mut self, event: &Event<'_>, end: End) {
        self.ended += 1;
        self.ends[end as usize] += 1;
        self.one_way += u64::from(event.is_one_way());
        self.tcp += u64::from(event.connection.original.protocol == ip_protocol::TCP);
        self.udp += u64::from(event.connection.original.protocol == ip_protocol::UDP);
        self.packets += event.connection.packets.iter().sum::<u64>();
        self.payload_bytes += event.notes.payload_bytes.iter().sum::<u64>();
        self.lifetimes.add(event.lifetime());
        if !event.is_one_way() {
            self.answered_lifetimes.add(event.lifetime());
        }
    }

    /// Connections that ended for this reason.
    #[must_use]
    pub const fn ended_by(&self, end: End) -> u64 {
        self.ends[end as usize]
    }
}
