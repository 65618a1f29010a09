//! `[syn_proxy]` and its rules.

use std::path::Path;
use std::time::Duration;

use network_functions::syn_proxy::{Mode, Offered, Thresholds};

use super::super::validated::{Function, SynProxy};
use super::{GOOD, check, said};

const RULE: &str = r#"[syn_proxy]
key = "/etc/mainstay/syn.key"
[[syn_proxy.rule]]
name = "web"
destination = ["192.0.2.10"]
ports = [80, "8000-8010"]
mode = "auto"
"#;

/// The small configuration with the proxy in its chain and these sections.
fn with_proxy(sections: &str) -> String {
    let chain = GOOD.replace("chain = [\"firewall\", \"nat\"]", "chain = [\"firewall\", \"syn_proxy\", \"nat\"]");
    chain.replace("[replication]\n", &format!("{sections}[replication]\n"))
}

fn proxy(sections: &str) -> SynProxy {
    check(&with_proxy(sections)).unwrap_or_else(|error| panic!("{error}")).config.syn_proxy
}

#[test]
fn a_rule_has_careful_defaults() {
    assert!(check(GOOD).unwrap().config.syn_proxy.rules.is_empty());
    let config = check(&with_proxy(RULE)).unwrap().config;
    assert_eq!(config.chain, [Function::Firewall, Function::SynProxy, Function::Nat]);
    assert_eq!(config.syn_proxy.key.as_deref(), Some(Path::new("/etc/mainstay/syn.key")));
    let [rule] = &config.syn_proxy.rules[..] else { panic!("one rule") };
    let hold = Duration::from_secs(30);
    assert_eq!(rule.mode, Mode::Auto(Thresholds { syns_per_s: Some(1000), half_open: None, hold }));
    assert_eq!((rule.offered, rule.ports.len(), rule.destinations.len()), (Offered::default(), 2, 1));
    assert_eq!(proxy(&RULE.replace("mode = \"auto\"\n", "")).rules[0].mode, Mode::Off, "off, unless it is asked for");
}

#[test]
fn every_key_is_read() {
    let text = RULE.replace(
        "mode = \"auto\"",
        "mode = \"auto\"\nsyn_rate = 0\nhalf_open = 500\nhold = \"5s\"\nmss = 1400\nwindow_scale = 3\nsack = false\ntimestamps = false",
    );
    let [rule] = &proxy(&text).rules[..] else { panic!("one rule") };
    let expected = Thresholds { syns_per_s: None, half_open: Some(500), hold: Duration::from_secs(5) };
    assert_eq!(rule.mode, Mode::Auto(expected));
    let offered = Offered { segment_size_bytes: 1400, window_scale: Some(3), sack: false, timestamps: false };
    assert_eq!(rule.offered, offered);
    assert_eq!(proxy(&RULE.replace("\"auto\"", "\"always\"")).rules[0].mode, Mode::Always);
}

#[test]
fn the_secret_follows_from_that_of_the_cluster() {
    let without = RULE.replace("key = \"/etc/mainstay/syn.key\"\n", "");
    assert!(said(&with_proxy(&without)).contains("the nodes have no secret in common"));
    let secured = with_proxy(&without).replace("mode = \"plain\"", "pre_shared_keys = [\"/etc/mainstay/cluster.key\"]");
    assert_eq!(check(&secured).unwrap().config.syn_proxy.key, None);
}

#[test]
fn mistakes_are_reported_with_a_remedy() {
    for (part, by, expected) in [
        ("mode = \"auto\"", "mode = \"sometimes\"", "write \"off\" or \"auto\" or \"always\""),
        (
            "mode = \"auto\"",
            "mode = \"auto\"\nsyn_rate = 0",
            "nothing switches the rule on: write syn_rate, half_open or both",
        ),
        ("mode = \"auto\"", "mode = \"auto\"\nwindow_scale = 15", "choose a number from 0 to 14"),
        ("mode = \"auto\"", "mode = \"auto\"\nmss = 100", "choose a number from 536 to 8960"),
        ("mode = \"auto\"", "mode = \"auto\"\nhold = \"10ms\"", "syn_proxy.rule.hold"),
        (
            RULE,
            &format!("{RULE}[[syn_proxy.rule]]\nname = \"web\"\n"),
            "another rule has this name: give the rule another name",
        ),
    ] {
        let text = RULE.replace(part, by);
        assert_ne!(text, RULE, "{part:?} is there");
        let said = said(&with_proxy(&text));
        assert!(said.contains(expected), "{by}: {said}");
    }
}

#[test]
fn the_proxy_stands_before_functions_that_translate() {
    let text = with_proxy(RULE).replace("\"firewall\", \"syn_proxy\", \"nat\"", "\"firewall\", \"nat\", \"syn_proxy\"");
    assert!(said(&text).contains("a function that translates stands before syn_proxy in the chain"));
}
