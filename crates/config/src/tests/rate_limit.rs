//! `[rate_limit]` and its rules.

use std::time::Duration;

use network_functions::class::Class;
use network_functions::rate_limit::{Action, LimitConfig, Per, Quota, Rate, RuleConfig, Unit};

use super::super::validated::Function;
use super::{GOOD, check, said};

const RULE: &str = r#"[[rate_limit.rule]]
name = "clients"
source = ["10.0.0.0/8", "2001:db8::/32"]
[[rate_limit.rule.limit]]
per = "source"
bytes_per_s = "1MiB"
"#;

/// The small configuration with rate limits in its chain and these sections.
fn with_limits(sections: &str) -> String {
    let functions = if sections.contains("[classifier]") { "\"classifier\", \"firewall\"" } else { "\"firewall\"" };
    let chain = format!("chain = [{functions}, \"rate_limit\", \"nat\"]");
    let text = GOOD.replace("chain = [\"firewall\", \"nat\"]", &chain);
    text.replace("[replication]\n", &format!("{sections}[replication]\n"))
}

fn rules(sections: &str) -> Vec<RuleConfig> {
    check(&with_limits(sections)).unwrap_or_else(|error| panic!("{error}")).config.rate_limit
}

#[test]
fn a_limit_has_careful_defaults() {
    assert!(check(GOOD).unwrap().config.rate_limit.is_empty());
    let config = check(&with_limits(RULE)).unwrap().config;
    assert_eq!(config.chain, [Function::Firewall, Function::RateLimit, Function::Nat]);
    let [rule] = &config.rate_limit[..] else { panic!("one rule") };
    assert_eq!((rule.name.as_str(), rule.conditions.sources.len()), ("clients", 2));
    let bytes = Some(Rate { per_s: 1 << 20, burst: 1 << 20 });
    assert_eq!(rule.limits, [LimitConfig { per: Per::Source, bytes, ..LimitConfig::default() }]);
}

#[test]
fn every_key_is_read() {
    let text = r#"[classifier]
[[rate_limit.rule]]
name = "web"
destination = ["192.0.2.0/24"]
protocol = "tcp"
source_ports = ["1024-65535"]
destination_ports = [80, 443]
class = ["web", "video"]
[[rate_limit.rule.limit]]
per = "source"
direction = "reply"
packets_per_s = 1000
burst_packets = 50
bytes_per_s = 125000
burst_bytes = "64KiB"
action = "mark"
dscp = 8
ipv4_prefix = 24
ipv6_prefix = 48
sources_max = 4096
[[rate_limit.rule.limit]]
per = "class"
direction = "original"
connections_per_s = 100
burst_connections = 10
[[rate_limit.rule.limit]]
per = "connection"
quota_bytes = "10GiB"
period = "24h"
"#;
    let rules = rules(text);
    let [rule] = &rules[..] else { panic!("one rule") };
    assert_eq!(rule.conditions.classes, [Class::Web, Class::Video]);
    assert_eq!((rule.conditions.protocols.as_slice(), rule.conditions.destination_ports.len()), (&[6][..], 2));
    let [first, second, third] = &rule.limits[..] else { panic!("three limits") };
    assert_eq!(first.packets, Some(Rate { per_s: 1000, burst: 50 }));
    assert_eq!(first.bytes, Some(Rate { per_s: 125_000, burst: 65_536 }));
    assert_eq!((first.direction, first.action), (Some(flow::Direction::Reply), Action::Mark(8)));
    assert_eq!((first.prefixes.ipv4_bits, first.prefixes.ipv6_bits, first.sources_max), (24, 48, 4096));
    assert_eq!((second.per, second.direction), (Per::Class, Some(flow::Direction::Original)));
    assert_eq!(second.connections, Some(Rate { per_s: 100, burst: 10 }));
    let quota = Quota { unit: Unit::Bytes, amount: 10 << 30, period: Duration::from_secs(86_400) };
    assert_eq!((third.per, third.quota), (Per::Connection, Some(quota)));
}

