//! `mainstay trace`: packets' ways through a running gateway.

use std::fmt::Write;
use std::time::Duration;

use super::CommandError;
use crate::cli::TraceArgs;
use api::{Ends, Line, Query};
use control::client::Client;
use control::trace::{Trace, TracedOutcome, TracedPacket, TracedStep};

/// Asks the gateway and prints packet after packet.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(args: &TraceArgs) -> Result<(), CommandError> {
    let query = Query::Trace { filter: args.packets.filter(), count: args.limit, seconds: args.seconds };
    let (mut traced, mut result) = (0, Ok(()));
    Client::open(args.socket.target())?.stream(query, args.seconds, |line| {
        traced += usize::from(matches!(line, Line::Trace(_)));
        let text = if args.json { json_line(&line) } else { describe_line(&line) };
        if result.is_ok() {
            result = console::print_more(&text);
        }
    })?;
    result?;
    if traced == 0 {
        eprintln!("no packet matched within {}", console::duration(Duration::from_secs_f64(args.seconds)));
    }
    Ok(())
}

/// A line as it came, for programs.
pub(super) fn json_line(line: &Line) -> String {
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

fn describe_line(line: &Line) -> String {
    match line {
        Line::Trace(trace) => describe(trace),
        Line::Missed { worker, count } => missed(*worker, *count),
        _ => String::new(),
    }
}

/// Traces that a worker had no room for, for people.
pub(super) fn missed(worker: u8, count: u64) -> String {
    format!("… {} more at worker {worker}, too many to be shown: add conditions\n\n", console::count(count))
}

/// Seconds of the day in UTC, to the microsecond.
pub(super) fn time_of_day(unix_ns: u64) -> String {
    let (seconds, nanoseconds) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, nanoseconds / 1000)
}

fn arrow(ends: &Ends) -> String {
    format!("{} → {}", ends.source, ends.destination)
}

/// A packet's way as people read it.
#[must_use]
pub fn describe(trace: &Trace) -> String {
    let mut text = format!("{}  {}  {}", time_of_day(trace.unix_ns), trace.ingress, packet(&trace.packet));
    // Writing to a string cannot fail.
    let _ = writeln!(text, ", {} bytes{}", trace.frame_bytes, of_worker(trace.worker));
    for step in &trace.steps {
        let (who, what) = describe_step(step);
        let _ = writeln!(text, "    {who:<10} {what}");
    }
    let _ = writeln!(text, "    {}\n", outcome(&trace.outcome));
    text
}

fn of_worker(worker: u8) -> String {
    if worker == 0 { String::new() } else { format!(", worker {worker}") }
}

fn packet(packet: &TracedPacket) -> String {
    match packet {
        TracedPacket::Arp => "ARP".to_owned(),
        TracedPacket::Unreadable => "unreadable".to_owned(),
        TracedPacket::Ip { protocol, ends, ttl, fragment, detail, sequence, acknowledgement, .. } => {
            let mut text = format!("{protocol} {}", arrow(ends));
            if let Some(detail) = detail {
                let _ = write!(text, " {detail}");
            }
            if let Some(sequence) = sequence {
                let _ = write!(text, " seq {sequence}");
            }
            if let Some(acknowledgement) = acknowledgement {
                let _ = write!(text, " ack {acknowledgement}");
            }
            if *fragment {
                text.push_str(" fragment");
            }
            let _ = write!(text, ", ttl {ttl}");
            text
        }
    }
}

/// Who did something with the packet, and what.
fn describe_step(step: &TracedStep) -> (&str, String) {
    match step {
        TracedStep::Known { direction, state, connection, master, copy } => {
            let is_copy = if *copy { format!(", a copy of node {master}'s") } else { String::new() };
            let state = if state.is_empty() { String::new() } else { format!(" in {state}") };
            ("lookup", format!("{direction} direction of {}{state}{is_copy}", arrow(connection)))
        }
        TracedStep::Unknown => ("lookup", "no connection".to_owned()),
        TracedStep::QuotesPacketOf { connection } => ("lookup", format!("about a packet of {}", arrow(connection))),
        TracedStep::FollowsFirstFragment => ("lookup", "goes the way of its first fragment".to_owned()),
        TracedStep::Disallowed => ("lookup", "the rules in force do not allow the connection: it has ended".to_owned()),
        TracedStep::HeldForBackup => ("lookup", "kept back until a backup knows the connection".to_owned()),
        TracedStep::WaitsForPeer => ("lookup", "waits for a peer's update of its connection".to_owned()),
        TracedStep::WaitsForAnswer => ("url_filter", "waits for the category of its host".to_owned()),
        TracedStep::TakenOver { from } => ("lookup", format!("the connection is taken over from node {from}")),
        TracedStep::Tracked { before, after, refused, connection } => {
            ("tracker", tracked(before, after, refused.as_deref(), connection.as_deref()))
        }
        TracedStep::Begins { state } if state.is_empty() => ("tracker", "begins a connection".to_owned()),
        TracedStep::Begins { state } => ("tracker", format!("begins a connection in {state}")),
        TracedStep::Function { name, call, verdict, counted, before, after } => {
            let translation = before.as_ref().zip(after.as_ref());
            (name, function(call, verdict, counted, translation))
        }
        TracedStep::HandedOver { worker } => {
            ("worker", format!("handed over to worker {worker}, which traces it, too"))
        }
        TracedStep::Routed { egress: Some(egress), next_hop } => {
            ("route", format!("by {egress} to {}", next_hop.as_deref().unwrap_or("its destination")))
        }
        TracedStep::Routed { .. } => ("route", "none".to_owned()),
    }
}

