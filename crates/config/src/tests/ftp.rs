//! `[ftp]`, and what the firewall does with announced connections.

use std::time::Duration;

use network_functions::firewall::Related;
use network_functions::port_range::PortRange;

use super::super::validated::Function;
use super::{GOOD, check, said};

/// The small configuration with the helper in its chain and this section.
fn with_section(section: &str) -> String {
    let chain = GOOD.replace("chain = [\"firewall\", \"nat\"]", "chain = [\"firewall\", \"nat\", \"ftp\"]");
    chain.replace("[replication]", &format!("[ftp]\n{section}\n[replication]"))
}

#[test]
fn the_helper_is_off_without_its_section_and_careful_by_default() {
    let off = check(GOOD).unwrap().config;
    assert!(!off.chain.contains(&Function::Ftp));
    let on = check(&with_section("")).unwrap().config;
    assert_eq!(on.chain, [Function::Firewall, Function::Nat, Function::Ftp]);
    assert_eq!((on.ftp.ports, on.ftp.timeout), (vec![PortRange::single(21)], Duration::from_secs(300)));
    assert_eq!((on.ftp.loose, on.ftp.privileged_ports, on.related), (false, false, Related::Accept));
}

#[test]
fn every_key_is_read() {
    let text = with_section("ports = [21, \"2100-2121\"]\nloose = true\nprivileged_ports = true\ntimeout = \"1m\"");
    let config = check(&text.replace("[[firewall.rule]]", "[firewall]\nrelated = \"rules\"\n[[firewall.rule]]"));
    let config = config.unwrap().config;
    assert_eq!(
        (config.ftp.ports, config.ftp.timeout),
        (vec![PortRange::single(21), PortRange::new(2100, 2121).unwrap()], Duration::from_secs(60))
    );
    assert_eq!((config.ftp.loose, config.ftp.privileged_ports, config.related), (true, true, Related::Rules));
}

#[test]
fn mistakes_are_reported_with_a_remedy() {
    for (section, expected) in [
        ("ports = []", "ftp.ports: the list is empty: list the ports of control connections, or leave the key out"),
        ("timeout = \"2h\"", "ftp.timeout: \"2h\" is out of range: choose from \"1s\" to \"60m\""),
        ("strict = true", "unknown field `strict`"),
    ] {
        let text = said(&with_section(section));
        assert!(text.contains(expected), "{section}: {text}");
    }
    let related = GOOD.replace("[[firewall.rule]]", "[firewall]\nrelated = \"maybe\"\n[[firewall.rule]]");
    assert!(said(&related).contains("firewall.related: \"maybe\" is not known: write \"accept\" or \"rules\""));
}
