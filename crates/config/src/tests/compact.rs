//! Filters between nodes, translations that are computed, and what does not go together.

use std::time::Duration;

use cluster::pipeline::RECOVERY_LASTS_DEFAULT;
use flow::PortId;
use replication::compact::{Representation as Filter, UpdateRule};

use super::super::validated::{NatMapping, Representation};
use super::{GOOD, broken, check, said};

/// The good configuration with its source translation computed, and this in `[replication]` and behind all.
fn with(replication: &str, sections: &str) -> String {
    let text = computed().replace("[replication]\n", &format!("[replication]\n{replication}\n"));
    format!("{text}\n{sections}\n")
}

fn computed() -> String {
    GOOD.replace("[[nat.source]]\n", "[[nat.source]]\nmapping = \"deterministic\"\n")
}

#[test]
fn every_filter_can_be_chosen_and_is_made_for_as_many_connections_as_the_table_holds() {
    for filter in Filter::ALL {
        let acknowledged = if filter.is_experimental() { "\nexperimental = true" } else { "" };
        let text = with(&format!("representation = \"{}\"{acknowledged}", filter.name()), "");
        let config = check(&text).unwrap_or_else(|error| panic!("{error}")).config;
        let replication = config.cluster.unwrap().replication;
        assert_eq!(replication.representation, Representation::Compact(filter));
        let compact = replication.compact.unwrap();
        assert_eq!((compact.representation, compact.entries_max), (filter, u64::from(config.connections_max)));
        assert_eq!(
            compact.update,
            UpdateRule::Immediate { batch: Duration::from_millis(10), establishment_at_once: true }
        );
        assert_eq!((compact.precise_after, compact.budget_bytes_per_second), (None, None));
        assert_eq!(compact.recovery.lasts, RECOVERY_LASTS_DEFAULT);
        assert!(compact.recovery.cold_start.is_empty() && !compact.recovery.block);
        assert!(compact.stream([1, 2], 1472, 1).check().is_ok());
    }
    let precise = check(GOOD).unwrap().config.cluster.unwrap().replication;
    assert_eq!((precise.representation, precise.compact), (Representation::PreciseSelective, None));
}

#[test]
fn a_filter_takes_its_settings_from_its_sections() {
    let text = with(
        "representation = \"flow-digest\"\nexperimental = true\nbudget_bytes_per_second = 100000",
        "[replication.filter]\nentries_max = 5000\ncounters_per_entry = 12\nhashes = 5\nupdate = \"threshold\"\n\
         threshold_per_mille = 20\ninterval = \"1s\"\nsymbols = false\nprecise_after = \"5s\"\n\
         [replication.recovery]\nlasts = \"2m\"\ncold_start = [\"inside\"]\nblock = true\nmisses_per_source_max = 9\n",
    );
    let compact = check(&text).unwrap_or_else(|error| panic!("{error}")).config.cluster.unwrap().replication.compact;
    let compact = compact.unwrap();
    let threshold = UpdateRule::Threshold { changes_per_mille: 20, at_most_every: Duration::from_secs(1) };
    assert_eq!((compact.entries_max, compact.update), (5000, threshold));
    assert_eq!((compact.counters_per_entry, compact.hashes, compact.symbols), (12, 5, false));
    assert_eq!(compact.recovery.cold_start, [PortId(0)]);
    assert_eq!((compact.recovery.lasts, compact.recovery.block), (Duration::from_secs(120), true));
    assert_eq!(compact.recovery.misses_per_source_max, 9);
    // Of two workers each has half of the budget; what precise words leave of that is the filter's.
    let stream = compact.stream([1, 2], 1472, 2);
    assert_eq!((stream.items_max, stream.budget_bytes_per_second), (2500, Some(50_000)));
}

#[test]
fn a_filter_that_may_break_connections_must_be_acknowledged() {
    for filter in Filter::ALL.into_iter().filter(|filter| filter.is_experimental()) {
        for acknowledged in ["", "\nexperimental = false"] {
            let refused = said(&with(&format!("representation = \"{}\"{acknowledged}", filter.name()), ""));
            assert!(refused.contains("one established connection in a thousand may break"), "{refused}");
            assert!(refused.contains("write experimental = true"), "{refused}");
        }
    }
    for safe in ["host-aggregate", "multi-level", "multi-level-least-load"] {
        assert!(check(&with(&format!("representation = \"{safe}\""), "")).is_ok(), "{safe}");
        let needless = said(&with(&format!("representation = \"{safe}\"\nexperimental = true"), ""));
        assert!(needless.contains("the representation is not experimental: remove it"), "{needless}");
    }
}

