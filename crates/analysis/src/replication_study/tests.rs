//! Studies of traffic whose costs can be computed beforehand.

use std::io::Cursor;
use std::path::PathBuf;
use std::time::Duration;

use packet_io::pcap::PcapWriter;

use super::*;
use crate::synthesis::replication::presets::preset;
use crate::synthesis::{ReplicationConfig, ReplicationTraffic};

/// Connections a second of the traffic, for so many seconds, as a capture.
fn capture(name: &str, connections_per_second: f64, seconds: u64) -> Vec<u8> {
    let config = preset(name).expect("it is one").config();
    let config = ReplicationConfig { connections_per_second, duration: Duration::from_secs(seconds), ..config };
    let mut traffic = ReplicationTraffic::new(config, 3).expect("presets are right");
    let mut writer = PcapWriter::new(Vec::new()).expect("memory takes it");
    while let Some((at, frame)) = traffic.next() {
        writer.write(at, frame).expect("memory takes it");
    }
    writer.finish().expect("memory takes it")
}

fn trace(bytes: &[u8]) -> Trace {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    Trace::merge(vec![(PathBuf::from("made"), source, Some(bytes.len() as u64))]).expect("it is a capture")
}

fn study(bytes: &[u8], config: StudyConfig) -> Outcome {
    let mut trace = trace(bytes);
    let mut study = Study::new(config, ConnectionsConfig::seed()).expect("the configuration is right");
    while let Some(packet) = trace.next() {
        study.handle_packet(&packet);
    }
    study.finish(Some(&trace))
}

fn small() -> StudyConfig {
    StudyConfig {
        thresholds_ms: vec![0, 50, 500, 5000],
        connections_max: 20_000,
        failover_every_s: 3.0,
        probes: 2000,
        digest_interval_s: Some(DIGEST_INTERVAL_OF_PAPER_S),
        as_in_the_paper: true,
        ..StudyConfig::default()
    }
}

/// The same traffic, as a gateway replicates it unless it is configured otherwise.
fn of_gateway() -> StudyConfig {
    StudyConfig { digest_interval_s: None, as_in_the_paper: false, ..small() }
}

fn cost(outcome: &Outcome, method: Method, threshold_ms: u32) -> &Cost {
    let costs = &outcome.methods[method.name()].by_threshold;
    costs.iter().find(|cost| cost.threshold_ms == threshold_ms).expect("it was studied")
}

#[test]
fn filters_know_the_connections_they_got_and_cost_less_than_messages() {
    let outcome = study(&capture("ipls-3", 300.0, 10), small());
    assert!(outcome.traffic.connections > 2000 && outcome.failovers >= 3, "{:?}", outcome.traffic);
    assert!((outcome.traffic.one_way_share - 0.34).abs() < 0.1, "{}", outcome.traffic.one_way_share);
    let selective = cost(&outcome, Method::PreciseSelective, 0);
    assert!(selective.bytes < cost(&outcome, Method::PreciseEager, 0).bytes);
    for method in [Method::MultiLevelFa, Method::MultiLevelLl, Method::MultiLevelFaSymbols, Method::DLeft] {
        let found = cost(&outcome, method, 0);
        assert!(found.reduction.expect("there is traffic") > 0.5, "{}: {found:?}", method.name());
        // A failover may lose what changed within the last millisecond.
        assert!(found.false_negative.expect("there were failovers") < 0.02, "{}: {found:?}", method.name());
        assert!(found.inaccurate_state.expect("there were failovers") < 0.02, "{}: {found:?}", method.name());
        assert!(found.false_positive.expect("there were failovers") < 0.002, "{}: {found:?}", method.name());
        assert_eq!(found.refused, 0, "{}", method.name());
        assert!(found.entries_at_backup <= selective.entries_at_backup, "{}: {found:?}", method.name());
    }
    let filled = &outcome.methods["multi-level-fa"].level_loads;
    assert_eq!((filled.len() as u64, filled[0].loads.len()), (outcome.failovers, 4));
    assert!(
        filled.iter().all(|at| at.loads[0] > 0.0 && at.loads.windows(2).all(|pair| pair[0] >= pair[1])),
        "{filled:?}"
    );
    assert!(outcome.methods["flow-digest"].level_loads.is_empty());
    let digest = cost(&outcome, Method::FlowDigest, 0);
    assert!(digest.inaccurate_state.is_none(), "it has no states");
    assert!(digest.false_negative.expect("there were failovers") > 0.0, "it is sent every five seconds only");
}

#[test]
fn the_study_takes_the_defaults_of_the_gateway() {
    use replication::compact::UpdateRule;
    for method in [Method::HostAggregate, Method::FlowDigest, Method::MultiLevelFa] {
        let compact = pair::compact_config(&StudyConfig::default(), method);
        assert_eq!(compact.update, UpdateRule::default(), "{method:?}");
    }
    let every_5s = StudyConfig { digest_interval_s: Some(DIGEST_INTERVAL_OF_PAPER_S), ..of_gateway() };
    let capture = capture("ipls-3", 300.0, 10);
    let lost = |config| {
        let outcome = study(&capture, config);
        cost(&outcome, Method::FlowDigest, 0).false_negative.expect("there were failovers")
    };
    let (at_once, late) = (lost(of_gateway()), lost(every_5s));
    assert!(at_once < 0.01 && late > 10.0 * at_once, "{at_once} and {late} of the connections");
}

