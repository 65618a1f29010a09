//! `[[service]]`, its backends and their checks.

use std::time::Duration;

use flow::wire::Encapsulation;
use network_functions::load_balancer::{Affinity, Mode, OnFailure, Scheduler};

use super::super::validated::{CheckKind, Function, Service};
use super::{GOOD, check, said};

const WEB: &str = r#"[[service]]
name = "web"
address = "192.0.2.10"
protocol = "tcp"
ports = [443]
[service.check]
[[service.backend]]
address = "10.0.0.5"
[[service.backend]]
address = "10.0.0.6:8443"
weight = 3
"#;

/// The small configuration with services in its chain and these sections.
fn with_services(sections: &str) -> String {
    let chain = GOOD.replace("chain = [\"firewall\", \"nat\"]", "chain = [\"firewall\", \"load_balancer\", \"nat\"]");
    chain.replace("[replication]\n", &format!("{sections}[replication]\n"))
}

fn services(sections: &str) -> Vec<Service> {
    check(&with_services(sections)).unwrap_or_else(|error| panic!("{error}")).config.services
}

#[test]
fn a_service_has_careful_defaults() {
    assert!(check(GOOD).unwrap().config.services.is_empty());
    let checked = check(&with_services(WEB)).unwrap().config;
    assert_eq!(checked.chain, [Function::Firewall, Function::LoadBalancer, Function::Nat]);
    let [service] = &checked.services[..] else { panic!("one service") };
    let config = &service.config;
    assert_eq!((config.scheduler, config.affinity, config.on_failure), Default::default());
    assert_eq!(config.slow_start, None);
    assert_eq!(config.mode, Mode::Nat);
    assert_eq!(config.backends.iter().map(|backend| backend.weight).collect::<Vec<_>>(), [1, 3]);
    let health = service.check.as_ref().expect("it is checked");
    assert_eq!(
        (health.kind, health.interval, health.timeout),
        (CheckKind::Tcp, Duration::from_secs(2), Duration::from_secs(1))
    );
    assert_eq!((health.rise, health.fall), (2, 3));
    assert_eq!((health.jitter_percent, health.fast_fail), (10, false));
    let ends = [0, 1].map(|backend| service.checked_end(backend).expect("a port").to_string());
    assert_eq!(ends, ["10.0.0.5:443", "10.0.0.6:8443"]);
}

#[test]
fn every_key_is_read() {
    let text = WEB
        .replace(
            "ports = [443]",
            "ports = [443, \"8000-8010\"]\nscheduler = \"least-connections\"\non_failure = \"end\"",
        )
        .replace(
            "[service.check]",
            "[service.check]\nkind = \"http\"\npath = \"/up\"\nport = 80\nrise = 1\nfall = 5\nsource = \"10.0.0.9\"",
        )
        .replace(":8443", "");
    let [service] = &services(&text)[..] else { panic!("one service") };
    assert_eq!((service.config.scheduler, service.config.on_failure), (Scheduler::LeastConnections, OnFailure::End));
    assert_eq!(service.config.ports.len(), 2);
    let check = service.check.as_ref().expect("it is checked");
    assert_eq!((check.kind, check.path.as_str(), check.rise, check.fall), (CheckKind::Http, "/up", 1, 5));
    assert_eq!(check.source, Some([10, 0, 0, 9].into()));
    assert_eq!(service.checked_end(1).map(|end| end.to_string()), Some("10.0.0.6:80".to_owned()));

    let text = WEB.replace("ports = [443]", "ports = [443]\nslow_start = \"30s\"").replace(
        "[service.check]",
        "[service.check]\nkind = \"https\"\nserver_name = \"www.example.com\"\nauthorities = \"/etc/ssl/ca.pem\"\njitter = 20\nfast_fail = true",
    );
    let [service] = &services(&text)[..] else { panic!("one service") };
    assert_eq!(service.config.slow_start, Some(Duration::from_secs(30)));
    let check = service.check.as_ref().expect("it is checked");
    assert_eq!((check.kind, check.jitter_percent, check.fast_fail), (CheckKind::Https, 20, true));
    assert_eq!(check.server_name.as_deref(), Some("www.example.com"));
    assert_eq!(check.authorities.as_deref(), Some(std::path::Path::new("/etc/ssl/ca.pem")));

    let unverified = "[service.check]\nkind = \"https\"\nverify = false";
    let [service] = &services(&WEB.replace("[service.check]", unverified))[..] else { panic!("one service") };
    assert_eq!(service.check.as_ref().expect("it is checked").authorities, None);

    let command = "[service.check]\nkind = \"command\"\ncommand = [\"/usr/bin/test\", \"-e\", \"/run/ready\"]";
    let [service] = &services(&WEB.replace("[service.check]", command))[..] else { panic!("one service") };
    assert_eq!(service.check.as_ref().expect("it is checked").command, ["/usr/bin/test", "-e", "/run/ready"]);

    let text = WEB
        .replace("ports = [443]", "ports = [443]\naffinity = \"source\"\nmode = \"full-nat\"\nsource = [\"10.0.0.1\"]");
    let [service] = &services(&text)[..] else { panic!("one service") };
    assert_eq!(service.config.affinity, Affinity::Source);
    assert_eq!(service.config.mode, Mode::FullNat(vec![[10, 0, 0, 1].into()]));
}

