//! What measurements over a network print: two figures and their ratio.

use std::io;

use serde_json::{Map, Value, json};

use crate::bench::rounds::Rounds;
use crate::cli::BenchNetworkArgs;
use crate::output::{self, Align, Table};

/// A side: its name in JSON and in words, its median, its least and its greatest figure.
struct Side {
    key: &'static str,
    name: String,
    median: f64,
    span: [f64; 2],
}

/// Two sides that were measured in turns.
pub(super) struct Report {
    key: &'static str,
    unit: &'static str,
    sides: [Side; 2],
    rounds: u32,
    seconds: f64,
}

impl Report {
    /// `sides` are key, name and figures each; the ratio is that of the first to the second.
    pub(super) fn new(
        key: &'static str,
        unit: &'static str,
        sides: [(&'static str, &str, &Rounds); 2],
        args: &BenchNetworkArgs,
    ) -> Self {
        let side = |(key, name, rounds): (&'static str, &str, &Rounds)| Side {
            key,
            name: name.to_owned(),
            median: rounds.median(),
            span: rounds.span(),
        };
        Self { key, unit, sides: sides.map(side), rounds: args.rounds, seconds: args.seconds }
    }

    fn ratio(&self) -> f64 {
        (self.sides[0].median / self.sides[1].median * 1000.0).round() / 1000.0
    }

    fn to_json(&self) -> Value {
        let figures = |figure: fn(&Side) -> Value| -> Map<String, Value> {
            self.sides.iter().map(|side| (side.key.to_owned(), figure(side))).collect()
        };
        json!({
            self.key: figures(|side| json!(side.median)),
            "span": figures(|side| json!(side.span)),
            "names": figures(|side| json!(side.name)),
            "ratio": self.ratio(),
            "rounds": self.rounds,
            "seconds_per_round": self.seconds,
        })
    }

    fn describe(&self) -> String {
        let mut table = Table::new(&[
            ("THROUGH", Align::Left),
            ("MEDIAN", Align::Right),
            ("LEAST", Align::Right),
            ("MOST", Align::Right),
        ]);
        for side in &self.sides {
            let [least, most] = side.span;
            table.row([side.name.clone(), figure(side.median), figure(least), figure(most)]);
        }
        format!(
            "{}, {} rounds of {} s each, in turns\n\n{}\nRatio {:.3}\n",
            self.unit,
            self.rounds,
            self.seconds,
            table.render(),
            self.ratio()
        )
    }

    /// Prints it for people, or as one JSON object.
    pub(super) fn print(&self, as_json: bool) -> io::Result<()> {
        if as_json { output::print_json(&self.to_json()) } else { output::print(&self.describe()) }
    }
}

fn figure(figure: f64) -> String {
    if figure < 100.0 { format!("{figure:.2}") } else { format!("{figure:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_told_with_their_ratio() {
        let rounds = |figures: [f64; 3]| {
            let mut rounds = Rounds::default();
            figures.into_iter().for_each(|figure| rounds.push(figure));
            rounds
        };
        let args = BenchNetworkArgs { seconds: 2.0, rounds: 3, json: true };
        let (first, second) = (rounds([8.0, 9.0, 7.0]), rounds([10.0, 11.0, 9.0]));
        let report = Report::new("gbit_per_s", "Gbit/s", [("a", "this", &first), ("b", "that", &second)], &args);
        let json = report.to_json();
        assert_eq!(json["gbit_per_s"], json!({ "a": 8.0, "b": 10.0 }));
        assert_eq!((&json["ratio"], &json["span"]["a"]), (&json!(0.8), &json!([7.0, 9.0])));
        assert!(report.describe().contains("that    10.00   9.00  11.00"), "{}", report.describe());
    }
}