fn tracked(before: &str, after: &str, refused: Option<&str>, connection: Option<&str>) -> String {
    let mut text = match refused {
        Some(reason) => format!("refused: {reason}"),
        None if before.is_empty() => "passes".to_owned(),
        None if before == after => format!("stays in {before}"),
        None => format!("{before} → {after}"),
    };
    match connection {
        Some("closes") => text.push_str(", the connection ends"),
        Some("reopens") => text.push_str(", the connection ends and another begins"),
        _ => {}
    }
    text
}

fn function(call: &str, verdict: &str, counted: &[String], translation: Option<(&Ends, &Ends)>) -> String {
    let call = if call == "begin" { "connection: " } else { "" };
    let mut text = match verdict {
        "accept" | "forward" | "reply" | "queue" => format!("{call}{verdict}"),
        reason => format!("{call}drop: {reason}"),
    };
    let reasons: Vec<_> = counted.iter().map(|name| reason_of(name)).collect();
    if !reasons.is_empty() {
        let _ = write!(text, " ({})", reasons.join(", "));
    }
    if let Some((before, after)) = translation {
        let _ = write!(text, ": {} became {}", arrow(before), arrow(after));
    }
    text
}

/// What a function counted, in words.
fn reason_of(counter: &str) -> String {
    use network_functions::firewall::{DEFAULT_COUNTER_NAME, rule_of_counter};
    match rule_of_counter(counter) {
        Some((action, rule)) => format!("rule {rule}: {action}"),
        None if counter == DEFAULT_COUNTER_NAME => "no rule matched".to_owned(),
        None => counter.replace('_', " "),
    }
}

fn outcome(outcome: &TracedOutcome) -> String {
    match outcome {
        TracedOutcome::Dropped { reason } => format!("dropped: {reason}"),
        TracedOutcome::Consumed => "kept: for the node itself, or waiting".to_owned(),
        TracedOutcome::Sent { egress, frame_bytes, ends, ttl } => {
            let mut text = format!("sent by {egress}");
            if let Some((ends, ttl)) = ends.as_ref().zip(*ttl) {
                let _ = write!(text, ": {}, ttl {ttl}", arrow(ends));
            }
            let _ = write!(text, ", {frame_bytes} bytes");
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(source: &str, destination: &str) -> Ends {
        Ends { source: source.to_owned(), destination: destination.to_owned() }
    }

    #[test]
    fn a_dropped_packet_is_shown_with_its_rule() {
        let trace = Trace {
            monotonic_ns: 0,
            unix_ns: 3_600_000_000_000 + 61_000_002_000,
            worker: 1,
            ingress: "inside".into(),
            frame_bytes: 54,
            packet: TracedPacket::Ip {
                protocol: "tcp".into(),
                ends: ends("10.0.0.1:4000", "10.0.0.2:23"),
                ttl: 64,
                length_bytes: 40,
                fragment: false,
                detail: Some("SYN".into()),
                sequence: Some(7),
                acknowledgement: None,
            },
            steps: vec![
                TracedStep::Unknown,
                TracedStep::Begins { state: "SYN_SENT".into() },
                TracedStep::Function {
                    name: "firewall".into(),
                    call: "begin".into(),
                    verdict: "firewall_denied".into(),
                    counted: vec!["rule/drop/telnet".into()],
                    before: None,
                    after: None,
                },
            ],
            outcome: TracedOutcome::Dropped { reason: "firewall_denied".into() },
        };
        assert_eq!(
            describe(&trace),
            "01:01:01.000002  inside  tcp 10.0.0.1:4000 → 10.0.0.2:23 SYN seq 7, ttl 64, 54 bytes, worker 1\n    \
             lookup     no connection\n    \
             tracker    begins a connection in SYN_SENT\n    \
             firewall   connection: drop: firewall_denied (rule telnet: drop)\n    \
             dropped: firewall_denied\n\n"
        );
    }

    #[test]
    fn a_translation_is_shown_with_the_addresses_before_and_after_it() {
        let step = TracedStep::Function {
            name: "nat".into(),
            call: "packet".into(),
            verdict: "forward".into(),
            counted: Vec::new(),
            before: Some(ends("10.0.0.1:4000", "10.0.0.2:80")),
            after: Some(ends("192.0.2.1:5000", "10.0.0.2:80")),
        };
        let shown = "forward: 10.0.0.1:4000 → 10.0.0.2:80 became 192.0.2.1:5000 → 10.0.0.2:80";
        assert_eq!(describe_step(&step), ("nat", shown.to_owned()));
    }

    #[test]
    fn missed_traces_are_counted() {
        assert_eq!(missed(0, 7), "… 7 more at worker 0, too many to be shown: add conditions\n\n");
    }
}
