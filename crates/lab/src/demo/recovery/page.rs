//! The page of `mainstay bench recovery`: stalls and completions over the outage, as in \[HALR\] figures 12 to 19.

use std::collections::BTreeMap;

use analysis::report::{Axis, Block, ColumnKind, Dataset, Plot, PlotKind, Point, Section, Series, Value};

use super::report::{Quantiles, Report, Row};

/// The kinds of connections, as headings call them.
const KINDS: [(&str, &str); 4] = [
    ("syn", "Connections that were being opened"),
    ("short", "Short flows that waited for an answer"),
    ("bulk_up", "Uploads"),
    ("bulk_down", "Downloads"),
];

/// The page.
pub(super) fn page(report: &Report) -> analysis::report::Report {
    let measured = |kind| report.rows.iter().any(|row| row.kind == kind);
    let kinds =
        KINDS.into_iter().filter(|(kind, _)| measured(*kind)).map(|(kind, heading)| section(report, kind, heading));
    let all = Section { heading: "All figures".into(), blocks: vec![Block::Table(figures(report))] };
    analysis::report::Report {
        subject: "Mainstay bench recovery".into(),
        title: "How long TCP stalls after edges have switched over".into(),
        summary: "A node is killed, and its neighbours find the failure at the end of the outage. Stalls are those of the connections \
                  through the killed node, from the switch-over on: the unused flow time. Lines are medians; bars reach to where all \
                  but one in ten lie."
            .into(),
        tiles: Vec::new(),
        sections: kinds.chain([all]).collect(),
        footer: format!("{} runs of each combination. Mainstay {}", report.rounds, report.program_version),
    }
}

fn section(report: &Report, kind: &str, heading: &str) -> Section {
    let mut blocks = vec![plot(report, kind, "Unused flow time", |row| row.stall_ms)];
    if report.rows.iter().any(|row| row.kind == kind && row.completion_ms.median.is_some()) {
        blocks.push(plot(report, kind, "Completion", |row| row.completion_ms));
    }
    Section { heading: heading.into(), blocks }
}

/// A figure over the outage, with a line for each policy, round trip and TCP.
fn plot(report: &Report, kind: &str, title: &str, figure: fn(&Row) -> Quantiles) -> Block {
    let mut lines: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    for row in report.rows.iter().filter(|row| row.kind == kind) {
        let quantiles = figure(row);
        let (Some(median), Some(p90)) = (quantiles.median, quantiles.p90) else { continue };
        let line = lines.entry(format!("{}, {} ms, {}", row.policy, row.rtt_ms, row.tcp())).or_default();
        line.push(Point { x: row.outage_s, y: median, span: Some([median, p90]) });
    }
    let series = lines.into_iter().map(|(name, points)| Series { points, ..Series::new(name, []) }).collect();
    Block::Plot(Plot::new(PlotKind::Line, title, Axis::new("outage", "s"), Axis::new("", "ms"), series))
}

fn figures(report: &Report) -> Dataset {
    let ms = ColumnKind::Number(1);
    let mut table = Dataset::new(
        "recovery",
        &[
            ("kind", "flow", ColumnKind::Text),
            ("outage_s", "outage, s", ColumnKind::Number(3)),
            ("rtt_ms", "round trip, ms", ms),
            ("tcp", "TCP", ColumnKind::Text),
            ("policy", "policy", ColumnKind::Text),
            ("connections", "connections", ColumnKind::Integer),
            ("stall_ms", "stall, ms", ms),
            ("stall_p90_ms", "90 %, ms", ms),
            ("completion_ms", "completion, ms", ms),
            ("rejected_runs", "rejected runs", ColumnKind::Integer),
        ],
    );
    for row in &report.rows {
        let figure = |value: Option<f64>| value.map_or(Value::Missing, Into::into);
        table.push(vec![
            row.kind.into(),
            row.outage_s.into(),
            row.rtt_ms.into(),
            row.tcp().into(),
            row.policy.as_str().into(),
            (row.connections as u64).into(),
            figure(row.stall_ms.median),
            figure(row.stall_ms.p90),
            figure(row.completion_ms.median),
            u64::from(row.rejected_runs).into(),
        ]);
    }
    table
}
