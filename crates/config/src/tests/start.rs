//! `replication.start`.

use replication::representation::Start;

use super::{broken, check, said};

const LOCAL: &str = "local = \"10.99.0.1:3781\"";

fn with(keys: &str) -> String {
    broken(LOCAL, &format!("{LOCAL}\n{keys}"))
}

fn start(keys: &str) -> Start {
    let checked = check(&with(keys)).unwrap_or_else(|error| panic!("{error}"));
    checked.config.cluster.expect("it has a peer").replication.start
}

#[test]
fn connections_are_replicated_from_the_answer_of_their_handshake_on_unless_configured() {
    assert_eq!(start(""), Start::HandshakeReply);
    for (name, expected) in Start::ALL {
        assert_eq!(start(&format!("start = \"{name}\"")), expected);
    }
    assert!(said(&with("start = \"second-packet\"")).contains("replication.start"));
}

#[test]
fn what_needs_the_first_packet_refuses_a_later_start_and_has_the_first_without_one() {
    let held = said(&with("hold_first_reply = \"5ms\"\nstart = \"established\""));
    assert!(held.contains("hold_first_reply needs connections replicated from the first packet on"), "{held}");
    assert!(held.contains("remove start, or write start = \"first-packet\""), "{held}");
    assert_eq!(start("hold_first_reply = \"5ms\"\nstart = \"first-packet\""), Start::FirstPacket);
    assert_eq!(start("hold_first_reply = \"5ms\""), Start::HandshakeReply, "the node sees to it");
}

#[test]
fn nodes_of_several_groups_refuse_a_start_by_which_the_reply_finds_no_connection() {
    const GROUPS: &str = include_str!("../../../../examples/multi-primary-a.toml");
    assert!(GROUPS.contains("[replication]\n"));
    let text = GROUPS.replace("[replication]\n", "[replication]\nstart = \"handshake-reply\"\n");
    assert!(said(&text).contains("the first reply may come to a node of another group"), "{}", said(&text));
}
