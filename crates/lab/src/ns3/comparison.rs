//! The model's figures beside medians of flows in ns-3.

use analysis::tcp_failover::{Estimate, FailoverConfig, Kind, Model, ScheduleKind, WithAndWithout, median};
use console::Table;
use serde::Serialize;

use super::{Ns3, Ns3Error};

/// A figure of the model agrees if it is within this share of the median, or within [`AGREES_WITHIN_S`].
pub const AGREES_WITHIN_SHARE: f64 = 0.10;
/// See [`AGREES_WITHIN_SHARE`]; in seconds.
pub const AGREES_WITHIN_S: f64 = 0.020;

/// The model and ns-3, by kind and outage.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The version of ns-3.
    pub version: String,
    /// Runs of each row.
    pub runs: u32,
    /// What the schedule has and ns-3 has not.
    pub not_in_ns3: Vec<&'static str>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// Flows of one kind that were interrupted for the same time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// The duration of the outage in seconds.
    pub outage_s: f64,
    /// The model's figures.
    pub model: Estimate,
    /// Medians of ns-3.
    pub ns3: Estimate,
    /// The model less ns-3, in seconds.
    pub difference: Estimate,
    /// Names of the figures that differ by more than [`AGREES_WITHIN_SHARE`] and [`AGREES_WITHIN_S`].
    pub disagrees: Vec<&'static str>,
}

impl Row {
    /// The row of these figures.
    #[must_use]
    pub fn new(kind: Kind, outage_s: f64, model: Estimate, ns3: Estimate) -> Self {
        let less = |model: WithAndWithout, ns3: WithAndWithout| WithAndWithout {
            with: model.with - ns3.with,
            without: model.without - ns3.without,
        };
        let difference = Estimate {
            stall_s: less(model.stall_s, ns3.stall_s),
            completion_s: less(model.completion_s, ns3.completion_s),
            undisturbed_s: model.undisturbed_s - ns3.undisturbed_s,
        };
        let figures = figures(&ns3).into_iter().zip(figures(&difference));
        let disagrees = figures.filter(|((_, of_ns3), (_, difference))| {
            difference.abs() > AGREES_WITHIN_S && difference.abs() > AGREES_WITHIN_SHARE * of_ns3
        });
        let disagrees = disagrees.map(|((name, _), _)| name).collect();
        Self { kind, outage_s, model, ns3, difference, disagrees }
    }
}

/// The figures of an estimate with their names in JSON.
fn figures(estimate: &Estimate) -> [(&'static str, f64); 5] {
    let Estimate { stall_s, completion_s, undisturbed_s } = *estimate;
    [
        ("stall_s.without", stall_s.without),
        ("stall_s.with", stall_s.with),
        ("completion_s.without", completion_s.without),
        ("completion_s.with", completion_s.with),
        ("undisturbed_s", undisturbed_s),
    ]
}

/// Runs flows of every kind for each outage in seconds, and has the model's figures beside their medians. `config.outage_s` is not used.
///
/// # Errors
/// A parameter is out of its range, or ns-3's program fails.
pub fn compare(
    ns3: &Ns3,
    config: &FailoverConfig,
    outages_s: &[f64],
    (first_seed, runs): (u64, u32),
) -> Result<Comparison, Ns3Error> {
    let model = Model::new(config)?;
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        for flows in ns3.flows(config, kind, outages_s, (first_seed, runs))? {
            let estimate = model.with_outage(flows.outage_s)?.estimate(kind);
            rows.push(Row::new(kind, flows.outage_s, estimate, median(flows.flows)));
        }
    }
    Ok(Comparison { version: ns3.version().to_owned(), runs, not_in_ns3: not_in_ns3(config.schedule), rows })
}

fn not_in_ns3(schedule: ScheduleKind) -> Vec<&'static str> {
    // The paper's senders have no time-based detection either, but the model gives it to all.
    let mut lacks = vec!["losses found by time (RACK)"];
    if schedule != ScheduleKind::Thesis {
        lacks.push("windows that grow by counted acknowledgements");
    }
    if schedule == ScheduleKind::Linux {
        lacks.extend(["tail-loss probes", "linear timeouts of SYNs"]);
    }
    lacks
}

impl Comparison {
    /// A table: the model, ns-3, and the difference of each figure.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut table = Table::of(
            "FLOW|>OUTAGE|>STALL WITHOUT|>NS-3|>DIFFERENCE|>COMPLETION WITHOUT|>NS-3|>DIFFERENCE|>COMPLETION WITH|>NS-3|>DIFFERENCE|DISAGREES",
        );
        for row in &self.rows {
            let Row { model, ns3, difference, .. } = row;
            let cells = [model, ns3, difference]
                .map(|estimate| [estimate.stall_s.without, estimate.completion_s.without, estimate.completion_s.with]);
            let cells = (0..cells.len()).flat_map(|figure| [cells[0], cells[1], cells[2]].map(|source| source[figure]));
            let first = [row.kind.name().to_owned(), seconds(row.outage_s)];
            let disagrees = if row.disagrees.is_empty() { "-".to_owned() } else { row.disagrees.join(" ") };
            table.row(first.into_iter().chain(cells.map(seconds)).chain([disagrees]));
        }
        format!(
            "ns-3 {}, medians of {} runs; a figure disagrees beyond 10 % and 20 ms; ns-3 lacks {}\n\n{}",
            self.version,
            self.runs,
            self.not_in_ns3.join(", "),
            table.render()
        )
    }
}

fn seconds(figure: f64) -> String {
    format!("{figure:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(stall_s: f64, completion_s: f64) -> Estimate {
        let without = |without| WithAndWithout { with: 0.0, without };
        Estimate { stall_s: without(stall_s), completion_s: without(completion_s), undisturbed_s: 1.0 }
    }

    #[test]
    fn figures_disagree_beyond_a_share_and_a_time() {
        let row = |model, ns3| Row::new(Kind::Bulk, 3.0, model, ns3);
        // 15 ms of 20 ms are within the time, and 0.9 s of 10 s within the share.
        assert!(row(estimate(0.035, 10.9), estimate(0.020, 10.0)).disagrees.is_empty());
        let apart = row(estimate(0.045, 8.9), estimate(0.020, 10.0));
        assert_eq!(apart.disagrees, ["stall_s.without", "completion_s.without"]);
        assert!((apart.difference.completion_s.without + 1.1).abs() < 1e-9);
    }

    #[test]
    fn tables_have_the_model_ns3_and_the_difference() {
        let rows = vec![Row::new(Kind::Bulk, 3.0, estimate(1.5, 8.0), estimate(1.25, 7.75))];
        let not_in_ns3 = not_in_ns3(ScheduleKind::Doubling);
        let text = Comparison { version: "3.37".into(), runs: 41, not_in_ns3, rows }.describe();
        let row = text.lines().find(|line| line.starts_with("bulk")).expect("a row");
        for cells in ["3.000", "1.500", "1.250", "0.250", "8.000", "7.750", "stall_s.without"] {
            assert!(row.contains(cells), "{cells} is not in {row}");
        }
        assert!(text.contains("ns-3 3.37, medians of 41 runs") && text.contains("RACK"), "{text}");
    }
}
