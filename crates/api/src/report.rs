//! How a part of the status is shown as metrics, and how the parts of several workers become one.
//!
//! `#[derive(Report)]` (of the crate `report-derive`, which describes the attributes) writes the implementations.

use std::collections::BTreeMap;

pub use report_derive::Report;

use crate::metrics::{Catalogue, Samples};

/// A part of the status.
pub trait Report {
    /// Adds its metrics to the catalogue; `labels` are those of the parts around it.
    fn describe(labels: &[&'static str], catalogue: &mut Catalogue);

    /// Adds its values, in the order of the catalogue.
    fn report(&self, labels: &[(&'static str, &str)], samples: &mut Samples);

    /// Adds the same part of another worker.
    fn merge(&mut self, other: &Self);
}

impl<T: Report> Report for Option<T> {
    fn describe(labels: &[&'static str], catalogue: &mut Catalogue) {
        T::describe(labels, catalogue);
    }

    fn report(&self, labels: &[(&'static str, &str)], samples: &mut Samples) {
        self.iter().for_each(|part| part.report(labels, samples));
    }

    /// Workers without the part change nothing.
    fn merge(&mut self, other: &Self) {
        if let (Some(part), Some(other)) = (self, other) {
            part.merge(other);
        }
    }
}

impl<T: Report> Report for Box<T> {
    fn describe(labels: &[&'static str], catalogue: &mut Catalogue) {
        T::describe(labels, catalogue);
    }

    fn report(&self, labels: &[(&'static str, &str)], samples: &mut Samples) {
        (**self).report(labels, samples);
    }

    fn merge(&mut self, other: &Self) {
        (**self).merge(other);
    }
}

impl<T: Report> Report for Vec<T> {
    fn describe(labels: &[&'static str], catalogue: &mut Catalogue) {
        T::describe(labels, catalogue);
    }

    fn report(&self, labels: &[(&'static str, &str)], samples: &mut Samples) {
        self.iter().for_each(|part| part.report(labels, samples));
    }

    /// All workers have the same parts in the same order, or the lead alone has them.
    fn merge(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(part, other)| part.merge(other));
    }
}

/// What can be the value of a metric. `None`: there is none now.
pub trait Value {
    /// The value. A count beyond 2⁵³ is rounded.
    fn value(&self) -> Option<f64>;
}

/// What can be added.
pub trait Sum {
    /// Adds another worker's value.
    fn sum(&mut self, other: &Self);
}

/// What can be compared.
pub trait Order {
    /// Becomes the other worker's value if that is greater.
    fn greatest(&mut self, other: &Self);

    /// Becomes the other worker's value if that is less. `None` is less than any value.
    fn least(&mut self, other: &Self);
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Value for $kind {
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless, reason = "the page's numbers are floating point")]
            fn value(&self) -> Option<f64> {
                Some(*self as f64)
            }
        }

        impl Sum for $kind {
            fn sum(&mut self, other: &Self) {
                *self += other;
            }
        }

        impl Order for $kind {
            fn greatest(&mut self, other: &Self) {
                *self = (*self).max(*other);
            }

            fn least(&mut self, other: &Self) {
                *self = (*self).min(*other);
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, usize, i64, f64);

impl Value for bool {
    fn value(&self) -> Option<f64> {
        Some(if *self { 1.0 } else { 0.0 })
    }
}

impl Order for bool {
    fn greatest(&mut self, other: &Self) {
        *self |= other;
    }

    fn least(&mut self, other: &Self) {
        *self &= other;
    }
}

impl<T: Value> Value for Option<T> {
    fn value(&self) -> Option<f64> {
        self.as_ref()?.value()
    }
}

impl<T: Sum> Sum for Option<T> {
    /// Without the value of every worker there is no sum.
    fn sum(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Some(value), Some(other)) => value.sum(other),
            _ => *self = None,
        }
    }
}

impl<T: Order + Clone> Order for Option<T> {
    fn greatest(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Some(value), Some(other)) => value.greatest(other),
            (None, Some(other)) => *self = Some(other.clone()),
            _ => {}
        }
    }

    fn least(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Some(value), Some(other)) => value.least(other),
            _ => *self = None,
        }
    }
}

impl Sum for BTreeMap<String, u64> {
    fn sum(&mut self, other: &Self) {
        for (name, count) in other {
            *self.entry(name.clone()).or_default() += count;
        }
    }
}

/// Adds counts that have a key each; keys that are new come last.
pub fn sum_by_key<T: Clone, K: PartialEq>(
    all: &mut Vec<T>,
    others: &[T],
    key: fn(&T) -> &K,
    count: fn(&mut T) -> &mut u64,
) {
    for other in others {
        match all.iter_mut().find(|known| key(known) == key(other)) {
            Some(known) => *count(known) += *count(&mut other.clone()),
            None => all.push(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::metrics::{Kind, Merge};

    #[derive(Clone, Default, Report)]
    #[report(labels(port = self.name), gauge("named", value = !self.name.is_empty(), help = "1 with a name."))]
    struct Part {
        name: String,
        /// Packets
        /// that arrived.
        #[report(sum, counter("packets_total", direction = "received"))]
        received: u64,
        #[report(sum, counter("packets_total", direction = "sent"))]
        sent: u64,
        /// Delay.
        #[report(greatest, gauge("delay_seconds", value = self.delay_ms.map(|delay_ms| delay_ms / 1e3)))]
        delay_ms: Option<f64>,
        #[report(least)]
        is_ready: bool,
    }

    #[derive(Clone, Default, Report)]
    struct Whole {
        #[report(nested(side = "left"))]
        parts: Vec<Part>,
        #[report(nested(side = "right"))]
        other: Option<Box<Part>>,
    }

    fn part(received: u64, delay_ms: Option<f64>, is_ready: bool) -> Part {
        Part { name: "a".into(), received, sent: 1, delay_ms, is_ready }
    }

    #[test]
    fn a_metric_is_described_once_with_the_labels_around_it() {
        let mut catalogue = Catalogue::default();
        Whole::describe(&[], &mut catalogue);
        let names: Vec<_> = catalogue.as_slice().iter().map(|metric| metric.name).collect();
        assert_eq!(names, ["mainstay_named", "mainstay_packets_total", "mainstay_delay_seconds"]);
        let packets = &catalogue.as_slice()[1];
        assert_eq!((packets.kind, packets.merge, packets.help), (Kind::Counter, Merge::Sum, "Packets that arrived."));
        assert_eq!(packets.labels, ["side", "port", "direction"]);
        assert_eq!((catalogue.as_slice()[0].merge, catalogue.as_slice()[2].merge), (Merge::Lead, Merge::Greatest));
    }

    #[test]
    fn values_that_there_are_become_samples() {
        let mut samples = Samples::default();
        let whole = Whole { parts: vec![part(5, None, true), part(6, Some(20.0), true)], other: None };
        whole.report(&[], &mut samples);
        let values: Vec<_> = samples.as_slice().iter().map(|sample| sample.value).collect();
        assert_eq!(values, [1.0, 5.0, 1.0, 1.0, 6.0, 1.0, 0.02]);
        let labels: Vec<_> =
            samples.as_slice()[1].labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(labels, ["direction=received", "port=a", "side=left"]);
    }

    #[test]
    fn each_field_becomes_one_by_its_rule() {
        let mut whole = part(5, None, true);
        whole.merge(&part(6, Some(20.0), true));
        whole.merge(&part(7, Some(10.0), false));
        assert_eq!((whole.received, whole.delay_ms, whole.is_ready), (18, Some(20.0), false));
        let mut sum = Some(3_u64);
        sum.sum(&Some(4));
        assert_eq!(sum, Some(7));
        sum.sum(&None);
        assert_eq!(sum, None, "a worker does not know");
    }

    #[test]
    fn names_kinds_and_labels_are_those_of_prometheus() {
        for metric in catalogue() {
            let is_name = |name: &str| {
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            };
            assert!(is_name(metric.name) && metric.labels.iter().all(|label| is_name(label)), "{metric:?}");
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{metric:?}");
            assert!(!metric.help.is_empty(), "{metric:?}");
        }
    }
}
