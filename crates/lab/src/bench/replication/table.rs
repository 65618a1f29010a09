//! The result as people read it in a terminal.

use std::fmt::Write;

use super::report::{CellReport, Report, Row};
use super::statistics::Spread;
use console::{Align, Table};

/// What stands for a figure that there is none of.
const NONE: &str = "–";

/// The whole result.
pub(super) fn describe(report: &Report) -> String {
    let settings = &report.settings;
    let mut text = format!(
        "Of the flows in progress when {} was killed, those that got the rest of their objects.\n\
         {} flows at a time, {} kills each; a flow that did not go on within {} s is lost.\n",
        settings.killed(),
        settings.at_once,
        settings.rounds,
        settings.give_up_s,
    );
    for (loss, rtt_ms) in conditions(report) {
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            text,
            "\nLoss between the gateways {:.0} %, round trip {rtt_ms} ms: recovered (of how many)\n\n{}\n{}",
            loss * 100.0,
            recovered(report, loss, rtt_ms).render(),
            times(report, loss, rtt_ms).render(),
        );
    }
    let rejected: usize = report.cells.iter().map(|cell| cell.rejected_late + cell.rejected_early).sum();
    if rejected > 0 {
        let _ = write!(text, "\nRuns thrown away and made again because the machine was busy: {rejected}\n");
    }
    for what in &report.left_out {
        let _ = write!(text, "\nLeft out: {what}\n");
    }
    text
}

/// The combinations of loss and round trip that were measured, in their order.
pub(super) fn conditions(report: &Report) -> Vec<(f64, u32)> {
    let mut conditions: Vec<(f64, u32)> = Vec::new();
    for cell in &report.cells {
        if !conditions.contains(&(cell.loss, cell.rtt_ms)) {
            conditions.push((cell.loss, cell.rtt_ms));
        }
    }
    conditions
}

/// The cells of one combination, one for each thing that is compared.
pub(super) fn cells(report: &Report, loss: f64, rtt_ms: u32) -> impl Iterator<Item = &CellReport> {
    report.cells.iter().filter(move |cell| (cell.loss, cell.rtt_ms) == (loss, rtt_ms))
}

/// The rows of a cell, one for each size.
pub(super) fn rows_of<'a>(report: &'a Report, cell: &CellReport) -> impl Iterator<Item = &'a Row> {
    let (subject, loss, rtt_ms) = (cell.subject, cell.loss, cell.rtt_ms);
    report.rows.iter().filter(move |row| (row.subject, row.loss, row.rtt_ms) == (subject, loss, rtt_ms))
}

fn recovered(report: &Report, loss: f64, rtt_ms: u32) -> Table {
    let sizes: Vec<String> = report.settings.object_kb.iter().map(|size| format!("{size} KB")).collect();
    let headings = sizes.iter().map(|size| (size.as_str(), Align::Right));
    let columns: Vec<_> = [("TRANSPORT", Align::Left)].into_iter().chain(headings).collect();
    let mut table = Table::new(&columns);
    for cell in cells(report, loss, rtt_ms) {
        let shares = rows_of(report, cell).map(|row| format!("{} ({})", percent(row.recovered), row.at_risk));
        table.row([cell.subject.to_owned()].into_iter().chain(shares));
    }
    table
}

fn times(report: &Report, loss: f64, rtt_ms: u32) -> Table {
    let mut table = Table::of(
        "MEDIAN (99 %), MS|>TO RECOVER|>DETECTION|>ANNOUNCED AFTER|>TCP'S OWN WAIT|>BEYOND DETECTION|>TO CONNECT",
    );
    for cell in cells(report, loss, rtt_ms) {
        table.row([
            cell.subject.to_owned(),
            spread(cell.time_to_recover_ms, 0),
            spread(cell.detection_ms, 0),
            spread(cell.announcement_ms, 1),
            spread(cell.tcp_wait_ms, 0),
            spread(cell.beyond_detection_ms, 0),
            spread(cell.connect_ms, 2),
        ]);
    }
    table
}

/// A share in percent.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || NONE.into(),
        |share| {
            let percent = share * 100.0;
            // 99.6 is not all.
            let places = usize::from(percent.fract() != 0.0 && !(1.0..99.0).contains(&percent));
            format!("{percent:.places$} %")
        },
    )
}

/// `120 (340)`.
pub(super) fn spread(spread: Option<Spread>, places: usize) -> String {
    spread.map_or_else(|| NONE.into(), |Spread { median, p99 }| format!("{median:.places$} ({p99:.places$})"))
}
