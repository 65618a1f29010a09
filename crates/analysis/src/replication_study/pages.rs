//! What was found, as a report and as tables.

use super::config::Method;
use super::hosts::LIFETIMES_MS;
use super::outcome::{Cost, Outcome};
use crate::report::{Axis, Block, ColumnKind, Dataset, Plot, PlotKind, Report, Section, Series, Tile, Value, short};

const PERCENT: f64 = 100.0;

/// The tables of an outcome, for Parquet: `methods`, `thresholds`, `lifetimes`, `beside_the_paper`.
#[must_use]
pub fn datasets(outcome: &Outcome) -> Vec<Dataset> {
    vec![methods(outcome), thresholds(outcome), lifetimes(outcome), beside_the_paper(outcome)]
}

/// The page of an outcome; `subject` is the line above its title, `footer` the last one.
#[must_use]
pub fn report(outcome: &Outcome, subject: &str, footer: &str) -> Report {
    let traffic = &outcome.traffic;
    let mut sections = vec![costs(outcome), failovers(outcome)];
    sections.extend(over_thresholds(outcome));
    sections.push(of_traffic(outcome));
    sections.extend(of_urls(outcome));
    if !outcome.beside_the_paper.is_empty() {
        let blocks = vec![
            Block::Note("Feng: replicating the state of network devices, with Flow Digest and multi-level counting Bloom filters.".into()),
            Block::Table(beside_the_paper(outcome)),
        ];
        sections.push(Section { heading: "Beside the paper".into(), blocks });
    }
    sections.push(not_studied(outcome));
    Report {
        subject: subject.to_owned(),
        title: title(outcome),
        summary: format!(
            "{} connections in {} s of traffic ({} a second, {} in progress at most), followed by the gateway's own tracker. Each way of \
             telling a backup of them was played through with the gateway's own code.",
            short(traffic.connections as f64),
            short(traffic.duration_s),
            short(traffic.connections_per_second),
            short(traffic.connections_max as f64),
        ),
        tiles: tiles(outcome),
        sections,
        footer: footer.to_owned(),
    }
}

fn title(outcome: &Outcome) -> String {
    let compact = outcome.methods.iter().filter(|(name, _)| Method::from_name(name).is_some_and(|of| !of.is_precise()));
    let saving = compact.filter_map(|(name, method)| Some((method.cost.reduction?, *name)));
    match saving.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((saved, name)) if saved > 0.0 => {
            format!("{name} tells a backup of this traffic in {} % fewer bytes", short((saved * 1000.0).round() / 10.0))
        }
        _ => "What it costs to tell a backup of this traffic".into(),
    }
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
        let a_second = found.cost.bytes as f64 / traffic.duration_s.max(1e-9);
        tiles.push(tile(method.name(), format!("{}B/s", with_space(&short(a_second))), "to one backup"));
    }
    tiles
}

/// `12 k` as it is, `12` as `12 `: a unit is to follow.
fn with_space(figure: &str) -> String {
    if figure.contains(' ') { figure.to_owned() } else { format!("{figure} ") }
}

fn cost_columns(name: &'static str, has_threshold: bool) -> Dataset {
    let mut columns = vec![("method", "method", ColumnKind::Text)];
    if has_threshold {
        columns.push(("threshold_ms", "from age, ms", ColumnKind::Integer));
    }
    columns.extend([
        ("bytes", "bytes", ColumnKind::Integer),
        ("messages", "messages", ColumnKind::Integer),
        ("datagrams", "datagrams", ColumnKind::Integer),
        ("reduction", "saved of precise-selective", ColumnKind::Share(1)),
        ("reduction_from_13_bytes", "saved of 13-byte messages", ColumnKind::Share(1)),
        ("reduction_by_threshold", "saved by the threshold", ColumnKind::Share(1)),
        ("overhead", "bytes per protected byte", ColumnKind::Number(5)),
        ("protected_share", "bytes protected", ColumnKind::Share(1)),
        ("entries_at_backup", "entries at the backup", ColumnKind::Integer),
        ("backup_bytes", "bytes of its memory", ColumnKind::Integer),
        ("false_positive", "false positives", ColumnKind::Share(4)),
        ("false_positive_same_hosts", "between known hosts", ColumnKind::Share(4)),
        ("false_negative", "false negatives", ColumnKind::Share(3)),
        ("inaccurate_state", "inaccurate states", ColumnKind::Share(3)),
        ("put_off", "not told yet", ColumnKind::Share(1)),
        ("refused", "without room", ColumnKind::Integer),
    ]);
    Dataset::new(name, &columns)
}

