//! The result as people read it.

use std::fmt::Write as _;

use super::{Both, Report};
use crate::args::sync_bench::Subject;
use console::{Table, count};

/// Stands where nothing was measured.
const NOTHING: &str = "-";

impl Report {
    /// All of it.
    pub(in crate::bench::sync) fn describe(&self) -> String {
        let mut text = String::new();
        if !self.spans_per_s.is_empty() {
            text.push_str(&self.describe_rates());
        }
        let _ = writeln!(text, "{}", self.describe_rest());
        for left_out in &self.left_out {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "Left out: {left_out}.");
        }
        text
    }

    fn describe_rates(&self) -> String {
        let mut table = Table::of("CONNECTIONS A SECOND|>MEDIAN|>LEAST|>MOST|>OF OFF|>CPU SENDER|>CPU RECEIVER");
        for subject in Subject::ALL {
            let name = subject.name();
            let (Some(rate), Some([least, most])) = (self.per_s[name], self.spans_per_s.get(name)) else { continue };
            let rates = [rate, *least, *most].map(|rate| count(rate as u64));
            let ratio = self.ratios.per_s[name].map_or(NOTHING.into(), |ratio| format!("{:.1} %", ratio * 100.0));
            let sides = [&self.cpu_us_per_connection.sender, &self.cpu_us_per_connection.receiver];
            let cpu = sides.map(|side| match side[name] {
                Some(us) if subject != Subject::Off => format!("{us:.1} µs"),
                _ => NOTHING.into(),
            });
            table.row([subject.describe().to_owned()].into_iter().chain(rates).chain([ratio]).chain(cpu));
        }
        format!(
            "TCP connections with one request and one answer through a router that the kernel makes (nftables, stateful, \
             masquerading), {} open at a\ntime, {} rounds of {} s each, everything on {} processors\n\n{}\n\
             Processor time is a daemon's for each connection, user and system.\n\n",
            self.settings.in_flight,
            self.settings.rounds,
            self.settings.seconds_per_round,
            self.processors,
            table.render(),
        )
    }

    fn describe_rest(&self) -> String {
        let mut table = Table::of("|>MAINSTAY SYNC|>CONNTRACKD");
        let mut row = |what: String, both: &Both<Option<f64>>, places: usize| {
            if both.mainstay.is_some() || both.conntrackd.is_some() {
                let cells = [both.mainstay, both.conntrackd];
                let cells = cells.map(|figure| figure.map_or(NOTHING.into(), |figure| format!("{figure:.places$}")));
                table.row([what].into_iter().chain(cells));
            }
        };
        let (connections, entries) = (count(self.settings.connections.into()), count(self.settings.entries.into()));
        row(
            format!("broken of {connections} when the router dies, 20 % loss on the dedicated link"),
            &self.broken_at_20_percent_loss,
            0,
        );
        row(format!("taking over {entries} connections, ms"), &self.takeover_ms_200k, 1);
        row(format!("memory for {entries} connections, the greater side, MB"), &self.rss_mb_200k, 1);
        row("… sender".into(), &self.rss_mb_200k_by_side.sender, 1);
        row("… receiver".into(), &self.rss_mb_200k_by_side.receiver, 1);
        row("… for each connection, bytes".into(), &self.bytes_per_entry, 0);
        row("different in the end, with 8 KiB for the kernel's events".into(), &self.netlink_8k_buffer, 0);
        row("… of connections".into(), &self.netlink_8k_buffer_entries, 0);
        row("… after seconds of quiet".into(), &self.netlink_8k_buffer_repaired_s, 1);
        let as_figures = |both: &Both<Option<usize>>| Both {
            mainstay: both.mainstay.map(|count| count as f64),
            conntrackd: both.conntrackd.map(|count| count as f64),
        };
        row(
            "closed connections that the survivor holds for established".into(),
            &as_figures(&self.stale_after_takeover),
            0,
        );
        row("… of closed connections".into(), &as_figures(&self.stale_after_takeover_closed), 0);
        if table.is_empty() { String::new() } else { table.render() }
    }
}
