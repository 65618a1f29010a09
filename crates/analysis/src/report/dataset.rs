//! A table of typed columns.

use serde::Serialize;

use super::text::grouped;

/// What stands in a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Words.
    Text,
    /// Counts.
    Integer,
    /// Measured figures, shown with this many digits after the point.
    Number(u8),
    /// Shares of one, shown in percent with this many digits after the point.
    Share(u8),
}

/// A column.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Column {
    /// Its name for programs, in Parquet and JSON: `bytes_per_second`.
    pub name: &'static str,
    /// Its heading for people, with the unit.
    pub heading: &'static str,
    /// What stands in it.
    pub kind: ColumnKind,
}

/// A cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Not known, or not applicable.
    Missing,
    /// Words.
    Text(String),
    /// A count.
    Integer(u64),
    /// A figure, or a share of one.
    Number(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Integer(count)
    }
}

impl From<f64> for Value {
    fn from(figure: f64) -> Self {
        Self::Number(figure)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

/// A table, for people on the page and for programs as Parquet.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Dataset {
    /// Its name, which is also its file's: `methods`.
    pub name: &'static str,
    /// The columns.
    pub columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
}

impl Dataset {
    /// An empty table of columns: name, heading, kind.
    #[must_use]
    pub fn new(name: &'static str, columns: &[(&'static str, &'static str, ColumnKind)]) -> Self {
        let columns = columns.iter().map(|&(name, heading, kind)| Column { name, heading, kind }).collect();
        Self { name, columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// If a value is not of its column's kind, or there are more or fewer than columns: the study's mistake.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "a row of {} has a value for each column", self.name);
        for (value, column) in row.iter().zip(&self.columns) {
            let fits = match value {
                Value::Missing => true,
                Value::Text(_) => column.kind == ColumnKind::Text,
                Value::Integer(_) => column.kind == ColumnKind::Integer,
                Value::Number(_) => matches!(column.kind, ColumnKind::Number(_) | ColumnKind::Share(_)),
            };
            assert!(fits, "{value:?} cannot stand in column {} of {}", column.name, self.name);
        }
        self.rows.push(row);
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Value>] {
        &self.rows
    }

    /// A cell as people read it.
    #[must_use]
    pub fn shown(&self, row: usize, column: usize) -> String {
        match (&self.rows[row][column], self.columns[column].kind) {
            (Value::Missing, _) => "–".into(),
            (Value::Text(text), _) => text.clone(),
            (Value::Integer(count), _) => grouped(*count),
            (Value::Number(figure), ColumnKind::Share(digits)) => {
                format!("{:.*} %", usize::from(digits), figure * 100.0)
            }
            (Value::Number(figure), ColumnKind::Number(digits)) => format!("{figure:.*}", usize::from(digits)),
            (Value::Number(figure), _) => figure.to_string(),
        }
    }
}
