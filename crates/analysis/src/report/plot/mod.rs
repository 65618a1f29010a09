//! Drawings of series of figures over two axes.

mod draw;
mod rows;
mod scale;

use serde::Serialize;

pub(super) use draw::{NARROW, WIDE, colour, draw as draw_sized};

/// How the figures are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlotKind {
    /// A line from point to point, with a mark on each where they are few.
    Line,
    /// A bar for each point; the horizontal axis has categories.
    Bar,
    /// As `Bar`, lying one below the other, each with its figure: for names that are long.
    Rows,
    /// A share that grows in steps: how much lies at or below.
    Cdf,
    /// Points alone.
    Scatter,
}

/// How lengths on an axis grow with the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// In proportion.
    #[default]
    Linear,
    /// By factors; what is not above zero cannot be drawn and is left out.
    Logarithmic,
}

/// An axis.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Axis {
    /// What it measures.
    pub title: String,
    /// In which unit; empty for plain numbers.
    pub unit: String,
    /// How lengths grow.
    pub scale: Scale,
    /// Where it begins; without this at zero (linear), or at the smallest value.
    pub from: Option<f64>,
    /// Where it ends; without this at a round number beyond the largest value.
    pub to: Option<f64>,
    /// Names in place of numbers: the point at 0 belongs to the first, the point at 1 to the second.
    pub categories: Vec<String>,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn new(title: &str, unit: &str) -> Self {
        Self { title: title.to_owned(), unit: unit.to_owned(), ..Self::default() }
    }

    /// An axis of names.
    #[must_use]
    pub fn of_categories<S: Into<String>>(title: &str, unit: &str, names: impl IntoIterator<Item = S>) -> Self {
        Self { categories: names.into_iter().map(Into::into).collect(), ..Self::new(title, unit) }
    }

    /// The axis with a logarithmic scale.
    #[must_use]
    pub fn logarithmic(mut self) -> Self {
        self.scale = Scale::Logarithmic;
        self
    }

    /// The axis between two values.
    #[must_use]
    pub fn between(mut self, from: f64, to: f64) -> Self {
        (self.from, self.to) = (Some(from), Some(to));
        self
    }

    /// Title and unit.
    #[must_use]
    pub fn label(&self) -> String {
        match (self.title.as_str(), self.unit.as_str()) {
            (title, "") => title.to_owned(),
            ("", unit) => unit.to_owned(),
            (title, unit) => format!("{title}, {unit}"),
        }
    }
}

/// A figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// Along the horizontal axis; the category's number where there are categories.
    pub x: f64,
    /// Along the vertical axis.
    pub y: f64,
    /// Between what `y` may lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<[f64; 2]>,
}

/// Figures that belong together.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Series {
    /// What they are of, for the legend.
    pub name: String,
    /// The figures, in the order in which a line goes through them.
    pub points: Vec<Point>,
    /// Drawn dashed: a formula, or the paper's figures beside ours.
    pub is_reference: bool,
}

/// The most points of a series that are drawn; of more, every n-th.
pub const POINTS_DRAWN_MAX: usize = 1_000;

impl Series {
    /// A series of points.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, span: None }).collect();
        Self { name: name.into(), points, is_reference: false }
    }

    /// A series that is drawn dashed beside those that were measured.
    #[must_use]
    pub fn reference(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { is_reference: true, ..Self::new(name, points) }
    }

    /// How much of `samples` lies at or below each of their values, in percent.
    #[must_use]
    pub fn cumulative(name: impl Into<String>, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let all = samples.len() as f64;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (index, sample) in samples.into_iter().enumerate() {
            let share = (index + 1) as f64 / all * 100.0;
            match points.last_mut() {
                Some(last) if last.0.total_cmp(&sample).is_eq() => last.1 = share,
                _ => points.push((sample, share)),
            }
        }
        Self::new(name, points)
    }
}

/// A drawing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plot {
    /// How it is drawn.
    pub kind: PlotKind,
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// How it is to be read; may be empty.
    pub note: String,
}

impl Plot {
    /// A drawing without a note.
    #[must_use]
    pub fn new(kind: PlotKind, title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { kind, title: title.into(), x, y, series, note: String::new() }
    }

    /// The drawing with a note below it.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}
