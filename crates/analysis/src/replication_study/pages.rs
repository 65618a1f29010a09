//! What was found, as a report.

use super::advice::per_second;
use super::config::Method;
use super::hosts::LIFETIMES_MS;
use super::outcome::{Cost, Outcome, Urls};
use super::tables::{beside_the_paper, methods, only, thresholds};
use crate::report::{Axis, Block, ColumnKind, Dataset, Plot, PlotKind, Report, Section, Series, Tile, short};

const PERCENT: f64 = 100.0;

/// The page of an outcome; `subject` is the line above its title, `footer` the last one.
#[must_use]
pub fn report(outcome: &Outcome, subject: &str, footer: &str) -> Report {
    let traffic = &outcome.traffic;
    let mut sections: Vec<Section> = choice(outcome).into_iter().collect();
    sections.extend([costs(outcome), failovers(outcome)]);
    sections.extend(over_thresholds(outcome));
    sections.extend(of_filters(outcome));
    sections.push(of_traffic(outcome));
    sections.extend(of_urls(outcome));
    if !outcome.beside_the_paper.is_empty() {
        let blocks = vec![
            Block::Note("Feng: replicating the state of network devices, with Flow Digest and multi-level counting Bloom filters.".into()),
            Block::Folded("Its figures beside those of this traffic, and why they differ".into(), beside_the_paper(outcome)),
        ];
        sections.push(Section { heading: "Beside the paper".into(), blocks });
    }
    sections.push(not_studied(outcome));
    Report {
        subject: subject.to_owned(),
        title: title(outcome),
        summary: format!(
            "{} connections in {} s of traffic ({} a second, {} in progress at most), followed by the gateway's own tracker. Each way to \
         replicate them to a backup was played through with the gateway's own code.",
            short(traffic.connections as f64),
            short(traffic.busy_s),
            short(traffic.connections_per_second),
            short(traffic.connections_max as f64),
        ),
        tiles: tiles(outcome),
        sections,
        footer: footer.to_owned(),
    }
}

fn title(outcome: &Outcome) -> String {
    match &outcome.advice {
        Some(advice) if advice.method == Method::PreciseSelective.name() => {
            format!("Replicate this traffic by precise messages: {}", per_second(advice.bytes_per_second))
        }
        Some(advice) => format!(
            "Replicate this traffic by {}: {} instead of {}",
            advice.method,
            per_second(advice.bytes_per_second),
            per_second(advice.precise_bytes_per_second)
        ),
        None => "What it costs to replicate this traffic to a backup".into(),
    }
}

/// Which method to choose, before all figures.
fn choice(outcome: &Outcome) -> Option<Section> {
    let advice = outcome.advice.as_ref()?;
    let seconds = outcome.traffic.busy_s.max(1e-9);
    let mut blocks: Vec<Block> = advice.sentences.iter().cloned().map(Block::Text).collect();
    blocks.push(bars(
        outcome,
        "Bytes a second to one backup",
        Axis::new("", "B/s").logarithmic(),
        &[
            ("bytes a second", &|cost| Some(cost.bytes as f64 / seconds)),
            ("comparing the copies", &|cost| (cost.checking_bytes > 0).then(|| cost.checking_bytes as f64 / seconds)),
        ],
    ));
    blocks.push(Block::Note(
        "Of one direction, with IP and UDP headers. Not among them: the first full synchronisation of a filter, before the traffic, and acknowledgements. \
         Comparing the copies is beside the bytes of replication, and is not known of precise messages. The scale is logarithmic."
            .into(),
    ));
    Some(Section { heading: "Which one to choose".into(), blocks })
}

fn tiles(outcome: &Outcome) -> Vec<Tile> {
    let traffic = &outcome.traffic;
    let tile = |name: &str, value: String, beside: &str| Tile { name: name.into(), value, beside: beside.into() };
    let mut tiles = vec![
        tile("Connections", short(traffic.connections as f64), "begun in the traffic"),
        tile("Never answered", format!("{:.1} %", traffic.one_way_share * PERCENT), "packets in one direction only"),
        tile("Median lifetime", format!("{} s", short(traffic.lifetime_quantiles_s[2])), "first packet to last"),
    ];
    for method in [Method::PreciseSelective, Method::FlowDigest, Method::MultiLevelFaSymbols] {
        let Some(found) = outcome.methods.get(method.name()) else { continue };
        let a_second = |bytes: u64| per_second(bytes as f64 / traffic.busy_s.max(1e-9));
        let beside = match found.cost.checking_bytes {
            0 => "to one backup".to_owned(),
            checking_bytes => format!("to one backup, and {} to compare the copies", a_second(checking_bytes)),
        };
        tiles.push(tile(method.name(), a_second(found.cost.bytes), &beside));
    }
    tiles
}

