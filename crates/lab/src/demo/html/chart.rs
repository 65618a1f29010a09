//! Charts of progress around the kill, as inline SVG.

use std::fmt::Write;

use analysis::report::round_up;

use crate::demo::report::{RunReport, SLICE_MS, Slice, WINDOW_AFTER_MS, WINDOW_BEFORE_MS};
use crate::testbed::traffic::Kind;

/// What a chart shows of its kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quantity {
    /// Verified bytes, in Mbit/s.
    Throughput,
    /// Answers a second.
    Answers,
}

impl Quantity {
    /// The kinds that it is shown of.
    #[must_use]
    pub(super) const fn kinds(self) -> [Kind; 2] {
        match self {
            Self::Throughput => [Kind::Download, Kind::Upload],
            Self::Answers => [Kind::Ticks, Kind::Udp],
        }
    }

    /// The unit on the axis.
    #[must_use]
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "Mbit/s",
            Self::Answers => "answers/s",
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "what is drawn has three digits")]
    fn of(self, slice: &Slice) -> f64 {
        match self {
            Self::Throughput => slice.bytes as f64 * 8.0 / 1e6 / (SLICE_MS / 1e3),
            Self::Answers => slice.answers as f64 / (SLICE_MS / 1e3),
        }
    }

    /// The largest value in a run.
    #[must_use]
    pub(super) fn peak(self, run: &RunReport) -> f64 {
        let shown = run.slices.iter().filter(|slice| self.kinds().contains(&slice.kind));
        shown.map(|slice| self.of(slice)).fold(0.0, f64::max)
    }
}

/// The size of a chart in user units, which are pixels at full width.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Size {
    /// Across.
    pub(super) width: f64,
    /// Down.
    pub(super) height: f64,
    /// Milliseconds between two labels of the time axis.
    pub(super) label_every_ms: f64,
}

/// For pages as wide as a desk's screen.
pub(super) const WIDE: Size = Size { width: 920.0, height: 290.0, label_every_ms: 100.0 };
/// For phones.
pub(super) const NARROW: Size = Size { width: 360.0, height: 290.0, label_every_ms: 300.0 };

const LEFT: f64 = 46.0;
const RIGHT: f64 = 10.0;
const BOTTOM: f64 = 38.0;
const MARK_ROW: f64 = 16.0;
const GRID_LINES: usize = 4;

/// A moment that is marked.
struct Mark {
    at_ms: f64,
    text: String,
}

/// Where things are in a chart.
struct Frame {
    size: Size,
    top: f64,
    y_max: f64,
}

impl Frame {
    fn x(&self, ms: f64) -> f64 {
        let span = WINDOW_BEFORE_MS + WINDOW_AFTER_MS;
        LEFT + (ms + WINDOW_BEFORE_MS) / span * (self.size.width - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.floor() - value / self.y_max * (self.floor() - self.top)
    }

    fn floor(&self) -> f64 {
        self.size.height - BOTTOM
    }
}

/// One run's chart; `peak` is the largest value of all charts that are to be compared with it.
#[must_use]
pub(super) fn chart(run: &RunReport, quantity: Quantity, peak: f64, size: Size, title: &str) -> String {
    let marks = marks(run);
    // Rows for four marks in every chart, so that charts that belong together have equal scales.
    let frame = Frame { size, top: 8.0 + 4.0 * MARK_ROW, y_max: round_up(peak) };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>",
        size.width, size.height
    );
    outage(&mut svg, &frame, run);
    axes(&mut svg, &frame, quantity);
    for kind in quantity.kinds() {
        series(&mut svg, &frame, run, quantity, kind);
    }
    draw_marks(&mut svg, &frame, &marks);
    svg.push_str("</svg>");
    svg
}

