//! What `mainstay bench operations` prints.

use serde::Serialize;

use crate::bench::rounds::{Rounds, rounded};
use console::Table;

/// One operation.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) operation: String,
    /// Instructions in user space; not there if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instructions: Option<f64>,
    /// The median of the rounds; not there if it was not timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ns: Option<f64>,
    /// Least and greatest of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ns_span: Option<[f64; 2]>,
}

impl Row {
    pub(super) fn of_times(operation: &str, figures: &Rounds) -> Self {
        Self {
            operation: operation.to_owned(),
            instructions: None,
            ns: Some(rounded(figures.median(), 2)),
            ns_span: Some(figures.span().map(|ns| rounded(ns, 2))),
        }
    }

    pub(super) fn of_instructions(operation: String, instructions: f64) -> Self {
        Self { operation, instructions: Some(rounded(instructions, 1)), ns: None, ns_span: None }
    }

    pub(super) fn set_instructions(&mut self, instructions: f64) {
        self.instructions = Some(rounded(instructions, 1));
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) rounds: u32,
    pub(super) operations: Vec<Row>,
}

impl Report {
    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let mut table = Table::of("OPERATION|>INSTRUCTIONS|>NANOSECONDS|>LEAST|>MOST");
        let cell = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.1}"));
        for row in &self.operations {
            let [least, most] = row.ns_span.map_or([None, None], |span| span.map(Some));
            table.row([row.operation.clone()].into_iter().chain([row.instructions, row.ns, least, most].map(cell)));
        }
        format!("One core, {} rounds; instructions by callgrind, in user space\n\n{}", self.rounds, table.render())
    }
}
