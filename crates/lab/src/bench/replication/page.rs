//! The result as one page that needs nothing else.

use analysis::report::{Axis, Block, ColumnKind, Dataset, Plot, PlotKind, Point, Section, Series, date};

use super::report::{CellReport, Report, Row};
use super::seed;
use super::table::{cells, conditions, percent, rows_of, spread};

/// The page.
pub(super) fn page(report: &Report) -> analysis::report::Report {
    let Report { settings, program_version, kernel, processors, began_unix_s, .. } = report;
    let charts = conditions(report).into_iter().map(|(loss, rtt_ms)| charts(report, loss, rtt_ms));
    let tables = [comparison(report), cell_figures(report), row_figures(report), method(report)];
    analysis::report::Report {
        subject: "Mainstay bench replication".into(),
        title: "What is left of the flows in progress when a gateway dies".into(),
        summary: format!(
            "{} flows at a time fetch objects through a pair of gateways; one at work is killed and the link between the two cut at \
             the same moment, {} times in each combination. A flow is recovered if it gets the rest of its object within {} s.",
            settings.at_once, settings.rounds, settings.give_up_s,
        ),
        tiles: Vec::new(),
        sections: charts.chain(tables).collect(),
        footer: format!(
            "{} kills for each combination, seed {}. Mainstay {program_version}, Linux {kernel}, {processors} processors, {}.",
            settings.rounds,
            settings.seed,
            date(*began_unix_s),
        ),
    }
}

fn section(heading: impl Into<String>, blocks: Vec<Block>) -> Section {
    Section { heading: heading.into(), blocks }
}

/// Recovery and time to recover of one combination of loss and round trip.
fn charts(report: &Report, loss: f64, rtt_ms: u32) -> Section {
    let share = |row: &Row| {
        let (value, span) = (row.recovered?, row.recovered_interval?);
        Some((value * 100.0, span.map(|bound| bound * 100.0)))
    };
    let percent = Axis::new("", "%").between(0.0, 100.0);
    let time = |row: &Row| row.time_to_recover_ms.map(|spread| (spread.median, [spread.median, spread.p99]));
    let note = "Above: shares, and between what they lie with a confidence of 95 %. Below: medians, and up to where all but one in a \
                hundred lie, from the kill on.";
    section(
        format!("{:.0} % lost between the gateways, round trip {rtt_ms} ms", loss * 100.0),
        vec![
            plot(report, (loss, rtt_ms), "Recovered", percent, share),
            plot(report, (loss, rtt_ms), "Time to recover", Axis::new("", "ms"), time),
            Block::Note(note.into()),
        ],
    )
}

/// A line for each subject, by the size of objects; `figure` returns a row's figure and its bounds.
fn plot(
    report: &Report,
    (loss, rtt_ms): (f64, u32),
    title: &str,
    y: Axis,
    figure: impl Fn(&Row) -> Option<(f64, [f64; 2])>,
) -> Block {
    let series = cells(report, loss, rtt_ms).map(|cell| {
        let figures = rows_of(report, cell).map(&figure).enumerate();
        let points = figures.filter_map(|(size, figure)| {
            let (y, span) = figure?;
            Some(Point { x: size as f64, y, span: Some(span) })
        });
        Series { points: points.collect(), ..Series::new(cell.subject, []) }
    });
    let sizes = report.settings.object_kb.iter().map(ToString::to_string);
    Block::Plot(Plot::new(PlotKind::Line, title, Axis::of_categories("object", "KB", sizes), y, series.collect()))
}

fn comparison(report: &Report) -> Section {
    let paper = "Neira-Ayuso, Gasca, Lefèvre: FT-FW, a cluster-based fault-tolerant architecture for stateful firewalls, sections 7.2 \
                 and 7.2.1.";
    let rows = seed::compare(report).into_iter();
    let rows = rows.map(|row| vec![row.what.into(), row.theirs.into(), row.here, row.reason.into()]);
    let table = table("comparison", &["what", "there", "here", "why they differ"], rows);
    section("Beside the paper", vec![Block::Note(paper.into()), table])
}

