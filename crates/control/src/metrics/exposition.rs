//! The Prometheus text format, version 0.0.4 (prometheus.io, "Exposition formats").

use std::fmt::Write;

use api::catalogue;
use api::metrics::{Description, Kind, Sample, Samples};

/// The format's media type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page: each metric that has a value, with its help and type, in the order of the catalogue.
#[must_use]
pub fn render(samples: &Samples) -> String {
    let mut page = String::new();
    for metric in catalogue() {
        let mut first = true;
        for sample in samples.as_slice().iter().filter(|sample| is_of(sample, metric)) {
            if first {
                head(&mut page, metric);
                first = false;
            }
            line(&mut page, sample);
        }
    }
    page
}

/// Whether a sample is a value of the metric: of a histogram also a bucket, the sum or the count.
fn is_of(sample: &Sample, metric: &Description) -> bool {
    match sample.name.strip_prefix(metric.name) {
        Some("_bucket" | "_sum" | "_count") => metric.kind == Kind::Histogram,
        rest => rest == Some("") && metric.kind != Kind::Histogram,
    }
}

fn head(page: &mut String, metric: &Description) {
    let (name, help) = (metric.name, metric.help.replace('\\', "\\\\").replace('\n', "\\n"));
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    // Writing to a string cannot fail.
    let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(page: &mut String, sample: &Sample) {
    page.push_str(&sample.name);
    for (index, (name, value)) in sample.labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(page, "{}{name}=\"{value}\"", if index == 0 { '{' } else { ',' });
    }
    if !sample.labels.is_empty() {
        page.push('}');
    }
    let _ = writeln!(page, " {}", sample.value);
}
