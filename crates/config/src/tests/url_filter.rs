//! `[url_filter]`, its lists and rules.

use network_functions::url_filter::lists::ListFormat;
use network_functions::url_filter::rules::{Action, DnsAction, Undecided};
use network_functions::url_filter::server::{OnFailure, OnUnknown};

use super::super::validated::{Function, UrlFilter};
use super::{GOOD, check, said};

const FILTER: &str = r#"[[url_filter.list]]
category = "ads"
path = "/etc/mainstay/ads.hosts"
format = "hosts"
[[url_filter.list]]
category = "work"
path = "/etc/mainstay/work.txt"
[[url_filter.rule]]
name = "web"
source = ["10.0.0.0/8"]
ports = [80, "443-444"]
block = ["ads", "uncategorised"]
allow = ["work"]
action = "block-page"
undecided = "block"
dns = "nxdomain"
quic = true
"#;

/// The small configuration with a URL filter in its chain and these sections.
fn with_filter(sections: &str) -> String {
    let chain = GOOD.replace("chain = [\"firewall\", \"nat\"]", "chain = [\"firewall\", \"url_filter\", \"nat\"]");
    chain.replace("[replication]\n", &format!("{sections}[replication]\n"))
}

#[test]
fn lists_and_rules_are_read() {
    let checked = check(&with_filter(FILTER)).unwrap().config;
    assert_eq!(checked.chain, [Function::Firewall, Function::UrlFilter, Function::Nat]);
    let UrlFilter { lists, rules, server } = checked.url_filter;
    assert!(server.is_none());
    assert_eq!([lists[0].config.format, lists[1].config.format], [ListFormat::Hosts, ListFormat::Plain]);
    assert_eq!(lists[0].path.to_str(), Some("/etc/mainstay/ads.hosts"));
    let rule = &rules[0];
    assert_eq!((rule.action, rule.undecided, rule.dns), (Action::BlockPage, Undecided::Block, DnsAction::NxDomain));
    assert_eq!(rule.ports.iter().map(|range| range.count()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((rule.block.len(), rule.allow.len(), rule.log), (2, 1, false));
    assert!(rule.quic);
}

#[test]
fn mistakes_are_reported_with_a_remedy() {
    let with = |from: &str, to: &str| said(&with_filter(&FILTER.replace(from, to)));
    for (from, to, expected) in [
        ("format = \"hosts\"", "format = \"csv\"", "write \"plain\" or \"hosts\" or \"rpz\""),
        ("\"/etc/mainstay/ads.hosts\"", "\"ads.hosts\"", "is not an absolute path"),
        ("category = \"work\"", "category = \"undecided\"", "has a meaning of its own"),
        ("block = [\"ads\",", "block = [\"adds\",", "no list has the category \"adds\""),
        ("action = \"block-page\"", "action = \"page\"", "\"reset\" or \"block-page\" or \"log\""),
        ("[[url_filter.rule]]\n", "[[url_filter.rule]]\nname = \"web\"\n[[url_filter.rule]]\n", "has this name"),
    ] {
        let text = with(from, to);
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

const SERVER: &str = r#"[url_filter.server]
address = "192.0.2.10:8080"
categories = ["news", "games"]
on_unknown = "block"
on_failure = "block"
timeout = "500ms"
cache_entries = 5000
cache_lifetime = "1h"
token = "/etc/mainstay/categories.token"
[[url_filter.rule]]
name = "all"
block = ["games"]
"#;

#[test]
fn a_server_is_read_and_rules_may_have_its_categories() {
    let server = check(&with_filter(SERVER)).unwrap().config.url_filter.server.expect("a server");
    assert_eq!((server.address.port(), server.config.categories.len(), server.config.cache_entries), (8080, 2, 5000));
    assert_eq!((server.config.on_unknown, server.config.on_failure), (OnUnknown::Block, OnFailure::Block));
    assert_eq!([server.config.timeout.as_millis(), server.config.cache_lifetime.as_millis()], [500, 3_600_000]);
    assert_eq!(server.token.unwrap().to_str(), Some("/etc/mainstay/categories.token"));
    for (from, to, expected) in [
        ("\"192.0.2.10:8080\"", "\"192.0.2.10\"", "192.0.2.10"),
        ("[\"games\"]", "[\"music\"]", "write it in url_filter.server.categories"),
        ("\"news\", \"games\"", "\"news\", \"games\", \"news\"", "is there twice"),
        ("\"news\", \"games\"", "\"unanswered\", \"games\"", "has a meaning of its own"),
        ("on_unknown = \"block\"", "on_unknown = \"hold\"", "\"wait\" or \"pass\" or \"block\""),
        ("= 5000", "= 5", "1000 to 1048576"),
        ("= 5000", "= 5000\ncertificate = \"/a\"\nkey = \"/b\"", "requests are made without TLS"),
        ("= 5000", "= 5000\nauthority = \"/a\"\nkey = \"/b\"", "certificate and key go together"),
        ("= 5000", "= 5000\nauthority = \"/a\"\nserver_name = \"a b\"", "\"a b\" is no name of a host"),
        ("= 5000", "= 5000\nauthority = \"a\"", "url_filter.server.authority"),
    ] {
        let text = said(&with_filter(&SERVER.replace(from, to)));
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(server.tls.is_none());
    let secured =
        "= 5000\nauthority = \"/ca\"\nserver_name = \"categories.example\"\ncertificate = \"/a\"\nkey = \"/b\"";
    let checked = check(&with_filter(&SERVER.replace("= 5000", secured))).unwrap().config;
    let tls = checked.url_filter.server.and_then(|server| server.tls).expect("over TLS");
    assert_eq!((tls.authority.to_str(), tls.server_name.as_deref()), (Some("/ca"), Some("categories.example")));
    assert_eq!(tls.identity, Some(("/a".into(), "/b".into())));
}

#[test]
fn the_filter_stands_before_functions_that_change_packets() {
    let behind = with_filter(FILTER).replace("\"url_filter\", \"nat\"", "\"nat\", \"url_filter\"");
    assert!(said(&behind).contains("stands before url_filter in the chain"), "{}", said(&behind));
}

#[test]
fn states_that_do_not_fit_a_record_together_are_refused() {
    let sections = format!("[classifier]\n[syn_proxy]\n[ftp]\n{FILTER}");
    let chain = "\"classifier\", \"firewall\", \"url_filter\", \"syn_proxy\", \"nat\", \"ftp\"";
    let text = with_filter(&sections).replace("\"firewall\", \"url_filter\", \"nat\"", chain);
    assert!(said(&text).contains("of a connection's record together, which has 64 for them"), "{}", said(&text));
}
