//! What `mainstay bench attack` prints.

use serde::Serialize;

use super::super::rounds::{Rounds, rounded};
use crate::args::BenchAttackArgs;
use console::{Table, count};

/// The figures of one measurement.
pub(super) struct Figures {
    /// Packets of no connection that were sent a second.
    pub(super) sent_per_s: f64,
    /// Messages of the state service that all nodes sent in a second.
    pub(super) messages_per_s: f64,
    /// Datagrams between the nodes in a second, those of replication included.
    pub(super) datagrams_per_s: f64,
    /// Bytes of real connections that were received and compared in a second.
    pub(super) legitimate_bytes_per_s: f64,
}

/// The figures of one side at one rate.
#[derive(Default)]
struct Side {
    sent_per_s: Rounds,
    messages_per_s: Rounds,
    datagrams_per_s: Rounds,
    legitimate_bytes_per_s: Rounds,
}

/// The figures with broadcast, and without, at one rate.
#[derive(Default)]
pub(super) struct Sides([Side; 2]);

impl Sides {
    /// Adds a round's figures of a side: 0 with broadcast, 1 without.
    pub(super) fn push(&mut self, which: usize, figures: Figures) {
        let side = &mut self.0[which];
        side.sent_per_s.push(figures.sent_per_s);
        side.messages_per_s.push(figures.messages_per_s);
        side.datagrams_per_s.push(figures.datagrams_per_s);
        side.legitimate_bytes_per_s.push(figures.legitimate_bytes_per_s);
    }
}

/// A figure of each side.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Both {
    with_broadcast: f64,
    without_broadcast: f64,
}

impl Both {
    fn of(sides: &Sides, figure: impl Fn(&Side) -> f64) -> Self {
        let [with_broadcast, without_broadcast] = sides.0.each_ref().map(figure);
        Self { with_broadcast, without_broadcast }
    }
}

/// One rate.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// Packets of no connection a second that were asked for.
    bogus_per_s: u32,
    /// Messages of the state service a second, of all nodes, where nodes advertise their indexes.
    with_broadcast: f64,
    /// The same where they do not.
    without_broadcast: f64,
    /// Packets of no connection that were sent a second.
    sent_per_s: Both,
    /// Datagrams between the nodes a second, those of replication included.
    datagrams_per_s: Both,
    /// Bytes of real connections, over those without an attack.
    legitimate_share: Both,
}

/// The result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Report {
    /// Processors of the machine, which hosts, attack, edges and nodes of both clusters share.
    processors: usize,
    nodes: u8,
    rounds: u32,
    /// Bytes of real connections a second without an attack.
    legitimate_bytes_per_s: Both,
    rows: Vec<Row>,
}

impl Report {
    /// Medians; the first rate is 0.
    pub(super) fn new(args: &BenchAttackArgs, rates: &[u32], figures: &[Sides]) -> Self {
        let idle = figures.first();
        let row = |(bogus_per_s, sides): (&u32, &Sides)| {
            let messages = Both::of(sides, |side| rounded(side.messages_per_s.median(), 1));
            let share = |which: usize| {
                let of = |sides: &Sides| sides.0[which].legitimate_bytes_per_s.median();
                rounded(of(sides) / idle.map_or(1.0, of).max(1.0), 3)
            };
            Row {
                bogus_per_s: *bogus_per_s,
                with_broadcast: messages.with_broadcast,
                without_broadcast: messages.without_broadcast,
                sent_per_s: Both::of(sides, |side| rounded(side.sent_per_s.median(), 0)),
                datagrams_per_s: Both::of(sides, |side| rounded(side.datagrams_per_s.median(), 1)),
                legitimate_share: Both { with_broadcast: share(0), without_broadcast: share(1) },
            }
        };
        let legitimate = |sides| Both::of(sides, |side| rounded(side.legitimate_bytes_per_s.median(), 0));
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            nodes: args.nodes,
            rounds: args.rounds,
            legitimate_bytes_per_s: idle.map_or(Both { with_broadcast: 0.0, without_broadcast: 0.0 }, legitimate),
            rows: rates.iter().zip(figures).map(row).collect(),
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut table = Table::of(
            "PACKETS OF NO CONNECTION A SECOND|>MESSAGES, WITH BROADCAST|>WITHOUT|>DATAGRAMS|>WITHOUT|>REAL TRAFFIC|>WITHOUT",
        );
        for row in &self.rows {
            let number = |figure: f64| format!("{figure:.1}");
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            let Row { datagrams_per_s: datagrams, legitimate_share: share, .. } = row;
            table.row([
                count(row.bogus_per_s.into()),
                number(row.with_broadcast),
                number(row.without_broadcast),
                number(datagrams.with_broadcast),
                number(datagrams.without_broadcast),
                percent(share.with_broadcast),
                percent(share.without_broadcast),
            ]);
        }
        format!(
            "{}\nMessages are those of the state service, all nodes together, a second. Datagrams are those between the nodes, replication \
             included.\n",
            table.render()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rate_has_both_sides_and_the_share_of_real_traffic() {
        let args = BenchAttackArgs { bogus_per_s: vec![1000], nodes: 4, seconds: 1.0, rounds: 1, json: true };
        let figures = |messages_per_s, legitimate_bytes_per_s| Figures {
            sent_per_s: 1000.0,
            messages_per_s,
            datagrams_per_s: 2.0 * messages_per_s,
            legitimate_bytes_per_s,
        };
        let (mut idle, mut attacked) = (Sides::default(), Sides::default());
        for which in [0, 1] {
            idle.push(which, figures(60.0, 1e6));
            attacked.push(which, figures([80.0, 3000.0][which], [9e5, 5e5][which]));
        }
        let report = Report::new(&args, &[0, 1000], &[idle, attacked]);
        let json = serde_json::to_value(&report).expect("it is plain data");
        let row = &json["rows"][1];
        assert_eq!(
            (&row["bogus_per_s"], &row["with_broadcast"], &row["without_broadcast"]),
            (&1000.into(), &80.0.into(), &3000.0.into())
        );
        assert_eq!(row["legitimate_share"]["without_broadcast"], 0.5);
        assert!(report.describe().contains("3000.0"));
    }
}