#[test]
fn comparing_the_copies_is_on_the_page_beside_what_it_compares() {
    let page = report(&study(&capture("ipls-3", 300.0, 10), of_gateway()), "", "");
    let tile = page.tiles.iter().find(|tile| tile.name == "flow-digest").expect("it was studied");
    assert!(tile.beside.contains("to compare the copies"), "{tile:?}");
    assert!(page.html().contains("comparing the copies"));
}

#[test]
fn digests_are_counted_apart_from_updates() {
    let busy = study(&capture("auck-4", 100.0, 12), small());
    for method in Method::ALL.into_iter().filter(|method| !method.is_precise()) {
        let found = cost(&busy, method, 0);
        assert!(found.checking_bytes > 0 && found.bytes > 0, "{}: {found:?}", method.name());
        assert!(
            found.content_bytes < found.bytes && found.bytes - found.content_bytes == found.datagrams * 38,
            "{found:?}"
        );
    }
    let precise = cost(&busy, Method::PreciseSelective, 0);
    assert_eq!(precise.checking_bytes, 0);
    assert_eq!(precise.bytes - precise.content_bytes, precise.datagrams * 48 + precise.messages * 4, "{precise:?}");
}

#[test]
fn the_advice_is_a_method_that_knows_connections_and_its_bytes() {
    let outcome = study(&capture("ipls-3", 300.0, 10), small());
    let advice = outcome.advice.clone().expect("there was something to replicate");
    let advised = Method::from_name(advice.method).expect("it is one");
    assert!(!advised.is_membership() && !advised.is_precise(), "{advice:?}");
    let found = cost(&outcome, advised, 0);
    for method in [Method::MultiLevelFa, Method::MultiLevelFaSymbols, Method::DLeft, Method::PreciseSelective] {
        assert!(found.bytes <= cost(&outcome, method, 0).bytes, "{} is cheaper than {advice:?}", method.name());
    }
    assert!((advice.bytes_per_second * outcome.traffic.busy_s - found.bytes as f64).abs() < 1.0);
    assert!(advice.sentences[0].contains("representation = \"multi-level"), "{advice:?}");
    // What saves nothing that anybody would notice is not worth its mistakes.
    let quiet = study(&capture("auck-4", 3.0, 20), small()).advice.expect("there was something to replicate");
    assert_eq!(quiet.method, "precise-selective", "{quiet:?}");
}

#[test]
fn years_between_two_captures_are_no_idle_time() {
    let early = capture("ipls-3", 300.0, 5);
    let mut late = early.clone();
    let mut record = 24;
    while record < late.len() {
        let field = |at: usize| u32::from_le_bytes([late[at], late[at + 1], late[at + 2], late[at + 3]]);
        let (seconds, length) = (field(record) + 300_000_000, field(record + 8));
        late[record..record + 4].copy_from_slice(&seconds.to_le_bytes());
        record += 16 + length as usize;
    }
    let alone = study(&early, small());
    let both = study(&[&early[..], &late[24..]].concat(), small());
    assert!(both.traffic.duration_s > 2.9e8 && both.traffic.busy_s < 75.0, "{:?}", both.traffic);
    let [alone, both] = [alone, both].map(|outcome| cost(&outcome, Method::MultiLevelFa, 0).clone());
    // Each capture's connections are inserted and removed; messages of the filters in between are not counted.
    assert!(both.bytes < alone.bytes * 5 / 2, "{} of {}", both.bytes, alone.bytes);
}

#[test]
fn a_host_aggregate_takes_every_connection_between_known_hosts_for_known() {
    let outcome = study(&capture("auck-4", 100.0, 20), small());
    let hosts = cost(&outcome, Method::HostAggregate, 0);
    let connections = cost(&outcome, Method::PreciseSelective, 0);
    assert!(hosts.entries_at_backup < connections.entries_at_backup, "{hosts:?} {connections:?}");
    let of_known = |method| cost(&outcome, method, 0).false_positive_same_hosts.expect("there were failovers");
    assert!(of_known(Method::HostAggregate) > 0.1, "{}", of_known(Method::HostAggregate));
    assert!(of_known(Method::MultiLevelFa) < 0.01, "{}", of_known(Method::MultiLevelFa));
}

