//! The page of `mainstay bench rate-control`: the course of goodput, fairness and queue, as in \[HALR\] figures 20 to 26.

use analysis::report::{Axis, Block, ColumnKind, Dataset, Plot, PlotKind, Section, Series, Tile};

use super::{FAIRNESS_SAMPLES, Figures, Moment, Report, SAMPLE_INTERVAL};

/// The ways, as legends call them.
const WAYS: [&str; 3] = ["nothing", "local recovery", "local recovery and rate control"];

/// The page.
pub(super) fn page(report: &Report) -> analysis::report::Report {
    let Report { connections, node_mbit_per_s, queue_packets, rtt_ms, seconds, rounds, recovery_control, .. } = report;
    let congestion_control = &report.congestion_control;
    let tile = |name: &str, value: String, beside: String| Tile { name: name.into(), value, beside };
    let fairness_s = SAMPLE_INTERVAL.as_secs_f64() * FAIRNESS_SAMPLES as f64;
    analysis::report::Report {
        subject: "Mainstay bench rate-control".into(),
        title: "Transfers that share what is left after a node has failed".into(),
        summary: format!(
            "{connections} transfers ({congestion_control}) pass two nodes, each of which forwards {node_mbit_per_s} Mbit/s with a queue of {queue_packets} packets. \
             The round trip is {rtt_ms} ms. One node fails, and the edges move its transfers. Figures are of the {seconds} s after the \
             switch-over, medians of {rounds} runs. Plots are of the first run."
        ),
        tiles: vec![
            tile(
                "Jain's index",
                format!("{:.3}", recovery_control.jain),
                format!("{:.3} without control", report.recovery.jain),
            ),
            tile(
                "goodput",
                format!("{:.1} Mbit/s", recovery_control.goodput_mbit_per_s),
                format!("{:.1} Mbit/s without control", report.recovery.goodput_mbit_per_s),
            ),
            tile(
                "dropped by the queue",
                format!("{} packets", recovery_control.queue_drops),
                format!("{} without control", report.recovery.queue_drops),
            ),
        ],
        sections: vec![
            section(
                "Throughput",
                plot(report, "Goodput of all transfers", Axis::new("goodput", "Mbit/s"), |moment| {
                    moment.goodput_mbit_per_s
                }),
            ),
            section(
                "Fairness",
                plot(
                    report,
                    &format!("Jain's index over {fairness_s} s"),
                    Axis::new("Jain's index", "").between(0.0, 1.0),
                    |moment| moment.jain,
                ),
            ),
            section(
                "Bottleneck",
                plot(report, "Queue of the surviving node", Axis::new("queue", "packets"), |moment| {
                    moment.queue_packets as f64
                }),
            ),
            section("All figures", Block::Table(figures(report))),
        ],
        footer: format!("Mainstay {}", report.program_version),
    }
}

fn section(heading: &str, block: Block) -> Section {
    Section { heading: heading.into(), blocks: vec![block] }
}

/// A figure over the time since the switch-over, a line for each way.
fn plot(report: &Report, title: &str, y: Axis, figure: fn(&Moment) -> f64) -> Block {
    let line = |(name, course): (&str, &Vec<Moment>)| {
        Series::new(name, course.iter().map(|moment| (moment.at_s, figure(moment))))
    };
    let series = WAYS.into_iter().zip(&report.courses).map(line).collect();
    Block::Plot(Plot::new(PlotKind::Line, title, Axis::new("since the switch-over", "s"), y, series))
}

fn figures(report: &Report) -> Dataset {
    let number = ColumnKind::Number(3);
    let mut table = Dataset::new(
        "figures",
        &[
            ("way", "way", ColumnKind::Text),
            ("goodput_mbit_per_s", "goodput, Mbit/s", number),
            ("jain", "Jain's index", number),
            ("queue_drops", "dropped by the queue", ColumnKind::Integer),
            ("p99_queue_packets", "queue, 99 %", ColumnKind::Integer),
            ("broken", "broken transfers", ColumnKind::Integer),
        ],
    );
    for (way, figures) in WAYS.into_iter().zip([&report.nothing, &report.recovery, &report.recovery_control]) {
        let Figures { goodput_mbit_per_s, jain, queue_drops, p99_queue_packets, broken } = *figures;
        let counts = [queue_drops, p99_queue_packets, broken as u64];
        table.push(
            [way.into(), goodput_mbit_per_s.into(), jain.into()].into_iter().chain(counts.map(Into::into)).collect(),
        );
    }
    table
}
