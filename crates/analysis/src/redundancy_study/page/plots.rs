//! The figures of RE, of one's own traffic.

use redundancy::Method;

use super::size;
use crate::redundancy_study::microscope::Origin;
use crate::redundancy_study::result::{RedundancyResult, Step, WayOverTime};
use crate::report::{Axis, Plot, PlotKind, Series};

/// Protocols of which savings against the cache are drawn.
const PROTOCOLS_DRAWN: usize = 5;
/// Protocols with a smaller share of all bytes have no line.
const PROTOCOL_SHARE_MIN: f64 = 0.01;

fn saved_axis() -> Axis {
    Axis::new("saved", "%")
}

fn share_axis(title: &str) -> Axis {
    Axis::new(title, "%").between(0.0, 100.0)
}

fn steps(name: &str, of: &[Step], scale: f64) -> Series {
    Series::new(name, of.iter().map(|step| (step.to * scale, step.share * 100.0)))
}

pub(super) fn methods(result: &RedundancyResult) -> Plot {
    let bars = |name: &str, of: &dyn Fn(&str) -> Option<f64>| {
        let points = Method::ALL.iter().enumerate();
        Series::new(name, points.filter_map(|(at, method)| Some((at as f64, of(method.name())? * 100.0))))
    };
    let saved = &result.saved;
    let mut series = vec![
        bars("Max-Match", &|method| saved.get(method)?.max_match),
        bars("Chunk-Match", &|method| saved.get(method)?.chunk_match),
    ];
    if let Some(optimal) = result.optimal {
        series.push(bars("at most", &|_| Some(optimal)));
    }
    let names = Method::ALL.map(|method| method.name().to_uppercase());
    Plot::new(PlotKind::Bar, "Savings by method", Axis::of_categories("", "", names), saved_axis(), series)
        .with_note("At most: the seed's estimate, by a filter of all windows in the cache.")
}

pub(super) fn caches(result: &RedundancyResult) -> Plot {
    let megabytes = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let rows = &result.cache_sizes;
    let mut series = vec![Series::new("all", rows.iter().map(|row| (megabytes(row.cache_bytes), row.saved * 100.0)))];
    let drawn = result.by_protocol.iter().filter(|row| row.share >= PROTOCOL_SHARE_MIN && row.saved > 0.0);
    for protocol in drawn.take(PROTOCOLS_DRAWN) {
        let of = rows
            .iter()
            .filter_map(|row| Some((megabytes(row.cache_bytes), row.by_protocol.get(&protocol.protocol)? * 100.0)));
        series.push(Series::new(protocol.protocol.clone(), of));
    }
    let x = Axis::new("cache", "MB").logarithmic();
    Plot::new(PlotKind::Line, "Savings by cache", x, saved_axis(), series)
}

pub(super) fn distances(result: &RedundancyResult) -> Plot {
    let x = Axis::new("distance to the copy, of the cache", "%");
    let series = vec![steps("of what is saved", &result.distances, 100.0)];
    let title = format!("How far back copies lie in a cache of {}", size(result.settings.cache_bytes));
    Plot::new(PlotKind::Cdf, title, x, share_axis("of what is saved"), series)
}

pub(super) fn ages(result: &RedundancyResult) -> Plot {
    let x = Axis::new("age of the copy", "s").logarithmic();
    let series = vec![steps("of what is saved", &result.ages, 1.0)];
    Plot::new(PlotKind::Cdf, "How old copies are", x, share_axis("of what is saved"), series)
}

pub(super) fn lifetimes(result: &RedundancyResult) -> Plot {
    let x = Axis::new("from the first hit to the last", "s").logarithmic();
    let series = vec![steps("of chunks", &result.chunk_lifetimes, 1.0)];
    Plot::new(PlotKind::Cdf, "How long chunks are found", x, share_axis("of chunks"), series)
        .with_note("A chunk that was found once has no time between.")
}

pub(super) fn origins(result: &RedundancyResult) -> Plot {
    let names = ["same flow", "same two hosts", "same source", "same destination", "other hosts"];
    let bars = |name: &str, shares: &std::collections::BTreeMap<&'static str, f64>| {
        let points = Origin::ALL.iter().enumerate();
        Series::new(name, points.map(|(at, origin)| (at as f64, shares[origin.name()] * 100.0)))
    };
    let origins = &result.origins;
    let series = vec![bars("found in", &origins.shares), bars("first sent by", &origins.first_sent)];
    Plot::new(PlotKind::Bar, "Origins", Axis::of_categories("", "", names), Axis::new("of what is saved", "%"), series)
}

pub(super) fn end_hosts(result: &RedundancyResult) -> Plot {
    let hosts = &result.end_hosts;
    let series = vec![steps("clients", &hosts.clients.megabytes, 1.0), steps("servers", &hosts.servers.megabytes, 1.0)];
    let x = Axis::new("caches at most", "MB").logarithmic();
    Plot::new(PlotKind::Cdf, "What end hosts would need", x, share_axis("of hosts"), series)
}

pub(super) fn lengths(result: &RedundancyResult) -> Plot {
    let lengths = &result.match_lengths;
    let series = vec![steps("of matches", &lengths.of_matches, 1.0), steps("of what is saved", &lengths.of_saved, 1.0)];
    Plot::new(PlotKind::Cdf, "Lengths of matches", Axis::new("length", "bytes"), share_axis("up to there"), series)
}

