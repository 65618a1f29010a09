//! `replication.transport`.

use replication::Transport;

use super::{broken, check, said};

fn with(lines: &str) -> String {
    broken("local = \"10.99.0.1:3781\"", &format!("local = \"10.99.0.1:3781\"\n{lines}"))
}

#[test]
fn the_native_protocol_is_the_default_and_others_are_warned_of() {
    let transport = |text: &str| {
        let checked = check(text).unwrap_or_else(|error| panic!("{error}"));
        (checked.config.cluster.expect("it has a peer").replication.transport, checked.warnings.len())
    };
    assert_eq!(transport(super::GOOD), (Transport::Native, 0));
    assert_eq!(transport(&with("transport = \"native\"\nhold_first_reply = \"250ms\"")), (Transport::Native, 0));
    assert_eq!(transport(&with("transport = \"udp\"")), (Transport::Udp, 1));
    assert_eq!(transport(&with("transport = \"tcp\"")), (Transport::Tcp, 1));
    assert!(said(&with("transport = \"tcp\"")).contains("for comparison: remove it in production"));
}

#[test]
fn what_a_transport_cannot_do_is_refused_with_what_to_do_instead() {
    let cases = [
        ("transport = \"sctp\"", "\"sctp\" is not known: write \"native\" or \"udp\" or \"tcp\""),
        ("transport = \"udp\"\nhold_first_reply = \"10ms\"", "remove hold_first_reply, or use the native transport"),
        ("transport = \"tcp\"\nhold_first_reply = \"10ms\"", "remove hold_first_reply, or use the native transport"),
        ("transport = \"tcp\"\ntest_loss = 0.2", "remove test_loss, and have the link lose packets"),
    ];
    for (lines, expected) in cases {
        let said = said(&with(lines));
        assert!(said.contains(expected), "{lines}: {said}");
    }
    let secured = with("transport = \"tcp\"").replace("mode = \"plain\"", "pre_shared_keys = [\"/a.key\"]");
    assert!(
        said(&secured).contains("use the native transport, or remove [replication.security]"),
        "{}",
        said(&secured)
    );
    let third = "[[replication.peer]]\nid = 2\naddress = \"10.99.0.2:3791\"\n[failure_detection]";
    let twice = with("transport = \"tcp\"").replace("[failure_detection]", third).replace("nodes = 2", "nodes = 3");
    assert!(said(&twice).contains("two peers have one IP address"), "{}", said(&twice));
    assert!(check(&twice.replace("transport = \"tcp\"", "transport = \"udp\"")).is_ok());
}
