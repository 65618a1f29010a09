//! A report as one page that needs nothing else.

use std::fmt::Write;

use super::dataset::{ColumnKind, Dataset};
use super::plot::{NARROW, Plot, PlotKind, WIDE, colour, draw_sized};
use super::text::escaped;
use super::{Block, Report, STYLE, Section, Tile};

/// Letters of the longest name that stays in one line.
const NAME_CHARACTERS_MAX: usize = 30;

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut body = format!(
        "<header><div class=\"brand\">{}</div><h1>{}</h1><p class=\"lead\">{}</p></header>",
        escaped(&report.subject),
        escaped(&report.title),
        escaped(&report.summary)
    );
    if !report.tiles.is_empty() {
        body.push_str("<div class=\"tiles\">");
        report.tiles.iter().for_each(|tile| body.push_str(&tile_html(tile)));
        body.push_str("</div>");
    }
    report.sections.iter().for_each(|section| body.push_str(&section_html(section)));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>\n{STYLE}</style></head><body><main>\n{body}\n<footer>{}</footer></main></body></html>\n",
        escaped(&report.title),
        escaped(&report.footer)
    )
}

/// A figure with its unit set smaller.
fn tile_html(tile: &Tile) -> String {
    let value = escaped(&tile.value);
    let value =
        value.split_once(' ').map_or_else(|| value.clone(), |(number, unit)| format!("{number} <small>{unit}</small>"));
    format!(
        "<div class=\"tile\"><div class=\"name\">{}</div><div class=\"value\">{value}</div><div class=\"beside\">{}</div></div>",
        escaped(&tile.name),
        escaped(&tile.beside)
    )
}

fn section_html(section: &Section) -> String {
    let mut html = format!("<section class=\"card\"><h2>{}</h2>", escaped(&section.heading));
    for block in &section.blocks {
        // Writing to a string cannot fail, here and below.
        let _ = match block {
            Block::Heading(text) => write!(html, "<h3>{}</h3>", escaped(text)),
            Block::Text(text) => write!(html, "<p>{}</p>", escaped(text)),
            Block::Note(text) => write!(html, "<p class=\"note\">{}</p>", escaped(text)),
            Block::Preformatted(text) => write!(html, "<pre>{}</pre>", escaped(text)),
            Block::Table(table) => write!(html, "{}", table_html(table)),
            Block::Folded(summary, table) => {
                write!(html, "<details><summary>{}</summary>{}</details>", escaped(summary), table_html(table))
            }
            Block::Plot(plot) => write!(html, "{}", plot_html(plot)),
        };
    }
    html.push_str("</section>");
    html
}

fn table_html(table: &Dataset) -> String {
    let class = |number: usize, kind| match kind {
        ColumnKind::Text if is_short(table, number) => " class=\"text name\"",
        ColumnKind::Text => " class=\"text\"",
        _ => "",
    };
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr>");
    for (number, column) in table.columns.iter().enumerate() {
        let _ = write!(html, "<th{}>{}</th>", class(number, column.kind), escaped(column.heading));
    }
    html.push_str("</tr></thead><tbody>");
    for row in 0..table.rows().len() {
        html.push_str("<tr>");
        for (number, column) in table.columns.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(number, column.kind), escaped(&table.shown(row, number)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

/// Whether a column holds names, which are not to be broken into lines, rather than sentences.
fn is_short(table: &Dataset, column: usize) -> bool {
    (0..table.rows().len()).all(|row| table.shown(row, column).chars().count() <= NAME_CHARACTERS_MAX)
}

fn plot_html(plot: &Plot) -> String {
    let mut html = format!("<h3>{}</h3><div class=\"legend\">", escaped(&plot.title));
    // A single row needs no legend beside the title.
    let is_needed = plot.kind != PlotKind::Rows || plot.series.len() > 1;
    for (number, series) in plot.series.iter().enumerate().filter(|_| is_needed) {
        let (colour, name) = (colour(number), escaped(&series.name));
        let dashed = if series.is_reference { " dashed" } else { "" };
        let sample = match plot.kind {
            PlotKind::Line | PlotKind::Cdf => format!("<path class=\"series s{colour}{dashed}\" d=\"M0 4H22\"/>"),
            PlotKind::Bar | PlotKind::Rows => format!("<rect class=\"f{colour}\" width=\"22\" height=\"8\"/>"),
            PlotKind::Scatter => format!("<circle class=\"f{colour}\" cx=\"11\" cy=\"4\" r=\"3\"/>"),
        };
        let _ = write!(html, "<span><svg viewBox=\"0 0 22 8\">{sample}</svg>{name}</span>");
    }
    html.push_str("</div>");
    for (class, size) in [("wide", WIDE), ("narrow", NARROW)] {
        let _ = write!(html, "<div class=\"{class}\">{}</div>", draw_sized(plot, size));
    }
    if !plot.note.is_empty() {
        let _ = write!(html, "<p class=\"note\">{}</p>", escaped(&plot.note));
    }
    html
}