#[test]
fn waiting_saves_messages_and_protects_fewer_bytes() {
    let outcome = study(&capture("ipls-3", 200.0, 20), small());
    for method in [Method::PreciseEager, Method::PreciseSelective, Method::MultiLevelFa, Method::FlowDigest] {
        let costs = &outcome.methods[method.name()].by_threshold;
        assert_eq!(costs.len(), 4, "{}", method.name());
        for (shorter, longer) in costs.iter().zip(&costs[1..]) {
            assert!(longer.changes < shorter.changes, "{}: {longer:?}", method.name());
            assert!(longer.entries_at_backup <= shorter.entries_at_backup, "{}: {longer:?}", method.name());
            assert!(longer.protected_share < shorter.protected_share, "{}: {longer:?}", method.name());
        }
    }
    // Late insertions are removed all the same: the filter never holds more than the digest's connections.
    for threshold_ms in [0, 50, 500, 5000] {
        let established = cost(&outcome, Method::MultiLevelFaEstablished, threshold_ms);
        let digest = cost(&outcome, Method::FlowDigest, threshold_ms);
        assert!(
            established.entries_at_backup <= digest.entries_at_backup,
            "{threshold_ms}: {established:?} {digest:?}"
        );
        assert!(established.false_negative.expect("there were failovers") < 0.05, "{threshold_ms}: {established:?}");
    }
    // Nine of ten connections are over after five seconds, and those that were never answered are not replicated.
    let late = cost(&outcome, Method::PreciseSelective, 5000);
    assert!(late.reduction_by_threshold.expect("there is traffic") > 0.7, "{late:?}");
    assert!(cost(&outcome, Method::MultiLevelFa, 5000).false_negative.expect("there were failovers") < 0.05);
}

#[test]
fn the_same_capture_and_seed_give_the_same_outcome_with_one_thread_and_with_several() {
    let bytes = capture("auck-4", 100.0, 10);
    let alone = study(&bytes, StudyConfig { workers: 1, ..small() });
    let together = study(&bytes, StudyConfig { workers: 3, ..small() });
    assert_eq!(alone, together);
}

#[test]
fn a_damaged_capture_is_named_and_studied_as_far_as_it_goes() {
    let bytes = capture("auck-4", 50.0, 10);
    let outcome = study(&bytes[..bytes.len() / 2 + 7], small());
    assert_eq!(outcome.not_studied.damaged.len(), 1, "{:?}", outcome.not_studied);
    assert!(outcome.not_studied.damaged[0].starts_with("made: read up to frame"), "{:?}", outcome.not_studied);
    assert!(outcome.traffic.connections > 50, "{:?}", outcome.traffic);
}

#[test]
fn a_full_table_is_reported() {
    let outcome = study(&capture("auck-4", 200.0, 10), StudyConfig { connections_max: 64, ..small() });
    assert!(outcome.not_studied.table_full + outcome.not_studied.displaced > 0, "{:?}", outcome.not_studied);
    assert!(cost(&outcome, Method::PreciseSelective, 0).entries_at_backup <= 64);
}

#[test]
fn an_outcome_is_a_page_json_and_tables() {
    let outcome = study(&capture("ipls-3", 100.0, 5), small());
    let html = report(&outcome, "Mainstay study replication", "a version").html();
    for method in Method::ALL {
        assert!(html.contains(method.name()), "{}", method.name());
    }
    assert!(!html.contains("NaN") && html.contains("What waiting saves"));
    let json = serde_json::to_value(&outcome).expect("it is plain data");
    for method in Method::ALL {
        let found = &json["methods"][method.name()];
        for field in ["bytes", "messages", "entries_at_backup", "reduction", "false_positive", "false_negative"] {
            assert!(found[field].is_number(), "{}: {field} in {found}", method.name());
        }
        assert!(found["inaccurate_state"].is_number() || method.is_membership(), "{found}");
    }
    let tables = datasets(&outcome);
    assert_eq!(tables[0].rows().len(), Method::ALL.len());
    assert!(tables.iter().all(|table| !table.columns.is_empty()));
}

#[test]
fn nothing_is_no_traffic() {
    let study = Study::new(small(), ConnectionsConfig::default()).expect("the configuration is right");
    let outcome = study.finish(None);
    assert_eq!((outcome.traffic.connections, outcome.failovers), (0, 0));
    assert_eq!(outcome.methods["multi-level-fa"].cost.reduction, None);
    assert!(!report(&outcome, "", "").html().contains("NaN"));
}

#[test]
fn what_cannot_be_studied_is_refused_by_name() {
    let refused = |config: StudyConfig| Study::new(config, ConnectionsConfig::default()).err().expect("it is refused");
    assert_eq!(refused(StudyConfig { methods: vec![], ..small() }), ConfigError::NoMethods);
    for thresholds_ms in [vec![], vec![50], vec![0, 50, 50], (0..17).collect()] {
        assert_eq!(refused(StudyConfig { thresholds_ms, ..small() }), ConfigError::Thresholds);
    }
    let error = refused(StudyConfig { digest_interval_s: Some(f64::NAN), ..small() });
    assert!(error.to_string().starts_with("the digest's interval"), "{error}");
    let error = refused(StudyConfig { fingerprint_bits: Some(31), ..small() });
    assert!(matches!(error, ConfigError::Filter { .. }), "{error}");
}
