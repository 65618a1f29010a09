//! Compact replication: this node's filter, its peers' filters, and recovery.

use std::fmt::Write as _;
use std::time::Duration;

use super::yes_no;
use api::{FilterStatus, RecoveryStatus, Status};
use console::{Table, count, duration, scaled};

/// The peers' filters.
pub(super) fn peer_table(status: &Status) -> Table {
    let mut table = Table::of(">FILTER OF|>ENTRIES|WHOLE|>DRIFTS REPAIRED|>UNUSABLE");
    for (peer, filter) in status.peers.iter().filter_map(|peer| Some((peer, peer.filter.as_ref()?))) {
        table.row([
            peer.id.to_string(),
            count(filter.entries),
            yes_no(filter.is_complete).to_owned(),
            count(filter.drifts),
            count(filter.bad_datagrams),
        ]);
    }
    table
}

/// This node's filter and its recovery, for people.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn describe(filter: &FilterStatus) -> String {
    let without_room = match (filter.refused, filter.beyond) {
        (0, 0) => String::new(),
        (refused, 0) => {
            format!(", {} refused so far for want of room: raise replication.filter.entries_max", count(refused))
        }
        (_, beyond) => format!(
            ", {} entered so far beyond its size, with more false positives: raise replication.filter.entries_max",
            count(beyond)
        ),
    };
    let mut text = format!(
        "Filter       {}: {} of {} entries{without_room} · {} to peers ({} so far) · {} drifts found and repaired\n",
        filter.representation,
        count(filter.entries),
        count(filter.entries_max),
        scaled(filter.bytes_per_s, "B/s"),
        scaled(filter.bytes as f64, "B"),
        count(filter.drifts),
    );
    // Writing to a string cannot fail.
    if filter.precise_long_lived + filter.precise_urgent > 0 {
        let (long, urgent) = (count(filter.precise_long_lived), count(filter.precise_urgent));
        let _ =
            writeln!(text, "Precisely    {long} that have lived long, {urgent} that would be lost otherwise, so far");
    }
    if filter.recovery.begun > 0 {
        text.push_str(&describe_recovery(&filter.recovery));
    }
    if filter.inherited > 0 {
        let (filters, entries) = (count(filter.inherited), count(filter.inherited_entries));
        let _ = writeln!(text, "Inherited    {entries} entries in {filters} filters of nodes that are gone");
    }
    text
}

fn describe_recovery(recovery: &RecoveryStatus) -> String {
    let state = match recovery.ends_in_s.map(|left| Duration::try_from_secs_f64(left).unwrap_or_default()) {
        Some(left) => format!("asking peers' filters, for {} at most", duration(left)),
        None => "over".to_owned(),
    };
    let of = |name| count(recovery.count_of(name));
    // Each of these makes a connection of a packet in its middle.
    let ways =
        [("restored", "by filters"), ("cold_started", "from trusted ports"), ("unblocked", "by retransmissions")];
    let back = ways.map(|(name, _)| recovery.count_of(name)).iter().sum();
    let by: Vec<String> = ways
        .iter()
        .filter(|(name, _)| recovery.count_of(name) > 0)
        .map(|(name, way)| format!("{} {way}", of(name)))
        .collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    format!(
        "Recovery     {state} · {} connections back{by}, {} of them disowned · packets: {} missed, {} denied by the rules, \
         {} ambiguous, {} unasked\n",
        count(back),
        of("disowned"),
        of("missed"),
        of("denied"),
        of("ambiguous"),
        of("unasked"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_is_advertised_and_what_a_failover_recovered() {
        let counts = [("restored", 900), ("disowned", 2), ("missed", 7)].map(|(name, count)| (name.to_owned(), count));
        let recovery = RecoveryStatus { begun: 1, ends_in_s: Some(90.0), counts: counts.into() };
        let filter = FilterStatus {
            representation: "multi-level".into(),
            entries: 1000,
            entries_max: 65_536,
            bytes_per_s: 2500.0,
            inherited: 1,
            inherited_entries: 100,
            recovery,
            ..FilterStatus::default()
        };
        let text = describe(&filter);
        for part in [
            "multi-level: 1",
            "2.5",
            "drifts found and repaired",
            "900 connections back (900 by filters), 2 of them",
            "100 entries",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Precisely"), "there is nothing to report: {text}");
    }
    #[test]
    fn connections_that_a_block_or_a_cold_start_saved_are_among_those_that_are_back() {
        let of = |counts: &[(&str, u64)]| {
            let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            describe_recovery(&RecoveryStatus { begun: 1, ends_in_s: None, counts })
        };
        let text = of(&[("cold_started", 12), ("unblocked", 8)]);
        assert!(
            text.contains("20 connections back (12 from trusted ports, 8 by retransmissions), 0 of them"),
            "{text}"
        );
        assert!(of(&[]).contains(" 0 connections back, 0 of them"));
    }
}