fn cell_figures(report: &Report) -> Section {
    let headings = [
        "subject",
        "loss",
        "RTT, ms",
        "kills",
        "thrown away",
        "at risk",
        "recovered",
        "to recover",
        "detection",
        "announced after",
        "first packet after",
        "TCP's own wait",
        "beyond detection",
        "to connect",
    ];
    let note = "Milliseconds: median, and in brackets what all but one in a hundred stay below.";
    let table = table("cells", &headings, report.cells.iter().map(cell_figure));
    section("All sizes together", vec![table, Block::Note(note.into())])
}

fn cell_figure(cell: &CellReport) -> Vec<String> {
    vec![
        cell.subject.into(),
        percent(Some(cell.loss)),
        cell.rtt_ms.to_string(),
        cell.kills.to_string(),
        (cell.rejected_late + cell.rejected_early).to_string(),
        cell.at_risk.to_string(),
        percent(cell.recovered),
        spread(cell.time_to_recover_ms, 0),
        spread(cell.detection_ms, 1),
        spread(cell.announcement_ms, 1),
        spread(cell.first_packet_ms, 1),
        spread(cell.tcp_wait_ms, 0),
        spread(cell.beyond_detection_ms, 0),
        spread(cell.connect_ms, 2),
    ]
}

fn row_figures(report: &Report) -> Section {
    let headings = [
        "subject",
        "loss",
        "RTT, ms",
        "object, KB",
        "at risk",
        "recovered",
        "from",
        "to",
        "to recover",
        "beyond detection",
        "connecting (finished)",
        "unaffected",
        "lost because",
    ];
    section("By size", vec![table("rows", &headings, report.rows.iter().map(row_figure))])
}

fn row_figure(row: &Row) -> Vec<String> {
    let reasons = row.lost_by_reason.iter().map(|(reason, number)| format!("{reason}: {number}"));
    let bound = |index: usize| percent(row.recovered_interval.map(|interval| interval[index]));
    vec![
        row.subject.into(),
        percent(Some(row.loss)),
        row.rtt_ms.to_string(),
        row.object_kb.to_string(),
        row.at_risk.to_string(),
        percent(row.recovered),
        bound(0),
        bound(1),
        spread(row.time_to_recover_ms, 0),
        spread(row.beyond_detection_ms, 0),
        format!("{} ({})", row.connecting[0], row.connecting[1]),
        row.unaffected.to_string(),
        reasons.collect::<Vec<_>>().join("; "),
    ]
}

fn table(name: &'static str, headings: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> Block {
    let columns: Vec<_> = headings.iter().map(|heading| (*heading, *heading, ColumnKind::Text)).collect();
    let mut table = Dataset::new(name, &columns);
    rows.for_each(|row| table.push(row.into_iter().map(Into::into).collect()));
    Block::Table(table)
}

fn method(report: &Report) -> Section {
    let settings = &report.settings;
    let texts = [
        format!(
            "Network namespaces on one machine: a client, two gateways, a server, each with a kernel's real TCP. The gateways filter \
             statefully, translate the client's address, and pick up no connection in the middle. Each flow fetches one object: \
             what fits TCP's first window at once, the rest at {} kB/s, as if all flows shared a gigabit link. Flows begin at a \
             moderate rate, and in the last moments before the kill wherever one has ended, so that as many as may be are in \
             progress.",
            settings.flow_bytes_per_s / 1000,
        ),
        "A flow counts if the dead gateway had established its connection and it was not over at the kill. Those whose every byte \
         had left the gateway already are counted apart, and those that were just connecting, which have no state to lose. Flows of \
         0 and 1 KB live for about a millisecond where the server is near: few of them are caught by a kill, hence the wide \
         spans of their shares; more kills make them narrower."
            .into(),
        format!(
            "Losses and distance are made by a link emulator that reports how late it was; runs in which more than one packet in a \
             hundred was over {} ms late were thrown away. native-held is the native protocol with hold_first_reply: what it costs \
             shows under \"to connect\".",
            settings.lateness_ms_max,
        ),
    ];
    let left_out = report.left_out.iter().map(|what| format!("Left out: {what}"));
    section("How it was measured", texts.into_iter().chain(left_out).map(Block::Text).collect())
}
