//! RedundancyResult, for people and for programs: one [`Report`] is a page that needs nothing else ([`Report::html`]) and an object of JSON
//! ([`Report::json`]); a [`Dataset`] is a table of typed columns that is also written as Parquet ([`Dataset::write_parquet`]).
//!
//! ```
//! use analysis::report::{Axis, Block, Plot, PlotKind, Report, Section, Series};
//!
//! let lines = vec![Series::new("flow digest", [(5.0, 46.0), (10.0, 73.0)])];
//! let plot = Plot::new(PlotKind::Line, "Saved", Axis::new("new connections", "1/s"), Axis::new("saved", "%").between(0.0, 100.0), lines);
//! let report = Report {
//!     subject: "Mainstay study replication".into(),
//!     title: "What replication costs".into(),
//!     sections: vec![Section { heading: "Bandwidth".into(), blocks: vec![Block::Plot(plot)] }],
//!     ..Report::default()
//! };
//! assert!(report.html().contains("<svg"));
//! ```

mod dataset;
mod page;
mod parquet_file;
mod plot;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

pub use dataset::{Column, ColumnKind, Dataset, Value};
pub use parquet_file::ParquetError;
pub use plot::{Axis, POINTS_DRAWN_MAX, Plot, PlotKind, Point, Scale, Series};
pub use text::{date, escaped, round_up, short};

/// How pages of results look, with colours for light and for dark screens.
pub const STYLE: &str = include_str!("style.css");

/// What was found, in the order in which it is read.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Report {
    /// The small line above the title: which command made the page.
    pub subject: String,
    /// The page's title: the result in a sentence.
    pub title: String,
    /// What was looked at and how, in a few sentences.
    pub summary: String,
    /// The figures to be seen first.
    pub tiles: Vec<Tile>,
    /// The parts of the page.
    pub sections: Vec<Section>,
    /// The last line: versions, date.
    pub footer: String,
}

impl Report {
    /// The page: style and drawings are in it, it runs no script and asks nothing of any network.
    #[must_use]
    pub fn html(&self) -> String {
        page::page(self)
    }

    /// The report as JSON, plots as their numbers.
    ///
    /// # Panics
    ///
    /// Never: every part of a report can be written as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a report is made of strings, numbers and lists")
    }
}

/// A figure that is set large.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Tile {
    /// What it is.
    pub name: String,
    /// The figure, with its unit after a space.
    pub value: String,
    /// What it is of, or what it is compared with.
    pub beside: String,
}

/// A part of a report.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What stands in it.
    pub blocks: Vec<Block>,
}

/// What can stand in a section.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "a report has a few dozen of them, and whoever makes one writes no boxes")]
pub enum Block {
    /// A heading below the section's.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A paragraph set small: how a figure is to be read.
    Note(String),
    /// Text that keeps its lines: a command.
    Preformatted(String),
    /// A table.
    Table(Dataset),
    /// A table that is folded under this line until somebody wants it.
    Folded(String, Dataset),
    /// A drawing.
    Plot(Plot),
}
