//! `[replication.segments]`.

use cluster::pipeline::{SegmentPolicy, SegmentsConfig};

use super::{broken, check, said};

const WITHOUT_FAST_PATH: &str = "[fast_path]\nenabled = false\n";

fn with(section: &str) -> String {
    broken("[failure_detection]", &format!("{section}\n[failure_detection]"))
}

fn segments(section: &str) -> Option<SegmentsConfig> {
    let checked = check(&with(section)).unwrap_or_else(|error| panic!("{error}"));
    checked.config.cluster.expect("it has a peer").replication.segments
}

#[test]
fn no_segments_are_replicated_unless_configured() {
    assert_eq!(segments(""), None);
    assert_eq!(segments("[replication.segments]\npolicy = \"off\""), None);
    let syns = segments("[replication.segments]\npolicy = \"syn-only\"").expect("it is on");
    assert_eq!(syns, SegmentsConfig { policy: SegmentPolicy::SynOnly, ..SegmentsConfig::default() });
}

#[test]
fn memory_and_rates_can_be_chosen() {
    let written = format!(
        "[replication.segments]\npolicy = \"always\"\nmemory = \"2MiB\"\nbytes_per_second = 100000\nresends_per_s = 70\n{WITHOUT_FAST_PATH}"
    );
    let expected = SegmentsConfig {
        policy: SegmentPolicy::Always,
        memory_bytes_max: 2 << 20,
        bytes_per_s_max: 100_000,
        resends_per_s_max: 70,
    };
    assert_eq!(segments(&written), Some(expected));
}

#[test]
fn what_contradicts_it_is_refused_with_what_to_do_instead() {
    let always = "[replication.segments]\npolicy = \"always\"\n";
    let cases = [
        (always.to_owned(), "write enabled = false in [fast_path], or policy = \"syn-only\" here"),
        ("[replication.segments]\npolicy = \"sometimes\"".to_owned(), "\"sometimes\""),
        (
            "[replication.segments]\npolicy = \"syn-only\"\nbytes_per_second = 1".to_owned(),
            "choose a number from 10000",
        ),
    ];
    for (section, expected) in cases {
        let said = said(&with(&section));
        assert!(said.contains("replication.segments") && said.contains(expected), "{section}: {said}");
    }
    let local = "local = \"10.99.0.1:3781\"";
    let syns = with("[replication.segments]\npolicy = \"syn-only\"");
    let off = syns.replace(local, &format!("{local}\nrepresentation = \"none\""));
    assert!(said(&off).contains("segments would belong to no connection"), "{}", said(&off));
    let compact = syns.replace(local, &format!("{local}\nexperimental = true\nrepresentation = \"flow-digest\""));
    assert!(said(&compact).contains("choose a precise replication.representation"), "{}", said(&compact));
}
