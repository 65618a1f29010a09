//! Bars that lie, one below the other: there is room for long names on their left and for the figure on their right.

use std::fmt::Write;

use super::draw::{Size, colour};
use super::scale::Span;
use super::{Plot, Series};
use crate::report::text::{escaped, short};

/// Width of a character, about.
const CHARACTER_WIDTH: f64 = 6.8;
/// The most of the width that names get.
const NAMES_SHARE_MAX: f64 = 0.5;
/// Room for the figure behind the longest bar.
const FIGURES: f64 = 84.0;
const BAR: f64 = 13.0;
const BETWEEN: f64 = 9.0;
const TOP: f64 = 6.0;

/// The drawing; it is as high as its rows.
pub(super) fn draw(plot: &Plot, size: Size) -> String {
    let names = &plot.x.categories;
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or_default() as f64;
    let left = (longest * CHARACTER_WIDTH + 12.0).min(size.width * NAMES_SHARE_MAX);
    let row = BAR * plot.series.len().max(1) as f64 + BETWEEN;
    let height = TOP + row * names.len() as f64;
    let title = escaped(&plot.title);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>",
        size.width
    );
    let span = Span::of(&plot.y, plot.series.iter().flat_map(|series| &series.points).map(|point| point.y));
    for (number, name) in names.iter().enumerate() {
        let y = TOP + row * number as f64 + (row - BETWEEN) / 2.0 + 4.0;
        // Writing to a string cannot fail, here and below.
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", left - 8.0, escaped(name));
    }
    let _ = write!(svg, "<line class=\"axis\" x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"0\" y2=\"{height:.1}\"/>");
    let room = (size.width - left - FIGURES).max(1.0);
    for (number, series) in plot.series.iter().enumerate() {
        bars(&mut svg, plot, series, number, |category, value| {
            let top = TOP + row * category + BAR * number as f64;
            (left, top, span.share(value).unwrap_or(0.0) * room)
        });
    }
    svg.push_str("</svg>");
    svg
}

/// `place` returns where the bar of a category and value begins, its height in the plot, and its length.
fn bars(svg: &mut String, plot: &Plot, series: &Series, number: usize, place: impl Fn(f64, f64) -> (f64, f64, f64)) {
    let (colour, name) = (colour(number), escaped(&series.name));
    for point in series.points.iter().filter(|point| point.y.is_finite()) {
        let (left, top, length) = place(point.x, point.y);
        let (figure, unit) = (short(point.y), escaped(&plot.y.unit));
        let gap = if figure.contains(' ') { "" } else { " " };
        let _ = write!(
            svg,
            "<rect class=\"f{colour}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{:.1}\"><title>{name}: {figure}{gap}{unit}</title></rect>\
             <text x=\"{:.1}\" y=\"{:.1}\">{figure}{gap}{unit}</text>",
            BAR - 1.0,
            left + length + 6.0,
            top + BAR - 2.5
        );
    }
}