fn names(outcome: &Outcome) -> Vec<&'static str> {
    Method::ALL.into_iter().map(Method::name).filter(|name| outcome.methods.contains_key(name)).collect()
}

/// A figure of a cost, if it has it.
type Figure<'a> = &'a dyn Fn(&Cost) -> Option<f64>;

fn bars(outcome: &Outcome, title: &str, y: Axis, of: &[(&str, Figure<'_>)]) -> Block {
    let names = names(outcome);
    let series = of.iter().map(|(name, figure)| {
        let points = names.iter().enumerate();
        Series::new(*name, points.filter_map(|(at, method)| Some((at as f64, figure(&outcome.methods[method].cost)?))))
    });
    Block::Plot(Plot::new(
        PlotKind::Rows,
        title,
        Axis::of_categories("", "", names.iter().copied()),
        y,
        series.collect(),
    ))
}

fn costs(outcome: &Outcome) -> Section {
    let table = only(
        &methods(outcome),
        &[
            "method",
            "bytes",
            "checking_bytes",
            "messages",
            "datagrams",
            "reduction",
            "overhead",
            "entries_at_backup",
            "backup_bytes",
        ],
    );
    let note = "Messages of filters are words of the filter that were sent. Saved: of the bytes of precise-selective messages.";
    Section { heading: "What each method costs".into(), blocks: vec![Block::Table(table), Block::Note(note.into())] }
}

fn failovers(outcome: &Outcome) -> Section {
    let table = only(
        &methods(outcome),
        &[
            "method",
            "false_positive",
            "false_positive_same_hosts",
            "false_negative",
            "inaccurate_state",
            "deferred",
            "refused",
        ],
    );
    let rates = bars(
        outcome,
        "Wrong answers",
        Axis::new("", "%").logarithmic(),
        &[
            ("false positives", &|cost| cost.false_positive.map(|rate| rate * PERCENT)),
            ("false negatives", &|cost| cost.false_negative.map(|rate| rate * PERCENT)),
            ("inaccurate states", &|cost| cost.inaccurate_state.map(|rate| rate * PERCENT)),
        ],
    );
    let note = format!(
        "At {} simulated failovers the backup was asked for connections in progress and for tuples of none. False negatives \
         include changes that had not been sent when the primary failed. Not replicated yet: connections that \
         the method does not replicate in their state; they are not counted as false negatives.",
        outcome.failovers
    );
    Section {
        heading: "What a backup would know at a failover".into(),
        blocks: vec![Block::Table(table), rates, Block::Note(note)],
    }
}

fn lines(outcome: &Outcome, title: &str, y: Axis, of: Figure<'_>) -> Block {
    let thresholds =
        || outcome.methods.values().find(|found| found.by_threshold.len() > 1).map(|found| &found.by_threshold);
    let ages: Vec<String> = thresholds().into_iter().flatten().map(|cost| age(cost.threshold_ms)).collect();
    // Lines that lie on each other are one line of several names: else only the last of them would be seen.
    let mut series: Vec<Series> = Vec::new();
    for name in names(outcome).into_iter().filter(|name| outcome.methods[name].by_threshold.len() > 1) {
        let costs = outcome.methods[name].by_threshold.iter().enumerate();
        let line = Series::new(name, costs.filter_map(|(at, cost)| Some((at as f64, of(cost)?))));
        match series.iter_mut().find(|other| other.points == line.points) {
            Some(other) => other.name = format!("{}, {name}", other.name),
            None => series.push(line),
        }
    }
    if let [all] = series.as_mut_slice() {
        all.name = "all methods".into();
    }
    Block::Plot(Plot::new(
        PlotKind::Line,
        title,
        Axis::of_categories("replicated from this age on", "", ages),
        y,
        series,
    ))
}

fn age(millis: u32) -> String {
    if millis < 1000 { format!("{millis} ms") } else { format!("{} s", short(f64::from(millis) / 1e3)) }
}

fn over_thresholds(outcome: &Outcome) -> Option<Section> {
    if outcome.methods.values().all(|found| found.by_threshold.len() < 2) {
        return None;
    }
    let share = |title: &str| Axis::new(title, "%");
    let blocks = vec![
        Block::Text(
            "A connection is replicated once it has reached an age; one that was never answered only when another packet of it comes then.".into(),
        ),
        lines(outcome, "Replication saved by the threshold", share("saved"), &|cost| cost.reduction_by_threshold.map(|saved| saved * PERCENT)),
        lines(outcome, "Bytes of connections that are protected", share("protected").between(0.0, 100.0), &|cost| {
            cost.protected_share.map(|share| share * PERCENT)
        }),
        lines(outcome, "Overhead", Axis::new("bytes per protected byte", "").logarithmic(), &|cost| cost.overhead),
        lines(outcome, "Entries at the backup", Axis::new("entries", ""), &|cost| Some(cost.entries_at_backup as f64)),
        Block::Folded(
            "All figures by method and age".into(),
            only(
            &thresholds(outcome),
            &["method", "threshold_ms", "bytes", "reduction_by_threshold", "protected_share", "overhead", "entries_at_backup", "false_negative"],
            ),
        ),
    ];
    Some(Section { heading: "What waiting saves".into(), blocks })
}

/// How full the levels of filters were over time (the paper's figure 23).
fn of_filters(outcome: &Outcome) -> Option<Section> {
    let shown = [Method::MultiLevelFa, Method::MultiLevelFaEstablished, Method::MultiLevelLl, Method::DLeft];
    let plots = shown.into_iter().filter_map(|method| {
        let loads = &outcome.methods.get(method.name())?.level_loads;
        let levels = loads.first().map_or(0, |first| first.loads.len());
        let series = (0..levels).map(|level| {
            let points = loads.iter().filter_map(|at| Some((at.at_s, at.loads.get(level)? * PERCENT)));
            Series::new(format!("level {}", level + 1), points)
        });
        let (x, y) = (Axis::new("time", "s"), Axis::new("cells taken", "%").between(0.0, 100.0));
        (loads.len() > 1).then(|| Block::Plot(Plot::new(PlotKind::Line, method.name(), x, y, series.collect())))
    });
    let mut blocks: Vec<Block> = plots.collect();
    if blocks.is_empty() {
        return None;
    }
    blocks.insert(0, Block::Text(
        "A filter that is nearly full finds no room for connections; one that is nearly empty could be smaller. Its room is that of \
         --connections (in a gateway replication.filter.entries_max)."
            .into(),
    ));
    Some(Section { heading: "How full the filters are".into(), blocks })
}

fn of_traffic(outcome: &Outcome) -> Section {
    let traffic = &outcome.traffic;
    let shares =
        traffic.lifetime_points_s.iter().zip(&traffic.lifetime_shares).map(|(at, share)| (*at, share * PERCENT));
    let lifetimes = Plot::new(
        PlotKind::Cdf,
        "Lifetimes",
        Axis::new("lifetime", "s").logarithmic(),
        Axis::new("connections", "%").between(0.0, 100.0),
        vec![Series::new("connections", shares)],
    );
    let pairs = traffic.parallel.iter().enumerate().filter(|(_, parallel)| parallel.pairs > 0);
    let (mean, most): (Vec<_>, Vec<_>) = pairs
        .map(|(at, parallel)| {
            let mean = parallel.open_max_sum as f64 / parallel.pairs as f64;
            ((at as f64, mean), (at as f64, f64::from(parallel.open_max)))
        })
        .unzip();
    let names = LIFETIMES_MS.into_iter().map(|end| match u32::try_from(end) {
        Ok(millis) => format!("≤ {}", age(millis)),
        Err(_) => "longer".into(),
    });
    let parallel = Plot::new(
        PlotKind::Bar,
        "Connections at a time between two hosts",
        Axis::of_categories("how long the two were connected", "", names),
        Axis::new("connections", "").logarithmic(),
        vec![Series::new("mean of the pairs' most", mean), Series::new("most", most)],
    );
    Section { heading: "The traffic".into(), blocks: vec![Block::Plot(lifetimes), Block::Plot(parallel)] }
}

fn of_urls(outcome: &Outcome) -> Option<Section> {
    let urls = outcome.urls.as_ref()?;
    let mut table = Dataset::new(
        "urls",
        &[
            ("structure", "structure", ColumnKind::Text),
            ("memory_bytes", "bytes of memory", ColumnKind::Integer),
            ("memory_reduction", "saved", ColumnKind::Share(1)),
            ("network_bytes", "bytes sent", ColumnKind::Integer),
            ("network_reduction", "saved", ColumnKind::Share(1)),
            ("false_positive", "false positives", ColumnKind::Share(4)),
            ("inaccurate_state", "inaccurate categories", ColumnKind::Share(4)),
        ],
    );
    for (name, found) in &urls.structures {
        table.push(vec![
            (*name).into(),
            found.memory_bytes.into(),
            found.memory_reduction.into(),
            found.network_bytes.into(),
            found.network_reduction.into(),
            found.false_positive.into(),
            found.inaccurate_state.into(),
        ]);
    }
    let text = format!(
        "{} requests for {} different URLs, {:.0} bytes long in the mean. If a category of each were sent to other nodes: by value that takes {} bytes.",
        short(urls.requests as f64),
        short(urls.distinct as f64),
        urls.mean_bytes,
        short(urls.precise_bytes as f64)
    );
    let beside = "If other nodes are only to know which URLs there are, as the proxies of Summary Cache do: counters of four bits at the node, \
        10 or 40 for each request, and a bit for each counter at its neighbours.";
    let blocks =
        vec![Block::Text(text), Block::Table(table), Block::Text(beside.into()), Block::Table(membership(urls))];
    Some(Section { heading: "Categories of URLs".into(), blocks })
}

fn membership(urls: &Urls) -> Dataset {
    let mut table = Dataset::new(
        "url_membership",
        &[
            ("structure", "structure", ColumnKind::Text),
            ("memory_bytes", "bytes of memory", ColumnKind::Integer),
            ("memory_reduction", "saved", ColumnKind::Share(1)),
            ("neighbour_bytes", "bytes at each neighbour", ColumnKind::Integer),
            ("network_bytes", "bytes sent", ColumnKind::Integer),
            ("network_reduction", "saved", ColumnKind::Share(1)),
            ("flips_bytes", "bytes sent, four for each changed bit", ColumnKind::Integer),
            ("false_positive", "false positives", ColumnKind::Share(4)),
        ],
    );
    for (name, found) in &urls.membership {
        table.push(vec![
            (*name).into(),
            found.memory_bytes.into(),
            found.memory_reduction.into(),
            found.neighbour_bytes.into(),
            found.network_bytes.into(),
            found.network_reduction.into(),
            found.flips_bytes.into(),
            found.false_positive.into(),
        ]);
    }
    table
}

fn not_studied(outcome: &Outcome) -> Section {
    let left_out = &outcome.not_studied;
    let mut table =
        Dataset::new("not_studied", &[("what", "what", ColumnKind::Text), ("number", "number", ColumnKind::Integer)]);
    let frames = left_out.frames.iter().map(|(reason, frames)| (format!("frames: {reason}"), *frames));
    let others = [
        ("packets of connections that began before the capture", left_out.without_connection),
        ("packets that the tracker refuses", left_out.refused),
        ("fragments behind the first", left_out.fragments),
        ("packets that would have begun a connection, without room", left_out.table_full),
        ("connections that gave way to others", left_out.displaced),
    ];
    for (what, number) in
        frames.chain(others.map(|(what, number)| (what.to_owned(), number))).filter(|(_, number)| *number > 0)
    {
        table.push(vec![what.into(), number.into()]);
    }
    let mut blocks: Vec<Block> =
        left_out.damaged.iter().map(|damage| Block::Text(format!("Not read to its end: {damage}"))).collect();
    blocks.push(if table.rows().is_empty() {
        Block::Text("Every frame was studied.".into())
    } else {
        Block::Table(table)
    });
    Section { heading: "What was not studied".into(), blocks }
}