fn marks(run: &RunReport) -> Vec<Mark> {
    let mut marks = vec![Mark { at_ms: 0.0, text: "active node killed".into() }];
    let mut add = |at: Option<f64>, what: &str| {
        if let Some(at_ms) = at {
            marks.push(Mark { at_ms, text: format!("{what} +{at_ms:.0} ms") });
        }
    };
    add(run.detection_ms, "detected");
    add(run.takeover_ms, "addresses announced");
    add(run.resumption_ms(), "bytes flow again");
    marks
}

/// The time in which no connection made progress, shaded.
fn outage(svg: &mut String, frame: &Frame, run: &RunReport) {
    let end = run.resumption_ms().unwrap_or(WINDOW_AFTER_MS).min(WINDOW_AFTER_MS);
    let (left, right) = (frame.x(0.0), frame.x(end));
    let (top, height, width) = (frame.top, frame.floor() - frame.top, right - left);
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        svg,
        "<rect class=\"outage\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    );
}

#[allow(clippy::cast_precision_loss, reason = "a handful of lines")]
fn axes(svg: &mut String, frame: &Frame, quantity: Quantity) {
    let (left, right, floor) = (LEFT, frame.size.width - RIGHT, frame.floor());
    for line in 0..=GRID_LINES {
        let value = frame.y_max * line as f64 / GRID_LINES as f64;
        let y = frame.y(value);
        let class = if line == 0 { "axis" } else { "grid" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            left - 7.0,
            y + 4.0
        );
    }
    let _ = write!(svg, "<text x=\"0\" y=\"{:.1}\">{}</text>", frame.top - 12.0, quantity.unit());
    let mut ms = -WINDOW_BEFORE_MS;
    while ms <= WINDOW_AFTER_MS {
        let x = frame.x(ms);
        let anchor = if ms >= WINDOW_AFTER_MS { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor:.1}\" y2=\"{:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{ms:.0}</text>",
            floor + 4.0,
            floor + 17.0
        );
        ms += frame.size.label_every_ms;
    }
    let _ = write!(
        svg,
        "<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">milliseconds from the kill</text>",
        floor + 33.0
    );
}

/// A line in steps, one for each slice; slices in which nothing came are at zero.
fn series(svg: &mut String, frame: &Frame, run: &RunReport, quantity: Quantity, kind: Kind) {
    let mut path = String::new();
    let mut end = None;
    for slice in run.slices.iter().filter(|slice| slice.kind == kind) {
        let (from, y) = (slice.after_kill_ms.max(-WINDOW_BEFORE_MS), frame.y(quantity.of(slice)));
        let to = (slice.after_kill_ms + SLICE_MS).min(WINDOW_AFTER_MS);
        let move_to = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{move_to}{:.1} {y:.1}H{:.1}", frame.x(from), frame.x(to));
        end = Some(to);
    }
    // Nothing came any more, for as long as is shown.
    if end.is_some_and(|end| end < WINDOW_AFTER_MS) {
        let _ = write!(path, "V{:.1}H{:.1}", frame.floor(), frame.x(WINDOW_AFTER_MS));
    }
    if !path.is_empty() {
        let label = kind.label();
        let _ = write!(svg, "<path class=\"series {label}\" d=\"{path}\"><title>{label}</title></path>");
    }
}

/// Each mark has a row of its own for its text, the first the uppermost, so that no text crosses a later mark's line.
fn draw_marks(svg: &mut String, frame: &Frame, marks: &[Mark]) {
    let mut row = MARK_ROW;
    for (index, mark) in marks.iter().filter(|mark| mark.at_ms <= WINDOW_AFTER_MS).enumerate() {
        let (x, floor) = (frame.x(mark.at_ms), frame.floor());
        let class = if index == 0 { "mark kill" } else { "mark" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{floor:.1}\"/>\
             <text class=\"mark-text\" x=\"{:.1}\" y=\"{row:.1}\">{}</text>",
            row - 11.0,
            x + 5.0,
            mark.text
        );
        row += MARK_ROW;
    }
}
