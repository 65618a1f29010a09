//! What Neira-Ayuso et al. found ("FT-FW", sections 7.2 and 7.2.1), and what is found here.

use super::report::{CellReport, Report, Row};
use super::table::{cells, conditions, percent, rows_of, spread};
use crate::args::replication::Subject;

/// A finding of theirs.
pub(super) struct Comparison {
    pub(super) what: &'static str,
    pub(super) theirs: &'static str,
    pub(super) here: String,
    pub(super) reason: &'static str,
}

/// Objects up to here are short to them, and from here on long.
const SHORT_KB_MAX: u32 = 5;
const LONG_KB_MIN: u32 = 10;

/// What can be compared with what was measured.
pub(super) fn compare(report: &Report) -> Vec<Comparison> {
    let conditions = conditions(report);
    let mut comparisons = vec![detection(report)];
    let is_measured = |loss: f64, rtt_ms: u32| conditions.contains(&(loss, rtt_ms));
    if is_measured(0.0, 0) {
        let is_shared = report.settings.multi_primary;
        comparisons.push(if is_shared { shared_work(report) } else { short_objects(report) });
        comparisons.push(time_without_loss(report));
    }
    if is_measured(0.0, 50) {
        comparisons.push(distance(report));
    }
    if is_measured(0.2, 0) {
        comparisons.push(loss(report));
        comparisons.push(time_with_loss(report));
    }
    comparisons
}

fn detection(report: &Report) -> Comparison {
    let all: Vec<String> =
        report.cells.iter().filter_map(|cell| Some(format!("{:.0}", cell.detection_ms?.median))).collect();
    let (least, most) =
        (all.iter().min_by_key(|ms| ms.parse().unwrap_or(0)), all.iter().max_by_key(|ms| ms.parse().unwrap_or(0)));
    Comparison {
        what: "From the failure until the survivor knows",
        theirs: "6 s",
        here: match (least, most) {
            (Some(least), Some(most)) => format!("{least} to {most} ms (medians)"),
            _ => "not measured".into(),
        },
        reason: "Theirs is VRRP with an advertisement every 2 s, of which three must be missing; here BFD sends a packet every \
              10 ms, and ten must be missing.",
    }
}

fn short_objects(report: &Report) -> Comparison {
    let of = |subject: Subject| shares(report, subject, 0.0, 0);
    Comparison {
        what: "Recovered, round trip negligible, nothing lost",
        theirs: "objects below 5 KB no better than without replication, larger ones better",
        here: format!("{}; {}", of(Subject::Native), of(Subject::NativeHeld)),
        reason: "Replication is asynchronous in both: a flow is lost if its gateway dies before the update has left. Here the \
              update leaves with the batch of packets that caused it, before the packets do; theirs passes through the kernel's \
              events and a process in user space. Held replies close what gap remains.",
    }
}

fn shared_work(report: &Report) -> Comparison {
    let of = |subject: Subject| shares(report, subject, 0.0, 0);
    Comparison {
        what: "Recovered, both gateways at work, round trip negligible, nothing lost",
        theirs: "objects below 5 KB slightly better than without replication, larger ones better",
        here: format!("{}; {}", of(Subject::Native), of(Subject::NativeHeld)),
        reason: "As with one at work: a gateway's update leaves before the packets that caused it.",
    }
}

fn distance(report: &Report) -> Comparison {
    Comparison {
        what: "Recovered, round trip 50 ms, nothing lost",
        theirs: "better than with a negligible round trip",
        here: format!("{}; {}", shares(report, Subject::Native, 0.0, 50), shares(report, Subject::Conntrackd, 0.0, 50)),
        reason: "A flow that waits for its server changes less often, so that there is more time to replicate it.",
    }
}

fn loss(report: &Report) -> Comparison {
    let subjects = [Subject::Native, Subject::Conntrackd, Subject::ConntrackdTcp, Subject::ConntrackdUdp];
    Comparison {
        what: "Recovered, a fifth lost between the gateways",
        theirs: "FT-FW better than TCP and UDP, which give no good results beyond 10 KB",
        here: subjects.map(|subject| shares(report, subject, 0.2, 0)).join("; "),
        reason: "The native protocol sends the newest state again within milliseconds. Over UDP a lost message is lost; over TCP \
              whatever is lost delays all that follows by TCP's timeout, 200 ms at the least. Theirs are conntrackd's modes.",
    }
}

fn time_without_loss(report: &Report) -> Comparison {
    Comparison {
        what: "Time to recover, nothing lost",
        theirs: "FT-FW and UDP 6 to 7 s, TCP 15 s",
        here: times(report, 0.0, 0),
        reason: "Copies lie in the table that packets are looked up in: nothing is committed at the take-over, whatever has \
              carried them. What remains beyond the detection is TCP's retransmission timer in the end points.",
    }
}

fn time_with_loss(report: &Report) -> Comparison {
    Comparison {
        what: "Time to recover, a fifth lost between the gateways",
        theirs: "FT-FW 9 s, TCP 15 s, UDP 130 s",
        here: times(report, 0.2, 0),
        reason: "As without loss. Flows whose state is missing are not picked up in the middle, so that they are lost instead of \
              late: theirs came back when the new gateway had let them in again; here they count as lost after the time that \
              the settings give.",
    }
}

/// Shares of short and of long objects.
fn shares(report: &Report, subject: Subject, loss: f64, rtt_ms: u32) -> String {
    let Some(cell) = cell_of(report, subject, loss, rtt_ms) else { return format!("{}: not measured", subject.name()) };
    let share = |counts: &dyn Fn(&Row) -> bool| {
        let rows: Vec<&Row> = rows_of(report, cell).filter(|row| counts(row)).collect();
        let at_risk: usize = rows.iter().map(|row| row.at_risk).sum();
        let recovered: f64 = rows.iter().map(|row| row.recovered.unwrap_or(0.0) * row.at_risk as f64).sum();
        percent((at_risk > 0).then(|| recovered / at_risk as f64))
    };
    format!(
        "{}: {} up to {SHORT_KB_MAX} KB, {} from {LONG_KB_MIN} KB",
        subject.name(),
        share(&|row| row.object_kb <= SHORT_KB_MAX),
        share(&|row| row.object_kb >= LONG_KB_MIN),
    )
}

fn times(report: &Report, loss: f64, rtt_ms: u32) -> String {
    let cells = cells(report, loss, rtt_ms);
    let times = cells.map(|cell| format!("{} {} ms", cell.subject, spread(cell.time_to_recover_ms, 0)));
    format!("median (99 %): {}", times.collect::<Vec<_>>().join("; "))
}

fn cell_of(report: &Report, subject: Subject, loss: f64, rtt_ms: u32) -> Option<&CellReport> {
    cells(report, loss, rtt_ms).find(|cell| cell.subject == subject.name())
}