#[test]
fn what_a_filter_cannot_do_is_refused_with_the_reason_and_the_cure() {
    let filter = "representation = \"multi-level\"";
    let chosen = said(&broken("[replication]\n", &format!("[replication]\n{filter}\n")));
    assert!(chosen.contains("source NAT rule 0 chooses ports among those that are free"), "{chosen}");
    assert!(chosen.contains("write mapping = \"deterministic\" in the rule"), "{chosen}");

    let held = said(&with(&format!("{filter}\nhold_first_reply = \"5ms\""), ""));
    assert!(held.contains("filters are confirmed, not their entries"), "{held}");

    let groups = "[[group]]\nname = \"one\"\n[[group]]\nname = \"two\"\n";
    let groups = said(&with(filter, groups));
    assert!(groups.contains("packets of one connection may reach the nodes of several groups"), "{groups}");
    assert!(groups.contains("write replication.symmetric = true if both directions come to one node"), "{groups}");

    let small = said(&with(&format!("{filter}\nbudget_bytes_per_second = 10"), ""));
    assert!(small.contains("less than a datagram") && small.contains("write 1472 or more"), "{small}");
    // What suffices for one worker need not for two.
    let text =
        with(&format!("{filter}\nbudget_bytes_per_second = 2000"), "[replication.filter]\nprecise_after = \"1s\"\n");
    let without_nat = |text: &str| {
        let (from, to) = (text.find("[[nat.source]]").unwrap(), text.find("[replication]").unwrap());
        format!("{}{}", &text[..from], &text[to..]).replace(", \"nat\"", "")
    };
    assert!(check(&without_nat(&text)).is_ok(), "{}", said(&without_nat(&text)));
    let shared = said(&without_nat(&format!("{text}[workers]\ncount = 2\n")));
    assert!(
        shared.contains("replication.budget_bytes_per_second") && shared.contains("write 2944 or more"),
        "{shared}"
    );

    let large = said(&with(filter, "[replication.filter]\nentries_max = 2000000000\n"));
    assert!(large.contains("replication.filter.entries_max: there is no such filter"), "{large}");
    assert!(large.contains("lower it, or the bits and counters of an entry"), "{large}");

    let misspelt = said(&with("representation = \"multilevel\"", "[replication.filter]\nentries_max = 5\n"));
    assert_eq!(misspelt.lines().count(), 1, "its consequences are not reported: {misspelt}");

    let bits = said(&with(filter, "[replication.filter]\nfingerprint_bits = 3\n"));
    assert!(bits.contains("3 is out of range"), "{bits}");

    let threshold = said(&with(filter, "[replication.filter]\nthreshold_per_mille = 3\n"));
    assert!(threshold.contains("write update = \"threshold\""), "{threshold}");

    let port = said(&with(filter, "[replication.recovery]\ncold_start = [\"lan\"]\n"));
    assert!(port.contains("there is no port \"lan\""), "{port}");

    for unused in ["[replication.filter]\n", "[replication.recovery]\n"] {
        let unused = said(&with("", unused));
        assert!(unused.contains("connections are replicated as records, without a filter"), "{unused}");
    }
}

#[test]
fn a_mapping_is_computed_if_configured_and_refused_with_what_is_missing() {
    let mapping = |text: &str| check(text).unwrap_or_else(|error| panic!("{error}")).config.source_nat[0].mapping;
    assert_eq!(mapping(GOOD), None);
    assert_eq!(mapping(&computed()), Some(NatMapping { is_keyed: false, block_ports: None }));
    let rule = |lines: &str| GOOD.replace("[[nat.source]]\n", &format!("[[nat.source]]\n{lines}\n"));
    let key = "[nat]\nmapping_key = \"/etc/mainstay/nat.key\"\n[[nat.source]]\n";
    let keyed = rule("mapping = \"deterministic-keyed\"");
    assert_eq!(
        mapping(&keyed.replacen("[[nat.source]]\n", key, 1)),
        Some(NatMapping { is_keyed: true, block_ports: None })
    );
    let small = said(&rule("mapping = \"deterministic\"\nblock_ports = 100"));
    assert_eq!(small.lines().count(), 1, "once: {small}");
    for (text, remedy) in [
        (keyed, "write mapping_key ="),
        (rule("block_ports = 512"), "add mapping = \"deterministic\""),
        (rule("mapping = \"deterministic\"\nblock_ports = 100"), "write 128 or more"),
        (rule("mapping = \"deterministic\"\nblock_ports = 40000"), "narrow the sources, add outside addresses"),
        (rule("mapping = \"static\""), "\"deterministic-keyed\""),
        (GOOD.replacen("[[nat.source]]\n", key, 1), "write mapping = \"deterministic-keyed\""),
    ] {
        let report = said(&text);
        assert!(report.contains(remedy), "{report}");
    }
    let second = "[[nat.source]]\nsource = [\"10.0.1.0/24\"]\nto = [\"192.0.2.10\"]\n[[nat.source]]\n";
    let shared = said(&computed().replacen("[[nat.source]]\n", second, 1));
    assert!(shared.contains("give each addresses of its own"), "{shared}");
}