#[test]
fn mistakes_are_reported_with_a_remedy() {
    let limit = "bytes_per_s = \"1MiB\"";
    for (part, by, expected) in [
        (limit, "", "the limit limits nothing: add packets_per_s, bytes_per_s, connections_per_s or quota_bytes"),
        (limit, "connections_per_s = 0", "choose a number from 1 to 10000000"),
        (limit, "bytes_per_s = \"fast\"", "is not a size"),
        (limit, "bytes_per_s = 1\nburst_packets = 5", "burst_packets is given without a rate: add packets_per_s"),
        (limit, "bytes_per_s = 1\naction = \"mark\"", "add dscp with a code point"),
        (limit, "bytes_per_s = 1\ndscp = 8", "nothing is marked: add action = \"mark\""),
        (limit, "bytes_per_s = 1\naction = \"mark\"\ndscp = 64", "choose a number from 0 to 63"),
        (limit, "connections_per_s = 1\naction = \"mark\"\ndscp = 8", "new connections cannot be marked"),
        (limit, "bytes_per_s = 1\nsources_max = 1", "choose a number from 64 to 1048576"),
        (limit, "bytes_per_s = 1\nipv4_prefix = 33", "choose a number from 0 to 32"),
        ("per = \"source\"", "per = \"rule\"\nsources_max = 100", "the limit is of none: add per = \"source\""),
        ("per = \"source\"", "per = \"host\"", "write \"rule\" or \"source\" or \"class\" or \"connection\""),
        ("per = \"source\"", "per = \"class\"", "no classifier comes before rate_limit: add [classifier]"),
        ("name = \"clients\"", "name = \"clients\"\nclass = [\"web\"]", "no classifier comes before rate_limit"),
        ("name = \"clients\"", "name = \"clients\"\ndestination_ports = [80]", "add protocol = \"tcp\", \"udp\" or"),
        ("source = [\"10.0.0.0/8\", ", "destination = [\"10.0.0.0/8\"]\nsource = [", "use one address family"),
        (limit, "quota_bytes = 1\nquota_packets = 1", "either bytes or packets: remove quota_bytes or quota_packets"),
        (limit, "bytes_per_s = 1\nperiod = \"1h\"", "period is given without a quota: add quota_bytes"),
        (limit, "quota_bytes = 1\nperiod = \"1s\"", "rate_limit.rule.limit.period"),
        ("per = \"source\"", "per = \"connection\"", "a connection can have a quota, and no rates: add quota_bytes"),
        (
            limit,
            "quota_bytes = 1\n[[rate_limit.rule.limit]]\nquota_packets = 1",
            "the rule has several quotas: write one quota for each rule",
        ),
        (RULE, &format!("{RULE}{RULE}"), "another rule has this name: give the rule another name"),
        (
            "per = \"source\"\n",
            &"per = \"source\"\nsources_max = 1048576\nbytes_per_s = 1\n[[rate_limit.rule.limit]]\n".repeat(5),
            "5242880 sources together, 4194304 are allowed: lower sources_max",
        ),
    ] {
        let text = RULE.replace(part, by);
        assert_ne!(text, RULE, "{part:?} is there");
        let said = said(&with_limits(&text));
        assert!(said.contains(expected), "{by}: {said}");
    }
}

#[test]
fn a_rule_has_a_limited_number_of_limits() {
    let limits = "[[rate_limit.rule.limit]]\nbytes_per_s = 1\n".repeat(8);
    let said = said(&with_limits(&format!("{RULE}{limits}")));
    assert!(said.contains("the rule has more than 8 limits: divide it into rules"), "{said}");
}

#[test]
fn the_functions_of_a_chain_must_fit_a_record() {
    let ftp = with_limits(&format!("{RULE}[ftp]\n")).replace("\"nat\"]", "\"nat\", \"ftp\"]");
    check(&ftp).unwrap_or_else(|error| panic!("{error}"));
    let syn_proxy = with_limits(&format!("{RULE}[ftp]\n[syn_proxy]\nkey = \"/etc/mainstay/syn.key\"\n"));
    let chain = "\"rate_limit\", \"syn_proxy\", \"nat\", \"ftp\"]";
    let said = said(&syn_proxy.replace("\"rate_limit\", \"nat\"]", chain));
    assert!(
        said.contains("of a connection's record") && said.contains("leave \"ftp\" or another function out"),
        "{said}"
    );
}