fn cost_row(name: &str, cost: &Cost, has_threshold: bool) -> Vec<Value> {
    let mut row: Vec<Value> = vec![name.into()];
    if has_threshold {
        row.push(u64::from(cost.threshold_ms).into());
    }
    row.extend([
        cost.bytes.into(),
        cost.messages.into(),
        cost.datagrams.into(),
        cost.reduction.into(),
        cost.reduction_from_13_bytes.into(),
        cost.reduction_by_threshold.into(),
        cost.overhead.into(),
        cost.protected_share.into(),
        cost.entries_at_backup.into(),
        cost.backup_bytes.into(),
        cost.false_positive.into(),
        cost.false_positive_same_hosts.into(),
        cost.false_negative.into(),
        cost.inaccurate_state.into(),
        cost.put_off.into(),
        cost.refused.into(),
    ]);
    row
}

fn methods(outcome: &Outcome) -> Dataset {
    let mut table = cost_columns("methods", false);
    for method in Method::ALL {
        if let Some(found) = outcome.methods.get(method.name()) {
            table.push(cost_row(method.name(), &found.cost, false));
        }
    }
    table
}

fn thresholds(outcome: &Outcome) -> Dataset {
    let mut table = cost_columns("thresholds", true);
    for method in Method::ALL {
        for cost in outcome.methods.get(method.name()).iter().flat_map(|found| &found.by_threshold) {
            table.push(cost_row(method.name(), cost, true));
        }
    }
    table
}

fn lifetimes(outcome: &Outcome) -> Dataset {
    let mut table = Dataset::new(
        "lifetimes",
        &[("lifetime_s", "lifetime, s", ColumnKind::Number(3)), ("share", "at most so long", ColumnKind::Share(1))],
    );
    for (seconds, share) in outcome.traffic.lifetime_points_s.iter().zip(&outcome.traffic.lifetime_shares) {
        table.push(vec![(*seconds).into(), (*share).into()]);
    }
    table
}

fn beside_the_paper(outcome: &Outcome) -> Dataset {
    let mut table = Dataset::new(
        "beside_the_paper",
        &[
            ("what", "what", ColumnKind::Text),
            ("seed", "there", ColumnKind::Share(4)),
            ("here", "here", ColumnKind::Share(4)),
            ("why", "why they differ", ColumnKind::Text),
        ],
    );
    for row in &outcome.beside_the_paper {
        table.push(vec![row.what.clone().into(), row.seed.into(), row.here.into(), row.why.into()]);
    }
    table
}

/// The columns of a table with these names.
fn only(table: &Dataset, names: &[&str]) -> Dataset {
    let kept: Vec<usize> = (0..table.columns.len()).filter(|at| names.contains(&table.columns[*at].name)).collect();
    let columns: Vec<_> =
        kept.iter().map(|at| (table.columns[*at].name, table.columns[*at].heading, table.columns[*at].kind)).collect();
    let mut picked = Dataset::new(table.name, &columns);
    for row in table.rows() {
        picked.push(kept.iter().map(|at| row[*at].clone()).collect());
    }
    picked
}

fn names(outcome: &Outcome) -> Vec<&'static str> {
    Method::ALL.into_iter().map(Method::name).filter(|name| outcome.methods.contains_key(name)).collect()
}

/// A figure of a cost, if it has it.
type Figure = fn(&Cost) -> Option<f64>;

