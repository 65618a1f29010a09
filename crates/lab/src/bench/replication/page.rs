//! The result as one page that needs nothing else.

use std::fmt::Write;

use analysis::report::{Axis, Plot, PlotKind, Point, Series};

use super::report::{CellReport, Report, Row};
use super::seed;
use super::table::{cells, conditions, percent, rows_of, spread};
use analysis::report::{STYLE, date, escaped};

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut sections = vec![header(report)];
    for (loss, rtt_ms) in conditions(report) {
        sections.push(charts(report, loss, rtt_ms));
    }
    sections.extend([comparison(report), cell_figures(report), row_figures(report), method(report)]);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Mainstay: what replication saves</title><style>\n{STYLE}</style></head><body><main>\n{}\n\
         </main></body></html>\n",
        sections.join("\n")
    )
}

fn header(report: &Report) -> String {
    let settings = &report.settings;
    format!(
        "<header><div class=\"brand\">Mainstay bench replication</div>\
         <h1>What is left of the flows in progress when a gateway dies</h1>\
         <p class=\"lead\">{} flows at a time fetch objects through a pair of gateways; one at work is killed and the link \
         between the two cut at the same moment, {} times in each combination. A flow is recovered if it gets the rest of \
         its object within {} s.</p></header>",
        settings.at_once, settings.rounds, settings.give_up_s,
    )
}

/// Recovery and time to recover of one combination of loss and round trip.
fn charts(report: &Report, loss: f64, rtt_ms: u32) -> String {
    let conditions = format!("{:.0} % lost between the gateways, round trip {rtt_ms} ms", loss * 100.0);
    let mut html = format!("<section class=\"card\"><h2>{conditions}</h2><div class=\"legend\">");
    for (number, cell) in cells(report, loss, rtt_ms).enumerate() {
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            html,
            "<span><svg viewBox=\"0 0 22 8\"><path class=\"series s{number}\" d=\"M0 4H22\"/></svg>{}</span>",
            cell.transport
        );
    }
    html.push_str("</div><h3>Recovered</h3>");
    let share = |row: &Row| {
        let (value, span) = (row.recovered?, row.recovered_interval?);
        Some((value * 100.0, span.map(|bound| bound * 100.0)))
    };
    let percent = Axis::new("", "%").between(0.0, 100.0);
    html.push_str(&plot(report, (loss, rtt_ms), &format!("recovered, {conditions}"), percent, share));
    html.push_str("<h3>Time to recover</h3>");
    let time = |row: &Row| row.time_to_recover_ms.map(|spread| (spread.median, [spread.median, spread.p99]));
    let millis = Axis::new("", "ms");
    html.push_str(&plot(report, (loss, rtt_ms), &format!("time to recover, {conditions}"), millis, time));
    html.push_str(
        "<p class=\"note\">Above: shares, and between what they lie with a confidence of 95 %. Below: medians, and up to \
         where all but one in a hundred lie, from the kill on.</p></section>",
    );
    html
}

/// A line for each transport, by the size of objects; `figure` says a row's figure and between what it may lie.
fn plot(
    report: &Report,
    (loss, rtt_ms): (f64, u32),
    title: &str,
    y: Axis,
    figure: impl Fn(&Row) -> Option<(f64, [f64; 2])>,
) -> String {
    let series = cells(report, loss, rtt_ms).map(|cell| {
        let figures = rows_of(report, cell).map(&figure).enumerate();
        let points = figures.filter_map(|(size, figure)| {
            let (y, span) = figure?;
            Some(Point { x: size as f64, y, span: Some(span) })
        });
        Series { points: points.collect(), ..Series::new(cell.transport, []) }
    });
    let sizes = report.settings.object_kb.iter().map(ToString::to_string);
    Plot::new(PlotKind::Line, title, Axis::of_categories("object", "KB", sizes), y, series.collect()).svg()
}

fn comparison(report: &Report) -> String {
    let mut html = String::from(
        "<section class=\"card\"><h2>Beside the paper</h2><p class=\"note\">Neira-Ayuso, Gasca, Lefèvre: FT-FW, a cluster-based \
         fault-tolerant architecture for stateful firewalls, sections 7.2 and 7.2.1.</p><div class=\"scroll\"><table>\
         <thead><tr><th>what</th><th class=\"words\">there</th><th class=\"words\">here</th>\
         <th class=\"words\">why they differ</th></tr></thead><tbody>",
    );
    for row in seed::compare(report) {
        let _ = write!(
            html,
            "<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"words\">{}</td></tr>",
            row.what,
            row.theirs,
            escaped(&row.here),
            row.why
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}

fn cell_figures(report: &Report) -> String {
    let headings = [
        "transport",
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
    let mut html = String::from("<section class=\"card\"><h2>All sizes together</h2>");
    html.push_str(&table(&headings, report.cells.iter().map(cell_figure)));
    html.push_str("<p class=\"note\">Milliseconds: median, and in brackets what all but one in a hundred stay below.</p></section>");
    html
}

fn cell_figure(cell: &CellReport) -> Vec<String> {
    vec![
        cell.transport.into(),
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

fn row_figures(report: &Report) -> String {
    let headings = [
        "transport",
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
    let mut html = String::from("<section class=\"card\"><h2>By size</h2>");
    html.push_str(&table(&headings, report.rows.iter().map(row_figure)));
    html.push_str("</section>");
    html
}

fn row_figure(row: &Row) -> Vec<String> {
    let because = row.lost_because.iter().map(|(why, number)| format!("{why}: {number}"));
    let bound = |index: usize| percent(row.recovered_interval.map(|interval| interval[index]));
    vec![
        row.transport.into(),
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
        because.collect::<Vec<_>>().join("; "),
    ]
}

fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr>");
    headings.iter().for_each(|heading| {
        let _ = write!(html, "<th>{heading}</th>");
    });
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escaped(&cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn method(report: &Report) -> String {
    let Report { settings, program_version, kernel, processors, began_unix_s, left_out, .. } = report;
    let left_out: String = left_out.iter().map(|what| format!("<li>Left out: {}</li>", escaped(what))).collect();
    format!(
        "<section class=\"card\"><h2>How it was measured</h2><p>Network namespaces on one machine: a client, two gateways, a \
         server, each with a kernel's real TCP. The gateways filter statefully, translate the client's address, and pick up no \
         connection in the middle. Each flow fetches one object: what fits TCP's first window at once, the rest at {} kB/s, as \
         if all flows shared a gigabit link. Flows begin at a moderate rate, and in the last moments before the kill wherever \
         one has ended, so that as many as may be are in progress.</p>\
         <p>A flow counts if the dead gateway had established its connection and it was not over at the kill. Those whose every byte had left \
         the gateway already are told apart, and those that were just connecting, which have no state to lose. Flows of 0 \
         and 1 KB live for about a millisecond where the server is near: few of them are caught by a kill, hence the wide \
         spans of their shares; more kills make them narrower.</p>\
         <p>Losses and distance are made by a link emulator that tells how late it was; runs in which more than one packet in \
         a hundred was over {} ms late were thrown away. <code>native-held</code> is the native protocol with \
         <code>hold_first_reply</code>: what it costs shows under <em>to connect</em>.</p><ul>{left_out}</ul>\
         <p class=\"note\">{} kills for each combination, seed {}. Mainstay {}, Linux {}, {processors} processors, {}.</p>\
         </section>",
        settings.flow_bytes_per_s / 1000,
        settings.lateness_ms_max,
        settings.rounds,
        settings.seed,
        escaped(program_version),
        escaped(kernel),
        date(*began_unix_s),
    )
}
