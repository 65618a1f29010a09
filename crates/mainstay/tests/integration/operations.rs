//! Operators at work on running nodes: nothing that they do costs a connection.

use std::process::Output;

use crate::common::program::{Program, mainstay, wait_for};
use crate::common::{Host, SOUND, lateness};
use packet_io::signal::Signal;

/// A hand-over is a matter of milliseconds on a quiet machine. A run in which the machine was late is repeated.
const GAP_MS_MAX: f64 = 1000.0;

#[test]
fn reloads_a_drain_and_a_rolling_restart_under_load_lose_no_connection() {
    let run = || rolling_restart(&[]);
    let Some((output, result)) = lateness::below(GAP_MS_MAX, run, |(_, result)| lateness::pause_ms(result)) else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let number = |key: &str| result[key].as_f64().expect(key);
    assert_eq!((number("reloads"), number("drains"), number("restarts")), (40.0, 1.0, 2.0));
    assert_eq!(number("connections"), 66.0, "{result:#}");
    assert_eq!(number("survived"), number("connections"), "{result:#}");
    assert_eq!(number("broken"), 0.0, "{result:#}");
    assert!(number("bytes_verified") > 10e6, "{result:#}");
}

/// How the demo ends and what it reports; nothing, said aloud, where the machine forbids namespaces.
fn rolling_restart(more: &[&str]) -> Option<(Output, serde_json::Value)> {
    packet_io::namespace::for_tests()?;
    let output = mainstay(&["demo", "--rolling-restart", "--json", "--seconds", "2"])
        .args(more)
        .output()
        .expect("the program can be run");
    let result = serde_json::from_slice(&output.stdout);
    let result = result.unwrap_or_else(|_| panic!("one JSON object: {}", String::from_utf8_lossy(&output.stderr)));
    Some((output, result))
}

#[test]
fn where_both_nodes_carry_connections_neither_a_drain_nor_a_restart_loses_one() {
    let run = || rolling_restart(&["--multi-primary"]);
    // However long, pauses end.
    let Some((output, result)) = lateness::below(f64::MAX, run, |(_, result)| lateness::pause_ms(result)) else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let number = |key: &str| result[key].as_f64().expect(key);
    assert_eq!((number("connections"), number("survived"), number("broken")), (66.0, 66.0, 0.0), "{result:#}");
    assert!(number("bytes_verified") > 10e6, "{result:#}");
}

/// A running gateway that holds the addresses.
struct Gateway(Program);

impl Gateway {
    /// Starts it and waits until it holds the addresses.
    fn start(host: &Host, text: &str) -> Self {
        let gateway = host.start(text);
        gateway.wait_for_role("active");
        Self(gateway)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        mainstay(arguments).arg("--socket").arg(self.0.socket()).output().expect("the program can be run")
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_slice(&self.run(&[arguments, &["--json"]].concat()).stdout).unwrap_or_default()
    }

    fn status(&self) -> serde_json::Value {
        self.json(&["status"])
    }

    fn rule_names(&self) -> Vec<String> {
        let rules = self.json(&["rules"]);
        let named = rules["rules"].as_array().into_iter().flatten();
        named.filter_map(|rule| rule["rule"].as_str().map(ToOwned::to_owned)).collect()
    }

    fn has_event(&self, kind: &str, detail: &str) -> bool {
        let events = self.json(&["status", "--events"]);
        let events = events["events"].as_array().into_iter().flatten();
        events.into_iter().any(|event| event["kind"] == kind && event["detail"].as_str().unwrap_or("").contains(detail))
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

const WEB: &str =
    "\n[[firewall.rule]]\nname = \"web\"\nprotocol = \"tcp\"\ndestination_ports = [80]\naction = \"accept\"\n";

#[test]
fn the_file_is_reloaded_on_request_and_on_a_signal() {
    let Some(host) = Host::new("reload") else { return };
    let gateway = Gateway::start(&host, SOUND);
    let before = gateway.status()["configuration"].as_str().expect("a fingerprint").to_owned();
    let output = gateway.run(&["reload"]);
    assert_eq!(text(&output.stdout), format!("reloaded, which changes nothing: configuration {before}\n"));

    host.file(&format!("{SOUND}{WEB}"));
    let checked = gateway.run(&["reload", "--check-only"]);
    assert!(
        text(&checked.stdout).starts_with("changes:\n  firewall rule: added web\ncould be reloaded: "),
        "{checked:?}"
    );
    assert_eq!(gateway.rule_names(), ["out"]);
    gateway.0.signal(Signal::Reload);
    wait_for("the new rule", || gateway.rule_names() == ["out", "web"]);
    assert!(gateway.has_event("reloaded", "firewall rule: added web"));
    assert_ne!(gateway.status()["configuration"], before.as_str());
    let table = gateway.run(&["rules"]);
    assert!(text(&table.stdout).contains("\nweb             accept        0       0\n"), "{}", text(&table.stdout));
}

#[test]
fn a_file_that_cannot_be_put_in_force_changes_nothing_and_is_explained() {
    let Some(host) = Host::new("refusal") else { return };
    let gateway = Gateway::start(&host, SOUND);
    let cases: [(&str, &str, &str, &str); 3] = [
        (
            "action = \"accept\"",
            "action = \"allow\"",
            "mainstay.toml:19:10: firewall rule \"out\": \"allow\" is not known",
            "correct the file and reload it again",
        ),
        (
            "nodes = 2",
            "nodes = 3",
            "needs a restart:\n  node.nodes: 2 before, 3 now\nchanges:\n  firewall rule: added web",
            "restart the gateway",
        ),
        (
            "name = \"inside\"\ninterface = \"in0\"",
            "name = \"inside\"\ninterface = \"sync\"",
            "interface of port \"inside\": \"in0\" before, \"sync\" now",
            "restart the gateway",
        ),
    ];
    for (part, by, said, error) in cases {
        host.file(&format!("{}{WEB}", SOUND.replace(part, by)));
        let output = gateway.run(&["reload"]);
        assert!(!output.status.success());
        assert!(text(&output.stdout).contains(said), "{}", text(&output.stdout));
        assert!(text(&output.stderr).starts_with("nothing has changed: ") && text(&output.stderr).contains(error));
        assert_eq!(gateway.rule_names(), ["out"]);
    }
    assert!(gateway.has_event("reload_refused", "a restart is needed for node.nodes"));
    host.file(SOUND);
    assert!(gateway.run(&["reload"]).status.success(), "the next one is taken");
}

#[test]
fn a_node_that_nobody_could_relieve_is_drained_only_by_force() {
    let Some(host) = Host::new("drain") else { return };
    let gateway = Gateway::start(&host, SOUND);
    let refused = gateway.run(&["drain"]);
    assert!(!refused.status.success());
    assert_eq!(
        text(&refused.stderr),
        "refused: no peer could take over without losing connections: node 1 is down \
         (--force drains all the same)\n"
    );
    let drained = gateway.json(&["drain", "--force"]);
    assert_eq!((&drained["role"], &drained["active"]), (&"drained".into(), &serde_json::Value::Null));
    assert_eq!(gateway.status()["node"]["role"], "drained");
    let undrained = gateway.run(&["undrain"]);
    assert!(undrained.status.success(), "{}", text(&undrained.stderr));
    gateway.0.wait_for_role("active");
}