fn bars(outcome: &Outcome, title: &str, y: Axis, of: &[(&str, Figure)]) -> Block {
    let names = names(outcome);
    let series = of.iter().map(|(name, figure)| {
        let points = names.iter().enumerate();
        Series::new(*name, points.filter_map(|(at, method)| Some((at as f64, figure(&outcome.methods[method].cost)?))))
    });
    Block::Plot(Plot::new(
        PlotKind::Bar,
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
            "messages",
            "datagrams",
            "reduction",
            "reduction_from_13_bytes",
            "overhead",
            "entries_at_backup",
            "backup_bytes",
        ],
    );
    let bytes = bars(
        outcome,
        "Bytes to one backup",
        Axis::new("", "bytes").logarithmic(),
        &[("bytes", |cost| Some(cost.bytes as f64))],
    );
    let note = "Bytes are those of one direction, with IP and UDP headers; a filter's first telling, before the traffic, and what compares the copies are not among \
                them. Messages of filters are words of the filter that were told. Saved: of the bytes of precise-selective messages, and \
                of bare messages of 13 bytes for each change, as the paper counts.";
    Section {
        heading: "What each method costs".into(),
        blocks: vec![Block::Table(table), bytes, Block::Note(note.into())],
    }
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
            "put_off",
            "refused",
        ],
    );
    let rates = bars(
        outcome,
        "Wrong answers",
        Axis::new("", "%").logarithmic(),
        &[
            ("false positives", |cost| cost.false_positive.map(|rate| rate * PERCENT)),
            ("false negatives", |cost| cost.false_negative.map(|rate| rate * PERCENT)),
            ("inaccurate states", |cost| cost.inaccurate_state.map(|rate| rate * PERCENT)),
        ],
    );
    let note = format!(
        "At {} simulated failovers the backup was asked for connections in progress and for tuples of none. False negatives \
         include what had not been told yet when the primary failed. Rates of zero are not drawn. Not told yet: connections that \
         the method does not tell of in their state; they are not counted as false negatives.",
        outcome.failovers
    );
    Section {
        heading: "What a backup would know at a failover".into(),
        blocks: vec![Block::Table(table), rates, Block::Note(note)],
    }
}

fn lines(outcome: &Outcome, title: &str, y: Axis, of: Figure) -> Block {
    let thresholds =
        || outcome.methods.values().find(|found| found.by_threshold.len() > 1).map(|found| &found.by_threshold);
    let ages: Vec<String> = thresholds().into_iter().flatten().map(|cost| age(cost.threshold_ms)).collect();
    let series = names(outcome).into_iter().filter(|name| outcome.methods[name].by_threshold.len() > 1).map(|name| {
        let costs = outcome.methods[name].by_threshold.iter().enumerate();
        Series::new(name, costs.filter_map(|(at, cost)| Some((at as f64, of(cost)?))))
    });
    Block::Plot(Plot::new(
        PlotKind::Line,
        title,
        Axis::of_categories("told from this age on", "", ages),
        y,
        series.collect(),
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
            "A connection is told once it has reached an age; one that was never answered only when another packet of it comes then.".into(),
        ),
        lines(outcome, "Replication saved by the threshold", share("saved"), |cost| cost.reduction_by_threshold.map(|saved| saved * PERCENT)),
        lines(outcome, "Bytes of connections that are protected", share("protected").between(0.0, 100.0), |cost| {
            cost.protected_share.map(|share| share * PERCENT)
        }),
        lines(outcome, "Overhead", Axis::new("bytes per protected byte", "").logarithmic(), |cost| cost.overhead),
        lines(outcome, "Entries at the backup", Axis::new("entries", ""), |cost| Some(cost.entries_at_backup as f64)),
        Block::Table(only(
            &thresholds(outcome),
            &["method", "threshold_ms", "bytes", "reduction_by_threshold", "protected_share", "overhead", "entries_at_backup", "false_negative"],
        )),
    ];
    Some(Section { heading: "What waiting saves".into(), blocks })
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
            ("network_bytes", "bytes told", ColumnKind::Integer),
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
        "{} requests for {} different URLs, {:.0} bytes long in the mean. If a category of each were told to other nodes: by value that takes {} bytes.",
        short(urls.requests as f64),
        short(urls.distinct as f64),
        urls.mean_bytes,
        short(urls.precise_bytes as f64)
    );
    Some(Section { heading: "Categories of URLs".into(), blocks: vec![Block::Text(text), Block::Table(table)] })
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
