//! `mainstay status --latency`: how long batches and functions take.

use std::time::Duration;

use serde::Serialize;

use api::metrics::{Metric, Sample};
use console::{Table, count};

/// How long something takes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LatencyLine {
    /// `batch`, or the function's name.
    pub what: String,
    /// Of a function: `begin` for connections that begin, `packet` for packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// How often it was measured.
    pub measured: u64,
    /// On average, in nanoseconds.
    pub mean_ns: f64,
    /// Half took no longer than this bucket's bound, in nanoseconds; `None`: longer than the last bound.
    pub p50_ns: Option<f64>,
    /// 99 of 100 took no longer than this bucket's bound, in nanoseconds; `None`: longer than the last bound.
    pub p99_ns: Option<f64>,
}

/// The latencies in the counters.
#[must_use]
pub fn latencies(samples: &[Sample]) -> Vec<LatencyLine> {
    let counts = samples.iter().filter_map(|sample| {
        let name = sample.name.strip_suffix("_count")?;
        let metric =
            [Metric::BatchSeconds, Metric::FunctionSeconds].into_iter().find(|metric| metric.name() == name)?;
        (sample.value > 0.0).then_some((metric, sample))
    });
    counts.map(|(metric, counted)| line(samples, metric, counted)).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count that was given as a number")]
fn line(samples: &[Sample], metric: Metric, counted: &Sample) -> LatencyLine {
    let part = |suffix: &str| format!("{}{suffix}", metric.name());
    let (sum_name, bucket_name) = (part("_sum"), part("_bucket"));
    let sum = samples.iter().find(|sample| sample.name == sum_name && sample.labels == counted.labels);
    let quantile = |share: f64| {
        let bucket = samples.iter().find(|sample| {
            let of_same = counted.labels.iter().all(|(name, value)| sample.labels.get(name) == Some(value));
            sample.name == bucket_name && of_same && sample.value >= share * counted.value
        })?;
        let bound_s = bucket.labels.get("le")?.parse::<f64>().ok()?;
        Some((bound_s * 1e9).round()).filter(|bound| bound.is_finite())
    };
    LatencyLine {
        what: counted.labels.get("function").map_or_else(|| "batch".to_owned(), Clone::clone),
        call: counted.labels.get("call").cloned(),
        measured: counted.value as u64,
        mean_ns: sum.map_or(0.0, |sum| sum.value * 1e9 / counted.value),
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
    }
}

/// The same as people read it.
#[must_use]
pub fn describe(lines: &[LatencyLine]) -> String {
    let mut table = Table::of("WHAT|CALL|>MEASURED|>MEAN|>HALF|>99 %");
    let at_most = |bound_ns: Option<f64>| bound_ns.map_or("long".to_owned(), |bound| format!("≤ {}", time(bound)));
    for line in lines {
        table.row([
            line.what.clone(),
            line.call.clone().unwrap_or_default(),
            count(line.measured),
            time(line.mean_ns),
            at_most(line.p50_ns),
            at_most(line.p99_ns),
        ]);
    }
    if table.is_empty() {
        return "nothing has been measured yet: one batch in 64 is\n".to_owned();
    }
    table.render()
}

fn time(nanoseconds: f64) -> String {
    if nanoseconds < 1e6 {
        return if nanoseconds < 1e3 {
            format!("{nanoseconds:.0} ns")
        } else {
            format!("{:.1} µs", nanoseconds / 1e3)
        };
    }
    console::duration(Duration::from_secs_f64(nanoseconds / 1e9))
}

#[cfg(test)]
mod tests {
    use cluster::observation::{Histogram, Latencies};

    use super::*;
    use api::metrics::Samples;
    use control::metrics::add_latencies;

    #[test]
    fn shares_are_read_from_the_buckets() {
        let mut batch = Histogram::default();
        (0..98).for_each(|_| batch.note(1000));
        (0..2).for_each(|_| batch.note(100_000));
        let mut samples = Samples::default();
        add_latencies(&mut samples, &Latencies { batch, ..Latencies::default() });
        let lines = latencies(samples.as_slice());
        assert_eq!(lines.len(), 1, "what was never measured is left out");
        assert_eq!((lines[0].what.as_str(), lines[0].measured), ("batch", 100));
        assert_eq!((lines[0].p50_ns, lines[0].p99_ns), (Some(1024.0), Some(131_072.0)));
        assert!((lines[0].mean_ns - 2980.0).abs() < 1.0);
        assert!(describe(&lines).contains("≤ 1.0 µs"), "{}", describe(&lines));
    }

    #[test]
    fn a_gateway_that_has_measured_nothing_reports_it() {
        assert!(describe(&latencies(&[])).contains("nothing has been measured"));
    }
}