pub(super) fn ranks(result: &RedundancyResult) -> Plot {
    let points = result.hits.by_rank.iter().map(|[rank, hits]| (*rank as f64, *hits as f64));
    let mut series = vec![Series::new("hits", points)];
    if let (Some(alpha), Some(last)) = (result.zipf_alpha, result.hits.by_rank.last()) {
        // Through the middle of what was fitted, on the logarithmic axes.
        let middle = result.hits.by_rank[result.hits.by_rank.len() / 2];
        let at = |rank: f64| middle[1] as f64 * (rank / middle[0] as f64).powf(alpha);
        let ends = [1.0, last[0] as f64];
        series.push(Series::reference(format!("rank to the power of {alpha:.2}"), ends.map(|rank| (rank, at(rank)))));
    }
    let x = Axis::new("rank of the chunk", "").logarithmic();
    Plot::new(PlotKind::Scatter, "Hits by rank", x, Axis::new("hits", "").logarithmic(), series)
}

pub(super) fn contributions(result: &RedundancyResult) -> Plot {
    let series = vec![steps("of what is saved", &result.hits.contributions, 100.0)];
    let x = share_axis("of chunks, those that save most first");
    Plot::new(PlotKind::Line, "What chunks save together", x, share_axis("of what is saved"), series)
}

fn way_name(way: &str) -> &'static str {
    if way == "inbound" { "to the site" } else { "from the site" }
}

pub(super) fn volume(way: &str, of: &WayOverTime) -> Plot {
    let series = vec![
        Series::new("as it is", of.volume.iter().map(|at| (at.seconds as f64, at.mbit_per_s))),
        Series::new("with redundancy elimination", of.volume.iter().map(|at| (at.seconds as f64, at.mbit_per_s_sent))),
    ];
    let title = format!("Volume {}", way_name(way));
    Plot::new(PlotKind::Line, title, Axis::new("time", "s"), Axis::new("volume", "Mbit/s"), series)
}

pub(super) fn usage(way: &str, of: &WayOverTime) -> Plot {
    let line = |name: &str, value: &dyn Fn(usize) -> f64| {
        let points = of.usage_saved.iter().enumerate();
        Series::new(name, points.map(|(at, saved)| (saved.bucket_seconds as f64, value(at) * 100.0)))
    };
    let saved = &of.usage_saved;
    let series = vec![
        line("mean", &|at| saved[at].mean),
        line("median", &|at| saved[at].median),
        line("95th percentile", &|at| saved[at].percentile_95),
        line("peak", &|at| saved[at].peak),
    ];
    let title = format!("What is saved of the usage {}", way_name(way));
    Plot::new(PlotKind::Line, title, Axis::new("usage taken over", "s").logarithmic(), saved_axis(), series)
        .with_note("A link that is paid by its 95th percentile, or built for its peak, saves that.")
}

pub(super) fn energy(way: &str, of: &WayOverTime) -> Plot {
    let line = |value: &dyn Fn(usize) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = of.energy.iter().enumerate();
        points.filter_map(|(at, energy)| Some((energy.seconds, value(at)?))).collect()
    };
    let series = vec![
        Series::new("as it is", line(&|at| Some(of.energy[at].log2_energy))),
        Series::new("with redundancy elimination", line(&|at| of.energy[at].log2_energy_sent)),
        Series::reference("if all of it shrank alike", line(&|at| of.energy[at].log2_energy_uniform)),
    ];
    let title = format!("Burstiness {}", way_name(way));
    // What differs by a factor differs by little on this axis: only the part that is needed is drawn.
    let values = || series.iter().flat_map(|series: &Series| &series.points).map(|point| point.y);
    let ends = [values().fold(f64::MAX, f64::min).floor(), values().fold(f64::MIN, f64::max).ceil()];
    let y = Axis::new("energy, binary logarithm", "");
    let y = if ends[0] < ends[1] { y.between(ends[0], ends[1]) } else { y };
    Plot::new(PlotKind::Line, title, Axis::new("scale", "s").logarithmic(), y, series)
        .with_note("Energy of the Haar wavelet's details, by the length of two neighbouring times that are compared.")
}

pub(super) fn periods(result: &RedundancyResult) -> Plot {
    let line = |method: &Method| {
        let points = result.periods.iter();
        let name = method.name();
        Series::new(
            name.to_uppercase(),
            points.filter_map(|row| Some((row.period_bytes as f64, row.saved.get(name)? * 100.0))),
        )
    };
    let mut series: Vec<Series> = Method::ALL.iter().map(line).collect();
    if let (Some(optimal), Some((first, last))) = (result.optimal, result.periods.first().zip(result.periods.last())) {
        let ends = [first, last].map(|row| (row.period_bytes as f64, optimal * 100.0));
        series.push(Series::reference("at most", ends));
    }
    let x = Axis::new("period p", "bytes").logarithmic();
    Plot::new(PlotKind::Line, "Savings by sampling period", x, saved_axis(), series)
}

pub(super) fn windows(result: &RedundancyResult) -> Plot {
    let rows = &result.windows;
    let names = rows.iter().flat_map(|row| row.saved.keys()).collect::<std::collections::BTreeSet<_>>();
    let line = |name: &&'static str| {
        let of = rows.iter().filter_map(|row| Some((row.window_bytes as f64, row.saved.get(name)? * 100.0)));
        Series::new(name.to_uppercase(), of)
    };
    let mut series: Vec<Series> = names.into_iter().map(line).collect();
    let optimal = rows.iter().filter_map(|row| Some((row.window_bytes as f64, row.optimal? * 100.0)));
    series.push(Series::reference("at most", optimal));
    Plot::new(PlotKind::Line, "Savings by window", Axis::new("window w", "bytes"), saved_axis(), series)
}
