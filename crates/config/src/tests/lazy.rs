//! `[replication.lazy]`.

use std::time::Duration;

use replication::deferral::{Config, Dynamic};

use super::{broken, check, said};

fn with(section: &str) -> String {
    broken("[failure_detection]", &format!("{section}\n[failure_detection]"))
}

fn lazy(section: &str) -> Option<Config> {
    let checked = check(&with(section)).unwrap_or_else(|error| panic!("{error}"));
    checked.config.cluster.expect("it has a peer").replication.lazy
}

#[test]
fn nothing_is_deferred_unless_configured() {
    assert_eq!(lazy(""), None);
    let fixed = lazy("[replication.lazy]\nthreshold = \"300ms\"");
    assert_eq!(fixed, Some(Config::Fixed(Duration::from_millis(300))));
    assert_eq!(lazy("[replication.lazy]\nthreshold = \"dynamic\""), Some(Config::Dynamic(Dynamic::default())));
}

#[test]
fn all_that_the_load_decides_by_can_be_chosen() {
    let written = "[replication.lazy]\nthreshold = \"dynamic\"\nutilisation_max = 0.6\ninterval = \"1s\"\nlevels = 20\n\
                   responsiveness = 0.5\nthreshold_min = \"20ms\"\nthreshold_max = \"5s\"\nlifetime_max = \"30s\"\n\
                   bounded = false";
    let expected = Dynamic {
        utilisation_per_mille_max: 600,
        levels: 20,
        interval: Duration::from_secs(1),
        responsiveness_per_mille: 500,
        threshold_min: Duration::from_millis(20),
        threshold_max: Duration::from_secs(5),
        lifetime_max: Duration::from_secs(30),
        is_bounded: false,
        ..Dynamic::default()
    };
    assert_eq!(lazy(written), Some(Config::Dynamic(expected)));
}

#[test]
fn what_contradicts_it_or_has_no_effect_is_refused_with_what_to_do_instead() {
    let dynamic = "[replication.lazy]\nthreshold = \"dynamic\"\n";
    let cases = [
        ("[replication.lazy]\nthreshold = \"0ms\"".to_owned(), "leave lazy insertion out, or give a time"),
        ("[replication.lazy]\nthreshold = \"soon\"".to_owned(), "\"soon\" is not a duration"),
        (
            "[replication.lazy]\nthreshold = \"1s\"\nlevels = 5".to_owned(),
            "replication.lazy.levels: it has no effect, as the threshold is fixed",
        ),
        (format!("{dynamic}utilisation_max = 1.5"), "choose a number from 0 to 1"),
        (format!("{dynamic}levels = 0"), "choose a number from 1 to 100"),
        (format!("{dynamic}threshold_min = \"3s\""), "thresholds must rise from minimum to maximum"),
        (format!("{dynamic}lifetime_max = \"1s\""), "no longer than the longest lifetime"),
    ];
    for (section, expected) in cases {
        let said = said(&with(&section));
        assert!(said.contains("replication.lazy") && said.contains(expected), "{section}: {said}");
    }
    let local = "local = \"10.99.0.1:3781\"";
    let held = with(dynamic).replace(local, &format!("{local}\nhold_first_reply = \"100ms\""));
    assert!(said(&held).contains("hold_first_reply replicates every connection"), "{}", said(&held));
    let off = with(dynamic).replace(local, &format!("{local}\nrepresentation = \"none\""));
    assert!(said(&off).contains("nothing is replicated that could be deferred"), "{}", said(&off));
}
