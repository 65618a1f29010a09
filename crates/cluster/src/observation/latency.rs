//! How long the work takes: histograms of some batches, and of the functions' part in some of their packets.
//!
//! The node knows no clock. Its caller may lend it a [`Stopwatch`], which is read around one batch in
//! [`BATCHES_PER_SAMPLE`], and in such a batch around the functions of the first [`PACKETS_PER_SAMPLE`] packets: reading a
//! clock takes as long as a function does.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// One batch in so many is measured.
pub const BATCHES_PER_SAMPLE: u32 = 64;
/// Packets of a measured batch whose functions are measured.
const PACKETS_PER_SAMPLE: u32 = 8;

/// Upper bounds of the histograms' buckets in nanoseconds, each included; behind them is one for all that took longer.
pub const HISTOGRAM_BOUNDS_NS: [u64; 18] = {
    let mut bounds = [64; 18];
    let mut index = 1;
    while index < bounds.len() {
        bounds[index] = 2 * bounds[index - 1];
        index += 1;
    }
    bounds
};

/// Measures elapsed time.
pub trait Stopwatch: Send + Sync {
    /// Nanoseconds since some moment in the past, always the same one.
    fn nanoseconds(&self) -> u64;
}

/// How often something took how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// How often it took up to each of [`HISTOGRAM_BOUNDS_NS`] and longer than the bound before; at last, longer than all.
    pub counts: [u64; HISTOGRAM_BOUNDS_NS.len() + 1],
    /// All together, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// It took so long once more.
    pub fn note(&mut self, nanoseconds: u64) {
        self.counts[HISTOGRAM_BOUNDS_NS.partition_point(|bound| *bound < nanoseconds)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds);
    }

    /// How often it was measured.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// How long a function takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionLatency {
    /// Its name.
    pub name: &'static str,
    /// To decide on a connection that begins.
    pub begin: Histogram,
    /// To handle a packet.
    pub packet: Histogram,
}

/// How long everything takes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latencies {
    /// The node to handle a batch, whatever its size, until its frames can be sent.
    pub batch: Histogram,
    /// Packets in the measured batches.
    pub batch_packets: u64,
    /// Each function that has been called.
    pub functions: Vec<FunctionLatency>,
}

/// Measures.
#[derive(Default)]
pub(crate) struct Latency {
    stopwatch: Option<Box<dyn Stopwatch>>,
    measured: Latencies,
    batches_until_sample: u32,
    is_sampling: bool,
    packets_left: u32,
}

impl Latency {
    pub(crate) fn set_stopwatch(&mut self, stopwatch: Box<dyn Stopwatch>) {
        self.stopwatch = Some(stopwatch);
    }

    pub(crate) const fn measured(&self) -> &Latencies {
        &self.measured
    }

    #[inline]
    pub(crate) const fn is_sampling(&self) -> bool {
        self.is_sampling
    }

    /// A batch begins. Returns when, if it is measured.
    #[inline]
    pub(crate) fn begin_batch(&mut self) -> Option<u64> {
        let Some(left) = self.batches_until_sample.checked_sub(1) else { return self.begin_sample() };
        self.batches_until_sample = left;
        None
    }

    #[cold]
    fn begin_sample(&mut self) -> Option<u64> {
        self.batches_until_sample = BATCHES_PER_SAMPLE - 1;
        let stopwatch = self.stopwatch.as_ref()?;
        (self.is_sampling, self.packets_left) = (true, PACKETS_PER_SAMPLE);
        Some(stopwatch.nanoseconds())
    }

    /// A batch that began at `began_at_ns` has been handled.
    #[cold]
    pub(crate) fn end_batch(&mut self, began_at_ns: u64, packets: usize) {
        self.is_sampling = false;
        let Some(stopwatch) = &self.stopwatch else { return };
        self.measured.batch.note(stopwatch.nanoseconds().saturating_sub(began_at_ns));
        self.measured.batch_packets += packets as u64;
    }

    /// Whether the functions' time for the packet that is handled next is to be taken.
    pub(super) const fn takes_time_of_packet(&mut self) -> bool {
        if !self.is_sampling {
            return false;
        }
        let is_taken = self.packets_left > 0;
        self.packets_left = self.packets_left.saturating_sub(1);
        is_taken
    }

    /// The time, while functions are measured.
    pub(super) fn read_stopwatch(&self) -> Option<u64> {
        self.stopwatch.as_ref().filter(|_| self.is_sampling).map(|stopwatch| stopwatch.nanoseconds())
    }

    pub(super) fn note_call(&mut self, name: &'static str, begins: bool, nanoseconds: u64) {
        let functions = &mut self.measured.functions;
        let index = functions.iter().position(|function| function.name == name).unwrap_or_else(|| {
            functions.push(FunctionLatency { name, begin: Histogram::default(), packet: Histogram::default() });
            functions.len() - 1
        });
        let function = &mut functions[index];
        if begins { &mut function.begin } else { &mut function.packet }.note(nanoseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_first_bucket_that_it_fits() {
        let mut histogram = Histogram::default();
        for nanoseconds in [0, 64, 65, 128, 1 << 40] {
            histogram.note(nanoseconds);
        }
        assert_eq!(histogram.counts[..3], [2, 2, 0]);
        assert_eq!(histogram.counts.last(), Some(&1), "longer than all bounds");
        assert_eq!((histogram.count(), histogram.sum_ns), (5, 64 + 65 + 128 + (1 << 40)));
    }

    /// A microsecond passes whenever it is read.
    #[derive(Default)]
    struct Ticking(core::sync::atomic::AtomicU64);

    impl Stopwatch for Ticking {
        fn nanoseconds(&self) -> u64 {
            self.0.fetch_add(1000, core::sync::atomic::Ordering::Relaxed)
        }
    }

    #[test]
    fn one_batch_in_so_many_is_measured_and_a_few_of_its_packets() {
        let mut latency = Latency::default();
        latency.set_stopwatch(Box::new(Ticking::default()));
        let mut timed_packets = 0;
        for _ in 0..4 * BATCHES_PER_SAMPLE {
            let began_at_ns = latency.begin_batch();
            timed_packets += (0..64).filter(|_| latency.takes_time_of_packet()).count();
            if let Some(began_at_ns) = began_at_ns {
                latency.end_batch(began_at_ns, 64);
            }
        }
        assert_eq!(timed_packets, 4 * PACKETS_PER_SAMPLE as usize);
        assert_eq!((latency.measured().batch.count(), latency.measured().batch_packets), (4, 4 * 64));
        assert_eq!(latency.measured().batch.sum_ns, 4000);
    }

    #[test]
    fn without_a_stopwatch_nothing_is_measured() {
        let mut latency = Latency::default();
        assert!((0..2 * BATCHES_PER_SAMPLE).all(|_| latency.begin_batch().is_none()));
        assert!(!latency.is_sampling() && latency.read_stopwatch().is_none());
    }
}
