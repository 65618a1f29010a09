//! Drawings as inline SVG.

use std::fmt::Write;

use super::scale::{Span, names};
use super::{POINTS_DRAWN_MAX, Plot, PlotKind, Point, Series};
use crate::report::text::{escaped, short};

/// The size of a drawing in user units, which are pixels at full width.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::report) struct Size {
    pub(super) width: f64,
    height: f64,
}

/// For pages as wide as a desk's screen.
pub(in crate::report) const WIDE: Size = Size { width: 920.0, height: 300.0 };
/// For phones.
pub(in crate::report) const NARROW: Size = Size { width: 360.0, height: 280.0 };

const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 44.0;
/// Between the points of one category, so that their spans do not lie on each other.
const BESIDE: f64 = 9.0;
/// A line with more points than this has no marks.
const MARKED_POINTS_MAX: usize = 60;
/// What of a category's room its bars fill.
const BARS_SHARE: f64 = 0.8;
const COLOURS: usize = 10;

/// The number of the colour of the series with this number.
pub(in crate::report) const fn colour(series: usize) -> usize {
    series % COLOURS
}

/// The drawing.
pub(in crate::report) fn draw(plot: &Plot, size: Size) -> String {
    if plot.kind == PlotKind::Rows {
        return super::rows::draw(plot, size);
    }
    let title = escaped(&plot.title);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>",
        size.width, size.height
    );
    let frame = Frame::of(plot, size);
    frame.axes(&mut svg);
    for (number, series) in plot.series.iter().enumerate() {
        match plot.kind {
            PlotKind::Bar | PlotKind::Rows => frame.bars(&mut svg, number, series),
            PlotKind::Line | PlotKind::Cdf | PlotKind::Scatter => frame.line(&mut svg, number, series),
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Where things are in a drawing.
struct Frame<'a> {
    plot: &'a Plot,
    size: Size,
    x: Span,
    y: Span,
}

impl<'a> Frame<'a> {
    fn of(plot: &'a Plot, size: Size) -> Self {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let highest = |point: &Point| point.span.map_or(point.y, |[_, high]| high.max(point.y));
        let ys = points().flat_map(move |point| [point.y, highest(point)]);
        Self { plot, size, x: Span::of(&plot.x, points().map(|point| point.x)), y: Span::of(&plot.y, ys) }
    }

    fn floor(&self) -> f64 {
        self.size.height - BOTTOM
    }

    fn inner_width(&self) -> f64 {
        self.size.width - LEFT - RIGHT
    }

    fn at_x(&self, value: f64) -> Option<f64> {
        Some(LEFT + self.x.share(value)? * self.inner_width())
    }

    fn at_y(&self, value: f64) -> Option<f64> {
        Some(self.floor() - self.y.share(value)? * (self.floor() - TOP))
    }

    fn axes(&self, svg: &mut String) {
        let (right, floor) = (self.size.width - RIGHT, self.floor());
        for (value, text) in self.y.labels() {
            let Some(y) = self.at_y(value) else { continue };
            let class = if y >= floor - 0.01 { "axis" } else { "grid" };
            // Writing to a string cannot fail, here and below.
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 7.0,
                y + 4.0
            );
        }
        let categories = names(&self.plot.x, self.inner_width()).map(|(at, name)| (at, escaped(name)));
        let labels: Vec<(f64, String)> =
            if self.plot.x.categories.is_empty() { self.x.labels() } else { categories.collect() };
        for (value, text) in labels {
            let Some(x) = self.at_x(value) else { continue };
            let anchor = if x >= right - 1.0 { "end" } else { "middle" };
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
                floor + 4.0,
                floor + 18.0
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><text x=\"2\" y=\"12\">{}</text>",
            self.size.height - 8.0,
            escaped(&self.plot.x.label()),
            escaped(&self.plot.y.label())
        );
    }

    fn line(&self, svg: &mut String, number: usize, series: &Series) {
        // Where figures may lie within spans, these must not lie on each other.
        let has_spans = self.plot.series.iter().flat_map(|series| &series.points).any(|point| point.span.is_some());
        let beside = if self.plot.x.categories.is_empty() || !has_spans {
            0.0
        } else {
            (number as f64 - (self.plot.series.len() as f64 - 1.0) / 2.0) * BESIDE
        };
        let every = series.points.len().div_ceil(POINTS_DRAWN_MAX).max(1);
        let has_marks = self.plot.kind == PlotKind::Scatter || series.points.len() <= MARKED_POINTS_MAX;
        let (mut path, mut marks) = (String::new(), String::new());
        let last = series.points.len().saturating_sub(1);
        let drawn = series.points.iter().enumerate().filter(|(index, _)| index % every == 0 || *index == last);
        for (_, point) in drawn {
            let (Some(x), Some(y)) = (self.at_x(point.x), self.at_y(point.y)) else { continue };
            let x = x + beside;
            let _ = match (path.is_empty(), self.plot.kind) {
                (true, _) => write!(path, "M{x:.1} {y:.1}"),
                (false, PlotKind::Cdf) => write!(path, "H{x:.1}V{y:.1}"),
                (false, _) => write!(path, "L{x:.1} {y:.1}"),
            };
            if has_marks && self.plot.kind != PlotKind::Cdf {
                self.mark(&mut marks, colour(number), series, point, (x, y));
            }
        }
        if self.plot.kind != PlotKind::Scatter && !path.is_empty() {
            let dashed = if series.is_reference { " dashed" } else { "" };
            let (colour, name) = (colour(number), escaped(&series.name));
            let _ = write!(svg, "<path class=\"series s{colour}{dashed}\" d=\"{path}\"><title>{name}</title></path>");
        }
        svg.push_str(&marks);
    }

    fn mark(&self, svg: &mut String, colour: usize, series: &Series, point: &Point, (x, y): (f64, f64)) {
        if let Some([low, high]) = point.span.map(|span| span.map(|bound| self.at_y(bound).unwrap_or(y))) {
            let _ =
                write!(svg, "<line class=\"s{colour}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>");
        }
        let _ = write!(
            svg,
            "<circle class=\"s{colour} f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}: {} {}</title></circle>",
            escaped(&series.name),
            short(point.y),
            escaped(&self.plot.y.unit)
        );
    }

    fn bars(&self, svg: &mut String, number: usize, series: &Series) {
        let categories = self.plot.x.categories.len().max(1) as f64;
        let room = self.inner_width() / categories * BARS_SHARE;
        let width = room / self.plot.series.len().max(1) as f64;
        let colour = colour(number);
        for point in &series.points {
            let (Some(x), Some(y)) = (self.at_x(point.x), self.at_y(point.y)) else { continue };
            let left = x - room / 2.0 + width * number as f64;
            let _ = write!(
                svg,
                "<rect class=\"f{colour}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}: {} {}</title></rect>",
                (width - 1.0).max(1.0),
                (self.floor() - y).max(0.0),
                escaped(&series.name),
                short(point.y),
                escaped(&self.plot.y.unit)
            );
            if let Some([low, high]) = point.span.map(|span| span.map(|bound| self.at_y(bound).unwrap_or(y))) {
                let middle = left + width / 2.0;
                let _ = write!(
                    svg,
                    "<line class=\"mark\" x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
                );
            }
        }
    }
}
