//! The report of `mainstay bench recovery`.

use serde::Serialize;

use console::Table;

/// What was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Report {
    pub(super) program_version: String,
    /// Runs of each row, without rejected ones.
    pub(super) rounds: u32,
    pub(super) rows: Vec<Row>,
}

/// Connections of one kind, in the runs with one outage, round trip and policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Row {
    /// The detection time.
    pub(super) outage_s: f64,
    /// `syn`, `short`, `bulk_up`, `bulk_down`.
    pub(super) kind: &'static str,
    pub(super) rtt_ms: f64,
    /// The hosts use selective acknowledgements.
    pub(super) sack: bool,
    /// The hosts' congestion control.
    pub(super) congestion_control: String,
    /// The edges' `recovery.policy`.
    pub(super) policy: String,
    /// Connections that stalled: those through the killed node.
    pub(super) connections: usize,
    /// Their stalls after the switch-over.
    pub(super) stall_ms: Quantiles,
    /// From their first SYN to the answer to their only request; nothing of transfers, which do not end.
    pub(super) completion_ms: Quantiles,
    /// Packets resent in these runs.
    pub(super) resent_packets: u64,
    /// Connections of any kind that broke in these runs.
    pub(super) broken: usize,
    /// Runs in which the machine was too busy.
    pub(super) rejected_runs: u32,
}

impl Row {
    /// The hosts' congestion control, and whether they use SACK.
    pub(super) fn tcp(&self) -> String {
        let sack = if self.sack { "" } else { ", no SACK" };
        format!("{}{sack}", self.congestion_control)
    }
}

/// Quantiles of stalls; nothing without any.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(super) struct Quantiles {
    pub(super) median: Option<f64>,
    pub(super) p90: Option<f64>,
}

impl Quantiles {
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |tenths: usize| values.get((values.len() * tenths / 10).min(values.len().saturating_sub(1))).copied();
        Self { median: at(5), p90: at(9) }
    }
}

impl Report {
    pub(super) fn describe(&self) -> String {
        let mut table = Table::of(
            "KIND|>OUTAGE|>ROUND TRIP|TCP|POLICY|>CONNECTIONS|>STALL|>90 %|>COMPLETION|>RESENT|>BROKEN|>REJECTED RUNS",
        );
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"));
        for row in &self.rows {
            table.row([
                row.kind.to_owned(),
                format!("{} s", row.outage_s),
                format!("{} ms", row.rtt_ms),
                row.tcp(),
                row.policy.clone(),
                row.connections.to_string(),
                ms(row.stall_ms.median),
                ms(row.stall_ms.p90),
                ms(row.completion_ms.median),
                row.resent_packets.to_string(),
                row.broken.to_string(),
                row.rejected_runs.to_string(),
            ]);
        }
        format!(
            "Stalls of connections through the killed node, after the edges had switched over.\n\n{}",
            table.render()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_values() {
        assert_eq!(Quantiles::of(vec![]), Quantiles::default());
        assert_eq!(Quantiles::of(vec![3.0]), Quantiles { median: Some(3.0), p90: Some(3.0) });
        let ten = (1..=10).rev().map(f64::from).collect();
        assert_eq!(Quantiles::of(ten), Quantiles { median: Some(6.0), p90: Some(10.0) });
    }
}
