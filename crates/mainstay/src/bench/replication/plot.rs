//! Figures by the size of objects, as inline SVG: a line for each thing that is compared, with how far a figure may be off.

use std::fmt::Write;

/// A figure, and between what it may lie.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) span: [f64; 2],
}

/// A line: a point for each size that has a figure.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<Option<Point>>,
}

/// What is drawn.
pub(super) struct Plot<'a> {
    pub(super) title: String,
    pub(super) sizes_kb: &'a [u32],
    /// The unit on the axis.
    pub(super) unit: &'a str,
    /// Where the axis ends.
    pub(super) top: f64,
    pub(super) lines: Vec<Line<'a>>,
}

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
const GRID_LINES: usize = 4;
/// Between the lines' points of one size, so that their spans do not lie on each other.
const BESIDE: f64 = 9.0;

impl Plot<'_> {
    /// The drawing.
    pub(super) fn draw(&self) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
            self.title
        );
        self.axes(&mut svg);
        for (number, line) in self.lines.iter().enumerate() {
            self.line(&mut svg, number, line);
        }
        svg.push_str("</svg>");
        svg
    }

    fn x(&self, size: usize) -> f64 {
        let step = (WIDTH - LEFT - RIGHT) / self.sizes_kb.len().max(1) as f64;
        LEFT + (size as f64 + 0.5) * step
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.top).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }

    fn axes(&self, svg: &mut String) {
        for number in 0..=GRID_LINES {
            let value = self.top * number as f64 / GRID_LINES as f64;
            let y = self.y(value);
            // Writing to a string cannot fail, here and below.
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
        for (index, size) in self.sizes_kb.iter().enumerate() {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{size}</text>",
                self.x(index),
                HEIGHT - BOTTOM + 18.0
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">object, KB</text><text x=\"2\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 8.0,
            TOP - 3.0,
            self.unit
        );
    }

    fn line(&self, svg: &mut String, number: usize, line: &Line<'_>) {
        let beside = (number as f64 - (self.lines.len() as f64 - 1.0) / 2.0) * BESIDE;
        let mut path = String::new();
        let mut marks = String::new();
        for (size, point) in line.points.iter().enumerate() {
            let Some(Point { value, span: [low, high] }) = point else { continue };
            let (x, y) = (self.x(size) + beside, self.y(*value));
            let move_to = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{move_to}{x:.1} {y:.1}");
            let _ = write!(
                marks,
                "<line class=\"s-{0}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"/>\
                 <circle class=\"s-{0} f-{0}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"><title>{0}: {value:.1} {3}</title></circle>",
                line.name,
                self.y(*low),
                self.y(*high),
                self.unit,
            );
        }
        let _ = write!(svg, "<path class=\"series s-{}\" d=\"{path}\"/>{marks}", line.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_mark_for_each_figure_and_none_where_there_is_none() {
        let point = |value: f64| Some(Point { value, span: [value - 5.0, value + 5.0] });
        let plot = Plot {
            title: "recovered".into(),
            sizes_kb: &[0, 5, 100],
            unit: "%",
            top: 100.0,
            lines: vec![Line { name: "native", points: vec![point(50.0), None, point(100.0)] }],
        };
        let svg = plot.draw();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains(&format!("cy=\"{:.1}\"", (TOP + HEIGHT - BOTTOM) / 2.0)), "half is in the middle");
        assert!(svg.contains("native: 100.0 %") && svg.contains(">100</text>"), "{svg}");
    }
}