/// The service with direct return.
fn direct(keys: &str) -> String {
    WEB.replace("ports = [443]", &format!("ports = [443]\nmode = \"direct_return\"\n{keys}")).replace(":8443", "")
}

#[test]
fn direct_return_has_a_tunnel_of_either_kind_and_family() {
    let mode = |text: &str| services(text)[0].config.mode.clone();
    assert_eq!(mode(&direct("")), Mode::DirectReturn(Encapsulation::IpIp));
    assert_eq!(mode(&direct("encapsulation = \"gue\"\n")), Mode::DirectReturn(Encapsulation::Gue { port: 6080 }));
    let text = direct("encapsulation = \"gue\"\ngue_port = 5555\n").replace("\"10.0.0.6\"", "\"fd00::6\"");
    assert_eq!(mode(&text), Mode::DirectReturn(Encapsulation::Gue { port: 5555 }));
    let udp = direct("on_failure = \"end\"\n").replace("\"tcp\"", "\"udp\"");
    assert_eq!(services(&udp)[0].config.on_failure, OnFailure::End, "datagrams need no reset");
}

#[test]
fn what_direct_return_cannot_do_is_refused_with_a_remedy() {
    for (text, expected) in [
        (direct("source = [\"10.0.0.1\"]\n"), "write mode = \"full-nat\" or leave out source"),
        (direct("on_failure = \"end\"\n"), "cannot reset the connections of a failed one: write on_failure = \"keep\""),
        (direct("").replace("\"tcp\"", "\"sctp\""), "by the packets of one side: write mode = \"nat\""),
        (
            direct("").replace("10.0.0.6", "10.0.0.6:443"),
            "packets keep their port on the way through a tunnel: leave out",
        ),
        (direct("").replace("10.0.0.6", "192.0.2.10"), "the tunnel would lead to the service's own address"),
        (
            direct("gue_port = 6081\n"),
            "write mode = \"direct_return\" and encapsulation = \"gue\", or leave out gue_port",
        ),
        (direct("encapsulation = \"gue\"\ngue_port = 0\n"), "service.gue_port: 0 is out of range"),
        (direct("encapsulation = \"vxlan\"\n"), "write \"ipip\" or \"gue\""),
        (
            WEB.replace("ports = [443]", "ports = [443]\nencapsulation = \"gue\""),
            "write mode = \"direct_return\" or leave out encapsulation",
        ),
    ] {
        let text = said(&with_services(&text));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn functions_that_answer_for_servers_are_refused_beside_direct_return() {
    let proxy =
        |rule: &str| format!("{}[syn_proxy]\nkey = \"/k\"\n[[syn_proxy.rule]]\nname = \"all\"\n{rule}", direct(""));
    let with = |sections: &str, function: &str| {
        with_services(sections).replace("\"load_balancer\"", &format!("{function}, \"load_balancer\""))
    };
    let text = said(&with(&proxy("mode = \"always\"\n"), "\"syn_proxy\""));
    assert!(text.contains("the SYN proxy's rule \"all\" is for the service, too"), "{text}");
    for rule in
        ["mode = \"off\"\n", "mode = \"always\"\nports = [80]\n", "mode = \"always\"\ndestination = [\"10.0.0.0/8\"]\n"]
    {
        let checked = check(&with(&proxy(rule), "\"syn_proxy\""));
        assert!(checked.is_ok(), "{rule}: {}", checked.err().map(|error| error.to_string()).unwrap_or_default());
    }
}

#[test]
fn the_chain_follows_the_sections() {
    let text = with_services(WEB).replace("chain = [\"firewall\", \"load_balancer\", \"nat\"]\n", "");
    assert_eq!(check(&text).unwrap().config.chain, [Function::Firewall, Function::LoadBalancer, Function::Nat]);
    let text = with_services("");
    assert!(said(&text).contains("\"load_balancer\" is listed but its section is missing: add [[service]]"));
}

#[test]
fn mistakes_are_reported_with_a_remedy() {
    let twin = WEB.replace("name = \"web\"", "name = \"other\"");
    let forwarded = WEB.replace("ports = [443]", "ports = [80]");
    for (part, by, expected) in [
        ("protocol = \"tcp\"", "protocol = \"icmp\"", "services have ports, and the protocol has none: write \"tcp\""),
        ("ports = [443]", "ports = [443]\nscheduler = \"random\"", "write \"maglev\" or \"least-connections\""),
        ("weight = 3", "weight = 101", "service.backend.weight: 101 is out of range: choose a number from 0 to 100"),
        (
            "\"10.0.0.5\"",
            "\"fd00::5\"",
            "the address is IPv6, and the service's is IPv4: write a service for each family",
        ),
        ("ports = [443]", "", "the backend has a port, and the service has not exactly one"),
        ("10.0.0.6:8443", "10.0.0.5", "another backend of the service is the same server: list it once"),
        ("ports = [443]", "ports = [443]\nsource = [\"10.0.0.1\"]", "write mode = \"full-nat\" or leave out source"),
        ("ports = [443]", "ports = [443]\nmode = \"full-nat\"", "the source is translated, but to no address"),
        (
            "ports = [443]",
            "ports = [443]\naffinity = \"source\"\nscheduler = \"least-connections\"",
            "write scheduler = \"maglev\" or leave out affinity",
        ),
        ("[service.check]", "[service.check]\ntimeout = \"3s\"", "choose an interval of at least the timeout"),
        (
            "[service.check]",
            "[service.check]\npath = \"/\"",
            "write kind = \"http\" or kind = \"https\", or leave out path",
        ),
        ("[service.check]", "[service.check]\nkind = \"http\"\npath = \"a b\"", "\"a b\" cannot be requested"),
        ("ports = [443]", "ports = [443]\nslow_start = \"2h\"", "service.slow_start: "),
        ("[service.check]", "[service.check]\njitter = 51", "choose a number from 0 to 50"),
        (
            "[service.check]",
            "[service.check]\nkind = \"command\"",
            "no program is named: write command = [\"/usr/local",
        ),
        ("[service.check]", "[service.check]\nkind = \"command\"\ncommand = [\"check\"]", "begin it with /"),
        (
            "[service.check]",
            "[service.check]\ncommand = [\"/bin/true\"]",
            "write kind = \"command\", or leave out command",
        ),
        ("[service.check]", "[service.check]\nkind = \"icmp\"\nfast_fail = true", "or leave out fast_fail"),
        ("[service.check]", "[service.check]\nkind = \"icmp\"\nport = 7", "or leave out port"),
        (
            "[service.check]",
            "[service.check]\nkind = \"http\"\nauthorities = \"/a\"",
            "write kind = \"https\", or leave out",
        ),
        (
            "[service.check]",
            "[service.check]\nkind = \"https\"",
            "nothing verifies the certificates of the backends: name the file with their authorities in authorities",
        ),
        ("[service.check]", "[service.check]\nkind = \"https\"\nverify = true", "or write verify = false"),
        (
            "[service.check]",
            "[service.check]\nkind = \"https\"\nverify = false\nauthorities = \"/a\"",
            "authorities are of no use with verify = false",
        ),
        ("[service.check]", "[service.check]\nverify = false", "write kind = \"https\", or leave out verify"),
        (
            "[service.check]",
            "[service.check]\nkind = \"https\"\nverify = false\nserver_name = \"a b\"",
            "\"a b\" is no name of a host",
        ),
        ("[service.check]", "[service.check]\nsource = \"fd00::9\"", "service.check.source: the address is IPv6"),
        (WEB, &format!("{WEB}{WEB}"), "another service has this name: give each service its own name"),
        (WEB, &format!("{WEB}{twin}"), "service \"web\" matches packets to 192.0.2.10 too"),
        (WEB, &forwarded, "a [[nat.destination]] forwards packets to 192.0.2.10 too"),
        (
            WEB,
            WEB.split("[service.check]").next().expect("the head"),
            "the service has no backend: add [[service.backend]]",
        ),
    ] {
        assert!(WEB.contains(part), "{part}");
        let text = said(&with_services(&WEB.replacen(part, by, 1)));
        assert!(text.contains(expected), "{by}: {text}");
    }
}

#[test]
fn a_check_needs_a_port_and_an_address_that_nobody_holds_is_warned_of() {
    let any_port = WEB.replace("ports = [443]\n", "").replace(":8443", "");
    let text = said(&with_services(&any_port));
    assert!(text.contains("write port = 80 with the TCP port of the backends that answers checks"), "{text}");
    let range = WEB.replace("ports = [443]", "ports = [\"8000-8010\"]").replace(":8443", "");
    let pinged = range.replace("[service.check]", "[service.check]\nkind = \"icmp\"");
    assert_eq!(services(&pinged)[0].checked_end(0).map(|end| end.port()), Some(0), "an echo request has no port");
    let routed = check(&with_services(&WEB.replace("address = \"192.0.2.10\"", "address = \"203.0.113.7\""))).unwrap();
    let warned: Vec<String> = routed.warnings.iter().map(ToString::to_string).collect();
    assert!(warned.iter().any(|text| text.contains("service.address: no port holds 203.0.113.7")), "{warned:?}");
}

#[test]
fn the_examples_are_right() {
    for (text, mode) in [
        (include_str!("../../../../examples/load-balancer.toml"), Mode::Nat),
        (
            include_str!("../../../../examples/direct-return.toml"),
            Mode::DirectReturn(Encapsulation::Gue { port: 6080 }),
        ),
    ] {
        let checked = check(text).unwrap_or_else(|error| panic!("{error}"));
        assert!(checked.warnings.is_empty(), "{:?}", checked.warnings);
        let service = &checked.config.services[0].config;
        assert_eq!((service.backends.len(), &service.mode), (3, &mode));
    }
}
